"""Rounds without compaction: all records are kept except erased and expired ones."""

from pathlib import Path

import pytest

from tests.log.batches import legacy, wrapper
from tests.log.logs import NOW_MS
from tests.pipeline.rewriting.compacted_log import LATER_MS, CompactedLog
from tests.pipeline.rewriting.rounds import DAY_MS, Round
from tierd.errors import CorruptRecordError
from tierd.log import Compression, NewRecord, encode_batch
from tierd.pipeline.rewriting import find_keys

MERGE = Round(now_ms=LATER_MS, compacts=False)


@pytest.fixture
def log(tmp_path: Path) -> CompactedLog:
    return CompactedLog(tmp_path)


def contents(log: CompactedLog) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(log.directory.glob("[0-9]*.log")))


def test_a_merge_joins_segments_byte_for_byte(log: CompactedLog) -> None:
    log.write(1, 1)
    log.send([NewRecord(None, b"keyless", NOW_MS)])
    log.write(1, value=None)
    log.roll()
    log.in_transaction(5, 1, 2)
    log.abort(5)
    log.commit(6)
    log.roll()
    log.clean()  # leaves an empty batch and an ABORT marker
    log.write(3)
    log.roll()
    before, aborted = contents(log), log.aborted()
    stats = log.run(MERGE)
    assert contents(log) == before
    assert log.aborted() == aborted != []
    assert log.log.segment_count == 2  # the output, and the active one
    assert (stats.records_read - stats.records_kept, stats.batches_copied) == (0, stats.batches_read)


def test_index_entry_of_a_transaction_is_in_the_group_of_its_marker(log: CompactedLog) -> None:
    log.in_transaction(5, 1, 2)
    log.roll()
    log.abort(5)
    log.roll()
    before, aborted = contents(log), log.aborted()
    log.run(Round(now_ms=LATER_MS, compacts=False, group_bases=(0, 2)))
    assert contents(log) == before
    assert log.aborted() == aborted


def test_all_records_of_an_erased_key_are_removed_with_tombstones_and_aborted_records(log: CompactedLog) -> None:
    log.write(1, 2, 3)  # 0 to 2
    log.write(2, value=None)  # 3
    log.in_transaction(5, 2, 4)  # 4, 5
    log.abort(5)  # 6
    log.write(22)  # 7
    log.roll()
    stats = log.run(Round(now_ms=NOW_MS, compacts=False, erased_keys=frozenset({b"2", b"none"})))
    assert stats.records_erased == stats.records_read - stats.records_kept == 3
    assert log.offsets() == [0, 2, 5, 6, 7]
    assert all(b"\x022" not in bytes(batch.data)[61:] for batch in log.batches() if not batch.is_control)


def test_compaction_erases_and_expires_records(log: CompactedLog) -> None:
    log.send([NewRecord(b"old", b"v", NOW_MS - DAY_MS), NewRecord(b"gone", b"v", NOW_MS)])  # 0, 1
    log.send([NewRecord(b"stays", b"v", NOW_MS), NewRecord(b"timeless", b"v", -1)])  # 2, 3
    log.roll()
    stats = log.run(Round(now_ms=NOW_MS, expire_before_ms=NOW_MS, erased_keys=frozenset({b"gone"})))
    assert log.offsets() == [2, 3]
    assert (stats.records_expired, stats.records_erased) == (1, 1)


def test_expired_record_supersedes_older_records(log: CompactedLog) -> None:
    log.send([NewRecord(b"1", b"first", NOW_MS)])
    log.send([NewRecord(b"1", b"second", NOW_MS - DAY_MS)])
    log.roll()
    log.run(Round(now_ms=NOW_MS, expire_before_ms=NOW_MS))
    assert log.offsets() == []


def test_records_with_a_key_are_found_in_plain_and_aborted_batches(log: CompactedLog) -> None:
    log.write(1, 2, 3)  # 0 to 2
    log.in_transaction(5, 2, 4)  # 3, 4
    log.abort(5)  # 5
    log.send([NewRecord(None, b"2", NOW_MS), NewRecord(b"", b"2", NOW_MS), NewRecord(b"12", b"2", NOW_MS)])  # 6 to 8
    log.write(2, value=None)  # 9
    data = contents(log)
    pieces = [data[at : at + 50] for at in range(0, len(data), 50)]
    found = [offset for offsets in find_keys(pieces, [b"2", b""], name="a.log") for offset in offsets.tolist()]
    assert found == [1, 3, 7, 9]
    assert list(find_keys([data], [b"nobody"], name="a.log")) == []
    assert list(find_keys([data], [], name="a.log")) == []


@pytest.mark.parametrize("codec", [Compression.LZ4, Compression.ZSTD])
def test_records_with_a_key_are_found_in_compressed_and_legacy_batches(codec: Compression) -> None:
    inner = legacy(1, 0, b"a", b"v") + legacy(1, 1, b"b", b"v")
    data = wrapper(1, 5, inner) + legacy(0, 6, b"b", b"v") + encode_batch(
        [NewRecord(b"b", b"v"), NewRecord(b"c", b"v")], base_offset=7, compression=codec
    )  # fmt: skip
    assert [offsets.tolist() for offsets in find_keys([data], {b"b"}, name="a.log")] == [[5], [6], [7]]


def test_search_for_keys_in_a_damaged_log_names_the_log() -> None:
    with pytest.raises(CorruptRecordError, match=r"a\.log"):
        list(find_keys([encode_batch([NewRecord(b"b", b"v")])[:-1]], {b"b"}, name="a.log"))
