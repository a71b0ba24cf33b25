"""A week of a broker with thousands of partitions, most of them idle: nothing piles up."""

import asyncio
import gc
import os
import shutil
from pathlib import Path

from tests.fakes.eventually import eventually
from tests.fakes.log_dirs import LogDirWriter, PartitionWriter, make_batch
from tests.tiering.running import StandingClock
from tests.tiering.setups import Tier
from tierd.app.supervise import TaskSupervisor
from tierd.config import CopySettings, ExpireSettings
from tierd.tiering import TopicPolicy

PARTITIONS = 3_000
BUSY = 40  # partitions that roll a segment a day
DAYS = 7
DAY_S = 86_400.0
KEPT = 2  # segments of each busy partition that the tier keeps
BATCH = make_batch([b"x" * 100] * 4)


async def test_a_week_leaves_no_task_no_descriptor_and_no_memory_behind(tmp_path: Path) -> None:
    asyncio.get_running_loop().set_debug(False)  # which keeps a traceback for each of thousands of tasks
    log_dir = LogDirWriter(tmp_path / "kafka")
    busy = _make_partitions(log_dir)
    tier = Tier(tmp_path, [log_dir.path])
    clock = StandingClock()
    tier.clock = clock
    async with asyncio.TaskGroup() as group:
        supervisor = TaskSupervisor(group, clock=clock, random=lambda: 0.5)
        session = tier.session(
            supervisor=supervisor,
            settings=CopySettings(),
            expire=ExpireSettings(grace_s=0),
            policies=lambda _: TopicPolicy(retention_bytes=(KEPT + 1) * len(BATCH)),
        )
        running = asyncio.create_task(session.manager.run())
        await eventually(session.manager.first_reconcile_done.is_set, what="all of them to be found", deadline_s=120)
        await eventually(lambda: _idle(supervisor) == 2 * PARTITIONS + 1, what="a task of each kind", deadline_s=120)
        usage: list[tuple[int, int, int]] = []
        for day in range(1, DAYS + 1):
            for writer in busy:
                writer.append_batch(BATCH, 4)
                writer.roll()
            log_dir.write_checkpoints()
            clock.advance(DAY_S)
            await eventually(lambda: len(session.recorder.copied) == day * BUSY, what=f"day {day}", deadline_s=60)  # noqa: B023
            await eventually(lambda: not supervisor.running_passes, what="every pass to end", deadline_s=60)
            usage.append(_usage())
        assert session.recorder.failures == session.recorder.delete_failures == 0
        assert session.metadata.statistics().segments <= BUSY * (KEPT + 2), "the rest has expired"
        assert session.hold.statistics().segments == 0
        second, last = usage[1], usage[-1]
        assert last[0] <= second[0] + 10, f"asyncio tasks: {usage}"
        assert last[1] <= second[1] + 5, f"descriptors: {usage}"
        assert last[2] <= second[2] * 1.05, f"objects in memory: {usage}"
        running.cancel()
        await asyncio.wait([running])
        await supervisor.drain(0)
    shutil.rmtree(log_dir.path)


def _make_partitions(log_dir: LogDirWriter) -> list[PartitionWriter]:
    writers = [log_dir.add_partition("busy" if number < BUSY else "idle", number) for number in range(PARTITIONS)]
    log_dir.write_checkpoints()
    return writers[:BUSY]


def _idle(supervisor: TaskSupervisor) -> int:
    """Tasks that had their first pass and wait."""
    return len(supervisor.statistics()) - supervisor.running_passes


def _usage() -> tuple[int, int, int]:
    gc.collect()
    return len(asyncio.all_tasks()), len(os.listdir("/proc/self/fd")), len(gc.get_objects())  # noqa: PTH208
