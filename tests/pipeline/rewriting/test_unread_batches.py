"""Batches that unpack to more than tierd opens: cleaning keeps them, loses no record, revives no deleted record."""

import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.fakes.opening_limit import opening_at_most
from tests.log.batches import legacy, wrapper
from tests.log.logs import NOW_MS
from tests.pipeline.rewriting.compacted_log import CompactedLog
from tests.pipeline.rewriting.rounds import DAY_MS, SECRET, Round
from tierd.errors import BatchTooLargeError
from tierd.kernels import STEP_RECORDS
from tierd.log import Compression, NewRecord, Producer, encode_batch, iter_batches
from tierd.log.records.compression import MAX_DECOMPRESSED_BYTES
from tierd.pipeline.rewriting import (
    InputLog,
    OffsetSet,
    RewriteRules,
    RewrittenSegment,
    UnreadBatches,
    find_keys,
    record_rows,
    rewrite_group,
    scan_keys,
)

LIMIT_BYTES = 64 << 10
ALL = Round(now_ms=NOW_MS)
MERGE = Round(now_ms=NOW_MS, compacts=False)
Write = tuple[int, bytes | None]


@pytest.fixture(scope="module", autouse=True)
def _small_limit() -> Iterator[None]:
    with opening_at_most(LIMIT_BYTES):
        yield


@pytest.fixture
def log(tmp_path: Path) -> CompactedLog:
    return CompactedLog(tmp_path)


def write_large(
    log: CompactedLog,
    *writes: Write,
    timestamp_ms: int = NOW_MS,
    producer: Producer = Producer(),  # noqa: B008 frozen
) -> None:
    """Append a small batch that unpacks to more than the limit."""
    records = [NewRecord(b"%d" % key, value, timestamp_ms) for key, value in writes]
    records.append(NewRecord(b"filler", bytes(LIMIT_BYTES), timestamp_ms))
    batch = encode_batch(records, compression=Compression.ZSTD, producer=producer)
    assert len(batch) < LIMIT_BYTES // 20
    log.append(batch)


def records_of(log: CompactedLog) -> list[tuple[int, bytes, bytes | None]]:
    """Return offset, key and value of each record, by a reader that opens every batch."""
    batches = (batch for batch in log.batches() if not batch.is_control)
    found = (record for batch in batches for record in batch.records(max_bytes=MAX_DECOMPRESSED_BYTES))
    return [(record.offset, record.key or b"", record.value) for record in found]


def state_of(log: CompactedLog) -> dict[bytes, bytes]:
    """Return the value of each key, for a reader of the whole log."""
    state: dict[bytes, bytes] = {}
    for _, key, value in records_of(log):
        if value is None:
            state.pop(key, None)
        else:
            state[key] = value
    return state


def unread_bytes(log: CompactedLog) -> list[bytes]:
    return [bytes(batch.data) for batch in log.batches() if batch.compression is Compression.ZSTD]


def test_unread_batch_is_kept_byte_for_byte_and_counted(log: CompactedLog) -> None:
    log.write(1, 2)
    write_large(log, (1, b"new"), (2, None))
    log.write(3, 3)
    log.roll()
    before, state = unread_bytes(log), state_of(log)
    counted = log.clean()
    assert unread_bytes(log) == before
    assert state_of(log) == state
    assert (counted.batches_unread, counted.batches_copied, counted.records_superseded) == (1, 2, 1)


def test_records_superseded_only_by_an_unread_batch_are_kept(log: CompactedLog) -> None:
    log.write(1, value=b"old")
    write_large(log, (1, b"new"))
    log.roll()
    log.clean()
    assert [(key, value) for _, key, value in records_of(log) if key == b"1"] == [(b"1", b"old"), (b"1", b"new")]


def test_tombstone_behind_an_unread_batch_is_kept_and_one_before_it_is_removed(log: CompactedLog) -> None:
    log.write(7, value=None)  # before the unread batch: the hidden records are older
    write_large(log, (1, b"old"))
    log.write(1, value=None)
    log.write(5)
    log.roll()
    for day in range(4):  # the first sets delete horizons, and all of them pass
        log.clean(NOW_MS + 2 * day * DAY_MS)
        assert b"1" not in state_of(log)
    assert [key for _, key, value in records_of(log) if value is None] == [b"1"]


def test_tombstone_behind_an_unread_batch_of_an_earlier_group_is_kept(log: CompactedLog) -> None:
    write_large(log, (1, b"old"))
    log.roll()
    log.write(1, value=None)
    log.write(2)
    log.roll()
    for day in range(4):
        log.clean(NOW_MS + 2 * day * DAY_MS, is_grouped=False)
        assert b"1" not in state_of(log)


