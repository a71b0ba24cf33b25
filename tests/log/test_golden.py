"""Log dirs of real brokers, compared with the output of Kafka's own tools."""

import base64
import gzip
import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from tests.golden.unpack import GoldenCase, OracleRecord, golden_cases, read_lines, read_offsets
from tierd.log import (
    LOG_START_OFFSET_CHECKPOINT,
    REPLICATION_OFFSET_CHECKPOINT,
    ControlRecordType,
    Decoded,
    LocalLog,
    OffsetIndex,
    PartitionScan,
    Record,
    RecordBatch,
    TimeIndex,
    build_indexes,
    check_segment,
    find_log_end_offset,
    identify_directory,
    inspect_path,
    iter_batches,
    last_stable_offset,
    read_offset_checkpoint,
    scan_partition,
)
from tierd.log.files.source import open_source
from tierd.log.records.batch_header import iter_headers
from tierd.model import EpochEntry

Replica = tuple[GoldenCase, str]


def replicas(*stages: str) -> list[Replica]:
    cases = (case for case in golden_cases(*stages) if not case.partition.startswith("__cluster_metadata"))
    return [(case, logdir) for case in cases for logdir in case.logdirs]


def replica_id(replica: Replica) -> str:
    case, logdir = replica
    return case.id + (f"-{Path(logdir).parent.name}" if len(case.logdirs) > 1 else "")


of_brokers = pytest.mark.parametrize("replica", replicas("clean", "epochs", "compact-before"), ids=replica_id)
of_everything = pytest.mark.parametrize(
    "replica", replicas("clean", "epochs", "compact-before", "old-format"), ids=replica_id
)


def open_log(golden: Path, replica: Replica) -> LocalLog:
    case, logdir = replica
    directory = identify_directory(golden / logdir / case.partition)
    assert directory is not None
    scan = scan_partition(directory)
    starts = read_offset_checkpoint(golden / logdir / LOG_START_OFFSET_CHECKPOINT)
    watermarks = read_offset_checkpoint(golden / logdir / REPLICATION_OFFSET_CHECKPOINT)
    partition = directory.topic_partition
    # no broker ever ran on the old formats: there is no checkpoint
    high_watermark = watermarks.get(partition, find_log_end_offset(scan))
    return LocalLog(
        scan,
        high_watermark=high_watermark,
        last_stable_offset=last_stable_offset(scan, high_watermark=high_watermark),
        log_start_offset=starts.get(partition),
    )


def read_all(log: LocalLog, end: int, *, max_bytes: int) -> Iterator[tuple[int, RecordBatch]]:
    """Yield every batch below ``end``, with the offset from which its records were asked for."""
    offset = log.log_start_offset
    while offset < end and (data := log.read(offset, max_bytes=max_bytes)):
        for batch in iter_batches(data, name="read"):
            if batch.last_offset < end:
                yield offset, batch
            offset = max(offset, batch.last_offset + 1)


def uncommitted(log: LocalLog, *, max_bytes: int = 3000) -> list[Record]:
    return [
        record
        for offset, batch in read_all(log, log.high_watermark, max_bytes=max_bytes)
        if not batch.is_control
        for record in batch.records()
        if record.offset >= offset
    ]


def committed(log: LocalLog) -> list[Record]:
    """Return the records of a read_committed consumer: up to the last stable offset, without aborted transactions."""
    aborted = sorted(
        log.aborted_transactions(log.log_start_offset, log.last_stable_offset), key=lambda entry: entry.first_offset
    )
    skipped: set[int] = set()
    found: list[Record] = []
    for offset, batch in read_all(log, log.last_stable_offset, max_bytes=3000):
        while aborted and aborted[0].first_offset <= batch.last_offset:
            skipped.add(aborted.pop(0).producer_id)
        if batch.is_control:
            if batch.control_type() is ControlRecordType.ABORT:
                skipped.discard(batch.producer_id)
        elif not (batch.is_transactional and batch.producer_id in skipped):
            found += [record for record in batch.records() if record.offset >= offset]
    return found


def as_oracle(record: Record) -> OracleRecord:
    return {
        "offset": record.offset,
        "timestamp": record.timestamp_ms,
        "timestampType": record.timestamp_type,
        "leaderEpoch": record.leader_epoch,
        "key": _text(record.key),
        "value": _text(record.value),
        "headers": [[name, _text(value)] for name, value in record.headers],
    }


def _text(value: bytes | None) -> str | None:
    return None if value is None else base64.b64encode(value).decode()


def expected_records(path: Path) -> list[OracleRecord]:
    return [
        {
            "offset": line["offset"],
            "timestamp": line["timestamp"],
            "timestampType": line["timestampType"],
            "leaderEpoch": line.get("leaderEpoch", -1),
            "key": line["key"],
            "value": line["value"],
            "headers": line["headers"],
        }
        for line in read_lines(path)
    ]


