"""Room on the disks of the daemon's directories."""

import asyncio
import os
import threading
from pathlib import Path

from tests.fakes.eventually import eventually
from tests.fakes.manual_clock import ManualClock
from tierd.app.daemon.disk_watch import INTERVAL_S, MAX_AGE_S, DiskWatch, disk_use
from tierd.telemetry import DiskUse

LOG_DIR, STATE_DIR = Path("/log"), Path("/state")


class Disks:
    """Disks that answer, fail or hang."""

    def __init__(self, uses: dict[Path, DiskUse | OSError]) -> None:
        self.uses = uses
        self.asked: list[Path] = []
        self.may_answer = {path: threading.Event() for path in uses}
        for event in self.may_answer.values():
            event.set()

    def use_of(self, path: Path) -> DiskUse:
        self.asked.append(path)
        assert self.may_answer[path].wait(30)
        use = self.uses[path]
        if isinstance(use, OSError):
            raise use
        return use


async def asleep(clock: ManualClock, tasks: int) -> None:
    await eventually(lambda: clock.sleeping == tasks, what=f"{tasks} directories to be measured")


async def test_each_directory_has_the_room_of_its_last_measurement() -> None:
    clock, disks = ManualClock(), Disks({LOG_DIR: DiskUse(3, 10), STATE_DIR: DiskUse(4, 20)})
    watch = DiskWatch((LOG_DIR, STATE_DIR, LOG_DIR), clock=clock, use_of=disks.use_of)
    running = asyncio.create_task(watch.run())
    await asleep(clock, 2)
    assert watch.uses() == {"/log": DiskUse(3, 10), "/state": DiskUse(4, 20)}

    disks.uses[LOG_DIR] = DiskUse(2, 10)
    clock.advance(INTERVAL_S)
    await eventually(lambda: len(disks.asked) == 4, what="the second round")
    await asleep(clock, 2)
    assert watch.uses() == {"/log": DiskUse(2, 10), "/state": DiskUse(4, 20)}
    running.cancel()


async def test_failed_disk_has_no_room_until_it_answers() -> None:
    clock, disks = ManualClock(), Disks({LOG_DIR: DiskUse(3, 10)})
    watch = DiskWatch((LOG_DIR,), clock=clock, use_of=disks.use_of)
    running = asyncio.create_task(watch.run())
    await asleep(clock, 1)

    disks.uses[LOG_DIR] = OSError(5, "Input/output error")
    clock.advance(INTERVAL_S)
    await eventually(lambda: not watch.uses(), what="the room to be unknown")
    await asleep(clock, 1)
    disks.uses[LOG_DIR] = DiskUse(9, 10)
    clock.advance(INTERVAL_S)
    await eventually(lambda: watch.uses() == {"/log": DiskUse(9, 10)}, what="the room to be known")
    running.cancel()


async def test_disk_that_hangs_is_asked_once_and_delays_no_other() -> None:
    clock, disks = ManualClock(), Disks({LOG_DIR: DiskUse(3, 10), STATE_DIR: DiskUse(4, 20)})
    watch = DiskWatch((LOG_DIR, STATE_DIR), clock=clock, use_of=disks.use_of)
    running = asyncio.create_task(watch.run())
    await asleep(clock, 2)
    disks.may_answer[LOG_DIR].clear()
    try:
        for round_ in range(2, 5):
            clock.advance(INTERVAL_S)
            await eventually(lambda: disks.asked.count(STATE_DIR) == round_, what="the state dir")  # noqa: B023
            await asleep(clock, 1)
        assert disks.asked.count(LOG_DIR) == 2
        assert 3 * INTERVAL_S > MAX_AGE_S
        assert watch.uses() == {"/state": DiskUse(4, 20)}
    finally:
        disks.may_answer[LOG_DIR].set()
    await eventually(lambda: "/log" in watch.uses(), what="the disk to answer")
    running.cancel()


def test_room_of_a_directory_that_is_not_there_yet_is_that_of_its_parent(tmp_path: Path) -> None:
    use = disk_use(tmp_path / "not" / "yet")

    assert use.size_bytes == os.statvfs(tmp_path).f_blocks * os.statvfs(tmp_path).f_frsize
    assert 0 < use.free_bytes <= use.size_bytes
