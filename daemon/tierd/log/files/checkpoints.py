"""The text files of a log dir: offset checkpoints, leader epochs, topic ids (log-format 1.4 and 1.5).

::

    *-offset-checkpoint               leader-epoch-checkpoint       partition.metadata
    ──────────────────────────        ───────────────────────       ───────────────────────────────
    0                   version       0                version      version: 0
    2                   lines         2                lines        topic_id: 22 characters, base 64
    orders 0 1500                     0 0
    orders 1 1620                     3 1500
    topic partition offset            epoch, its start offset

Every line ends with a line feed. Start offsets of epochs are inclusive and ascend with the epochs.
"""

import os
import re
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NoReturn
from uuid import UUID

from tierd.errors import MissingArtefactError, SegmentChangedError
from tierd.log.files.disk import Disk, read_file, replace_file
from tierd.log.files.source import read_whole
from tierd.log.log_errors import CheckpointError
from tierd.model import Lineage, TopicPartition, uuid_from_text, uuid_to_text

PARTITION_METADATA = "partition.metadata"
LEADER_EPOCH_CHECKPOINT = "leader-epoch-checkpoint"
RECOVERY_POINT_CHECKPOINT = "recovery-point-offset-checkpoint"
REPLICATION_OFFSET_CHECKPOINT = "replication-offset-checkpoint"
LOG_START_OFFSET_CHECKPOINT = "log-start-offset-checkpoint"
CLEANER_OFFSET_CHECKPOINT = "cleaner-offset-checkpoint"

_LIMIT_BYTES = 64 << 20
_INTEGER = re.compile(r"[+-]?[0-9]{1,19}", re.ASCII)
_REMEDY = "stop the broker and remove or restore the file; the broker writes it anew"


def read_offset_checkpoint(path: Path) -> dict[TopicPartition, int]:
    """Read an offset checkpoint; empty when the file is absent or empty. Blocking.

    Raises:
        CheckpointError: wrong content; names file and line.
        LogDirOfflineError: the file cannot be read.
    """
    try:
        data = read_whole(path, limit_bytes=_LIMIT_BYTES, error=CheckpointError)
    except SegmentChangedError:
        return {}
    return parse_offset_checkpoint(data, name=str(path))


def parse_offset_checkpoint(data: bytes, *, name: str) -> dict[TopicPartition, int]:
    """Parse ``<topic> <partition> <offset>`` lines; a later line about a partition wins, as in Kafka.

    Raises:
        CheckpointError: wrong content; names the line.
    """
    offsets: dict[TopicPartition, int] = {}
    for line, fields in _entries(data, name):
        if len(fields) != 3:
            _fail(name, line, f"{' '.join(fields)!r} is not <topic> <partition> <offset>")
        partition = _integer(fields[1], 32, name, line)
        offsets[TopicPartition(fields[0], partition)] = _integer(fields[2], 64, name, line)
    return offsets


def read_log_start(directory: Path) -> int | None:
    """Read the entry of a partition directory in the ``log-start-offset-checkpoint`` of its log dir. Blocking.

    None without an entry, and while the entry may be of a former log (``is_of_former_log``).

    Raises:
        CheckpointError, LogDirOfflineError: as ``read_offset_checkpoint``.
    """
    checkpoint = directory.parent / LOG_START_OFFSET_CHECKPOINT
    written_ns = _written_ns(str(checkpoint))  # before the content: of a file that is replaced meanwhile, the older
    start = read_offset_checkpoint(checkpoint).get(TopicPartition.parse(directory.name))
    return None if start is None or is_of_former_log(written_ns, str(directory)) else start


def is_of_former_log(written_ns: int, directory: str) -> bool:
    """Return whether a checkpoint that was written at ``written_ns`` may be about another log of the same name.

    Checkpoints name partitions without topic ids. A broker that starts writes its log starts anew after 30 s: until
    then they are those of its last run, since when the topic may have been deleted and created again. A broker makes
    ``partition.metadata`` with a new log and does not write the file again. A file of the future, which a wrong clock
    has left, tells nothing. Blocking: one look at that file.
    """
    made_ns = _written_ns(f"{directory}/{PARTITION_METADATA}")
    return written_ns < made_ns <= time.time_ns()


