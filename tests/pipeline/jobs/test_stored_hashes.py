"""Key pass over segments with stored hashes of their keys: the same keys and notes, without a record that is read."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast
from uuid import UUID

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.pipeline.jobs.test_task_layout import work_of
from tests.pipeline.planning.tiers import remote
from tierd.errors import RemoteIntegrityError, RemoteResourceNotFoundError
from tierd.log import Compression, KeyHashes, NewRecord, Producer, encode_batch, key_secret_id
from tierd.log.producers.producer_state import ProducerStateEntry, encode_producer_snapshot
from tierd.model import IndexType, LogSegmentData, RemoteLogSegmentMetadata
from tierd.pipeline.access import TierAccess
from tierd.pipeline.jobs.run_context import RunContext
from tierd.pipeline.jobs.scanning import InputNote, scan_split
from tierd.pipeline.jobs.task_layout import BucketRange, InputPlace, InputSplit
from tierd.pipeline.planning import PartitionWork, WorkOrder
from tierd.pipeline.rewriting import InputLog, KeyHashing, OffsetSet, RewriteRules, rewrite_group
from tierd.remote import SegmentManifest

SECRET = bytes(range(16))
BASE, END = 1 << 41, (1 << 41) + 5000
SPLIT = InputSplit((InputPlace(0, 0),), 1)


@dataclass(slots=True)
class OneSegment:
    """Tier of one segment, which is its own access."""

    data: LogSegmentData
    hashes: bytes | None
    record_count: int = 10**6
    error: Exception | None = None
    lost: Exception | None = None
    read_records: bool = False
    fetched_bytes: int = 0

    @contextmanager
    def open(self) -> Iterator["OneSegment"]:
        yield self

    def manifest(self, _: RemoteLogSegmentMetadata) -> SegmentManifest:
        has = {IndexType.KEY_HASHES: self.hashes}
        return cast("SegmentManifest", SimpleNamespace(index=has.get, record_count=self.record_count))

    def require_whole_log(self, _: RemoteLogSegmentMetadata) -> None:
        if self.lost is not None:
            raise self.lost

    def read_index(self, _: RemoteLogSegmentMetadata, index_type: IndexType) -> bytes:
        assert index_type is IndexType.KEY_HASHES
        assert self.hashes is not None
        if self.error is not None:
            raise self.error
        return self.hashes

    def pieces(self, _: RemoteLogSegmentMetadata) -> Iterator[bytes]:
        self.read_records = True
        yield self.data.log.read_bytes()


def work() -> PartitionWork:
    made = work_of(0, [1000], groups=[(0, 0)])
    inputs = (remote(BASE, END),)
    return replace(
        made,
        partition=inputs[0].segment.topic_id_partition,
        inputs=inputs,
        round_end_offset=END + 1,
        first_dirty_offset=BASE,
        producer_snapshot=encode_producer_snapshot(()),
    )


def key_pass(tier: OneSegment, secret: bytes = SECRET) -> tuple[list[tuple[int, object]], InputNote]:
    """Return the blocks, and the note without a problem of the hashes beside it."""
    order = WorkOrder(run_id=UUID(int=1), now_ms=1, secret=secret, partitions=(work(),))
    context = RunContext(access=cast("TierAccess", tier), order=order, buckets={0: BucketRange(0, 3)})
    rows = list(scan_split(context, SPLIT, lambda _: None))
    (note,) = (row for _, row in rows if isinstance(row, InputNote))
    return [row for row in rows if not isinstance(row[1], InputNote)], note


def rules(*, compacts: bool, erased: frozenset[bytes], protected: dict[int, int]) -> RewriteRules:
    return RewriteRules(
        now_ms=10**6,
        delete_retention_ms=1000,
        compacts=compacts,
        aborted=(),
        producers={
            producer_id: ProducerStateEntry(producer_id, 0, 0, last, 0, 1, -1, -1)
            for producer_id, last in protected.items()
        },
        round_end_offset=END + 1,
        expire_before_ms=500,
        erased_keys=erased,
    )


KEY = st.one_of(st.none(), st.binary(max_size=3))
RECORD = st.tuples(KEY, st.one_of(st.none(), st.binary(max_size=40)), st.sampled_from([-1, 0, 499, 500, 10**6]))
BATCH = st.tuples(
    st.integers(0, 50), st.lists(RECORD, min_size=1, max_size=6), st.sampled_from(Compression), st.integers(-1, 1)
)


def written(
    path: Path, batches: list[tuple[int, list[tuple[bytes | None, bytes | None, int]], Compression, int]]
) -> tuple[list[tuple[bytes | None, int]], dict[int, int]]:
    """Write a log with gaps; return key and offset of each record, and the last offset of each producer."""
    at, rows, lasts = BASE + 1000, [], {}
    with path.open("wb") as file:
        for gap, records, codec, producer_id in batches:
            at += gap
            made = [NewRecord(key, value, time_ms) for key, value, time_ms in records]
            producer = Producer(producer_id, 0, 0) if producer_id >= 0 else Producer()
            file.write(encode_batch(made, base_offset=at, compression=codec, producer=producer))
            rows += [(key, at + n) for n, (key, _, _) in enumerate(records)]
            at += len(records)
            if producer_id >= 0:
                lasts[producer_id] = at - 1
    return rows, lasts


@settings(max_examples=150, deadline=None)
@given(
    st.lists(BATCH, max_size=12),
    st.booleans(),
    st.frozensets(st.binary(max_size=1), max_size=2),
    st.sampled_from([40, 1 << 20]),
)
def test_key_pass_finds_the_same_by_stored_hashes_and_by_the_records(
    batches: list[tuple[int, list[tuple[bytes | None, bytes | None, int]], Compression, int]],
    compacts: bool,
    erased: frozenset[bytes],
    piece_bytes: int,
) -> None:
    """Batches of any codec, with gaps, tombstones and null keys, copied, rewritten, emptied and removed."""
    with tempfile.TemporaryDirectory() as directory:
        source = Path(directory) / "input.log"
        rows, lasts = written(source, batches)
        content = source.read_bytes()
        latest = sorted({key: offset for key, offset in rows if key is not None}.values())
        output = rewrite_group(
            [
                InputLog(
                    name="input",
                    start_offset=BASE,
                    end_offset=END,
                    pieces=[content[n : n + piece_bytes] for n in range(0, len(content), piece_bytes)],
                )
            ],
            rules(compacts=compacts, erased=erased, protected=lasts),
            OffsetSet.of(BASE, END + 1, np.array(latest, dtype=np.int64)) if compacts else None,
            base_offset=BASE,
            output=Path(directory) / "output.log",
            input_snapshot=b"",
            input_epochs=b"",
            open_producers=(),
            hashing=KeyHashing(SECRET, base_offset=BASE, max_share=1e9),
        ).data
        if output.key_hashes is None:
            assert not output.log_checksums.size_bytes
            return
        by_hashes = OneSegment(output, output.key_hashes, record_count=output.record_count)
        by_records = OneSegment(output, None)
        assert key_pass(by_hashes) == key_pass(by_records)
        assert (by_hashes.read_records, by_records.read_records) == (False, True)


@pytest.fixture
def segment(tmp_path: Path) -> OneSegment:
    """Return a segment of which hashes and records differ, so that a test sees which were used."""
    log = tmp_path / "one.log"
    log.write_bytes(encode_batch([NewRecord(b"%d" % n, b"value", 1) for n in range(10)], base_offset=BASE))
    hi, lo = np.zeros((2, 1), dtype=np.int64)
    hashes = KeyHashes(key_secret_id(SECRET), BASE, hi, lo, np.array([3], dtype=np.uint32))
    return OneSegment(cast("LogSegmentData", SimpleNamespace(log=log)), hashes.to_bytes())


def test_usable_hashes_are_used(segment: OneSegment) -> None:
    _, note = key_pass(segment)
    assert (note.keyed, note.problem, note.hashes_problem, segment.read_records) == (1, None, None, False)


def test_hashes_under_another_secret_are_not_used(segment: OneSegment) -> None:
    _, note = key_pass(segment, secret=bytes(16))
    assert (note.keyed, note.hashes_problem, segment.read_records) == (10, None, True)


def test_hashes_of_a_later_version_are_not_used(segment: OneSegment) -> None:
    assert segment.hashes is not None
    segment.hashes = b"\x02" + segment.hashes[1:]
    _, note = key_pass(segment)
    assert (note.keyed, note.hashes_problem, segment.read_records) == (10, None, True)


def test_hashes_of_a_lost_log_are_not_used(segment: OneSegment) -> None:
    """Its keys would supersede older records, the only ones that can still be read."""
    segment.lost = RemoteResourceNotFoundError("there is no log")
    _, note = key_pass(segment)
    assert (note.hashes_problem, segment.read_records) == ("there is no log", True)


@pytest.mark.parametrize("what", ["cut", "another base", "unreadable", "too many"])
def test_wrong_hashes_are_noted_and_the_records_are_read(segment: OneSegment, what: str) -> None:
    assert segment.hashes is not None
    match what:
        case "cut":
            segment.hashes = segment.hashes[:-1]
        case "another base":
            segment.hashes = segment.hashes[:16] + (BASE + 1).to_bytes(8, "little") + segment.hashes[24:]
        case "unreadable":
            segment.error = RemoteIntegrityError("the key_hashes index is damaged")
        case _:
            segment.record_count = 0
    _, note = key_pass(segment)
    assert (note.keyed, note.problem, segment.read_records) == (10, None, True)
    assert note.hashes_problem is not None
    assert "key_hashes" in note.hashes_problem
