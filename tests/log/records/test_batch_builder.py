"""The batch builder, compared with the bytes of Kafka and with the records that the reader returns."""

from collections.abc import Callable
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.log.records.test_record_batch import A1, A2, A3, A4, A5, A6, A7, one
from tierd.errors import InvalidRecordError
from tierd.kernels import crc32c
from tierd.log import Compression, ControlRecordType, Record
from tierd.log.records.batch_builder import (
    BatchBuilder,
    BatchOptions,
    NewRecord,
    Producer,
    encode_batch,
    encode_empty_batch,
    encode_end_marker,
    record_size_bytes,
)
from tierd.log.records.log_config import TimestampType
from tierd.log.records.record import parse_control_type, parse_end_marker

MAX_INT, MAX_LONG = 2**31 - 1, 2**63 - 1
LOG_APPEND = TimestampType.LOG_APPEND_TIME
CODECS = list(Compression)
KV = NewRecord(b"k", b"v", 1000)
ABORT, COMMIT = ControlRecordType.ABORT, ControlRecordType.COMMIT

of_every_codec = pytest.mark.parametrize("codec", CODECS)


@pytest.mark.spec("log-format REC-50")
@pytest.mark.parametrize(
    ("encoded", "golden"),
    [
        (encode_batch([KV]), A1),
        (
            encode_batch(
                [
                    NewRecord(None, b"a", 1000, (("h", b"x"), ("n", None))),
                    NewRecord(b"b", None, 1001),
                ],
                base_offset=5,
                producer=Producer(7, 1, 3),
                is_transactional=True,
                leader_epoch=2,
            ),
            A2,
        ),
        (
            encode_end_marker(
                kind=COMMIT,
                producer_id=7,
                producer_epoch=1,
                coordinator_epoch=9,
                timestamp_ms=1000,
                base_offset=10,
                leader_epoch=2,
            ),
            A3,
        ),
        (
            encode_empty_batch(
                base_offset=20,
                last_offset=24,
                max_timestamp_ms=1001,
                producer=Producer(7, 1, 3),
                is_transactional=True,
                leader_epoch=2,
            ),
            A4,
        ),
        (
            encode_batch([NewRecord(b"b", None, 1000)], base_offset=30, delete_horizon_ms=86_401_000, leader_epoch=2),
            A5,
        ),
        (encode_batch([KV], compression=Compression.SNAPPY), A6),
        (encode_batch([KV], compression=Compression.LZ4), A7),
    ],
    ids=["A1", "A2", "A3", "A4", "A5", "A6", "A7"],
)
def test_golden_batches_are_encoded(encoded: bytes, golden: str) -> None:
    assert encoded.hex() == golden


@pytest.mark.spec("log-format REC-50")
def test_crc32c_has_its_published_value() -> None:
    assert crc32c(b"123456789") == 0xE3069283  # A0


@pytest.mark.spec("log-format REC-01")
@pytest.mark.parametrize(
    ("timestamp_type", "transactional", "control"), list(product(TimestampType, [False, True], [False, True]))
)
def test_a_header_alone_is_a_batch_without_records(
    timestamp_type: TimestampType, *, transactional: bool, control: bool
) -> None:
    data = encode_empty_batch(
        base_offset=12_345,
        last_offset=12_348,
        max_timestamp_ms=9,
        timestamp_type=timestamp_type,
        producer=Producer(5, 3, 7),
        is_transactional=transactional,
        is_control=control,
        leader_epoch=15,
    )
    found = one(data)
    assert (found.size_bytes, found.record_count, found.is_valid, list(found.records())) == (61, 0, True, [])
    assert (found.base_offset, found.last_offset, found.partition_leader_epoch) == (12_345, 12_348, 15)
    assert (found.producer_id, found.producer_epoch, found.base_sequence, found.last_sequence) == (5, 3, 7, 10)
    assert (found.timestamp_type, found.max_timestamp_ms, found.base_timestamp_ms) == (timestamp_type.value, 9, -1)
    assert (found.is_transactional, found.is_control, found.delete_horizon_ms) == (transactional, control, None)
    assert found.compression is Compression.NONE


@pytest.mark.spec("log-format REC-03")
def test_sequences_begin_with_that_of_the_producer_and_are_minus_1_without_one() -> None:
    assert one(encode_batch([KV] * 5, producer=Producer(1, 0, 1))).last_sequence == 5
    plain = one(encode_batch([KV] * 5))
    assert (plain.producer_id, plain.producer_epoch, plain.base_sequence, plain.last_sequence) == (-1, -1, -1, -1)


