import contextlib
import errno
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import cast
from uuid import UUID

import pytest

from tests.pipeline.jobs.test_task_layout import work_of
from tests.pipeline.planning.tiers import remote
from tierd.errors import BatchTooLargeError, CorruptRecordError
from tierd.model import LogSegmentData
from tierd.pipeline.access import TierAccess
from tierd.pipeline.jobs import tasks
from tierd.pipeline.jobs.outcomes import FailedGroup
from tierd.pipeline.jobs.run_context import RunContext
from tierd.pipeline.jobs.task_layout import GroupPlace
from tierd.pipeline.jobs.tasks import GroupTask
from tierd.pipeline.planning import WorkOrder
from tierd.pipeline.rewriting import RewriteStatistics, RewrittenSegment
from tierd.testing import checksums_of

TASK = GroupTask(GroupPlace(0, 0), frozenset(), None)


class NoTier:
    fetched_bytes = 77

    @contextlib.contextmanager
    def open(self) -> Iterator["NoTier"]:
        yield self


def ignored(_: int) -> None:
    """Take the fetched bytes of a task."""


@pytest.fixture
def context(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunContext:
    monkeypatch.setenv("SPARK_LOCAL_DIRS", f"{tmp_path},/nowhere")
    order = WorkOrder(run_id=UUID(int=1), now_ms=0, secret=bytes(16), partitions=(work_of(0, [1]),))
    return RunContext(access=cast("TierAccess", NoTier()), order=order, buckets={})


def failing(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def rewrite(*_: object) -> None:
        raise error

    monkeypatch.setattr(tasks, "_rewrite", rewrite)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_full_disk_fails_the_group_with_a_named_problem(
    number: int, context: RunContext, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing(monkeypatch, OSError(number, "no room"))
    found = tasks.rewrite(context, TASK, [], ignored)
    assert found == FailedGroup(f"no space is left for the output in {tmp_path}, Spark's local directory")
    assert list(tmp_path.iterdir()) == []


def test_damage_fails_the_group_with_segment_and_position(
    context: RunContext, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing(monkeypatch, CorruptRecordError("orders-0:abc", 4711, "wrong checksum of the batch"))
    found = tasks.rewrite(context, TASK, [], ignored)
    assert found == FailedGroup("orders-0:abc: wrong checksum of the batch at position 4711")
    assert list(tmp_path.iterdir()) == []


def test_bytes_that_a_failed_task_has_fetched_count(context: RunContext, monkeypatch: pytest.MonkeyPatch) -> None:
    failing(monkeypatch, CorruptRecordError("orders-0:abc", 4711, "wrong checksum of the batch"))
    fetched: list[int] = []
    assert isinstance(tasks.rewrite(context, TASK, [], fetched.append), FailedGroup)
    assert fetched == [77]


@pytest.mark.parametrize("erases", [False, True])
def test_unread_batch_fails_the_group_and_names_the_command_for_an_erasure(
    context: RunContext, monkeypatch: pytest.MonkeyPatch, *, erases: bool
) -> None:
    failing(monkeypatch, BatchTooLargeError("orders-0:abc", 0, "the batch of offsets 3 to 3 has more than 9 bytes"))
    keys = frozenset({b"alice"} if erases else ())
    work = replace(context.order.partitions[0], erased_keys=keys)
    found = tasks.rewrite(replace(context, order=replace(context.order, partitions=(work,))), TASK, [], ignored)
    assert isinstance(found, FailedGroup)
    assert found.problem.startswith("orders-0:abc: the batch of offsets 3 to 3 has more than 9 bytes at position 0")
    assert ("tierd erase request --remove-unread" in found.problem) == erases


@pytest.mark.parametrize(("newest_ms", "expected_ms"), [(-1, 700), (0, 0), (650, 650)])
def test_an_output_without_timestamps_is_as_old_as_its_inputs_for_retention(
    newest_ms: int, expected_ms: int, tmp_path: Path
) -> None:
    """By its time index alone the output would be of 1969, and time retention would delete live records."""
    begun = remote(0, 9, newest_ms=700)
    data = LogSegmentData(
        log=tmp_path / "output.log",
        log_checksums=checksums_of(b"12345"),
        batch_count=1,
        record_count=1,
        offset_index=b"",
        time_index=b"",
        transaction_index=None,
        producer_snapshot=b"",
        leader_epoch_index=b"",
    )
    segment = RewrittenSegment(
        data=data, max_timestamp_ms=newest_ms, txn_index_empty=True, statistics=RewriteStatistics()
    )
    found = tasks.finished(begun, segment)
    assert (found.max_timestamp_ms, found.size_bytes) == (expected_ms, 5)
