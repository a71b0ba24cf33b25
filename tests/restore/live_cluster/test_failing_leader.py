"""Restores into a leader that fails at any request: every record is in the target once and in order, or it is told."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.restore.live_cluster.model_leader import NAME, Fault, ListedSource, ModelCluster, ModelLeader
from tierd.backoff import Backoff
from tierd.errors import RefusedError, TierError
from tierd.restore.live_cluster import leader_delivery
from tierd.restore.live_cluster.leader_delivery import LeaderDelivery
from tierd.restore.live_cluster.offset_map import MappedRange, read_offset_map
from tierd.restore.live_cluster.partition_restore import PartitionRestore, PartitionTransfer, RestoreParts
from tierd.restore.live_cluster.restore_progress import OFFSET_MAP_FILE, RestoreProgress
from tierd.tasks import end_tasks

DAY_MS = 86_400_000
PASSING = (Fault.REFUSED, Fault.TAKEN_AND_REFUSED, Fault.LOST_BEFORE, Fault.LOST_AFTER)


@contextmanager
def without_waits() -> Iterator[None]:
    """Let a delivery wait for nothing after a failure."""
    with patch.object(leader_delivery, "_BACKOFF", Backoff(base_s=1e-6, cap_s=1e-6)):
        yield


@dataclass
class Run:
    """Runs of one restore into a leader, each as a process of its own."""

    leader: ModelLeader
    directory: Path
    source: ListedSource = field(default_factory=lambda: ListedSource(12))

    async def run(self, *, killed_at: int | None = None) -> TierError | None:
        """Restore until the end, a failure, or a number of requests; return the failure."""
        target = ModelCluster(self.leader)
        delivery = LeaderDelivery(target)
        task = PartitionTransfer(
            name=NAME,
            target=NAME,
            topic_id=ModelLeader().topic_id,
            start_offset=0,
            end_offset=self.source.end_offset,
            max_batch_bytes=1 << 20,
        )
        with RestoreProgress.open(self.directory, {}, source_cluster="old", target_cluster="new") as progress:
            parts = RestoreParts(
                target=target,
                delivery=delivery,
                progress=progress,
                clock=target.clock,
                producer_expiration_ms=DAY_MS,
                on_acknowledged=lambda _records, _bytes: None,
            )
            delivering = asyncio.create_task(delivery.run())
            restoring = asyncio.create_task(PartitionRestore(task, self.source, parts).run())
            killed = asyncio.Event()
            self.leader.on_request = lambda number: killed.set() if number == killed_at else None
            killing = asyncio.create_task(killed.wait())
            try:
                async with asyncio.timeout(60):
                    await asyncio.wait([restoring, killing], return_when=asyncio.FIRST_COMPLETED)
            finally:
                await end_tasks([restoring, delivering, killing])
        failure = None if restoring.cancelled() else restoring.exception()
        assert failure is None or isinstance(failure, TierError)
        return failure

    def ranges(self) -> list[MappedRange]:
        """Return the offset map."""
        return read_offset_map(self.directory / OFFSET_MAP_FILE, target_cluster="new")[NAME].ranges


def restored(run: Run, *, killed_at: int | None = None) -> TierError | None:
    """Run a restore to its end, after one that is killed at a request."""

    async def both() -> TierError | None:
        if killed_at is not None:
            await run.run(killed_at=killed_at)
        return await run.run()

    with without_waits():
        return asyncio.run(both())


@given(
    st.lists(st.sampled_from([None, *PASSING]), max_size=20),
    st.booleans(),
    st.one_of(st.none(), st.integers(1, 12)),
)
def test_every_record_is_in_the_target_once_whatever_requests_fail(
    faults: list[Fault | None], forgets_at_loss: bool, killed_at: int | None
) -> None:
    leader = ModelLeader(faults, forgets_at_loss=forgets_at_loss)
    with TemporaryDirectory() as directory:
        run = Run(leader, Path(directory))

        assert restored(run, killed_at=killed_at) is None

        assert leader.values == run.source.values
        assert run.ranges() == [MappedRange(0, run.source.end_offset, 0)]


@given(st.lists(st.sampled_from([None, *Fault]), max_size=20), st.one_of(st.none(), st.integers(1, 12)))
def test_record_that_the_target_does_not_have_is_told(faults: list[Fault | None], killed_at: int | None) -> None:
    leader = ModelLeader(faults)
    with TemporaryDirectory() as directory:
        run = Run(leader, Path(directory))

        problem = restored(run, killed_at=killed_at)

        assert problem is not None or leader.values == run.source.values


@pytest.mark.parametrize("faults", [[Fault.REFUSED], [Fault.LOST_BEFORE]])
def test_second_batch_is_not_taken_without_the_first(tmp_path: Path, faults: list[Fault]) -> None:
    run = Run(ModelLeader(faults), tmp_path)

    assert restored(run) is None

    assert run.leader.values == run.source.values


def test_batch_whose_answer_is_lost_is_not_sent_again_to_a_leader_that_forgot_its_producer(tmp_path: Path) -> None:
    run = Run(ModelLeader([None, None, Fault.LOST_AFTER], forgets_at_loss=True), tmp_path)

    assert restored(run) is None

    assert run.leader.values == run.source.values


@pytest.mark.parametrize("at", range(12))
def test_topic_that_is_made_anew_meanwhile_is_not_called_restored(tmp_path: Path, at: int) -> None:
    run = Run(ModelLeader([*[None] * at, Fault.REPLACED]), tmp_path)

    problem = restored(run)

    assert isinstance(problem, TierError)
    assert "deleted" in str(problem) or "lost restored records" in str(problem)


def test_batches_that_a_leader_took_without_one_before_them_are_not_called_restored(tmp_path: Path) -> None:
    # It forgets the producer while five batches are in flight, and refuses one of them.
    faults = [None, Fault.REFUSED, Fault.FORGOTTEN]
    run = Run(ModelLeader(faults), tmp_path)

    problem = restored(run)

    assert isinstance(problem, RefusedError)
    assert "without the 2 before them" in str(problem)


def test_restore_that_is_done_is_not_called_restored_once_its_topic_was_made_anew(tmp_path: Path) -> None:
    run = Run(ModelLeader(), tmp_path)
    assert restored(run) is None
    run.leader.replace()

    assert isinstance(restored(run), RefusedError)