@pytest.mark.spec("log-format REC-04")
def test_sequence_numbers_of_a_batch_wrap() -> None:
    found = one(encode_batch([KV] * 3, producer=Producer(1, 0, MAX_INT - 1)))
    assert (found.base_sequence, found.last_sequence) == (MAX_INT - 1, 0)


header_values = st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=20))
new_records = st.builds(
    NewRecord,
    st.none() | st.binary(max_size=100),
    st.none() | st.binary(max_size=100),
    st.integers(-1, 2**62),
    st.lists(header_values, max_size=3).map(tuple),
)


@pytest.mark.spec("log-format REC-02")
@pytest.mark.spec("log-format REC-16")
@of_every_codec
@given(
    records=st.lists(new_records, min_size=1, max_size=6),
    base_offset=st.integers(0, MAX_LONG - MAX_INT),
    gaps=st.lists(st.integers(1, 10_000), min_size=6, max_size=6),
    leader_epoch=st.integers(-1, MAX_INT),
)
def test_built_batch_is_decoded_to_its_records(
    codec: Compression, records: list[NewRecord], base_offset: int, gaps: list[int], leader_epoch: int
) -> None:
    builder = BatchBuilder(base_offset=base_offset, compression=codec, leader_epoch=leader_epoch)
    offsets = [base_offset + sum(gaps[:n]) for n in range(len(records))]
    for record, offset in zip(records, offsets, strict=True):
        builder.append(record, offset=offset)
    found = one(builder.build())
    assert found.is_valid
    assert (found.compression, found.record_count, found.partition_leader_epoch) == (codec, len(records), leader_epoch)
    assert (found.base_offset, found.last_offset) == (base_offset, offsets[-1])
    assert found.max_timestamp_ms == max(record.timestamp_ms for record in records) == builder.max_timestamp_ms
    assert list(found.records()) == [
        Record(offset, r.timestamp_ms, "CreateTime", r.key, r.value, r.headers, leader_epoch)
        for offset, r in zip(offsets, records, strict=True)
    ]


@pytest.mark.spec("log-format REC-16")
@of_every_codec
def test_reader_that_stops_early_leaves_the_batch_readable(codec: Compression) -> None:
    found = one(encode_batch([NewRecord(b"%d" % n, bytes(1000), n) for n in range(100)], compression=codec))
    reader = found.records()
    assert next(reader).key == b"0"
    assert next(reader).key == b"1"
    assert [record.key for record in found.records()] == [b"%d" % n for n in range(100)]
    assert next(reader).key == b"2"


@pytest.mark.spec("log-format REC-25")
@of_every_codec
def test_build_without_records_returns_no_bytes(codec: Compression) -> None:
    builder = BatchBuilder(base_offset=7, compression=codec)
    assert builder.build() == b""
    assert (builder.max_timestamp_ms, builder.shallow_offset_of_max_timestamp, builder.size_bytes) == (-1, -1, 0)
    assert encode_batch([]) == b""


@pytest.mark.spec("log-format REC-26")
@pytest.mark.parametrize(
    "options",
    [
        BatchOptions(is_transactional=True),
        BatchOptions(producer=Producer(7, -1, 0)),
        BatchOptions(producer=Producer(7, 0, -1)),
        BatchOptions(producer=Producer(7, -1, 0), is_transactional=True),
        BatchOptions(producer=Producer(7, 0, -1), is_transactional=True),
    ],
    ids=["no producer", "no epoch", "no sequence", "transactional, no epoch", "transactional, no sequence"],
)
def test_producer_fields_that_do_not_go_together_are_refused(options: BatchOptions) -> None:
    builder = BatchBuilder(base_offset=0, **options)
    builder.append(KV)
    with pytest.raises(ValueError, match="producer"):
        builder.close()
    with pytest.raises(ValueError, match="producer"):
        encode_batch([], **options)


@pytest.mark.spec("log-format REC-27")
@pytest.mark.parametrize(
    "options",
    [
        BatchOptions(is_control=True, producer=Producer(7, 1)),
        BatchOptions(is_transactional=True, producer=Producer(7, 1)),
        BatchOptions(is_transactional=True, is_control=True),
    ],
    ids=["not transactional", "not control", "no producer"],
)
def test_an_end_marker_needs_a_transactional_control_batch(options: BatchOptions) -> None:
    builder = BatchBuilder(base_offset=0, **options)
    with pytest.raises(ValueError, match=r"transaction|batch"):
        builder.append_end_marker(ABORT, coordinator_epoch=0, timestamp_ms=1)
    with pytest.raises(ValueError, match=r"transaction|batch"):
        builder.append_control(ABORT, b"", timestamp_ms=1)
    assert builder.record_count == 0


