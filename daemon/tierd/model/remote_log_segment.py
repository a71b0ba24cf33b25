"""Metadata of one remote segment, and the states of its life (remote-tiering 2 and 3; KIP-405)."""

from dataclasses import dataclass, replace
from enum import Enum, IntEnum
from pathlib import Path
from typing import Final, Self
from uuid import UUID

from tierd.errors import InvalidMetadataError, InvalidSegmentTransitionError
from tierd.model.block_checksums import BlockChecksums
from tierd.model.identifiers import RemoteLogSegmentId
from tierd.model.lineage import EpochEntry, segment_epochs_problem
from tierd.model.timestamp_ranges import TimestampRange


class RemoteLogSegmentState(IntEnum):
    """State of a remote segment; the numbers are Kafka's.

    ::

        (absent) ──add──► COPY_SEGMENT_STARTED ──► COPY_SEGMENT_FINISHED
                                   │                        │
                                   └──► DELETE_SEGMENT_STARTED ──► DELETE_SEGMENT_FINISHED

    Every state may become itself, for retries. One more step, which Kafka lacks, is no update and has its own request:
    undelete, from DELETE_SEGMENT_STARTED back to COPY_SEGMENT_FINISHED, while every object is still there.
    """

    COPY_SEGMENT_STARTED = 0
    COPY_SEGMENT_FINISHED = 1
    DELETE_SEGMENT_STARTED = 2
    DELETE_SEGMENT_FINISHED = 3

    def may_become(self, target: "RemoteLogSegmentState") -> bool:
        """Return True if the lifecycle has this step."""
        return target == self or (self, target) in _STEPS


_STEPS = frozenset(
    {
        (RemoteLogSegmentState.COPY_SEGMENT_STARTED, RemoteLogSegmentState.COPY_SEGMENT_FINISHED),
        (RemoteLogSegmentState.COPY_SEGMENT_STARTED, RemoteLogSegmentState.DELETE_SEGMENT_STARTED),
        (RemoteLogSegmentState.COPY_SEGMENT_FINISHED, RemoteLogSegmentState.DELETE_SEGMENT_STARTED),
        (RemoteLogSegmentState.DELETE_SEGMENT_STARTED, RemoteLogSegmentState.DELETE_SEGMENT_FINISHED),
    }
)


_REPLACED: Final = "replaced"


