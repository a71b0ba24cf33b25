"""ChangelogSource: the reader's view of changelogs, wherever their segments lie (changelog-restore 3.2)."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import compress
from operator import add
from struct import Struct
from typing import Any, Protocol, Self
from uuid import UUID

from tierd.log import Record
from tierd.model import IsolationLevel, Lineage, TopicPartition

Headers = tuple[tuple[str, bytes | None], ...]

_TIMESTAMP = Struct(">q")


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangelogRecords:
    """Records of one changelog as columns of equal length, ascending by offset.

    Columns rather than objects: a store of ten million keys is filled without one Python object per record. Keys and
    values are what the producer wrote. A value None is a tombstone, ``b""`` is a value. A key None is kept here; the
    reader skips the record. Control records and, for ``READ_COMMITTED``, aborted records never appear.

    Attributes:
        timestamp_types: ``CreateTime`` or ``LogAppendTime``, as in ``Record``.
        leader_epochs: -1 for a batch without one.
    """

    offsets: list[int] = field(default_factory=list)
    timestamps_ms: list[int] = field(default_factory=list)
    keys: list[bytes | None] = field(default_factory=list)
    values: list[bytes | None] = field(default_factory=list)
    headers: list[Headers] = field(default_factory=list)
    leader_epochs: list[int] = field(default_factory=list)
    timestamp_types: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, records: Iterable[Record]) -> Self:
        """Return the columns of ``records``."""
        rows = list(records)
        return cls(
            offsets=[row.offset for row in rows],
            timestamps_ms=[row.timestamp_ms for row in rows],
            keys=[row.key for row in rows],
            values=[row.value for row in rows],
            headers=[row.headers for row in rows],
            leader_epochs=[row.leader_epoch for row in rows],
            timestamp_types=[row.timestamp_type for row in rows],
        )

    def part(self, start: int, stop: int) -> "ChangelogRecords":
        """Return the records from index ``start`` (inclusive) to ``stop`` (exclusive)."""
        return self._map(lambda column: column[start:stop])

    def with_keys(self) -> "ChangelogRecords":
        """Return the records whose key is not None."""
        if None not in self.keys:
            return self
        kept = [key is not None for key in self.keys]
        return self._map(lambda column: list(compress(column, kept)))

    def extend(self, other: "ChangelogRecords") -> None:
        """Append the records of ``other``, all of which have larger offsets."""
        for column, more in zip(self.columns(), other.columns(), strict=True):
            column.extend(more)

    def drop(self, count: int) -> None:
        """Remove the first ``count`` records."""
        for column in self.columns():
            del column[:count]

    @property
    def first_offset(self) -> int:
        """Return the offset of the first record; there must be one."""
        return self.offsets[0]

    @property
    def last_offset(self) -> int:
        """Return the offset of the last record; there must be one."""
        return self.offsets[-1]

    @property
    def last_leader_epoch(self) -> int:
        """Return the leader epoch of the last record; there must be one."""
        return self.leader_epochs[-1]

    @property
    def payload_bytes(self) -> int:
        """Return the bytes of keys and values."""
        return sum(map(len, filter(None, self.keys))) + sum(map(len, filter(None, self.values)))

    def __len__(self) -> int:
        return len(self.offsets)

    def __iter__(self) -> Iterator[Record]:
        """Yield the records one by one, for code that need not be fast."""
        columns = zip(
            self.offsets,
            self.timestamps_ms,
            self.timestamp_types,
            self.keys,
            self.values,
            self.headers,
            self.leader_epochs,
            strict=True,
        )
        return (Record(*row) for row in columns)

    def columns(self) -> tuple[list[Any], ...]:
        """Return the lists, each of all records."""
        return (
            self.offsets,
            self.timestamps_ms,
            self.keys,
            self.values,
            self.headers,
            self.leader_epochs,
            self.timestamp_types,
        )

    def _map(self, change: Callable[[list[Any]], list[Any]]) -> "ChangelogRecords":
        offsets, timestamps_ms, keys, values, headers, leader_epochs, timestamp_types = map(change, self.columns())
        return ChangelogRecords(
            offsets=offsets,
            timestamps_ms=timestamps_ms,
            keys=keys,
            values=values,
            headers=headers,
            leader_epochs=leader_epochs,
            timestamp_types=timestamp_types,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadResult:
    """Records of one read.

    Attributes:
        records: may be empty although ``next_offset`` moved on: emptied, aborted and control batches.
        next_offset: last offset of the last batch that was read, plus 1; the only position to read on from. Equal to
            the offset that was asked for only if ``at_end``.
        size_bytes: log bytes that were read.
        remote_bytes: those of ``size_bytes`` that came from the tier.
        at_end: nothing was left at ``next_offset`` for this isolation level when the read was made.
    """

    records: ChangelogRecords
    next_offset: int
    size_bytes: int
    at_end: bool
    remote_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangelogIdentity:
    """Facts that tell whether an offset of an earlier run still means the same record.

    Attributes:
        topic_id: None where the source cannot know it.
        lineage: leader epochs of the log; empty where the source cannot know them.
        delete_retention_ms: ``delete.retention.ms`` of a compacted topic; None for a topic that is not compacted.
    """

    topic_id: UUID | None
    lineage: Lineage
    delete_retention_ms: int | None


class ChangelogSource(Protocol):
    """Reads changelogs. Every call may be repeated, and calls for several partitions may run at the same time.

    Every call ends: a source has deadlines and attempts of its own, and then says that it is unavailable.

    Raises, from every call:
        SourceUnavailableError: retriable; nothing changed. Raised after the attempts of the source itself.
        CorruptSourceError: the changelog is damaged at this place.
        UnknownPartitionError: the source does not have the partition (``list_partitions`` does not name it).
    """

    async def list_partitions(self) -> frozenset[TopicPartition]:
        """Return the partitions that the source has."""

    async def identity(self, partition: TopicPartition) -> ChangelogIdentity:
        """Return the identity of the changelog as it is now."""

    async def earliest_offset(self, partition: TopicPartition) -> int:
        """Return the log start, inclusive."""

    async def end_offset(self, partition: TopicPartition, isolation: IsolationLevel) -> int:
        """Return the exclusive end: the log end for ``READ_UNCOMMITTED``, else the last stable offset."""

    async def committed_offset(self, group: str, partition: TopicPartition) -> int | None:
        """Return the committed offset of a consumer group; None where it has none.

        Only settled commits count: a commit of a transaction that is still open is waited for, or answered with
        ``SourceUnavailableError``.
        """

    async def read(
        self,
        partition: TopicPartition,
        offset: int,
        *,
        max_bytes: int,
        isolation: IsolationLevel,
        is_encoded: bool = False,
    ) -> ReadResult:
        """Read batches from ``offset`` on: about ``max_bytes`` of them, and at least one if there is one.

        Records below ``offset`` in the first batch are left out. The call never waits for records to be written: at
        the end it returns no record, ``next_offset`` as asked, and ``at_end``. A read never passes a hole silently: in
        a compacted topic it jumps to the next segment, in any other topic a hole is ``CorruptSourceError``.

        Args:
            partition: the changelog.
            offset: of the first record.
            max_bytes: about the size of the batches.
            isolation: which records.
            is_encoded: the records may be ``EncodedRecords``, whose lists are made in the thread that asks for them.

        Raises:
            ChangelogRangeError: ``offset`` lies below the log start or above the log end (whatever the isolation).
        """


def converted(records: ChangelogRecords, *, timestamped: bool) -> ChangelogRecords:
    """Return the records as a store takes them.

    For a timestamped store the value is ``timestamp i64 big-endian | value``. A tombstone stays a tombstone.
    """
    if not timestamped:
        return records
    pack = _TIMESTAMP.pack
    if None in records.values:
        values = [
            None if value is None else pack(timestamp_ms) + value
            for timestamp_ms, value in zip(records.timestamps_ms, records.values, strict=True)
        ]
    else:  # a loop without bytecode
        values = list(map(add, map(pack, records.timestamps_ms), records.values))
    return ChangelogRecords(
        offsets=records.offsets,
        timestamps_ms=records.timestamps_ms,
        keys=records.keys,
        values=values,
        headers=records.headers,
        leader_epochs=records.leader_epochs,
        timestamp_types=records.timestamp_types,
    )
