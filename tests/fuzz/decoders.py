"""Targets: every parser of bytes of a log dir, one by one."""

import struct
import zlib
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from uuid import UUID

from tests.fuzz.target import Target
from tests.log.batches import batch, legacy, lz4_frame, marker, plain, wrapper
from tests.log.encoded_record import encode_record
from tests.log.log_columns import iter_log_columns
from tierd.errors import CorruptIndexError, CorruptRecordError, PartitionNameError
from tierd.kernels import RecordFault, compiled, crc32c, reference
from tierd.log.files.checkpoints import (
    encode_lineage,
    encode_offset_checkpoint,
    encode_topic_id,
    parse_lineage,
    parse_offset_checkpoint,
    parse_topic_id,
)
from tierd.log.files.clean_shutdown import encode_clean_shutdown, parse_broker_epoch
from tierd.log.files.directory import parse_directory_name
from tierd.log.files.meta_properties import MetaProperties, encode_meta_properties, parse_meta_properties
from tierd.log.indexes.offset_index import OffsetIndex
from tierd.log.indexes.time_index import TimeIndex
from tierd.log.indexes.transaction_index import TransactionIndex
from tierd.log.log_errors import AppendError, CheckpointError
from tierd.log.producers.producer_state import ProducerStateEntry, encode_producer_snapshot, parse_producer_snapshot
from tierd.log.records.append_origin import AppendOrigin
from tierd.log.records.batch_builder import NewRecord, Producer, encode_batch
from tierd.log.records.batch_header import parse_header, stamp_crc
from tierd.log.records.compression import Compression, PayloadError, compress, decompress
from tierd.log.records.log_config import LogConfig
from tierd.log.records.record import Record, RecordError, iter_raw_records, parse_control_type, parse_end_marker
from tierd.log.records.record_batch import RecordBatch, iter_batches
from tierd.log.records.record_columns import iter_columns
from tierd.log.records.record_rules import ValidationCounters
from tierd.log.records.validation import validate_and_assign
from tierd.model import Lineage, TopicPartition

MAX_BYTES = 1 << 20
_COLUMNS = (
    "offset",
    "timestamp_ms",
    "key_start",
    "key_size",
    "value_start",
    "value_size",
    "headers_start",
    "header_count",
)
NOW_MS = 1_700_000_000_000


def with_checksums(data: bytes) -> bytes:
    """Return the same batches with right checksums, so that damage passes the check."""
    fixed, at = bytearray(data), 0
    with suppress(CorruptRecordError):
        while (header := parse_header(bytes(fixed), at, name="fuzz", position=at)) is not None:
            end = at + header.size_bytes
            if end > len(fixed):
                break
            if header.magic == 2:
                entry = fixed[at:end]
                stamp_crc(entry)
                fixed[at:end] = entry
            else:
                struct.pack_into(">I", fixed, at + 12, zlib.crc32(fixed[at + 16 : end]))
            at = end
    return bytes(fixed)


def with_snapshot_checksum(data: bytes) -> bytes:
    """Return the same producer snapshot with its right checksum."""
    return data[:2] + struct.pack(">I", crc32c(data[6:])) + data[6:] if len(data) >= 6 else data


def _batches(data: bytes) -> None:
    for check_crc in (True, False):
        with suppress(CorruptRecordError):
            for found in iter_batches(data, name="fuzz", check_crc=check_crc):
                with suppress(CorruptRecordError):
                    found.control_type()
                with suppress(CorruptRecordError):
                    for _ in found.records(max_bytes=MAX_BYTES):
                        pass


def _records_or_none(found: RecordBatch, *, in_bulk: bool) -> list[Record] | None:
    try:
        if in_bulk:
            return [record for some in iter_columns(found, max_bytes=MAX_BYTES, step_records=3) for record in some]
        return list(found.records(max_bytes=MAX_BYTES))
    except CorruptRecordError:
        return None


def _columns(data: bytes) -> None:
    """Decode records in bulk and one by one: values and faults are equal."""
    with suppress(CorruptRecordError):
        for found in iter_batches(with_checksums(data), name="fuzz"):
            if found.magic < 2:
                continue
            assert _records_or_none(found, in_bulk=True) == _records_or_none(found, in_bulk=False)


def _log_columns(data: bytes) -> None:
    """Decode a piece of a log in bulk with both kernels, and batch by batch: the records are equal."""
    fixed = with_checksums(data)
    assert compiled.decode_batches(fixed).position.tolist() == reference.decode_batches(fixed).position.tolist()
    for content in (data, fixed):
        one_by_one: list[Record] = []
        in_bulk: list[Record] = []
        with suppress(CorruptRecordError):
            for found in iter_batches(content, name="fuzz"):
                one_by_one += found.records(max_bytes=MAX_BYTES)
        with suppress(CorruptRecordError, ValueError):
            for some in iter_log_columns(content, name="fuzz", max_bytes=MAX_BYTES):
                in_bulk += some
        assert in_bulk == one_by_one[: len(in_bulk)]