@of_everything
@pytest.mark.parametrize("max_bytes", [1, 100_000])
def test_reads_return_the_records_of_a_consumer_of_the_broker(golden: Path, replica: Replica, max_bytes: int) -> None:
    oracle = golden / replica[0].oracle / "records.jsonl.gz"
    expected = expected_records(oracle) if oracle.exists() else None
    found = [as_oracle(record) for record in uncommitted(open_log(golden, replica), max_bytes=max_bytes)]
    assert expected is None or found == expected


@of_brokers
def test_committed_reads_return_the_records_of_a_read_committed_consumer(golden: Path, replica: Replica) -> None:
    oracle = golden / replica[0].oracle
    file = oracle / "committed.jsonl.gz"
    if not file.exists():  # not transactional: everything is committed
        file = oracle / "records.jsonl.gz"
    expected = expected_records(file) if file.exists() else None
    found = [as_oracle(record) for record in committed(open_log(golden, replica))]
    assert expected is None or found == expected


@of_brokers
def test_start_high_watermark_and_stable_offset_equal_those_of_the_broker(golden: Path, replica: Replica) -> None:
    log = open_log(golden, replica)
    found = {
        "logStartOffset": log.log_start_offset,
        "highWatermark": log.high_watermark,
        "lastStableOffset": log.last_stable_offset,
    }
    file = golden / replica[0].oracle
    if (file / "offsets.json").exists():
        assert found == read_offsets(file)
    assert find_log_end_offset(log.scan) == log.high_watermark


@of_brokers
def test_last_stable_offset_is_the_same_from_every_snapshot(golden: Path, replica: Replica) -> None:
    log = open_log(golden, replica)
    scan = log.scan
    for kept in range(len(scan.snapshots) + 1):
        fewer = PartitionScan(
            scan.directory, scan.segments, (), scan.lineage, scan.mtime_ns, snapshots=scan.snapshots[:kept]
        )
        assert last_stable_offset(fewer, high_watermark=log.high_watermark) == log.last_stable_offset


@of_everything
def test_every_segment_of_a_broker_passes_the_check(golden: Path, replica: Replica) -> None:
    scan = open_log(golden, replica).scan
    for segment in scan.segments:
        found = check_segment(segment.log, base_offset=segment.base_offset, next_base_offset=segment.next_base_offset)
        with open_source(segment.log) as source:
            headers = list(iter_headers(source, may_be_torn=False))
        assert found.batch_count == len(headers)
        assert found.last_offset == (headers[-1].last_offset if headers else -1)
        assert found.max_timestamp_ms == max((header.max_timestamp_ms for header in headers), default=-1)
        assert found.has_abort_markers == segment.transaction_index.exists()
        if scan.lineage:
            assert list(found.epochs) == _epochs_between(scan, found.first_offset, found.last_offset)


def _epochs_between(scan: PartitionScan, first: int, last: int) -> list[EpochEntry]:
    if last < 0:
        return []
    earliest = scan.lineage.earliest
    assert earliest is not None
    covered = scan.lineage.entries_in(first, last + 1).with_data()
    if first < earliest.start_offset:  # below the log start, of which the broker keeps no epoch
        return [EpochEntry(earliest.epoch, first), *covered.entries[1:]]
    return list(covered.entries)


@of_brokers
def test_rebuilt_indexes_answer_like_those_of_the_broker(golden: Path, replica: Replica) -> None:
    case, _ = replica
    interval = case.config.get("index.interval.bytes", 4096)
    assert isinstance(interval, int)
    for segment in open_log(golden, replica).scan.segments:
        base = segment.base_offset
        offsets, times = build_indexes(segment.log, base_offset=base, index_interval_bytes=interval)
        rebuilt = OffsetIndex.from_bytes(offsets, base, "rebuilt"), TimeIndex.from_bytes(times, base, "rebuilt")
        original = (
            OffsetIndex.from_bytes(segment.offset_index.read_bytes(), base, "original"),
            TimeIndex.from_bytes(segment.time_index.read_bytes(), base, "original"),
        )
        with open_source(segment.log) as source:
            headers = list(iter_headers(source))
        ends = [-1, *(header.last_offset for header in headers)]
        for index, _times in (rebuilt, original):
            for header, (before, last) in zip(headers, pairwise(ends), strict=True):
                for offset in (before + 1, last):
                    assert index.lookup(offset).position <= header.position
        assert original[1].entries[-1:] == rebuilt[1].entries[-1:]


