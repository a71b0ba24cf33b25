"""Requests of an operator, carried out by the tasks of the owner of the claim."""

import asyncio
import threading
from collections.abc import Collection
from contextlib import nullcontext
from pathlib import Path

import pytest

from tests.fakes.log_dirs import LogDirWriter, SegmentShape
from tests.tiering.removing.removals import remover_of, undeletion_of
from tests.tiering.removing.world import DELETING, FINISHED, Process, World
from tests.tiering.setups import Tier, partition_of
from tierd.errors import RefusedError, RemoteStorageError, UnknownPartitionError
from tierd.model import TopicPartition
from tierd.tiering.removing.expiring.expiration_task import ExpirationTask
from tierd.tiering.removing.removals import Removals
from tierd.tiering.topic_policy import TopicPolicy

NAME = TopicPartition("orders", 0)


class Desk:
    """Expired segment of one partition, and the removals over its task."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self.task: ExpirationTask = process.task()
        self.retried: list[str] = []
        self.is_copied = False
        self.removals = Removals(
            lambda: [self.task],
            undeletion=undeletion_of(process),
            remover=remover_of(process),
            deletion=process.deletion,
            being_copied=process.being_copied,
            retry=self._retry,
            is_copied=lambda _: self.is_copied,
        )

    def _retry(self, names: Collection[str]) -> None:
        self.retried.extend(names)


@pytest.fixture
async def desk(tmp_path: Path) -> Desk:
    world = World(tmp_path)
    world.grace_s = 3600.0
    process = world.process()
    await process.lead()
    await process.fill(1, age_ms=5000)
    world.policy = TopicPolicy(retention_ms=1000)
    return Desk(process)


async def test_plan_of_expiration_changes_no_row(desk: Desk) -> None:
    (outcome,) = await desk.removals.plan(None)
    assert [p.metadata.start_offset for p in outcome.plan.deletions] == [0]
    assert outcome.plan.new_log_start_offset == 100
    assert desk.process.starts(FINISHED) == [0]


async def test_expiration_without_a_supervisor_returns_its_plan(desk: Desk) -> None:
    (outcome,) = await desk.removals.expire_here([NAME])
    assert len(outcome.plan.deletions) == 1
    assert outcome.error is None
    assert desk.process.starts(DELETING) == [0]


async def test_failed_expiration_returns_its_error(desk: Desk) -> None:
    desk.process.world.grace_s = 0
    desk.task = desk.process.task()
    desk.process.storage.refuses = True
    (outcome,) = await desk.removals.expire_here(None)
    assert isinstance(outcome.error, RemoteStorageError)


async def test_supervised_expiration_is_awaited(desk: Desk) -> None:
    waiting = asyncio.create_task(desk.removals.expire_supervised([NAME]))
    await desk.task.wake.wait()
    assert not waiting.done()
    assert desk.retried == [desk.task.name]
    await desk.task.run_once()
    (outcome,) = await waiting
    assert len(outcome.plan.deletions) == 1


async def test_waiting_request_returns_when_its_task_is_closed(desk: Desk) -> None:
    waiting = asyncio.create_task(desk.removals.expire_supervised([NAME]))
    await desk.task.wake.wait()
    desk.task.close()
    await waiting


async def test_request_for_a_partition_that_is_not_led_here_is_refused_by_name(desk: Desk) -> None:
    with pytest.raises(UnknownPartitionError, match="payments-3"):
        await desk.removals.plan([TopicPartition("payments", 3)])


async def test_undelete_restores_segments_and_wakes_the_expiration_task(desk: Desk) -> None:
    await desk.task.run_once()
    with pytest.raises(RefusedError):
        await desk.removals.undelete(NAME, None, force=False, dry_run=False)
    desk.process.world.policy = TopicPolicy()
    (planned,) = await desk.removals.undelete(NAME, None, force=False, dry_run=True)
    assert planned.log_start_offset == 0
    assert desk.process.starts(DELETING) == [0]
    desk.task.wake.clear()
    await desk.removals.undelete(NAME, None, force=False, dry_run=False)
    assert desk.process.starts(FINISHED) == [0]
    assert desk.task.wake.is_set()


@pytest.mark.parametrize("dry_run", [True, False])
async def test_undelete_is_planned_outside_the_event_loop(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, dry_run: bool
) -> None:
    planned_in: list[threading.Thread] = []

    def plan(*_: object, **__: object) -> tuple[()]:
        planned_in.append(threading.current_thread())
        return ()

    monkeypatch.setattr("tierd.tiering.removing.undeletion.plan_undelete", plan)
    await desk.removals.undelete(NAME, None, force=False, dry_run=dry_run)
    assert threading.main_thread() not in planned_in
    assert len(planned_in) == 1


async def test_a_partition_is_marked_for_the_remover(desk: Desk) -> None:
    await desk.removals.delete_partition(desk.process.world.partition, at_once=True)
    assert desk.process.view.delete_state is not None


async def test_partition_that_is_still_copied_is_deleted_only_with_force(desk: Desk) -> None:
    desk.is_copied = True
    with pytest.raises(RefusedError, match="still copied"):
        await desk.removals.delete_partition(desk.process.world.partition, at_once=True)
    assert desk.process.view.delete_state is None
    await desk.removals.delete_partition(desk.process.world.partition, at_once=True, force=True)
    assert desk.process.view.delete_state is not None


@pytest.mark.parametrize(("copies", "is_refused"), [(True, True), (False, False)])
async def test_deletion_is_refused_if_the_settings_of_the_topic_enable_copies(
    tmp_path: Path, copies: bool, is_refused: bool
) -> None:
    writer = LogDirWriter(tmp_path / "kafka")
    partition = writer.add_partition("orders")
    partition.fill(rolled_segments=1, shape=SegmentShape())
    writer.write_checkpoints()
    tier = Tier(tmp_path, [writer.path])
    await tier.session().copy_once()
    session = tier.session(policies=lambda _: TopicPolicy(copy_enabled=copies))
    await session.manager.discover_once()
    with pytest.raises(RefusedError) if is_refused else nullcontext():
        await session.tiering.removals.delete_partition(partition_of(partition.path), at_once=False)


async def test_finished_copy_wakes_the_expiration_of_its_partition(tmp_path: Path) -> None:
    writer = LogDirWriter(tmp_path / "kafka")
    partition = writer.add_partition("orders")
    partition.fill(rolled_segments=2, shape=SegmentShape())
    writer.write_checkpoints()
    session = Tier(tmp_path, [writer.path]).session()
    await session.copy_once()
    (replica,) = session.tiering.replicas.all()
    assert replica.tasks.expire is not None
    assert replica.tasks.expire.wake.is_set()
    session.hold.close()