@dataclass(frozen=True, slots=True)
class SoftDelete:
    """Reason why a readable segment is being deleted, and the time until which its objects stay.

    Attributes:
        reason: one word, as the ledger of deletions has it.
        delete_after_ms: wall clock before which its objects stay.
    """

    reason: str
    delete_after_ms: int

    @classmethod
    def replaced(cls, *, delete_after_ms: int) -> Self:
        """Return the soft delete of a segment that the output of a compaction or merge has replaced."""
        return cls(_REPLACED, delete_after_ms)

    @property
    def is_replaced(self) -> bool:
        """Return True if another segment has taken its place, so that it must not be read again."""
        return self.reason == _REPLACED


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteLogSegmentMetadataUpdate:
    """A step in a segment's life. Custom metadata, or a soft delete, that is absent here **erases** the stored one."""

    segment: RemoteLogSegmentId
    state: RemoteLogSegmentState
    event_timestamp_ms: int
    broker_id: int
    custom_metadata: bytes | None
    soft_delete: SoftDelete | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteLogSegmentMetadata:
    """Metadata of one remote segment. Offsets are inclusive at both ends, as in Kafka.

    Attributes:
        max_timestamp_ms: largest record timestamp, -1 when there is none.
        broker_id: the broker that produced this event, not the owner of the data.
        event_timestamp_ms: wall clock of this event.
        size_bytes: the log file only, before any transformation by the store.
        custom_metadata: opaque; the remote storage gave it and gets it back with every fetch and delete.
        segment_leader_epochs: the slice of lineage that the segment covers, never empty. The first epoch begins at
            ``start_offset``, or above it where the log start lay inside the segment at the copy.
        leader_epoch: leader epoch under which the copy was begun (tierd, for fencing and the sweep).
        session_id: process that began the copy (the same).
        txn_index_empty: True only when the transaction index was known to be empty at the copy.
        soft_delete: of a segment in DELETE_SEGMENT_STARTED that was readable before; None for a segment that
            need not come back, such as a copy that was never finished.

    Raises:
        InvalidMetadataError: a negative start, an end before it, or epochs that are not those of such a segment.
    """

    segment: RemoteLogSegmentId
    start_offset: int
    end_offset: int
    max_timestamp_ms: int
    broker_id: int
    event_timestamp_ms: int
    size_bytes: int
    segment_leader_epochs: tuple[EpochEntry, ...]
    leader_epoch: int
    session_id: UUID
    custom_metadata: bytes | None = None
    state: RemoteLogSegmentState = RemoteLogSegmentState.COPY_SEGMENT_STARTED
    txn_index_empty: bool = False
    soft_delete: SoftDelete | None = None

    def __post_init__(self) -> None:
        if self.start_offset < 0 or self.end_offset < self.start_offset:
            raise InvalidMetadataError(
                f"segment {self.segment}: offsets {self.start_offset}-{self.end_offset} are no range"
            )
        problem = segment_epochs_problem(
            self.segment_leader_epochs, start_offset=self.start_offset, end_offset=self.end_offset
        )
        if problem is not None:
            raise InvalidMetadataError(f"segment {self.segment}: {problem}")

    @property
    def first_readable_offset(self) -> int:
        """Return the first offset that a lookup finds in the segment: the begin of its first epoch."""
        return self.segment_leader_epochs[0].start_offset

    def updated(self, update: RemoteLogSegmentMetadataUpdate) -> Self:
        """Return this metadata after ``update``, in any states; ``require_step`` checks the step.

        Raises:
            InvalidMetadataError: the update is of another segment.
        """
        if update.segment != self.segment:
            raise InvalidMetadataError(f"update of {update.segment} applied to {self.segment}")
        return replace(
            self,
            state=update.state,
            event_timestamp_ms=update.event_timestamp_ms,
            broker_id=update.broker_id,
            custom_metadata=update.custom_metadata,
            soft_delete=update.soft_delete,
        )

    def require_step(self, target: RemoteLogSegmentState) -> None:
        """Raise unless the lifecycle leads from the present state to ``target``.

        Raises:
            InvalidSegmentTransitionError: it does not.
        """
        if not self.state.may_become(target):
            raise InvalidSegmentTransitionError(
                f"{self.segment} is {self.state.name}, cannot become {target.name}",
                remedy="reload the partition's metadata first",
            )

    def require_undeletable(self) -> None:
        """Raise unless the segment's deletion has begun and not ended, or was undone already (DESIGN 4).

        Raises:
            InvalidSegmentTransitionError: it was never finished, so there is nothing to go back to; or another segment
                has taken its place.
        """
        if self.state is RemoteLogSegmentState.COPY_SEGMENT_STARTED:
            raise InvalidSegmentTransitionError(
                f"{self.segment} is {self.state.name}: it is not being deleted",
                remedy="look at tierd segments for what is being deleted",
            )
        if self.soft_delete is not None and self.soft_delete.is_replaced:
            raise InvalidSegmentTransitionError(
                f"{self.segment} was replaced: its records are in the output of a compaction or merge by now",
                remedy="nothing to do: what it had, as far as it was kept, is readable there",
            )

    def advance(
        self,
        target: RemoteLogSegmentState,
        *,
        event_timestamp_ms: int,
        broker_id: int,
        soft_delete: SoftDelete | None = None,
    ) -> RemoteLogSegmentMetadataUpdate:
        """Describe the step to ``target``, keeping the custom metadata."""
        return RemoteLogSegmentMetadataUpdate(
            segment=self.segment,
            state=target,
            event_timestamp_ms=event_timestamp_ms,
            broker_id=broker_id,
            custom_metadata=self.custom_metadata,
            soft_delete=soft_delete,
        )

    def epoch_end(self, epoch: int) -> int:
        """Return the last offset of ``epoch`` inside this segment, inclusive (remote-tiering 1)."""
        following = (e.start_offset for e in self.segment_leader_epochs if e.epoch > epoch)
        return next(following, self.end_offset + 1) - 1


class IndexType(Enum):
    """The artefacts kept beside a segment's records, in the order of the ``.indexes`` object."""

    OFFSET = "offset"
    TIMESTAMP = "timestamp"
    TRANSACTION = "transaction"
    PRODUCER_SNAPSHOT = "producer_snapshot"
    LEADER_EPOCH = "leader_epoch"
    KEY_HASHES = "key_hashes"

    @property
    def is_optional(self) -> bool:
        """Return True if a whole segment may lack it: without aborted transactions, or without hashes of its keys."""
        return self in {IndexType.TRANSACTION, IndexType.KEY_HASHES}


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSegmentData:
    """Data that the copy task hands to the remote storage: the checked log file, its indexes, snapshot and epochs.

    Attributes:
        log: path of the records; may be ``/proc/self/fd/N`` when the segment is held by descriptor.
        log_checksums: taken while every batch was checked; the store must receive exactly these bytes.
        transaction_index: None when the segment has none, which is normal.
        chunk_timestamps: times of the records that overlap each block of ``CHECKSUM_BLOCK_BYTES`` bytes of the log;
            chunks consist of such blocks; None for a block, or for all, where they are not known.
        key_hashes: hashes of the keys, as ``KeyHashes`` has them, only of segments that a job has written; mostly None.
    """

    log: Path
    log_checksums: BlockChecksums
    batch_count: int
    record_count: int
    offset_index: bytes
    time_index: bytes
    transaction_index: bytes | None
    producer_snapshot: bytes
    leader_epoch_index: bytes
    chunk_timestamps: tuple[TimestampRange | None, ...] | None = None
    key_hashes: bytes | None = None