def _records(data: bytes) -> None:
    """Decode any bytes with both kernels and the record decoder: the results are equal. Four bytes are the count."""
    count, payload = int.from_bytes(data[:4], "big", signed=True), data[4:]
    columns = compiled.decode_records(payload, count)
    expected = reference.decode_records(payload, count)
    assert (columns.end, columns.fault) == (expected.end, expected.fault)
    for name in (
        "offset",
        "timestamp_ms",
        "key_start",
        "key_size",
        "value_start",
        "value_size",
        "headers_start",
        "header_count",
    ):
        assert getattr(columns, name).tolist() == getattr(expected, name).tolist()
    decoded = 0
    try:
        for _ in iter_raw_records(payload, count):
            decoded += 1
    except RecordError:
        assert columns.fault is not RecordFault.NONE
    else:
        assert columns.fault is RecordFault.NONE
    assert decoded == len(columns)


def _control(data: bytes) -> None:
    for parse in (parse_control_type, parse_end_marker):
        with suppress(RecordError):
            parse(data)


def _decompress(codec: Compression, data: bytes) -> None:
    for magic in (0, 1, 2):
        for max_bytes in (100, MAX_BYTES):
            with suppress(PayloadError):
                assert len(decompress(codec, data, magic=magic, max_bytes=max_bytes)) <= max_bytes


def _compress(codec: Compression, data: bytes) -> None:
    for magic in (0, 1, 2) if codec is not Compression.ZSTD else (2,):
        assert decompress(codec, compress(codec, data, magic=magic), magic=magic) == data


def _validation(data: bytes) -> None:
    """Read the records that a leader accepts: they have right checksums and the assigned offsets."""
    if not data:
        return
    targets = ["producer", "uncompressed", "gzip", "lz4"]
    config = LogConfig(
        compression_type=targets[data[0] & 3],
        cleanup_policy=frozenset({"compact" if data[0] & 4 else "delete"}),
        message_timestamp_before_max_ms=1000 if data[0] & 8 else (1 << 63) - 1,
    )
    records = with_checksums(data[1:])
    source = Compression.NONE
    with suppress(AppendError, CorruptRecordError):
        for found in iter_batches(records, name="fuzz"):
            source = found.compression or source
        result = validate_and_assign(
            records,
            first_offset=1000,
            leader_epoch=7,
            origin=AppendOrigin.COORDINATOR if data[0] & 16 else AppendOrigin.CLIENT,
            config=config,
            now_ms=NOW_MS,
            source_compression=source,
            name="fuzz",
            counters=ValidationCounters(),
        )
        _check_accepted(bytes(result.records), result.last_offset, result.max_timestamp_ms)


def _check_accepted(records: bytes, last_offset: int, max_timestamp_ms: int) -> None:
    try:
        (accepted,) = iter_batches(records, name="accepted")
        offsets = [record.offset for record in accepted.records()]
    except CorruptRecordError as error:
        raise AssertionError("what was accepted cannot be read") from error
    assert offsets == list(range(1000, last_offset + 1))
    assert (accepted.partition_leader_epoch, accepted.max_timestamp_ms) == (7, max_timestamp_ms)


def _offset_index(data: bytes) -> None:
    with suppress(CorruptIndexError):
        index = OffsetIndex.from_bytes(data, 100, "fuzz")
        for entry in index.entries():
            assert index.lookup(entry.offset) == entry
        index.upper_bound(0, 1 << 20)


def _time_index(data: bytes) -> None:
    with suppress(CorruptIndexError):
        index = TimeIndex.from_bytes(data, 100, "fuzz")
        for timestamp_ms in (-1, 0, NOW_MS, (1 << 63) - 1):
            index.lookup(timestamp_ms)


def _transaction_index(data: bytes) -> None:
    with suppress(CorruptIndexError):
        TransactionIndex.from_bytes(data, 100, "fuzz").collect(0, 1 << 40)


def _snapshot(data: bytes) -> None:
    for content in (data, with_snapshot_checksum(data)):
        with suppress(CorruptIndexError):
            assert encode_producer_snapshot(parse_producer_snapshot(content, "fuzz")) == content


def _text(parse: Callable[[bytes], object], data: bytes) -> None:
    with suppress(CheckpointError):
        parse(data)


def _lineage(data: bytes) -> None:
    for in_order in (True, False):
        _text(partial(parse_lineage, name="fuzz", in_order=in_order), data)


def _clean_shutdown(data: bytes) -> None:
    epoch = parse_broker_epoch(data)
    assert epoch is None or isinstance(epoch, int)


def _directory_name(data: bytes) -> None:
    with suppress(PartitionNameError):
        parse_directory_name(data.decode("utf-8", errors="surrogateescape"))


_RECORDS = [
    NewRecord(b"key", b"value" * 20, NOW_MS, (("header", b"x"), ("none", None))),
    NewRecord(None, None, NOW_MS + 1),
    NewRecord(b"", b"", NOW_MS - 1),
]