def _written_ns(path: str) -> int:
    """Return the modification time of a file; -1 for a file that is not there or cannot be examined."""
    try:
        return os.stat(path).st_mtime_ns  # noqa: PTH116 - asked for many partitions
    except OSError:
        return -1


def read_lineage(path: Path) -> Lineage:
    """Read the ``leader-epoch-checkpoint`` at ``path``, or in the partition directory ``path``. Blocking.

    Raises:
        MissingArtefactError: the file does not exist.
        CheckpointError: wrong content; names file and line.
        LogDirOfflineError: the file cannot be read.
    """
    return read_lineage_file(path if path.name == LEADER_EPOCH_CHECKPOINT else path / LEADER_EPOCH_CHECKPOINT)


def read_lineage_file(file: Path) -> Lineage:
    """Read a ``leader-epoch-checkpoint`` that may have another name. Blocking.

    Raises:
        MissingArtefactError, CheckpointError, LogDirOfflineError: as ``read_lineage``.
    """
    try:
        data = read_whole(file, limit_bytes=_LIMIT_BYTES, error=CheckpointError)
    except SegmentChangedError as error:
        raise MissingArtefactError(
            f"{file}: missing", remedy="restart the broker: it rebuilds the file from the batches"
        ) from error
    return parse_lineage(data, name=str(file))


def parse_lineage(data: bytes, *, name: str, in_order: bool = True) -> Lineage:
    """Parse ``<epoch> <start offset>`` lines; of two epochs with equal start offsets the later one stays.

    Args:
        data: the file.
        name: of the file, for errors.
        in_order: refuse lines that do not ascend; otherwise the later line wins, as in a broker.

    Raises:
        CheckpointError: wrong version, count, number or order; names the line.
    """
    assigned: list[tuple[int, int]] = []
    previous = (-1, -1)
    for line, fields in _entries(data, name):
        if len(fields) != 2:
            _fail(name, line, f"{' '.join(fields)!r} is not <epoch> <start offset>")
        epoch, start_offset = _integer(fields[0], 32, name, line), _integer(fields[1], 64, name, line)
        ascends = epoch > previous[0] and start_offset >= previous[1]
        if epoch < 0 or start_offset < 0 or (in_order and not ascends):
            _fail(name, line, f"epoch {epoch} at offset {start_offset} does not follow the line before it")
        previous = (epoch, start_offset)
        assigned.append(previous)
    return Lineage.of(assigned)


def encode_lineage(lineage: Lineage) -> bytes:
    """Return the bytes that Kafka would write for ``lineage``."""
    lines = [f"{entry.epoch} {entry.start_offset}\n" for entry in lineage.entries]
    return f"0\n{len(lines)}\n{''.join(lines)}".encode()


def load_lineage(disk: Disk, path: Path) -> Lineage:
    """Read the leader epochs of a log that tierd owns; of contradictory lines the later one wins.

    Raises:
        CheckpointError: wrong content; names file and line.
        OSError: the file does not exist or cannot be read.
    """
    return parse_lineage(_load(disk, path), name=str(path), in_order=False)


def write_lineage(disk: Disk, path: Path, lineage: Lineage) -> None:
    """Replace a ``leader-epoch-checkpoint``, durably.

    Raises:
        OSError: the disk is full or failing, or the directory is gone; the old content is still there.
    """
    replace_file(disk, path, encode_lineage(lineage))


def load_offset_checkpoint(disk: Disk, path: Path) -> dict[TopicPartition, int]:
    """Read an offset checkpoint of a log dir that is ours.

    Raises:
        CheckpointError: wrong content; names file and line.
        OSError: the file does not exist or cannot be read.
    """
    return parse_offset_checkpoint(_load(disk, path), name=str(path))


def encode_offset_checkpoint(offsets: Mapping[TopicPartition, int]) -> bytes:
    """Return the bytes that Kafka would write for ``offsets``; their order means nothing."""
    lines = [f"{of.topic} {of.partition} {offset}\n" for of, offset in offsets.items()]
    return f"0\n{len(lines)}\n{''.join(lines)}".encode()


