"""Log dirs in the form of a broker, of any size and at disk speed: valid batches, indexes, snapshots, checkpoints.

Log dirs of Kafka itself are in ``tests/golden``; this module writes shapes and sizes that no archive should have.
Its producers are neither idempotent nor transactional.
"""

import os
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID, uuid4

from crc32c import crc32c

from tierd.log import NewRecord, build_indexes, encode_batch, iter_batches
from tierd.log.records.batch_restamp import set_last_offset, set_leader_epoch
from tierd.model import TopicPartition, uuid_to_text

CLUSTER_ID = "dGllcmQtc3ludGhldGljLQ"
INDEX_INTERVAL_BYTES = 4096
FIRST_TIMESTAMP_MS = 1_700_000_000_000

_EMPTY_SNAPSHOT = struct.pack(">hIi", 1, crc32c(struct.pack(">i", 0)), 0)


def make_batch(
    values: Sequence[bytes | None], *, base_offset: int = 0, timestamp_ms: int = FIRST_TIMESTAMP_MS
) -> bytes:
    """Build one uncompressed batch; records get consecutive offsets and milliseconds."""
    records = [NewRecord(None, value, timestamp_ms + n) for n, value in enumerate(values)]
    return encode_batch(records, base_offset=base_offset, leader_epoch=0)


