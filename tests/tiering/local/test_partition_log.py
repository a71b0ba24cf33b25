"""PartitionLog by itself: how many of them hold their segments at once."""

import asyncio
import threading
from collections.abc import Sequence
from pathlib import Path

from tests.fakes.log_dirs import LogDirWriter, SegmentShape, write_log_dir
from tierd.log import PartitionScan, list_log_dir, scan_partition
from tierd.model import OffsetRange
from tierd.tiering import SegmentHold
from tierd.tiering.local.held_segment import HeldSegment
from tierd.tiering.local.partition_log import PartitionLog


class HangingHold(SegmentHold):
    """Hold that waits in one log dir until it is released, and counts the threads that wait."""

    def __init__(self, hold_dir: Path, *, hanging: Path) -> None:
        super().__init__(mode="link", hold_dir=hold_dir, max_bytes=None)
        self.released = threading.Event()
        self.waiting = threading.Semaphore(0)
        self.entered = 0
        self._hanging = hanging

    def protect(
        self, scan: PartitionScan, *, copied_through: int, holes: Sequence[OffsetRange] = (), share: float = 1.0
    ) -> tuple[HeldSegment, ...]:
        if scan.directory.path.parent == self._hanging:
            self.entered += 1
            self.waiting.release()
            assert self.released.wait(30)
        return super().protect(scan, copied_through=copied_through, holes=holes, share=share)


def _logs(log_dir: LogDirWriter, hold: SegmentHold) -> list[PartitionLog]:
    return [PartitionLog(scan_partition(each), hold) for each in list_log_dir(log_dir.path).partitions]


async def test_log_dir_that_hangs_uses_four_threads_and_delays_no_hold_of_another_log_dir(tmp_path: Path) -> None:
    shape = SegmentShape()
    hanging = write_log_dir(tmp_path / "a", partitions=8, rolled_segments=1, shape=shape)
    healthy = write_log_dir(tmp_path / "b", partitions=8, rolled_segments=1, shape=shape)
    hold = HangingHold(tmp_path / "hold", hanging=hanging.path)
    stuck = [asyncio.create_task(log.protect(copied_through=-1)) for log in _logs(hanging, hold)]
    for _ in range(4):
        assert await asyncio.to_thread(hold.waiting.acquire, timeout=30)

    held = await asyncio.gather(*(log.protect(copied_through=-1) for log in _logs(healthy, hold)))

    assert [len(segments) for segments in held] == [1] * 8
    assert hold.entered == 4
    hold.released.set()
    assert [len(segments) for segments in await asyncio.gather(*stuck)] == [1] * 8


async def test_cancelled_hold_gives_its_turn_to_the_next_partition(tmp_path: Path) -> None:
    log_dir = write_log_dir(tmp_path / "a", partitions=5, rolled_segments=1, shape=SegmentShape())
    hold = HangingHold(tmp_path / "hold", hanging=log_dir.path)
    first, *others = [asyncio.create_task(log.protect(copied_through=-1)) for log in _logs(log_dir, hold)]
    for _ in range(4):
        assert await asyncio.to_thread(hold.waiting.acquire, timeout=30)
    first.cancel()
    assert await asyncio.to_thread(hold.waiting.acquire, timeout=30), "the fifth partition has the turn"
    hold.released.set()
    assert [len(segments) for segments in await asyncio.gather(*others)] == [1] * 4
    assert first.cancelled()
