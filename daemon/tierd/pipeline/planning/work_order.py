"""WorkOrder: everything that a job must know of one run, decided before the job starts; values only.

::

    WorkOrder ── PartitionWork ─┬─ inputs   s0 s1 s2 s3 s4 s5    ascending, every one of them readable
                                └─ groups  [s0 s1 s2][s3][s4 s5]  each becomes one output, or stays as it is
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import pairwise
from typing import Annotated, ClassVar, NamedTuple
from uuid import UUID

from pydantic import ConfigDict, PlainSerializer, PlainValidator

from tierd.errors import InvalidMetadataError, MetadataDecodeError
from tierd.kernels import HASH_SECRET_BYTES
from tierd.log import AbortedTransaction, ProducerStateEntry, parse_producer_snapshot
from tierd.metadata import decode_segment, encode_segment
from tierd.model import (
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    TopicIdPartition,
    uuid_from_text,
    uuid_to_text,
)
from tierd.pipeline.pipeline_errors import WorkOrderError
from tierd.remote import KEY_SEED_BYTES


class ChannelJson:
    """Base of what leader and job send to one another as JSON: nothing unknown, no other types, bytes in base64."""

    __slots__ = ()
    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(
        extra="forbid", strict=True, ser_json_bytes="base64", val_json_bytes="base64"
    )


def _encoded(metadata: RemoteLogSegmentMetadata) -> list[str | int]:
    """Return topic id, topic, partition, segment id, and the value of the segment's row in the metadata store."""
    partition = metadata.segment.topic_id_partition
    ids = (uuid_to_text(partition.topic_id), partition.topic, partition.partition, uuid_to_text(metadata.segment.id))
    return [*ids, encode_segment(metadata).decode()]


def _decoded(value: object) -> RemoteLogSegmentMetadata:
    if isinstance(value, RemoteLogSegmentMetadata):
        return value
    match value:
        case [str(topic_id), str(topic), int(partition), str(segment_id), str(row)]:
            place = TopicIdPartition(uuid_from_text(topic_id), topic, partition)
            return _row(RemoteLogSegmentId(place, uuid_from_text(segment_id)), row)
        case _:
            raise ValueError("not a segment: topic id, topic, partition, segment id and row")


def _row(segment: RemoteLogSegmentId, row: str) -> RemoteLogSegmentMetadata:
    try:
        return decode_segment(str(segment), row.encode(), segment)[0]
    except (MetadataDecodeError, InvalidMetadataError) as error:
        raise ValueError(str(error)) from error


SegmentRow = Annotated[RemoteLogSegmentMetadata, PlainSerializer(_encoded), PlainValidator(_decoded)]
"""Segment metadata; fields of a later tierd are dropped, for leader and job are of one version."""


class WorkKind(StrEnum):
    """Kind of work on a partition in this run."""

    COMPACT = "compact"
    MERGE = "merge"
    ERASE = "erase"
    AUDIT = "audit"