def restamped(batch: bytes, *, last_offset: int, leader_epoch: int) -> bytearray:
    """Return the same batch at another offset and epoch."""
    stamped = bytearray(batch)
    set_last_offset(stamped, last_offset)
    set_leader_epoch(stamped, leader_epoch)
    return stamped


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentShape:
    """Content of a synthetic segment: equal batches."""

    batches: int = 2
    records_per_batch: int = 4
    value_bytes: int = 200

    def batch(self, *, timestamp_ms: int = FIRST_TIMESTAMP_MS) -> bytes:
        """Return the batch that such segments repeat."""
        value = bytes(range(256)) * (self.value_bytes // 256 + 1)
        return make_batch([value[: self.value_bytes]] * self.records_per_batch, timestamp_ms=timestamp_ms)


class PartitionWriter:
    """Writer of one partition directory that appends and rolls like a broker."""

    def __init__(
        self, log_dir: Path, partition: TopicPartition, *, topic_id: UUID, leader_epoch: int = 0, first_offset: int = 0
    ) -> None:
        self.path = log_dir / str(partition)
        self.partition = partition
        self.topic_id = topic_id
        self.end_offset = first_offset
        self._epochs = [(leader_epoch, first_offset)]
        self._base_offset = first_offset
        self._position = 0
        self._unindexed_bytes = 0
        self._max_timestamp_ms = -1
        self._last_entry_timestamp_ms = -1
        self._offset_of_max_timestamp = first_offset
        self.path.mkdir(parents=True)
        (self.path / "partition.metadata").write_text(f"version: 0\ntopic_id: {uuid_to_text(topic_id)}")
        self._write_epochs()
        self._begin_segment()

    @property
    def leader_epoch(self) -> int:
        """Return the epoch of the next batch."""
        return self._epochs[-1][0]

    @property
    def active_segment(self) -> Path:
        """Return the log file of the active segment."""
        return self._file("log")

    def append(self, values: Sequence[bytes | None], *, timestamp_ms: int = FIRST_TIMESTAMP_MS) -> None:
        """Append one batch of ``values``."""
        self.append_batch(make_batch(values, timestamp_ms=timestamp_ms), len(values))

    def append_batch(self, batch: bytes, record_count: int, *, times: int = 1) -> None:
        """Append ``batch`` unchanged, ``times`` times, at the next offsets and the present epoch."""
        pieces: list[bytearray] = []
        offset_index, time_index = bytearray(), bytearray()
        batch_max_ms: int = struct.unpack_from(">q", batch, 35)[0]
        for n in range(times):
            last_offset = self.end_offset + record_count - 1
            if batch_max_ms > self._max_timestamp_ms:
                self._max_timestamp_ms, self._offset_of_max_timestamp = batch_max_ms, last_offset
            if self._unindexed_bytes > INDEX_INTERVAL_BYTES:
                position = self._position + n * len(batch)
                offset_index += struct.pack(">ii", last_offset - self._base_offset, position)
                time_index += self._time_entry()
                self._unindexed_bytes = 0
            self._unindexed_bytes += len(batch)
            pieces.append(restamped(batch, last_offset=last_offset, leader_epoch=self.leader_epoch))
            self.end_offset += record_count
        self._position += len(batch) * times
        self._extend("log", b"".join(pieces))
        self._extend("index", offset_index)
        self._extend("timeindex", time_index)

    def roll(self) -> None:
        """Close the active segment and begin the next one at the log's end."""
        self._extend("timeindex", self._time_entry())  # every rolled segment ends with its largest timestamp
        self._begin_segment()
        (self.path / f"{self.end_offset:020d}.snapshot").write_bytes(_EMPTY_SNAPSHOT)

    def cut_back(self, end_offset: int) -> None:
        """Cut unflushed records, like the recovery of a killed broker: a lower end, the same leader epoch.

        ``end_offset`` is the first offset of a batch.
        """
        for log in sorted(self.path.glob("*.log"), reverse=True):
            base_offset = int(log.stem)
            data = log.read_bytes()
            kept = [b for b in iter_batches(data, name=str(log)) if b.last_offset < end_offset]
            if base_offset > end_offset and base_offset > int(min(self.path.glob("*.log")).stem):
                for file in self.path.glob(f"{base_offset:020d}.*"):
                    file.unlink()
                continue
            self.end_offset, self._base_offset, self._unindexed_bytes = end_offset, base_offset, 0
            self._position = sum(batch.size_bytes for batch in kept)
            self._max_timestamp_ms = max((batch.max_timestamp_ms for batch in kept), default=-1)
            self._offset_of_max_timestamp = kept[-1].last_offset if kept else base_offset
            self._last_entry_timestamp_ms = -1
            os.truncate(log, self._position)
            offsets, times = build_indexes(log, base_offset=base_offset, index_interval_bytes=INDEX_INTERVAL_BYTES)
            self._file("index").write_bytes(offsets)
            self._file("timeindex").write_bytes(times)
            return

    def begin_epoch(self, leader_epoch: int) -> None:
        """Begin the epoch of a new leader: later batches carry ``leader_epoch``."""
        self._epochs.append((leader_epoch, self.end_offset))
        self._write_epochs()

    def forget_epochs_below(self, offset: int) -> None:
        """Drop epochs below a new log start; a broker keeps the epoch that contains ``offset``."""
        later = [entry for entry in self._epochs if entry[1] > offset]
        earlier = [entry for entry in self._epochs if entry[1] <= offset]
        self._epochs = [*((epoch, offset) for epoch, _ in earlier[-1:]), *later]
        self._write_epochs()

    def fill(self, *, rolled_segments: int, shape: SegmentShape) -> None:
        """Write ``rolled_segments`` whole segments and one batch of an active one."""
        batch = shape.batch()
        for _ in range(rolled_segments):
            self.append_batch(batch, shape.records_per_batch, times=shape.batches)
            self.roll()
        self.append_batch(batch, shape.records_per_batch)

    def _begin_segment(self) -> None:
        self._base_offset = self.end_offset
        self._position = 0
        self._unindexed_bytes = 0
        self._max_timestamp_ms = self._last_entry_timestamp_ms = -1
        self._offset_of_max_timestamp = self._base_offset
        for suffix in ("log", "index", "timeindex"):
            self._file(suffix).touch()

    def _time_entry(self) -> bytes:
        """Return the time index's next entry; None where no later timestamp came (log-format 3.1)."""
        if self._max_timestamp_ms <= self._last_entry_timestamp_ms:
            return b""
        self._last_entry_timestamp_ms = self._max_timestamp_ms
        return struct.pack(">qi", self._max_timestamp_ms, self._offset_of_max_timestamp - self._base_offset)

    def _extend(self, suffix: str, data: bytes | bytearray) -> None:
        if data:
            with self._file(suffix).open("ab") as file:
                file.write(data)

    def _file(self, suffix: str) -> Path:
        return self.path / f"{self._base_offset:020d}.{suffix}"

    def _write_epochs(self) -> None:
        lines = [f"{epoch} {start}\n" for epoch, start in self._epochs]
        _replace(self.path / "leader-epoch-checkpoint", f"0\n{len(lines)}\n{''.join(lines)}")


class LogDirWriter:
    """Writer of a whole log dir: partitions, ``meta.properties`` and the checkpoints."""

    def __init__(self, path: Path, *, cluster_id: str = CLUSTER_ID, node_id: int = 1) -> None:
        self.path = path
        self.partitions: dict[TopicPartition, PartitionWriter] = {}
        path.mkdir(parents=True, exist_ok=True)
        (path / "meta.properties").write_text(
            f"#\n#Sat Nov 21 09:15:31 UTC 2026\nnode.id={node_id}\ndirectory.id={uuid_to_text(uuid4())}\n"
            f"version=1\ncluster.id={cluster_id}\n"
        )

    def add_partition(
        self, topic: str, partition: int = 0, *, topic_id: UUID | None = None, leader_epoch: int = 0
    ) -> PartitionWriter:
        """Begin an empty partition; its high watermark counts after ``write_checkpoints``."""
        name = TopicPartition(topic, partition)
        writer = PartitionWriter(self.path, name, topic_id=topic_id or uuid4(), leader_epoch=leader_epoch)
        self.partitions[name] = writer
        return writer

    def roll(self) -> None:
        """Roll the active segment of each partition, write some batches behind it, and replace the checkpoints."""
        for writer in self.partitions.values():
            writer.roll()
            writer.fill(rolled_segments=0, shape=SegmentShape())
        self.write_checkpoints()

    def write_checkpoints(self) -> None:
        """Replace the checkpoints, with every log's end as its high watermark."""
        lines = [f"{p.topic} {p.partition} {writer.end_offset}\n" for p, writer in self.partitions.items()]
        for name in ("replication-offset-checkpoint", "recovery-point-offset-checkpoint"):
            _replace(self.path / name, f"0\n{len(lines)}\n{''.join(lines)}")
        _replace(self.path / "log-start-offset-checkpoint", "0\n0\n")


def write_log_dir(
    path: Path, *, partitions: int, rolled_segments: int, shape: SegmentShape | None = None, topic: str = "synthetic"
) -> LogDirWriter:
    """Write one topic of ``partitions`` partitions, each with ``rolled_segments`` rolled segments and an active one."""
    log_dir = LogDirWriter(path)
    topic_id = uuid4()
    for partition in range(partitions):
        writer = log_dir.add_partition(topic, partition, topic_id=topic_id)
        writer.fill(rolled_segments=rolled_segments, shape=shape or SegmentShape())
    log_dir.write_checkpoints()
    return log_dir


def _replace(path: Path, text: str) -> None:
    temporary = path.with_name(path.name + ".tmp")
    temporary.write_text(text)
    temporary.replace(path)