def test_record_before_an_unread_batch_expires_and_one_behind_it_does_not(log: CompactedLog) -> None:
    old_ms = NOW_MS - 9 * DAY_MS
    log.send([NewRecord(b"2", b"gone", old_ms)])
    write_large(log, (1, b"old"), timestamp_ms=NOW_MS)  # younger by its clock, and older by its offset
    log.send([NewRecord(b"1", b"new", old_ms)])
    log.roll()
    counted = log.run(replace(ALL, expire_before_ms=NOW_MS - DAY_MS))
    assert counted.records_expired == 1
    assert state_of(log) == {b"1": b"new", b"filler": bytes(LIMIT_BYTES)}


def test_aborted_batch_is_removed_without_opening(log: CompactedLog) -> None:
    records = [NewRecord(b"1", bytes(LIMIT_BYTES + 1), NOW_MS)]
    producer = Producer(5, 0, 0)
    log.append(encode_batch(records, compression=Compression.ZSTD, producer=producer, is_transactional=True))
    log.abort(5)
    log.write(2)
    log.roll()
    counted = log.clean()
    assert (counted.batches_unread, counted.records_aborted) == (0, 1)
    assert [key for _, key, _ in records_of(log)] == [b"2"]


def test_merge_keeps_an_unread_batch(log: CompactedLog) -> None:
    log.write(1)
    write_large(log, (1, b"new"))
    log.roll()
    before = records_of(log)
    counted = log.run(MERGE)
    assert records_of(log) == before
    assert (counted.batches_unread, counted.batches_copied, counted.records_read - counted.records_kept) == (1, 2, 0)


def large_log() -> bytes:
    return bytes(encode_batch([NewRecord(b"k", bytes(LIMIT_BYTES + 1), 5)], compression=Compression.ZSTD))


def rules(**changes: object) -> RewriteRules:
    plain = RewriteRules(
        now_ms=NOW_MS, delete_retention_ms=DAY_MS, compacts=True, aborted=(), producers={}, round_end_offset=100
    )
    return replace(plain, **changes)  # type: ignore[arg-type]


def rewritten(data: bytes, folder: Path, wanted: RewriteRules) -> RewrittenSegment:
    return rewrite_group(
        [InputLog(name="a.log", start_offset=0, end_offset=0, pieces=[data])],
        wanted,
        OffsetSet.of(0, 1, np.empty(0, dtype=np.int64)),
        base_offset=0,
        output=folder / "out.log",
        input_snapshot=b"",
        input_epochs=b"",
        open_producers=(),
    )


@pytest.mark.parametrize("changes", [{}, {"unread_from": 1}, {"unread_from": 0, "erased_keys": frozenset({b"k"})}])
def test_group_with_an_unread_batch_that_the_rules_do_not_cover_fails(
    tmp_path: Path, changes: dict[str, object]
) -> None:
    """The job has no note of the batch: other records were judged without it, or it may have a key to be erased."""
    with pytest.raises(BatchTooLargeError, match=f"offsets 0 to 0 has more than {LIMIT_BYTES} bytes"):
        rewritten(large_log(), tmp_path, rules(**changes))
    assert not (tmp_path / "out.log").exists()


def test_times_of_a_chunk_with_an_unread_batch_are_not_known(tmp_path: Path) -> None:
    output = rewritten(large_log(), tmp_path, rules(unread_from=0))
    assert output.data.chunk_timestamps == (None,)
    assert (output.max_timestamp_ms, output.data.record_count) == (5, 1)


def test_scan_without_notes_fails_at_an_unread_batch() -> None:
    data = large_log()
    with pytest.raises(BatchTooLargeError, match="at position 0"):
        list(scan_keys([data], rules(), name="a.log", secret=SECRET))
    with pytest.raises(BatchTooLargeError):
        list(find_keys([data], [b"k"], name="a.log"))


def test_search_for_keys_notes_unread_batches_and_continues() -> None:
    data = large_log() + encode_batch([NewRecord(b"k", b"", 5), NewRecord(b"l", b"", 5)], base_offset=1) + large_log()
    unread = UnreadBatches()
    found = list(find_keys([data], [b"k"], name="a.log", unread=unread))
    assert [offsets.tolist() for offsets in found] == [[1]]
    assert (unread.count, unread.first_offset) == (2, 0)


def test_unread_legacy_wrapper_is_kept_unchanged(tmp_path: Path) -> None:
    data = wrapper(1, 0, legacy(1, 0, b"k", bytes(LIMIT_BYTES)))
    output = rewritten(data, tmp_path, rules(unread_from=0))
    assert output.data.log.read_bytes() == data
    assert (output.statistics.batches_unread, output.data.record_count) == (1, 1)


