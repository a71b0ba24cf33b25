"""Batches of the tier as batches for another cluster: pure properties, and every golden log."""

import base64
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.golden.unpack import GoldenCase, golden_cases, read_lines, read_offsets
from tests.log.batches import batch, legacy, marker, plain, transactional, wrapper
from tierd.control import ProducerIdentity
from tierd.errors import InvalidRecordError
from tierd.log import (
    HAS_DELETE_HORIZON,
    IS_CONTROL,
    IS_LOG_APPEND_TIME,
    IS_TRANSACTIONAL,
    OVERHEAD_BYTES,
    AbortedTransaction,
    BatchBuilder,
    Compression,
    NewRecord,
    Record,
    RecordBatch,
    iter_batches,
    stamp_crc,
)
from tierd.log.indexes.transaction_index import read_transaction_index
from tierd.model import OffsetRange
from tierd.restore.live_cluster.batch_transform import AbortedRanges, BatchTransform, OffsetRun, OutgoingBatch

PRODUCER = ProducerIdentity(4711, 3)
ALL = OffsetRange(0, 1 << 40)
NONE_ABORTED = AbortedRanges()


def batches_of(data: bytes) -> list[RecordBatch]:
    return list(iter_batches(data, name="source"))


def transformed(
    data: bytes,
    *,
    wanted: OffsetRange = ALL,
    aborted: AbortedRanges = NONE_ABORTED,
    next_sequence: int = 0,
    max_batch_bytes: int = 1 << 20,
) -> list[OutgoingBatch]:
    transform = BatchTransform(PRODUCER, next_sequence=next_sequence, max_batch_bytes=max_batch_bytes)
    found = [out for each in batches_of(data) for out in transform.feed(each, aborted, wanted)]
    return [*found, *transform.flush()]


def sent(outgoing: OutgoingBatch) -> RecordBatch:
    """Return the batch as the leader gets it; its checksum is checked."""
    (only,) = iter_batches(outgoing.header + bytes(outgoing.payload), name="sent")
    return only


def content(record: Record) -> tuple[object, ...]:
    return record.timestamp_ms, record.key, record.value, record.headers


def assert_acceptable(found: Sequence[OutgoingBatch], *, next_sequence: int = 0) -> None:
    """Check what every leader demands of an idempotent producer's batches."""
    for each in found:
        batch = sent(each)
        assert (batch.producer_id, batch.producer_epoch) == PRODUCER
        assert batch.base_sequence == each.base_sequence == next_sequence
        assert (batch.base_offset, batch.partition_leader_epoch, batch.magic) == (0, -1, 2)
        forbidden = IS_LOG_APPEND_TIME | IS_TRANSACTIONAL | IS_CONTROL | HAS_DELETE_HORIZON
        assert not batch.attributes & forbidden
        records = list(batch.records())
        assert [record.offset for record in records] == list(range(len(records)))
        assert len(records) == each.record_count == batch.record_count == batch.last_offset + 1
        assert sum(run.length for run in each.runs) == each.record_count
        assert batch.max_timestamp_ms == each.max_timestamp_ms
        next_sequence = each.next_sequence


def source_offsets(found: Sequence[OutgoingBatch]) -> list[int]:
    return [run.start + index for each in found for run in each.runs for index in range(run.length)]


# ---------------------------------------------------------------- single batches


def test_whole_batch_keeps_the_bytes_of_its_records() -> None:
    data = batch(40, [(1000, b"k", b"v"), (1001, None, b"")], codec=Compression.ZSTD, epoch=7, headers=[("h", None)])

    (found,) = transformed(data)

    assert bytes(found.payload) == data[OVERHEAD_BYTES:]
    assert found.runs == (OffsetRun(40, 2),)
    assert (found.end_offset, found.ends_source_batch) == (42, True)
    assert_acceptable([found])


def test_transactional_batch_becomes_a_plain_one() -> None:
    data = transactional(10, 5, count=3)

    (found,) = transformed(data)

    assert bytes(found.payload) == data[OVERHEAD_BYTES:]
    assert_acceptable([found])


def test_markers_aborted_and_emptied_batches_are_dropped() -> None:
    data = b"".join(
        (
            transactional(0, 5, count=2),  # aborted
            transactional(2, 6, count=2),  # committed
            marker(4, 5, commit=False),
            transactional(5, 5, count=1),  # the next transaction of the producer, committed
            marker(6, 5, commit=True),
            marker(7, 6, commit=True),
            batch(8, []),
        )
    )
    aborted = AbortedRanges([AbortedTransaction(5, 0, 4, 2)])

    found = transformed(data, aborted=aborted)

    assert source_offsets(found) == [2, 3, 5]
    assert_acceptable(found)


