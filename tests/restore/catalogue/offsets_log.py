"""Records of ``__consumer_offsets`` as brokers write them, and a log of them in the form of a broker's log dir."""

import struct
from collections.abc import Sequence
from pathlib import Path
from uuid import UUID, uuid4

from tierd.log import (
    ControlRecordType,
    NewRecord,
    Producer,
    RecordBatch,
    encode_batch,
    encode_end_marker,
    iter_batches,
)
from tierd.model import TopicPartition, uuid_to_text
from tierd.restore.catalogue.offsets_codec import OffsetCommitValue

NOW_MS = 1_700_000_000_000


def text(value: str) -> bytes:
    """Return a string with its length in two bytes."""
    encoded = value.encode()
    return struct.pack(">h", len(encoded)) + encoded


def commit_key(group: str, partition: TopicPartition, *, version: int = 1) -> bytes:
    """Return the key of a committed offset."""
    return struct.pack(">h", version) + text(group) + text(partition.topic) + struct.pack(">i", partition.partition)


def commit_value(value: OffsetCommitValue, *, version: int = 3) -> bytes:
    """Return the value of a committed offset, without the fields that ``version`` lacks."""
    parts = [struct.pack(">hq", version, value.offset)]
    if version >= 3:
        parts.append(struct.pack(">i", value.leader_epoch))
    encoded = value.metadata.encode()
    parts.append(unsigned_varint(len(encoded) + 1) + encoded if version >= 4 else text(value.metadata))
    parts.append(struct.pack(">q", value.committed_ms))
    if version == 1:
        parts.append(struct.pack(">q", -1 if value.expire_ms is None else value.expire_ms))
    if version >= 4:
        tagged = b"" if value.topic_id is None else b"\x00\x10" + value.topic_id.bytes
        parts.append(unsigned_varint(1 if tagged else 0) + tagged)
    return b"".join(parts)


def unsigned_varint(value: int) -> bytes:
    """Return a number in groups of seven bits, the lowest first."""
    groups = bytearray()
    while value >= 0x80:
        groups.append(value & 0x7F | 0x80)
        value >>= 7
    groups.append(value)
    return bytes(groups)


def commit(
    offset: int | None,
    *,
    group: str = "billing",
    topic: str = "orders",
    partition: int = 0,
    expire_ms: int | None = None,
    version: int = 3,
) -> NewRecord:
    """Return the record of a commit; None as the offset makes it a tombstone."""
    key = commit_key(group, TopicPartition(topic, partition))
    if offset is None:
        return NewRecord(key, None, NOW_MS)
    value = OffsetCommitValue(offset, -1, "", NOW_MS, expire_ms)
    return NewRecord(key, commit_value(value, version=version), NOW_MS)


def parsed(data: bytes) -> RecordBatch:
    """Return the one batch in ``data``."""
    (batch,) = iter_batches(data, name="offsets")
    return batch


class OffsetsLog:
    """Partition directory of ``__consumer_offsets`` to which a test appends. The high watermark follows at once."""

    def __init__(
        self, log_dir: Path, number: int = 0, *, topic_id: UUID | None = None, name: TopicPartition | None = None
    ) -> None:
        self.log_dir = log_dir
        self.name = name or TopicPartition("__consumer_offsets", number)
        self.topic_id = topic_id or uuid4()
        self.directory = log_dir / str(self.name)
        self.next_offset = 0
        self._base = 0
        self.directory.mkdir(parents=True)
        (self.directory / "partition.metadata").write_text(f"version: 0\ntopic_id: {uuid_to_text(self.topic_id)}")
        (self.directory / "leader-epoch-checkpoint").write_text("0\n1\n0 0\n")
        self._append(b"")

    def commit(self, *records: NewRecord, producer_id: int | None = None) -> None:
        """Append the records as one batch; with a producer id as a part of its transaction."""
        producer = Producer() if producer_id is None else Producer(producer_id, 0, 0)
        is_open = producer_id is not None
        self._append(
            encode_batch(records, base_offset=self.next_offset, producer=producer, is_transactional=is_open),
            count=len(records),
        )

    def end(self, producer_id: int, kind: ControlRecordType = ControlRecordType.COMMIT) -> None:
        """Append the marker of the transaction."""
        marker = encode_end_marker(
            kind=kind,
            producer_id=producer_id,
            producer_epoch=0,
            coordinator_epoch=0,
            timestamp_ms=NOW_MS,
            base_offset=self.next_offset,
        )
        self._append(marker, count=1)

    def roll(self) -> None:
        """Begin a new segment."""
        self._base = self.next_offset
        self._append(b"")

    def delete_first_segment(self) -> None:
        """Remove the oldest segment."""
        min(self.directory.glob("*.log")).unlink()

    def damage(self, position: int = 70) -> None:
        """Change one byte of the active segment; a negative position counts from its end."""
        with (self.directory / f"{self._base:020d}.log").open("r+b") as file:
            at = file.seek(position, 2 if position < 0 else 0)
            byte = file.read(1)[0]
            file.seek(at)
            file.write(bytes([byte ^ 1]))

    def watermark(self, offset: int | None, others: Sequence[tuple[TopicPartition, int]] = ()) -> None:
        """Write the checkpoint of the high watermarks; None leaves the partition out."""
        rows = [*others, *([] if offset is None else [(self.name, offset)])]
        lines = [f"{name.topic} {name.partition} {value}" for name, value in rows]
        (self.log_dir / "replication-offset-checkpoint").write_text("\n".join(["0", str(len(lines)), *lines, ""]))

    def _append(self, data: bytes, *, count: int = 0) -> None:
        with (self.directory / f"{self._base:020d}.log").open("ab") as file:
            file.write(data)
        self.next_offset += count
        self.watermark(self.next_offset)
