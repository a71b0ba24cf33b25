"""The inspection of one file of a log dir, for ``tierd inspect``: decodes and checks it."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

from tierd.errors import CorruptIndexError, LogDirLockedError, LogDirOfflineError, SegmentChangedError
from tierd.log.files.checkpoints import (
    LEADER_EPOCH_CHECKPOINT,
    PARTITION_METADATA,
    parse_lineage,
    parse_offset_checkpoint,
    parse_topic_id,
)
from tierd.log.files.clean_shutdown import CLEAN_SHUTDOWN_FILE, parse_broker_epoch
from tierd.log.files.log_dir_lock import LOCK_FILE, require_unlocked
from tierd.log.files.meta_properties import parse_meta_properties
from tierd.log.files.partition_scan import parse_file_name
from tierd.log.files.source import open_source, read_whole
from tierd.log.indexes.offset_index import OffsetIndex, OffsetPosition
from tierd.log.indexes.time_index import TimeIndex
from tierd.log.indexes.transaction_index import TransactionIndex
from tierd.log.inspection.inspection_findings import Damage, Decoded, FileFound, InspectionFinding, Note
from tierd.log.inspection.segment_inspection import (
    SegmentExpectations,
    inspect_segment,
)
from tierd.log.log_errors import CheckpointError
from tierd.log.producers.producer_state import parse_producer_snapshot
from tierd.log.repair.side_files import describe_side_file, is_side_file, original_name
from tierd.model import TimestampOffset, uuid_to_text

LIMIT_BYTES = 256 << 20
_TEMPORARY = (".deleted", ".cleaned", ".swap")
_OFFSET_CHECKPOINTS = frozenset(
    f"{name}-checkpoint"
    for name in ("recovery-point-offset", "log-start-offset", "replication-offset", "cleaner-offset")
)
# beside partitions and log dirs, and of no interest here
_SILENT = frozenset({"bootstrap.checkpoint", "quorum-state"})

Decoder = Callable[[bytes, Path, int], Iterator[InspectionFinding]]


def inspect_file(path: Path, *, records: bool = False, deep: bool = False) -> Iterator[InspectionFinding]:
    """Decode and check one file, by the kind that its name tells.

    Raises:
        SegmentChangedError: the file does not exist.
        LogDirOfflineError: the file cannot be read.
    """
    name = original_name(path.name)
    for suffix in _TEMPORARY:
        name = name.removesuffix(suffix)
    offset, suffix = parse_file_name(name) or (0, Path(name).suffix)
    with open_source(path) as source:
        size_bytes = source.size_bytes
    if suffix == ".log":
        yield FileFound(path, "segment", size_bytes)
        if is_side_file(path.name):
            yield Note(path, describe_side_file(path.name))
        yield from inspect_segment(path, SegmentExpectations(base_offset=offset), records=records, deep=deep)
        return
    kind, decoder = _decoder(name, suffix)
    yield FileFound(path, kind, size_bytes)
    if is_side_file(path.name):
        yield Note(path, describe_side_file(path.name))
    if decoder is None:
        yield Note(path, "not one of Kafka's files, left alone")
        return
    yield from decode_file(path, decoder, offset)


def decode_file(path: Path, decoder: Decoder, offset: int) -> Iterator[InspectionFinding]:
    """Decode a small file. A file that cannot be decoded is damaged."""
    try:
        data = read_whole(path, limit_bytes=LIMIT_BYTES, error=CheckpointError)
        yield from decoder(data, path, offset)
    except (CheckpointError, CorruptIndexError) as error:
        yield Damage(path, None, str(error), error.remedy)


def is_temporary(name: str) -> bool:
    """Return true for the name of a file that is being written or deleted."""
    return name.endswith((*_TEMPORARY, ".tmp"))


def is_silent(name: str) -> bool:
    """Return true for the name of a file of Kafka that tells nothing about the log."""
    return name in _SILENT or name.endswith(".checkpoint")


def _decoder(name: str, suffix: str) -> tuple[str, Decoder | None]:
    if name == LEADER_EPOCH_CHECKPOINT:
        return "leader epochs", _decode_lineage
    if name == PARTITION_METADATA:
        return "topic id", _decode_topic_id
    if name == CLEAN_SHUTDOWN_FILE:
        return "clean-stop marker", _decode_clean_shutdown
    if name == LOCK_FILE:
        return "lock", _decode_lock
    if name == "meta.properties":
        return "log dir identity", _decode_meta_properties
    if name in _OFFSET_CHECKPOINTS:
        return "offset checkpoint", _decode_offset_checkpoint
    return {
        ".index": ("offset index", _decode_offset_index),
        ".timeindex": ("time index", _decode_time_index),
        ".txnindex": ("transaction index", decode_transaction_index),
        ".snapshot": ("producer snapshot", decode_snapshot),
    }.get(suffix, ("unknown", None))


def _decode_offset_index(data: bytes, path: Path, base_offset: int) -> Iterator[InspectionFinding]:
    index = OffsetIndex.from_bytes(data, base_offset, str(path))
    return map(offset_entry, index.entries())


def _decode_time_index(data: bytes, path: Path, base_offset: int) -> Iterator[InspectionFinding]:
    index = TimeIndex.from_bytes(data, base_offset, str(path))
    return map(time_entry, index.entries)


def offset_entry(entry: OffsetPosition) -> Decoded:
    """Return an entry of an offset index as a finding."""
    return Decoded("offsetIndexEntry", {"offset": entry.offset, "position": entry.position})


def time_entry(entry: TimestampOffset) -> Decoded:
    """Return an entry of a time index as a finding."""
    return Decoded("timeIndexEntry", {"timestamp": entry.timestamp_ms, "offset": entry.offset})


def decode_transaction_index(data: bytes, path: Path, base_offset: int) -> Iterator[InspectionFinding]:
    """Yield every entry of a transaction index."""
    for entry in TransactionIndex.from_bytes(data, base_offset, str(path)).entries:
        yield Decoded(
            "abortedTransaction",
            {
                "version": 0,
                "producerId": entry.producer_id,
                "firstOffset": entry.first_offset,
                "lastOffset": entry.last_offset,
                "lastStableOffset": entry.last_stable_offset,
            },
        )


def decode_snapshot(data: bytes, path: Path, _: int) -> Iterator[InspectionFinding]:
    """Yield every producer of a snapshot."""
    for entry in parse_producer_snapshot(data, str(path)):
        has_batch = entry.last_offset >= 0
        yield Decoded(
            "producer",
            {
                "producerId": entry.producer_id,
                "producerEpoch": entry.producer_epoch,
                "coordinatorEpoch": entry.coordinator_epoch,
                "currentTxnFirstOffset": None if entry.current_txn_first_offset < 0 else entry.current_txn_first_offset,
                "lastTimestamp": entry.timestamp_ms,
                "firstSequence": entry.first_sequence if has_batch else None,
                "lastSequence": entry.last_sequence if has_batch else None,
                "lastOffset": entry.last_offset if has_batch else None,
                "offsetDelta": entry.offset_delta if has_batch else None,
            },
        )


def _decode_lineage(data: bytes, path: Path, _: int) -> Iterator[InspectionFinding]:
    for entry in parse_lineage(data, name=str(path)).entries:
        yield Decoded("leaderEpoch", {"epoch": entry.epoch, "startOffset": entry.start_offset})


def _decode_topic_id(data: bytes, path: Path, _: int) -> Iterator[InspectionFinding]:
    yield Decoded("topicId", {"topicId": uuid_to_text(parse_topic_id(data, name=str(path)))})


def _decode_meta_properties(data: bytes, path: Path, _: int) -> Iterator[InspectionFinding]:
    meta = parse_meta_properties(data, name=str(path))
    directory_id = None if meta.directory_id is None else uuid_to_text(meta.directory_id)
    yield Decoded("metaProperties", {"clusterId": meta.cluster_id, "nodeId": meta.node_id, "directoryId": directory_id})


def _decode_clean_shutdown(data: bytes, path: Path, _: int) -> Iterator[InspectionFinding]:
    yield Decoded("cleanShutdown", {"brokerEpoch": parse_broker_epoch(data)})


def _decode_lock(data: bytes, path: Path, _: int) -> Iterator[InspectionFinding]:
    try:
        require_unlocked(path.parent)
    except LogDirLockedError:
        yield Decoded("lock", {"isHeld": True})
    else:
        yield Decoded("lock", {"isHeld": False})
    if data:
        yield Note(path, "a lock file is empty")


def _decode_offset_checkpoint(data: bytes, path: Path, _: int) -> Iterator[InspectionFinding]:
    for partition, offset in parse_offset_checkpoint(data, name=str(path)).items():
        yield Decoded("checkpointEntry", {"topic": partition.topic, "partition": partition.partition, "offset": offset})


def list_names(path: Path) -> list[str]:
    """Return the names in a directory, sorted.

    Raises:
        SegmentChangedError: it is not there.
        LogDirOfflineError: it cannot be read.
    """
    try:
        return sorted(os.listdir(path))  # noqa: PTH208 - names are all that is wanted
    except FileNotFoundError as error:
        raise SegmentChangedError(f"{path}: not there") from error
    except OSError as error:
        raise LogDirOfflineError(f"{path}: {error.strerror or error}", remedy="check who may read it") from error