def test_a_control_batch_takes_no_records_of_users() -> None:
    with pytest.raises(ValueError, match="control"):
        BatchBuilder(base_offset=0, is_control=True).append(KV)
    with pytest.raises(ValueError, match="UNKNOWN"):
        BatchBuilder(base_offset=0, is_control=True).append_control(ControlRecordType.UNKNOWN, b"", timestamp_ms=1)


@pytest.mark.spec("log-format REC-15")
@pytest.mark.parametrize("kind", [ABORT, COMMIT])
def test_end_marker_is_decoded_as_it_was_encoded(kind: ControlRecordType) -> None:
    found = one(
        encode_end_marker(
            kind=kind, producer_id=7, producer_epoch=1, coordinator_epoch=9, timestamp_ms=1000, base_offset=MAX_INT + 1
        )
    )
    assert (found.is_control, found.is_transactional, found.size_bytes) == (True, True, 78)
    assert (found.control_type(), found.base_sequence, found.base_offset) == (kind, -1, MAX_INT + 1)
    (record,) = found.records()
    assert parse_control_type(record.key) is kind
    assert parse_end_marker(record.value) == 9
    assert (found.base_timestamp_ms, found.max_timestamp_ms, record.timestamp_ms) == (1000, 1000, 1000)


@pytest.mark.spec("log-format REC-38")
@pytest.mark.parametrize("kind", [kind for kind in ControlRecordType if kind not in (ABORT, COMMIT)])
def test_end_marker_of_another_type_is_refused(kind: ControlRecordType) -> None:
    with pytest.raises(ValueError, match="ends no transaction"):
        encode_end_marker(kind=kind, producer_id=7, producer_epoch=1, coordinator_epoch=9, timestamp_ms=1000)


@pytest.mark.spec("log-format REC-29")
def test_first_record_ignores_the_write_limit_and_later_ones_must_fit() -> None:
    builder = BatchBuilder(base_offset=0, write_limit_bytes=10)
    assert builder.has_room_for(KV)
    builder.append(KV)
    assert not builder.has_room_for(KV)
    exact = 61 + record_size_bytes(0, 0, b"k", b"v") + record_size_bytes(0, 1, b"k", b"v")
    for limit, fits in ((exact, True), (exact - 1, False)):
        limited = BatchBuilder(base_offset=0, write_limit_bytes=limit)
        limited.append(KV)
        assert limited.has_room_for(KV) is fits
    limited.close()
    assert not limited.has_room_for(KV)


@pytest.mark.spec("log-format REC-30")
@pytest.mark.parametrize("offset", [4, 5, 6, 6 + MAX_INT])
def test_an_offset_that_is_not_above_the_last_one_is_refused(offset: int) -> None:
    builder = BatchBuilder(base_offset=5)
    builder.append(KV, offset=6)
    with pytest.raises(ValueError, match="offset"):
        builder.append(KV, offset=offset)
    builder.append(KV)
    assert [record.offset for record in one(builder.build()).records()] == [6, 7]


def test_offsets_of_a_batch_span_at_most_the_largest_int() -> None:
    builder = BatchBuilder(base_offset=5)
    builder.append(KV)
    builder.append(KV, offset=5 + MAX_INT)
    assert one(builder.build()).last_offset == 5 + MAX_INT


@pytest.mark.parametrize("timestamp_ms", [-2, -1000])
def test_a_negative_timestamp_is_refused(timestamp_ms: int) -> None:
    with pytest.raises(ValueError, match="negative"):
        encode_batch([NewRecord(b"k", b"v", timestamp_ms)])


@pytest.mark.parametrize(
    "encode",
    [
        lambda: encode_batch([KV], base_offset=-1),
        lambda: encode_batch([KV], base_offset=MAX_LONG + 1),
        lambda: encode_batch([KV, KV], base_offset=MAX_LONG),
        lambda: encode_batch([KV], leader_epoch=MAX_INT + 1),
        lambda: encode_batch([NewRecord(b"k", b"v", MAX_LONG + 1)]),
        lambda: encode_batch([KV], producer=Producer(7, 1 << 15, 0)),
        lambda: encode_empty_batch(base_offset=5, last_offset=4),
    ],
)
def test_value_out_of_the_range_of_its_field_is_refused(encode: Callable[[], bytes]) -> None:
    with pytest.raises(ValueError, match=r"out of range|impossible|negative"):
        encode()