def write_offset_checkpoint(disk: Disk, path: Path, offsets: Mapping[TopicPartition, int]) -> None:
    """Replace an offset checkpoint, durably: with these partitions, and no other.

    Raises:
        OSError: the disk is full or failing; the old content is still there.
    """
    replace_file(disk, path, encode_offset_checkpoint(offsets))


def ensure_checkpoint(disk: Disk, path: Path) -> None:
    """Make an empty checkpoint if the file is missing, as a broker does before it first reads one."""
    disk.open(path, create=True).close()


def read_topic_id(path: Path) -> UUID:
    """Read the ``partition.metadata`` at ``path``, or in the partition directory ``path``. Blocking.

    Raises:
        MissingArtefactError: the file does not exist.
        CheckpointError: it cannot be understood.
        LogDirOfflineError: the file cannot be read.
    """
    file = path if path.name == PARTITION_METADATA else path / PARTITION_METADATA
    try:
        data = read_whole(file, limit_bytes=4096, error=CheckpointError)
    except SegmentChangedError as error:
        raise MissingArtefactError(
            f"{file}: missing", remedy="a broker writes it with the first append; let the broker load the log dir"
        ) from error
    return parse_topic_id(data, name=str(file))


def parse_topic_id(data: bytes, *, name: str) -> UUID:
    """Parse ``version: N`` and ``topic_id: <22 characters>``.

    Raises:
        CheckpointError: anything else, and the all-zero id.
    """
    lines = _text(data, name).splitlines()
    fields = [re.split(r":\s+", line) for line in lines]
    if len(fields) != 2 or [f[0] for f in fields] != ["version", "topic_id"] or {len(f) for f in fields} != {2}:
        _fail(name, 1, "it is not 'version: 0' and 'topic_id: <id>'")
    if _integer(fields[0][1], 32, name, 1) < 0:
        _fail(name, 1, "negative version")
    try:
        topic_id = uuid_from_text(fields[1][1].strip())
    except ValueError as error:
        raise CheckpointError(f"{name}:2: {error}", remedy=_REMEDY) from error
    if not topic_id.int:
        _fail(name, 2, "the topic id is all zeros")
    return topic_id


def encode_topic_id(topic_id: UUID) -> bytes:
    """Return the bytes of ``partition.metadata``; the last line does not end."""
    return f"version: 0\ntopic_id: {uuid_to_text(topic_id)}".encode()


def _load(disk: Disk, path: Path) -> bytes:
    """Read a text file whole, unless it is larger than any such file."""
    status = disk.status(path)
    if status is not None and status.size_bytes > _LIMIT_BYTES:
        _fail(str(path), 1, f"{status.size_bytes} bytes are too many")
    return read_file(disk, path)


def _entries(data: bytes, name: str) -> Iterator[tuple[int, list[str]]]:
    """Check version and count; yield (line number, fields) of every entry."""
    lines = _text(data, name).split("\n")
    if lines[-1] == "":
        lines.pop()
    if not lines:
        return
    if _integer(lines[0].strip(), 32, name, 1) != 0:
        _fail(name, 1, f"version {lines[0]!r} is not known, only 0")
    if len(lines) == 1:
        return
    count = _integer(lines[1].strip(), 32, name, 2)
    if count != len(lines) - 2:
        _fail(name, 2, f"it promises {count} entries, {len(lines) - 2} follow")
    for line, text in enumerate(lines[2:], start=3):
        yield line, text.split()


def _text(data: bytes, name: str) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise CheckpointError(f"{name}:{line}: not UTF-8 text", remedy=_REMEDY) from error


def _integer(text: str, bits: int, name: str, line: int) -> int:
    """Parse strictly: int() alone would take underscores and the digits of every script."""
    value = int(text) if _INTEGER.fullmatch(text) else None
    if value is None or not -(1 << bits - 1) <= value < 1 << bits - 1:
        _fail(name, line, f"{text[:40]!r} is not a {bits}-bit number")
    return value


def _fail(name: str, line: int, problem: str) -> NoReturn:
    raise CheckpointError(f"{name}:{line}: {problem}", remedy=_REMEDY)