def test_erasure_with_remove_unread_removes_whole_unread_batches_and_keeps_other_records(log: CompactedLog) -> None:
    log.write(1, 2)
    write_large(log, (1, b"new"), (3, b"lost with it"))
    log.write(1, 4)
    log.roll()
    with pytest.raises(BatchTooLargeError):
        log.run(replace(MERGE, erased_keys=frozenset({b"1"})))
    log.log = CompactedLog(log.directory.parent).log
    counted = log.run(replace(MERGE, erased_keys=frozenset({b"1"}), removes_unread=True))
    assert [key for _, key, _ in records_of(log)] == [b"2", b"4"]
    assert (counted.batches_unread, counted.records_erased) == (1, 2 + 3)


def test_header_of_a_removed_batch_is_kept_for_the_state_of_its_producer(log: CompactedLog) -> None:
    write_large(log, (1, b"x"), producer=Producer(5, 0, 0))
    log.write(2)
    log.roll()
    log.run(replace(MERGE, erased_keys=frozenset({b"1"}), removes_unread=True))
    first = log.batches()[0]
    assert (first.producer_id, first.last_sequence, first.record_count) == (5, 1, 0)


def test_real_limit_holds_for_eight_kilobytes_that_unpack_to_257_mib(tmp_path: Path) -> None:
    """This test reproduces the defect: the value of one record, and the real limit."""
    with opening_at_most(MAX_DECOMPRESSED_BYTES):
        data = bytes(encode_batch([NewRecord(b"k", bytes(257 << 20), 5)], compression=Compression.ZSTD))
        assert len(data) < 12 << 10
        unread = UnreadBatches()
        assert not list(scan_keys([data], rules(), name="a.log", secret=SECRET, unread=unread))
        output = rewritten(data, tmp_path, rules(unread_from=unread.first_offset))
    assert output.data.log.read_bytes() == data
    assert next(iter_batches(data, name="a.log")).is_valid


# Any log

keys = st.integers(0, 2)
values = st.sampled_from([None, b"1", b"2"])
writes = st.tuples(keys, values)
steps = st.one_of(
    st.tuples(st.just("write"), writes),
    st.tuples(st.just("large"), st.lists(writes, min_size=1, max_size=2)),
    st.tuples(st.just("roll"), st.none()),
    st.tuples(st.just("large"), st.lists(writes, min_size=1, max_size=2)),
    st.tuples(st.just("clean"), st.booleans()),
)


TO_THE_END = (("roll", None), ("clean", True), ("clean", True), ("clean", True))


@settings(max_examples=60, deadline=None)
@example(story=[("large", [(1, b"1")]), ("write", (1, None))])
@example(story=[("large", [(1, b"1")]), ("roll", None), ("write", (1, None)), ("clean", False), ("write", (2, b"1"))])
@given(story=st.lists(steps, min_size=5, max_size=25))
def test_cleaning_does_not_change_the_state_that_a_reader_of_the_whole_log_builds(story: list[tuple[str, Any]]) -> None:
    """Each cleaning is two days after the one before, so that all earlier delete horizons are past."""
    with tempfile.TemporaryDirectory() as folder:
        log, now_ms = CompactedLog(Path(folder)), NOW_MS
        for what, detail in [*story, *TO_THE_END]:
            if what == "write":
                log.write(detail[0], value=detail[1])
            elif what == "large":
                write_large(log, *detail)
            elif what == "roll":
                log.roll()
            elif log.log.segment_count > 1:
                now_ms += 2 * DAY_MS
                state, unread = state_of(log), unread_bytes(log)
                log.clean(now_ms, is_grouped=bool(detail))
                assert state_of(log) == state
                assert unread_bytes(log) == unread
        log.log.close()


@pytest.mark.parametrize("compression", [Compression.NONE, Compression.LZ4])
def test_batch_with_too_many_records_is_kept_byte_for_byte_and_supersedes_no_record(
    log: CompactedLog, compression: Compression, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(record_rows, "MAX_OPENED_RECORDS", STEP_RECORDS)
    log.write(1, value=b"first")
    with opening_at_most(MAX_DECOMPRESSED_BYTES):
        log.append(encode_batch([NewRecord(b"1", b"", NOW_MS)] * (STEP_RECORDS + 1), compression=compression))
        log.write(1, value=b"last")
        log.roll()
        before = bytes(log.batches()[1].data)
        with pytest.raises(BatchTooLargeError, match=f"{STEP_RECORDS + 1} records"):
            record_rows.open_batch(log.batches()[1])
        counted = log.clean()
        assert counted.batches_unread == 1
        assert [bytes(batch.data) == before for batch in log.batches()] == [True, False]
        assert state_of(log) == {b"1": b"last"}