def test_delete_horizon_is_cleared_and_timestamps_stay() -> None:
    builder = BatchBuilder(base_offset=0, delete_horizon_ms=5000)
    builder.append(NewRecord(b"k", None, 1000))
    builder.append(NewRecord(b"l", b"v", 1500))

    (found,) = transformed(builder.build())

    assert [record.timestamp_ms for record in sent(found).records()] == [1000, 1500]
    assert_acceptable([found])


def test_batch_with_gaps_is_encoded_with_consecutive_offsets() -> None:
    builder = BatchBuilder(base_offset=10, compression=Compression.LZ4)
    for offset in (11, 12, 20):
        builder.append(NewRecord(b"k%d" % offset, b"v", offset), offset=offset)

    (found,) = transformed(builder.build())

    assert found.runs == (OffsetRun(11, 2), OffsetRun(20, 1))
    assert sent(found).compression is Compression.LZ4
    assert_acceptable([found])


def test_timestamps_of_the_broker_become_those_of_the_records() -> None:
    (found,) = transformed(batch(0, [(1, b"a", b"b"), (2, b"c", b"d")], log_append_ms=9000))

    assert [record.timestamp_ms for record in sent(found).records()] == [9000, 9000]
    assert sent(found).base_timestamp_ms == 9000
    assert_acceptable([found])


def test_cut_takes_the_wanted_records_of_a_batch() -> None:
    data = plain(0, 10) + plain(10, 10)

    found = transformed(data, wanted=OffsetRange(7, 12))

    assert source_offsets(found) == [7, 8, 9, 10, 11, 12]
    assert [each.end_offset for each in found] == [10, 13]
    assert_acceptable(found)


def test_batch_that_is_too_large_is_sent_in_parts() -> None:
    data = plain(0, 9, size=100)

    found = transformed(data, max_batch_bytes=500)

    assert source_offsets(found) == list(range(9))
    assert all(each.size_bytes <= 500 for each in found)
    assert [each.ends_source_batch for each in found] == [False] * (len(found) - 1) + [True]
    assert_acceptable(found)


def test_single_record_may_be_larger_than_the_limit() -> None:
    (found,) = transformed(plain(0, 1, size=1000), max_batch_bytes=100)
    assert found.record_count == 1


@pytest.mark.parametrize("magic", [0, 1])
def test_legacy_records_are_upgraded_and_gathered(magic: int) -> None:
    data = b"".join(legacy(magic, offset, b"k", b"v%d" % offset) for offset in (3, 4, 9))

    (found,) = transformed(data)

    assert found.runs == (OffsetRun(3, 2), OffsetRun(9, 1))
    assert [record.timestamp_ms for record in sent(found).records()] == [1000 if magic else -1] * 3
    assert_acceptable([found])


def test_legacy_records_that_were_compressed_together_stay_together() -> None:
    inner = b"".join(legacy(1, index, b"k", b"v") for index in range(3))
    data = legacy(1, 0, b"a", b"b") + wrapper(1, 4, inner) + legacy(1, 5, b"c", b"d")

    found = transformed(data)

    assert [each.runs for each in found] == [(OffsetRun(0, 1),), (OffsetRun(2, 3),), (OffsetRun(5, 1),)]
    assert [sent(each).compression for each in found] == [Compression.NONE, Compression.GZIP, Compression.NONE]
    assert_acceptable(found)


def test_timestamp_that_no_producer_may_send_is_an_error() -> None:
    builder = BatchBuilder(base_offset=0)
    builder.append(NewRecord(b"k", b"v", 5))
    builder.append(NewRecord(b"k", b"v", 6), offset=4)
    data = bytearray(builder.build())
    data[27:35] = (-10).to_bytes(8, "big", signed=True)  # base timestamp
    stamp_crc(data)

    with pytest.raises(InvalidRecordError, match="timestamp"):
        transformed(bytes(data))


def test_sequence_numbers_wrap_after_the_largest() -> None:
    largest = (1 << 31) - 1

    found = transformed(plain(0, 3) + plain(3, 1), next_sequence=largest - 1)

    assert [each.base_sequence for each in found] == [largest - 1, 1]
    assert_acceptable(found, next_sequence=largest - 1)


# ---------------------------------------------------------------- properties

ROWS = st.lists(
    st.tuples(st.integers(0, 1 << 40), st.none() | st.binary(max_size=8), st.none() | st.binary(max_size=40)),
    min_size=1,
    max_size=6,
)


