"""Rewritten batches: kept fields, horizons, empty batches, legacy batches (log-format 9.6)."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from tests.log.batches import batch, forged, legacy, marker, transactional, wrapper
from tests.log.logs import NOW_MS
from tests.pipeline.rewriting.rounds import DAY_MS
from tierd.errors import InvalidRecordError
from tierd.log import (
    AbortedTransaction,
    Compression,
    NewRecord,
    OffsetIndex,
    Producer,
    ProducerStateEntry,
    RecordBatch,
    TimeIndex,
    build_indexes,
    encode_batch,
    iter_batches,
)
from tierd.log.records.log_config import TimestampType
from tierd.model import TimestampRange
from tierd.pipeline.rewriting import InputLog, OffsetSet, RewriteRules, RewrittenSegment, rewrite_group

CODECS = pytest.mark.parametrize("codec", Compression, ids=lambda codec: codec.name.lower())


def rewrite(
    data: bytes,
    tmp_path: Path,
    *,
    latest: list[int],
    now_ms: int = NOW_MS,
    aborted: tuple[AbortedTransaction, ...] = (),
    producers: Mapping[int, ProducerStateEntry] | None = None,
    round_end_offset: int = 1 << 40,
) -> RewrittenSegment:
    rules = RewriteRules(
        now_ms=now_ms,
        delete_retention_ms=DAY_MS,
        compacts=True,
        aborted=aborted,
        producers=producers or {},
        round_end_offset=round_end_offset,
    )
    return rewrite_group(
        [InputLog(name="a.log", start_offset=0, end_offset=(1 << 31) - 1, pieces=[data])],
        rules,
        OffsetSet.of(0, 1 << 31, np.array(latest, dtype=np.int64)),
        base_offset=0,
        output=tmp_path / "out.log",
        input_snapshot=b"",
        input_epochs=b"",
        open_producers=(),
    )


def batches_of(output: RewrittenSegment) -> list[RecordBatch]:
    return list(iter_batches(output.data.log.read_bytes(), name="out.log"))


def only_batch(output: RewrittenSegment) -> RecordBatch:
    (found,) = batches_of(output)
    return found


def rows(*keys: int, value: bytes | None = b"value") -> list[NewRecord]:
    return [NewRecord(b"%d" % key, value, NOW_MS + 10 * key, (("h", b"x"), ("h", None))) for key in keys]


def known_by(producer_id: int, last_offset: int, *, epoch: int = 3) -> dict[int, ProducerStateEntry]:
    return {producer_id: ProducerStateEntry(producer_id, epoch, 0, last_offset, 0, NOW_MS, 0, -1)}


@pytest.mark.spec("log-format CLN-34")
@CODECS
@pytest.mark.parametrize("stamped_by", TimestampType)
def test_batch_that_loses_records_keeps_its_other_fields(
    tmp_path: Path, codec: Compression, stamped_by: TimestampType
) -> None:
    before = encode_batch(
        rows(0, 1, 2, 3, 4),
        base_offset=100,
        compression=codec,
        timestamp_type=stamped_by,
        log_append_time_ms=NOW_MS + 99,
        producer=Producer(7, 3, 41),
        is_transactional=True,
        leader_epoch=5,
    )
    output = rewrite(before, tmp_path, latest=[101, 103])
    old, new = next(iter_batches(before, name="before")), only_batch(output)
    for name in ("base_offset", "last_offset", "partition_leader_epoch", "producer_id", "producer_epoch"):
        assert getattr(new, name) == getattr(old, name)
    assert (new.base_sequence, new.last_sequence, new.attributes) == (41, 45, old.attributes)
    assert list(new.records()) == [record for record in old.records() if record.offset in (101, 103)]
    is_appended = stamped_by is TimestampType.LOG_APPEND_TIME
    assert new.max_timestamp_ms == (NOW_MS + 99 if is_appended else NOW_MS + 30)
    assert (output.statistics.records_kept, output.statistics.batches_rewritten) == (2, 1)


@pytest.mark.spec("log-format CLN-34")
def test_output_larger_than_a_block_of_checksums_has_several_blocks(tmp_path: Path) -> None:
    value = bytes(range(256)) * 1500
    data = b"".join(encode_batch([NewRecord(b"%d" % n, value, NOW_MS + n)], base_offset=n) for n in range(8))
    output = rewrite(data, tmp_path, latest=list(range(8)))
    assert output.data.log.read_bytes() == data
    assert len(output.data.log_checksums.crc32c) == 3
    assert (output.data.offset_index, output.data.time_index) == build_indexes(output.data.log, base_offset=0)
    assert OffsetIndex.from_bytes(output.data.offset_index, 0, "index").lookup(5).offset == 5
    assert TimeIndex.from_bytes(output.data.time_index, 0, "index").lookup(NOW_MS + 5).offset == 5
    assert output.max_timestamp_ms == NOW_MS + 7
    blocks = [(NOW_MS, NOW_MS + 2), (NOW_MS + 2, NOW_MS + 5), (NOW_MS + 5, NOW_MS + 7)]
    assert output.data.chunk_timestamps == tuple(TimestampRange(*block) for block in blocks)


@pytest.mark.spec("log-format CLN-35")
def test_a_batch_whose_records_are_all_discarded_is_dropped_undecoded(tmp_path: Path) -> None:
    aborted = (AbortedTransaction(producer_id=7, first_offset=0, last_offset=1, last_stable_offset=2),)
    undecodable = forged(transactional(0, 7), count=99)
    output = rewrite(undecodable + marker(1, 7, commit=False), tmp_path, latest=[], aborted=aborted)
    assert [found.base_offset for found in batches_of(output)] == [1]
    assert output.statistics.records_aborted == 99


@pytest.mark.spec("log-format CLN-35")
def test_a_batch_that_becomes_empty_is_dropped(tmp_path: Path) -> None:
    output = rewrite(encode_batch(rows(1, 2)), tmp_path, latest=[])
    assert batches_of(output) == []
    assert (output.statistics.batches_removed, output.statistics.records_superseded) == (1, 2)


@pytest.mark.spec("log-format CLN-35")
@CODECS
def test_last_batch_of_a_producer_is_kept_as_an_empty_batch(tmp_path: Path, codec: Compression) -> None:
    before = encode_batch(
        rows(1, 2),
        base_offset=10,
        compression=codec,
        producer=Producer(7, 3, 0),
        leader_epoch=5,
        delete_horizon_ms=NOW_MS + 1,
    )
    found = only_batch(rewrite(before, tmp_path, latest=[], producers=known_by(7, 11)))
    assert (found.size_bytes, found.record_count, found.compression) == (61, 0, Compression.NONE)
    assert (found.base_offset, found.last_offset, found.last_sequence) == (10, 11, 1)
    assert (found.base_timestamp_ms, found.max_timestamp_ms) == (-1, NOW_MS + 20)
    assert (found.delete_horizon_ms, found.partition_leader_epoch) == (None, 5)


@pytest.mark.parametrize("now_ms", [NOW_MS, NOW_MS + 10 * DAY_MS])
def test_empty_batch_is_kept_while_its_producer_needs_it(tmp_path: Path, now_ms: int) -> None:
    empty = batch(10, [], producer_id=7, producer_epoch=3, base_sequence=0)
    needed = rewrite(empty, tmp_path, latest=[], now_ms=now_ms, producers=known_by(7, 10))
    assert needed.data.log.read_bytes() == empty
    later = rewrite(empty, tmp_path, latest=[], now_ms=now_ms, producers=known_by(7, 12))
    assert later.data.log.read_bytes() == b""


@pytest.mark.spec("log-format CLN-36")
@CODECS
def test_kept_tombstone_gets_a_delete_horizon(tmp_path: Path, codec: Compression) -> None:
    before = encode_batch([*rows(1), *rows(2, value=None), *rows(3)], compression=codec)
    new = only_batch(rewrite(before, tmp_path, latest=[0, 1, 2]))
    assert new.delete_horizon_ms == new.base_timestamp_ms == NOW_MS + DAY_MS
    old = next(iter_batches(before, name="before"))
    assert list(new.records()) == list(old.records())
    assert new.max_timestamp_ms == old.max_timestamp_ms


@pytest.mark.spec("log-format CLN-36")
def test_marker_without_data_gets_a_delete_horizon_and_one_with_data_does_not(tmp_path: Path) -> None:
    without = only_batch(rewrite(marker(5, 7, commit=True), tmp_path, latest=[]))
    assert without.delete_horizon_ms == NOW_MS + DAY_MS
    assert list(without.records()) == list(next(iter_batches(marker(5, 7, commit=True), name="m")).records())
    data = transactional(4, 7) + marker(5, 7, commit=True)
    assert rewrite(data, tmp_path, latest=[4]).data.log.read_bytes() == data


def test_a_marker_that_claims_a_billion_records_is_invalid_at_once(tmp_path: Path) -> None:
    with pytest.raises(InvalidRecordError, match=r"a\.log"):
        rewrite(forged(marker(5, 7, commit=True), count=1 << 30), tmp_path, latest=[])


def test_batch_with_a_delete_horizon_keeps_it(tmp_path: Path) -> None:
    before = encode_batch([*rows(1), *rows(2, value=None)], delete_horizon_ms=NOW_MS + 7)
    output = rewrite(before, tmp_path, latest=[1])
    new = only_batch(output)
    assert (new.delete_horizon_ms, new.record_count) == (NOW_MS + 7, 1)
    assert next(new.records()).timestamp_ms == NOW_MS + 20
    again = rewrite(output.data.log.read_bytes(), tmp_path, latest=[1], now_ms=NOW_MS + 6)
    assert bytes(only_batch(again).data) == bytes(new.data)
    assert batches_of(rewrite(bytes(new.data), tmp_path, latest=[1], now_ms=NOW_MS + 7)) == []


def test_batch_that_loses_no_record_is_copied_byte_for_byte(tmp_path: Path) -> None:
    data = encode_batch(rows(1, 2), compression=Compression.SNAPPY) + batch(2, [(NOW_MS, b"3", b"v")])
    output = rewrite(data, tmp_path, latest=[0, 1, 2])
    assert output.data.log.read_bytes() == data
    assert output.statistics.batches_copied == 2


def test_producer_known_only_by_its_marker_keeps_a_marker_of_its_epoch(tmp_path: Path) -> None:
    first = rewrite(marker(5, 7, commit=True), tmp_path, latest=[]).data.log.read_bytes()
    past_ms = NOW_MS + 2 * DAY_MS
    kept = rewrite(first, tmp_path, latest=[], now_ms=past_ms, producers=known_by(7, -1, epoch=0))
    assert only_batch(kept).size_bytes == 61
    assert batches_of(rewrite(first, tmp_path, latest=[], now_ms=past_ms, producers=known_by(7, -1, epoch=1))) == []
    assert batches_of(rewrite(first, tmp_path, latest=[], now_ms=past_ms)) == []


def test_timestamps_of_the_output_are_those_of_the_kept_records(tmp_path: Path) -> None:
    data = encode_batch(rows(1, 2, 3, 4)) + marker(4, 7, commit=True) + batch(5, [], producer_id=7, producer_epoch=3)
    output = rewrite(data, tmp_path, latest=[1, 2], producers=known_by(7, 5))
    assert output.data.chunk_timestamps == (TimestampRange(1000, NOW_MS + 30),)  # the marker is of time 1000
    without_records = rewrite(
        batch(5, [], producer_id=7, producer_epoch=3), tmp_path, latest=[], producers=known_by(7, 5)
    )
    assert without_records.data.chunk_timestamps == (None,)


# Legacy


@pytest.mark.parametrize("magic", [0, 1])
def test_kept_legacy_record_becomes_a_batch_of_one_record(tmp_path: Path, magic: int) -> None:
    data = legacy(magic, 4, b"1", b"old") + legacy(magic, 5, b"1", b"new") + legacy(magic, 6, b"2", None)
    new, tombstone = batches_of(rewrite(data, tmp_path, latest=[5, 6]))
    assert (new.magic, new.base_offset, new.last_offset, new.partition_leader_epoch) == (2, 5, 5, -1)
    (record,) = new.records()
    timestamp_ms = 1000 if magic else -1
    assert (record.key, record.value, record.timestamp_ms) == (b"1", b"new", timestamp_ms)
    assert (new.max_timestamp_ms, record.timestamp_type) == (timestamp_ms, "CreateTime")
    assert tombstone.delete_horizon_ms == NOW_MS + DAY_MS
    assert [(r.offset, r.value) for r in tombstone.records()] == [(6, None)]


@pytest.mark.parametrize("log_append_ms", [None, 7777])
@pytest.mark.parametrize("codec", [Compression.GZIP, Compression.SNAPPY, Compression.LZ4])
def test_compressed_legacy_entry_becomes_one_batch_of_its_kept_records(
    tmp_path: Path, codec: Compression, log_append_ms: int | None
) -> None:
    inner = b"".join(legacy(1, n, b"%d" % n, b"v%d" % n, timestamp_ms=1000 + n) for n in range(4))
    data = wrapper(1, 13, inner, codec=codec, log_append_ms=log_append_ms)
    new = only_batch(rewrite(data, tmp_path, latest=[11, 12]))
    assert (new.magic, new.base_offset, new.last_offset, new.compression) == (2, 11, 12, codec)
    stamps = [1001, 1002] if log_append_ms is None else [log_append_ms] * 2
    assert [(r.offset, r.value, r.timestamp_ms) for r in new.records()] == [
        (11, b"v1", stamps[0]),
        (12, b"v2", stamps[1]),
    ]
    assert new.max_timestamp_ms == stamps[1]
    assert new.timestamp_type == ("CreateTime" if log_append_ms is None else "LogAppendTime")


def test_a_legacy_entry_that_ends_the_round_is_kept_as_an_empty_batch(tmp_path: Path) -> None:
    inner = b"".join(legacy(1, n, b"%d" % n, b"v") for n in range(3))
    found = only_batch(rewrite(wrapper(1, 12, inner), tmp_path, latest=[], round_end_offset=13))
    assert (found.magic, found.base_offset, found.last_offset, found.size_bytes) == (2, 10, 12, 61)


@pytest.mark.spec("log-format LEG-09")
def test_entries_of_magic_0_inside_an_entry_of_magic_1_become_a_consistent_batch(tmp_path: Path) -> None:
    inner = b"".join(legacy(0, n, b"%d" % n, b"v") for n in range(3))
    new = only_batch(rewrite(wrapper(1, 12, inner), tmp_path, latest=[10, 11, 12]))
    assert (new.magic, new.base_offset, new.last_offset) == (2, 10, 12)
    assert [(record.offset, record.key, record.timestamp_ms) for record in new.records()] == [
        (10, b"0", -1),
        (11, b"1", -1),
        (12, b"2", -1),
    ]