BATCH = re.compile(
    r"baseOffset: (?P<baseOffset>\d+) lastOffset: (?P<lastOffset>\d+) count: (?P<count>\d+) "
    r"baseSequence: (?P<baseSequence>-?\d+) lastSequence: (?P<lastSequence>-?\d+) producerId: (?P<producerId>-?\d+) "
    r"producerEpoch: (?P<producerEpoch>-?\d+) partitionLeaderEpoch: (?P<partitionLeaderEpoch>-?\d+) "
    r"isTransactional: (?P<isTransactional>\w+) isControl: (?P<isControl>\w+) "
    r"deleteHorizonMs: (?:OptionalLong\.empty|OptionalLong\[(?P<deleteHorizonMs>\d+)\]) "
    r"position: (?P<position>\d+) (?P<timestampType>\w+): (?P<maxTimestamp>-?\d+) size: (?P<size>\d+) "
    r"magic: (?P<magic>\d) compresscodec: (?P<compresscodec>\w+) crc: (?P<crc>\d+) isvalid: (?P<isvalid>\w+)"
)
LEGACY = re.compile(
    r"offset: (?P<lastOffset>\d+) position: (?P<position>\d+) (?P<timestampType>\w+): (?P<maxTimestamp>-?\d+) "
    r"size: (?P<size>\d+) magic: (?P<magic>\d) compresscodec: (?P<compresscodec>\w+) crc: (?P<crc>\d+) "
    r"isvalid: (?P<isvalid>\w+)"
)
OFFSET_ENTRY = re.compile(r"offset: (?P<offset>\d+) position: (?P<position>\d+)")
TIME_ENTRY = re.compile(r"timestamp: (?P<timestamp>-?\d+) offset: (?P<offset>\d+)")
ABORTED = re.compile(
    r"version: (?P<version>\d+) producerId: (?P<producerId>\d+) firstOffset: (?P<firstOffset>\d+) "
    r"lastOffset: (?P<lastOffset>\d+) lastStableOffset: (?P<lastStableOffset>\d+)"
)
PRODUCER = re.compile(
    r"producerId: (?P<producerId>\d+) producerEpoch: (?P<producerEpoch>-?\d+) "
    r"coordinatorEpoch: (?P<coordinatorEpoch>-?\d+) "
    r"currentTxnFirstOffset: (?:OptionalLong\.empty|OptionalLong\[(?P<currentTxnFirstOffset>\d+)\]) "
    r"lastTimestamp: (?P<lastTimestamp>-?\d+)"
    r"(?: firstSequence: (?P<firstSequence>-?\d+) lastSequence: (?P<lastSequence>-?\d+) "
    r"lastOffset: (?P<lastOffset>-?\d+) offsetDelta: (?P<offsetDelta>-?\d+) timestamp: -?\d+)?"
)
LINES = {
    ".log": (BATCH, LEGACY),
    ".index": (OFFSET_ENTRY,),
    ".timeindex": (TIME_ENTRY,),
    ".txnindex": (ABORTED,),
    ".snapshot": (PRODUCER,),
}
Line = dict[str, str | None]


def dumped(path: Path) -> dict[str, list[Line]]:
    """Return the dump of DumpLogSegments by file name: the fields of every line that is not a record."""
    files: dict[str, list[Line]] = {}
    name = ""
    for line in gzip.decompress(path.read_bytes()).decode("utf-8", errors="replace").split("\n"):
        if line.startswith("Dumping "):
            name = line.split("/")[-1]
            files[name] = []
        elif name:
            for pattern in LINES.get("." + name.split(".")[1], ()):
                if match := pattern.fullmatch(line.strip()):
                    files[name].append(match.groupdict())
                    break
    return files


def inspected(path: Path) -> list[Line]:
    findings = [finding for finding in inspect_path(path) if isinstance(finding, Decoded)]
    return [{name: _plain(value) for name, value in finding.fields.items()} for finding in findings]


def _plain(value: object) -> str | None:
    return None if value is None else str(value).lower() if isinstance(value, bool) else str(value)


@of_everything
def test_inspection_agrees_with_the_dump_of_kafka(golden: Path, replica: Replica) -> None:
    case, logdir = replica
    oracle = golden / case.oracle
    if len(case.logdirs) > 1:  # one oracle for all replicas, but a dump for each
        oracle = golden / Path(logdir).parent / "oracle" / case.partition
    files = dumped(oracle / "dump.txt.gz")
    assert files
    for name, expected in files.items():
        found = inspected(golden / logdir / case.partition / name)
        assert [_like(ours, theirs) for ours, theirs in zip(found, expected, strict=True)] == expected, name


def _like(ours: Line, theirs: Line) -> Line:
    """Return our fields under the names of the dump."""
    return {name: ours.get(name) for name in theirs}