@st.composite
def logs(draw: st.DrawFn) -> tuple[bytes, AbortedRanges, list[Record]]:
    """Return the batches of a log, its aborted transactions, and its committed records."""
    data, aborted, committed, offset = b"", [], list[Record](), 0
    for _ in range(draw(st.integers(1, 6))):
        kind = draw(st.sampled_from(["plain", "stamped", "gaps", "committed", "aborted", "legacy"]))
        codec = draw(st.sampled_from(Compression))
        rows = draw(ROWS)
        if kind == "legacy":
            piece = b"".join(
                legacy(1, offset + index, key, value, timestamp_ms=time_ms)
                for index, (time_ms, key, value) in enumerate(rows)
            )
        elif kind == "gaps":
            builder = BatchBuilder(base_offset=offset, compression=codec)
            at = offset
            for time_ms, key, value in rows:
                at += draw(st.integers(0, 3))
                builder.append(NewRecord(key, value, time_ms), offset=at)
                at += 1
            piece = builder.build()
        else:
            is_transactional = kind in ("committed", "aborted")
            piece = batch(
                offset,
                rows,
                codec=codec,
                log_append_ms=7 if kind == "stamped" else None,
                producer_id=1 if is_transactional else -1,
                producer_epoch=0 if is_transactional else -1,
                base_sequence=0 if is_transactional else -1,
                transactional=is_transactional,
            )
        found = batches_of(piece)
        if kind != "aborted":
            committed += [record for each in found for record in each.records()]
        end = found[-1].last_offset + 1
        if kind == "aborted":
            aborted.append(AbortedTransaction(1, offset, end, end + 1))
        if kind in ("committed", "aborted"):
            piece += marker(end, 1, commit=kind == "committed")
            end += 1
        data, offset = data + piece, end + draw(st.integers(0, 2))
    return data, AbortedRanges(aborted), committed


@given(logs(), st.integers(0, 30), st.integers(0, 40), st.sampled_from([150, 1 << 20]))
def test_committed_records_of_the_wanted_offsets_are_sent_in_order(
    log: tuple[bytes, AbortedRanges, list[Record]], start: int, length: int, max_batch_bytes: int
) -> None:
    data, aborted, committed = log
    wanted = OffsetRange(start, start + length)

    found = transformed(data, wanted=wanted, aborted=aborted, max_batch_bytes=max_batch_bytes)

    expected = [record for record in committed if record.offset in wanted]
    assert_acceptable(found)
    assert source_offsets(found) == [record.offset for record in expected]
    assert [content(record) for each in found for record in sent(each).records()] == [content(r) for r in expected]


@given(logs(), st.sampled_from([150, 1 << 20]), st.data())
def test_transform_that_begins_behind_a_source_batch_gives_the_same_rest(
    log: tuple[bytes, AbortedRanges, list[Record]], max_batch_bytes: int, data: st.DataObject
) -> None:
    source, aborted, _ = log
    whole = transformed(source, aborted=aborted, max_batch_bytes=max_batch_bytes)
    ends = [index for index, each in enumerate(whole) if each.ends_source_batch]
    if not ends:
        return
    last = data.draw(st.sampled_from(ends))

    rest = transformed(
        source,
        wanted=OffsetRange(whole[last].end_offset, 1 << 40),
        aborted=aborted,
        next_sequence=whole[last].next_sequence,
        max_batch_bytes=max_batch_bytes,
    )

    assert rest == whole[last + 1 :]
    assert [bytes(each.payload) for each in rest] == [bytes(each.payload) for each in whole[last + 1 :]]


# ---------------------------------------------------------------- golden logs

CASES = [
    case
    for case in golden_cases("clean", "compact-pass1", "compact-pass2", "epochs", "old-format")
    if not case.partition.startswith("__")
]


def text(value: bytes | None) -> str | None:
    return None if value is None else base64.b64encode(value).decode()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_golden_log_is_sent_as_a_committed_consumer_reads_it(case: GoldenCase, golden: Path) -> None:
    directory = golden / case.logdirs[0] / case.partition
    committed = golden / case.oracle / "committed.jsonl.gz"
    oracle = read_lines(committed if committed.exists() else golden / case.oracle / "records.jsonl.gz")
    offsets = read_offsets(golden / case.oracle) if (golden / case.oracle / "offsets.json").exists() else {}
    end = offsets["lastStableOffset"] if committed.exists() else 1 << 40
    aborted = AbortedRanges(
        entry
        for path in sorted(directory.glob("*.txnindex"))
        for entry in read_transaction_index(path, base_offset=int(path.stem)).entries
    )
    data = b"".join(path.read_bytes() for path in sorted(directory.glob("*.log")))

    found = transformed(data, wanted=OffsetRange(offsets.get("logStartOffset", 0), end - 1), aborted=aborted)

    assert_acceptable(found)
    assert source_offsets(found) == [record["offset"] for record in oracle]
    records = [record for each in found for record in sent(each).records()]
    for record, wanted in zip(records, oracle, strict=True):
        got = (record.timestamp_ms, text(record.key), text(record.value), [[n, text(v)] for n, v in record.headers])
        assert got == (wanted["timestamp"], wanted["key"], wanted["value"], wanted.get("headers", []))