@pytest.mark.spec("log-format REC-31")
def test_a_closed_builder_takes_no_record_and_builds_the_same_again() -> None:
    builder = BatchBuilder(base_offset=0)
    builder.append(KV)
    builder.close()
    with pytest.raises(RuntimeError, match="closed"):
        builder.append(KV)
    builder.close()
    assert builder.build() == builder.build() == bytes.fromhex(A1)


@pytest.mark.spec("log-format REC-31")
def test_aborted_builder_is_empty_and_refuses_calls() -> None:
    builder = BatchBuilder(base_offset=0)
    builder.append(KV)
    assert builder.size_bytes == 70
    builder.abort()
    assert (builder.size_bytes, builder.record_count) == (0, 0)
    for call in (lambda: builder.append(KV), builder.close, builder.build):
        with pytest.raises(RuntimeError, match="aborted"):
            call()
    builder.abort()


@pytest.mark.spec("log-format REC-32")
@of_every_codec
def test_records_of_a_log_append_time_batch_have_its_timestamp(codec: Compression) -> None:
    builder = BatchBuilder(base_offset=3, compression=codec, timestamp_type=LOG_APPEND, log_append_time_ms=77)
    for timestamp_ms in (0, 2, 1):
        builder.append(NewRecord(b"k", b"v", timestamp_ms))
    found = one(builder.build())
    assert [(r.timestamp_ms, r.timestamp_type) for r in found.records()] == [(77, "LogAppendTime")] * 3
    assert (builder.max_timestamp_ms, builder.shallow_offset_of_max_timestamp) == (77, 5)
    assert (found.max_timestamp_ms, found.base_timestamp_ms) == (77, 0)


@pytest.mark.spec("log-format REC-33")
@of_every_codec
def test_offset_of_the_largest_create_time_is_the_last_offset(codec: Compression) -> None:
    builder = BatchBuilder(base_offset=3, compression=codec)
    for timestamp_ms in (0, 2, 1):
        builder.append(NewRecord(b"k", b"v", timestamp_ms))
    found = one(builder.build())
    assert [(r.timestamp_ms, r.timestamp_type) for r in found.records()] == [
        (0, "CreateTime"),
        (2, "CreateTime"),
        (1, "CreateTime"),
    ]
    assert (builder.max_timestamp_ms, builder.shallow_offset_of_max_timestamp, found.max_timestamp_ms) == (2, 5, 2)


def test_batch_without_timestamps_has_no_offset_of_the_largest_timestamp() -> None:
    builder = BatchBuilder(base_offset=3)
    builder.append(NewRecord(b"k", b"v"))
    assert one(builder.build()).max_timestamp_ms == -1
    assert (builder.max_timestamp_ms, builder.shallow_offset_of_max_timestamp) == (-1, -1)


@pytest.mark.spec("log-format REC-34")
@pytest.mark.parametrize("horizon_ms", [0, 86_401_000, 2**62])
def test_a_delete_horizon_takes_the_place_of_the_base_timestamp(horizon_ms: int) -> None:
    records = [NewRecord(b"k", None, 1000), NewRecord(b"k", None, 999), NewRecord(b"k", None, -1)]
    found = one(encode_batch(records, delete_horizon_ms=horizon_ms))
    assert found.attributes & 0x40
    assert (found.delete_horizon_ms, found.base_timestamp_ms) == (horizon_ms, horizon_ms)
    assert [record.timestamp_ms for record in found.records()] == [1000, 999, -1]
    assert found.max_timestamp_ms == 1000


@pytest.mark.parametrize(
    ("codec", "level"), [(Compression.GZIP, 10), (Compression.LZ4, 0), (Compression.ZSTD, 23), (Compression.NONE, 1)]
)
def test_level_that_the_codec_lacks_is_refused_by_the_constructor(codec: Compression, level: int) -> None:
    with pytest.raises(ValueError, match="has no level"):
        BatchBuilder(base_offset=0, compression=codec, level=level)


def test_compression_level_changes_the_size_of_a_batch() -> None:
    value = NewRecord(b"k", b"".join(b"%d," % (n * n) for n in range(5000)), 1)
    fast, best = (len(encode_batch([value], compression=Compression.GZIP, level=level)) for level in (1, 9))
    assert best < fast


@pytest.mark.spec("log-format REC-08")
@of_every_codec
def test_batch_with_a_count_above_its_records_is_invalid(codec: Compression) -> None:
    data = bytearray(encode_batch([KV], compression=codec))
    data[60] += 1
    data[17:21] = crc32c(bytes(data[21:])).to_bytes(4, "big")
    with pytest.raises(InvalidRecordError):
        list(one(bytes(data)).records())