def _batch_seeds() -> list[bytes]:
    data = [encode_batch(_RECORDS, compression=codec) for codec in Compression]
    data += [
        encode_batch(_RECORDS, producer=Producer(1, 0, 0), is_transactional=True),
        batch(0, [], last_offset_delta=3),
        marker(0, 7, commit=True),
        plain(0, 5) + plain(5, 2),
        legacy(0, 0, b"k", b"v") + legacy(1, 1, None, b"v"),
        wrapper(1, 1, legacy(1, 0, b"k", b"v") + legacy(1, 1, b"k", None)),
        wrapper(0, 1, legacy(0, 0, b"k", b"v") + legacy(0, 1, b"k", None), codec=Compression.LZ4),
    ]
    return data


def _record_seeds() -> list[bytes]:
    row = encode_record(1, 2, b"key", b"value", (("h", b"x"), ("i", None)))
    counts = (1, 3, (1 << 31) - 1)
    return [count.to_bytes(4, "big") + row * 3 for count in counts] + [(-1).to_bytes(4, "big", signed=True)]


def _payload_seeds(codec: Compression) -> list[bytes]:
    bomb = compress(codec, bytes(4 * MAX_BYTES))
    seeds = [compress(codec, b""), compress(codec, b"text " * 100), bomb]
    if codec is Compression.LZ4:
        seeds += [lz4_frame(b"text " * 100, flags=flags) for flags in (0x68, 0x70, 0x78)]
    return seeds


def _value_of(data: bytes) -> bytes:
    ((record,),) = (found.records() for found in iter_batches(data, name="seed"))
    return record.value or b""


def _time_entries(*entries: tuple[int, int]) -> bytes:
    return b"".join(struct.pack(">qi", *entry) for entry in entries)


_ENTRY = ProducerStateEntry(
    producer_id=7,
    producer_epoch=1,
    last_sequence=9,
    last_offset=20,
    offset_delta=9,
    timestamp_ms=NOW_MS,
    coordinator_epoch=2,
    current_txn_first_offset=11,
)

TARGETS = [
    Target("batches", _batches, _batch_seeds),
    Target("columns", _columns, _batch_seeds),
    Target("log-columns", _log_columns, _batch_seeds),
    Target("records", _records, _record_seeds),
    Target(
        "control",
        _control,
        lambda: [
            b"\0\0\0\1",
            struct.pack(">hi", 0, 5),
        ],
    ),
    *(
        Target(f"decompress-{codec.name.lower()}", partial(_decompress, codec), partial(_payload_seeds, codec))
        for codec in Compression
        if codec
    ),
    *(
        Target(f"compress-{codec.name.lower()}", partial(_compress, codec), lambda: [b"", b"text" * 50, bytes(70_000)])
        for codec in Compression
        if codec
    ),
    Target(
        "validation",
        _validation,
        lambda: [bytes([flags]) + data for data in _batch_seeds() for flags in (0, 2, 12, 19)],
    ),
    Target(
        "offset-index",
        _offset_index,
        lambda: [b"", struct.pack(">6i", 0, 0, 5, 100, 9, 200), struct.pack(">2i", 5, 10) + bytes(80)],
    ),
    Target("time-index", _time_index, lambda: [b"", _time_entries((NOW_MS, 0), (NOW_MS + 5, 9))]),
    Target("transaction-index", _transaction_index, lambda: [b"", struct.pack(">hqqqq", 0, 7, 100, 105, 103)]),
    Target("snapshot", _snapshot, lambda: [encode_producer_snapshot(()), encode_producer_snapshot((_ENTRY, _ENTRY))]),
    Target("lineage", _lineage, lambda: [encode_lineage(Lineage()), b"0\n2\n0 0\n5 17\n"]),
    Target(
        "offset-checkpoint",
        partial(_text, partial(parse_offset_checkpoint, name="fuzz")),
        lambda: [b"", encode_offset_checkpoint({TopicPartition("orders", 0): 5, TopicPartition("a-b", 12): 1 << 40})],
    ),
    Target(
        "topic-id", partial(_text, partial(parse_topic_id, name="fuzz")), lambda: [encode_topic_id(UUID(int=1 << 100))]
    ),
    Target(
        "meta-properties",
        partial(_text, partial(parse_meta_properties, name="fuzz")),
        lambda: [
            encode_meta_properties(
                MetaProperties(cluster_id="cluster", node_id=1, directory_id=UUID(int=5)), now_ms=NOW_MS
            ),
            b"version=0\ncluster.id=a\\u0041\\\n  b\nbroker.id : 3\n! note\n",
        ],
    ),
    Target(
        "clean-shutdown",
        _clean_shutdown,
        lambda: [b"", encode_clean_shutdown(17), b"[" * 5000, b'{"brokerEpoch":1e999}', b'{"brokerEpoch":null}'],
    ),
    Target(
        "directory-name",
        _directory_name,
        lambda: [b"orders-0", b"a--1", b"orders-3.0123456789abcdef0123456789abcdef-delete", b"x-99999999999"],
    ),
]