class Group(NamedTuple):
    """Neighbouring inputs that become one output: places in ``PartitionWork.inputs``, both inclusive."""

    first: int
    last: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionWork(ChannelJson):
    """One partition's part of an order.

    Attributes:
        index: place of this work in the order; the job names the work by it.
        inputs: ascending by offset, COPY_SEGMENT_FINISHED; all segments in which the latest record of a key is
            searched.
        groups: ascending and disjoint. An input in no group stays as it is.
        first_dirty_offset: below it everything was compacted before.
        round_end_offset: exclusive; the last input ends before it, and no batch of the round lies beyond it.
        delete_retention_ms: time for which a tombstone, or the marker of a transaction without data, is kept.
        expire_before_ms: records with an older timestamp are removed; None where records do not expire one by one.
        erased_keys: every record with such a key is removed, tombstones too.
        removes_unread: a batch that unpacks to more than tierd opens is removed too, for an erased key may be in it.
        is_compacted_topic: True if readers take the last record of a key for its value, whatever the kind of this work.
        aborted: transactions of the whole tier that begin below ``round_end_offset``, ascending by their markers.
        producer_snapshot: of the last finished segment of the tier, as Kafka writes it; empty in an audit.

    Raises:
        ValueError: the parts do not fit together.
    """

    index: int
    partition: TopicIdPartition
    kind: WorkKind
    inputs: tuple[SegmentRow, ...]
    groups: tuple[Group, ...]
    first_dirty_offset: int
    round_end_offset: int
    delete_retention_ms: int
    producer_snapshot: bytes
    expire_before_ms: int | None = None
    erased_keys: frozenset[bytes] = frozenset()
    removes_unread: bool = False
    is_compacted_topic: bool = False
    aborted: tuple[AbortedTransaction, ...] = ()

    def __post_init__(self) -> None:
        for metadata in self.inputs:
            if metadata.segment.topic_id_partition != self.partition:
                raise ValueError(f"input {metadata.segment} is not of {self.partition}")
        for former, later in pairwise(self.inputs):
            if later.start_offset <= former.start_offset:
                raise ValueError(f"input {later.segment} does not follow {former.segment}")
        for first, last in self.groups:
            if not 0 <= first <= last < len(self.inputs):
                raise ValueError(f"group {first}-{last} is none of {len(self.inputs)} inputs")
        for one, other in pairwise(self.groups):
            if other.first <= one.last:
                raise ValueError(f"group {other.first}-{other.last} does not follow {one.first}-{one.last}")
        if self.inputs and self.inputs[-1].end_offset >= self.round_end_offset:
            raise ValueError(f"input {self.inputs[-1].segment} ends beyond offset {self.round_end_offset}")

    @property
    def compacts(self) -> bool:
        """Return True if only the latest record of a key stays; otherwise nothing goes but what is erased."""
        return self.kind is WorkKind.COMPACT

    @property
    def is_of_latest(self) -> bool:
        """Return True if the keys of the inputs are searched, in this run or in a later one."""
        return self.compacts or self.is_compacted_topic

    @property
    def is_ordered(self) -> bool:
        """Return True if a removed record may have hidden an older one of its key in an earlier group."""
        return self.compacts or (self.is_compacted_topic and bool(self.erased_keys))

    def group_inputs(self, number: int) -> tuple[RemoteLogSegmentMetadata, ...]:
        """Return the inputs of group ``number``, ascending."""
        first, last = self.groups[number]
        return self.inputs[first : last + 1]

    def group_of(self, place: int) -> int | None:
        """Return the number of the group that has the input at ``place``; None if no group has it."""
        return next((number for number, (first, last) in enumerate(self.groups) if first <= place <= last), None)

    def erased_places(self, counts: Mapping[bytes, int]) -> dict[int, int]:
        """Return ``counts`` of erased keys by the place of each key among all ``erased_keys``, ascending."""
        return {place: counts[key] for place, key in enumerate(sorted(self.erased_keys)) if key in counts}

    def erased_counts(self, places: Mapping[int, int]) -> dict[bytes, int]:
        """Return the counts by erased key: the inverse of ``erased_places``.

        Raises:
            WorkOrderError: there is no erased key at a place.
        """
        if unknown := [place for place in places if not 0 <= place < len(self.erased_keys)]:
            raise WorkOrderError(
                f"the order erases {len(self.erased_keys)} keys from {self.partition}, none at place {unknown[0]}",
                remedy="leader and job must be of one tierd",
            )
        return {key: places[place] for place, key in enumerate(sorted(self.erased_keys)) if place in places}

    def live_producers(self) -> Mapping[int, ProducerStateEntry]:
        """Return the state of the producers at the end of the tier, by producer id.

        Raises:
            CorruptIndexError: the snapshot cannot be understood.
        """
        entries = parse_producer_snapshot(self.producer_snapshot, f"producer snapshot of {self.partition}")
        return {entry.producer_id: entry for entry in entries}


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkOrder:
    """Order of one run. The same order gives the same outputs, byte for byte.

    Attributes:
        now_ms: wall clock of the run, for every decision in it.
        secret: key of the hash by which keys are compared, that of the metadata store: no producer can prepare keys
            that collide. Not in ``repr``.
        partitions: works, each at the place of its ``index``. An audit is a work of its own, perhaps beside another
            work of the same partition, but of other segments.

    Raises:
        ValueError: the parts do not fit together.
    """

    run_id: UUID
    now_ms: int
    secret: bytes
    partitions: tuple[PartitionWork, ...]

    def __post_init__(self) -> None:
        if len(self.secret) != HASH_SECRET_BYTES:
            raise ValueError(f"a secret of {len(self.secret)} bytes, not {HASH_SECRET_BYTES}")
        for place, work in enumerate(self.partitions):
            if work.index != place:
                raise ValueError(f"{work.partition} has the index {work.index} at place {place}")

    def __repr__(self) -> str:
        return f"WorkOrder(run_id={self.run_id}, now_ms={self.now_ms}, partitions={len(self.partitions)})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Output(ChannelJson):
    """Segment that a group is to become.

    Attributes:
        index: of the partition in the order.
        group: place in that partition's ``groups``.
        metadata: COPY_SEGMENT_STARTED, with provisional size, largest timestamp and ``txn_index_empty``. The
            task that writes the objects replaces these by the true ones, and changes nothing else.
        key_seed: secret from which, with the content of the output, the data key is made, so that every task with the
            same content makes the same objects. Not in ``repr``.

    Raises:
        ValueError: the seed has another length.
    """

    index: int
    group: int
    metadata: SegmentRow
    key_seed: bytes = field(repr=False)

    def __post_init__(self) -> None:
        if len(self.key_seed) != KEY_SEED_BYTES:
            raise ValueError(f"a seed of {len(self.key_seed)} bytes, not {KEY_SEED_BYTES}")
