"""Scan of inputs of which one cannot be read to its end, on the first read or when Spark repeats the read."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast
from uuid import UUID

import pytest

from tests.pipeline.jobs.test_task_layout import work_of
from tierd.errors import RetriableRemoteStorageError
from tierd.log import NewRecord, encode_batch
from tierd.log.producers.producer_state import encode_producer_snapshot
from tierd.model import IndexType, RemoteLogSegmentMetadata
from tierd.pipeline.access import TierAccess
from tierd.pipeline.jobs.key_blocks import KeyBlock
from tierd.pipeline.jobs.outcomes import Changed, FailedGroup
from tierd.pipeline.jobs.run_context import RunContext
from tierd.pipeline.jobs.scanning import InputNote, OffsetBlock, join_bucket, scan_split
from tierd.pipeline.jobs.task_layout import BucketRange, GroupPlace, InputPlace, InputSplit
from tierd.pipeline.jobs.tasks import GroupTask, rewrite
from tierd.pipeline.planning import WorkOrder
from tierd.remote import SegmentManifest

GROUPS = [(0, 0), (1, 2), (3, 3)]
BUCKETS = 3
Rows = list[OffsetBlock | InputNote]


class ShakyTier:
    """Segments of ten records each, key 0 to 9, one batch each; some logs cannot be read behind their middle."""

    fetched_bytes = 0

    def __init__(self, torn: frozenset[int]) -> None:
        self._torn = torn

    def pieces(self, metadata: RemoteLogSegmentMetadata) -> Iterator[bytes]:
        for key in range(10):
            if key == 5 and metadata.start_offset in self._torn:
                raise RetriableRemoteStorageError("the store is busy")
            batch = encode_batch([NewRecord(b"%d" % key, b"value", 1)], base_offset=metadata.start_offset + key)
            yield bytes(batch)

    def manifest(self, metadata: RemoteLogSegmentMetadata) -> SegmentManifest:
        """Return a manifest that names no index, or fail as the store does."""
        return cast("SegmentManifest", SimpleNamespace(index=lambda _: None, record_count=10))

    def read_index(self, metadata: RemoteLogSegmentMetadata, index_type: IndexType) -> bytes:
        return encode_producer_snapshot(()) if index_type is IndexType.PRODUCER_SNAPSHOT else b""


@dataclass(frozen=True, slots=True)
class ShakyAccess:
    torn: frozenset[int] = frozenset()

    @contextmanager
    def open(self) -> Iterator[ShakyTier]:
        yield ShakyTier(self.torn)


def context(*torn: int) -> RunContext:
    work = replace(work_of(0, [1000] * 4, groups=GROUPS), producer_snapshot=encode_producer_snapshot(()))
    order = WorkOrder(run_id=UUID(int=1), now_ms=1, secret=bytes(16), partitions=(work,))
    access = cast("TierAccess", ShakyAccess(frozenset(torn)))
    return RunContext(access=access, order=order, buckets={0: BucketRange(0, BUCKETS)})


def group_rows(*, torn_in_buckets: frozenset[int]) -> dict[int, Rows]:
    """Return the rows of every group, with some buckets read while the segment at offset 20 was torn."""
    split = InputSplit(tuple(InputPlace(0, at) for at in range(4)), 4000)
    groups: dict[int, Rows] = {number: [] for number in range(len(GROUPS))}
    for bucket in range(BUCKETS):
        found = context(20) if bucket in torn_in_buckets else context()
        rows: list[tuple[int, KeyBlock | InputNote]] = [
            row for row in scan_split(found, split, ignored) if row[0] == bucket
        ]
        for number, row in join_bucket(found, {0: 0}, rows):
            groups[number].append(row)
    return groups


def ignored(_: int) -> None:
    """Take the fetched bytes of a task."""


def problems(rows: Rows) -> set[InputPlace]:
    return {row.place for row in rows if isinstance(row, InputNote) and row.problem}


@pytest.mark.parametrize("bucket", range(BUCKETS))
def test_group_gets_the_read_failure_of_its_input_from_any_bucket(bucket: int) -> None:
    rows = group_rows(torn_in_buckets=frozenset({bucket}))
    assert problems(rows[1]) == {InputPlace(0, 2)}
    assert not problems(rows[2])


def test_each_input_that_was_read_has_one_note() -> None:
    notes = [row for rows in group_rows(torn_in_buckets=frozenset()).values() for row in rows if _is_note(row)]
    assert [note.place.segment for note in notes if isinstance(note, InputNote)] == [0, 1, 2, 3]


@pytest.mark.parametrize("bucket", range(BUCKETS))
def test_group_is_kept_if_its_input_could_not_be_read_when_spark_repeated_the_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bucket: int
) -> None:
    """Spark repeats the read of a split whose result was lost: keys that are missing then are not superseded."""
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path))
    task = GroupTask(GroupPlace(0, 1), frozenset(), None)
    whole = group_rows(torn_in_buckets=frozenset())[1]
    torn = group_rows(torn_in_buckets=frozenset({bucket}))[1]
    assert rewrite(context(), task, whole, ignored) == Changed()
    outcome = rewrite(context(), task, torn, ignored)
    assert isinstance(outcome, FailedGroup)
    assert "the store is busy" in outcome.problem


def test_group_whose_rows_end_too_early_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker of PySpark takes the end of a broken pipe for the end of its rows, and may work on for a while."""
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path))
    rows = group_rows(torn_in_buckets=frozenset())[2]
    blocks = [row for row in rows if isinstance(row, OffsetBlock)]
    latest = sum(block.count for block in blocks)
    task = GroupTask(GroupPlace(0, 2), frozenset(), None, latest=latest)
    assert latest == 10
    assert not isinstance(rewrite(context(), task, rows, ignored), FailedGroup)
    for last in blocks:
        outcome = rewrite(context(), task, [row for row in rows if row is not last], ignored)
        assert outcome == FailedGroup(f"{latest - last.count} of {latest} latest records have arrived at the task")


def test_groups_whose_own_inputs_were_read_are_rewritten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path))
    rows = group_rows(torn_in_buckets=frozenset(range(BUCKETS)))
    outcomes = [rewrite(context(), GroupTask(GroupPlace(0, n), frozenset(), None), rows[n], ignored) for n in (0, 2)]
    assert not any(isinstance(outcome, FailedGroup) for outcome in outcomes)


def _is_note(row: OffsetBlock | InputNote) -> bool:
    return isinstance(row, InputNote)
