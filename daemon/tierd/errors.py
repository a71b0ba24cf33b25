"""Errors that tierd raises on purpose, as a tree. Some rooms define further ones below these for themselves.

::

    TierError                              retriable: may the same call succeed later, unchanged?
    ├── ConfigError                        the file is wrong; carries every fault with its place
    ├── AlreadyRunningError                another process holds the state directory
    ├── StateDirError                      the state directory cannot be made, written or locked
    ├── ListenError                        an address or socket cannot be bound
    ├── DaemonUnreachableError             no daemon answers on the control socket
    ├── ControlError                       the daemon answered a control request with a refusal
    ├── UnknownPartitionError              neither a log dir nor the metadata knows it
    ├── UnknownErasureError                there is no request to erase keys of that id
    ├── RecordLineError                    a line that should be a record, and is none (also ValueError)
    ├── NotConfirmedError                  what would take something away was not confirmed; nothing was done
    ├── RefusedError                       it would do harm, or be undone at once; nothing was done
    │   └── InputsChangedError             what a compaction replaces is not what it was any more
    ├── LogError                           what is on local disk
    │   ├── PartitionNameError             a directory name that is no partition's (also ValueError)
    │   ├── CheckpointError                a text file in a log dir that cannot be understood
    │   ├── CorruptRecordError             a batch that is torn, damaged or impossible; file and position
    │   ├── InvalidRecordError             a record inside a sound batch that cannot be decoded
    │   ├── EndMarkerError                 a producer's control batch that is no end marker (also ValueError)
    │   ├── CorruptIndexError              an index or snapshot that cannot be understood
    │   ├── InvalidIndexOffsetError        an index entry whose offset does not follow the last one's
    │   ├── MissingArtefactError           a file that a rolled segment must have is not there
    │   ├── SegmentChangedError            retriable; the source changed while it was read
    │   ├── LogDirOfflineError             retriable; the log dir cannot be read or written; nothing more goes there
    │   ├── LogDirLockedError              another process, a broker for one, has the log dir
    │   ├── LogConfigError                 a setting of a log that it cannot have (also ValueError)
    │   ├── LogClosedError                 the log was closed or deleted
    │   ├── CleaningAbortedError           retriable; a round of the log cleaner ended early; nothing is lost
    │   │   └── CleaningNoSpaceError       the disk has no room for its output
    │   ├── LogBusyError                   retriable; too much waits for the log's writer; nothing was done
    │   ├── LogTimeoutError                the log's disk did not answer in time; the call may still happen
    │   ├── InconsistentTopicIdError       the directory belongs to another topic of the same name
    │   ├── DuplicateLogError              two directories claim to be the same replica
    │   ├── DamagedLogError                what was flushed is visibly damaged; carries every problem
    │   ├── OffsetOverflowError            an offset too far from its segment's base
    │   └── AppendError                    the log refused a set of records; nothing of it was written
    │       ├── RecordTooLargeError        a batch above max.message.bytes
    │       ├── RecordBatchTooLargeError   a set of records above segment.bytes
    │       ├── OffsetsOutOfOrderError     a follower's batches that do not ascend
    │       ├── UnexpectedAppendOffsetError a follower's batch below the log end; first and last offset
    │       ├── RecordValidationError      records that a leader refuses, each with its index
    │       │   └── InvalidTimestampError  at least one of them for its timestamp
    │       ├── UnsupportedForMessageFormatError  what the batch's magic cannot express
    │       ├── OutOfOrderSequenceError    an idempotent producer's gap
    │       ├── InvalidProducerEpochError  a producer that was fenced
    │       ├── TransactionCoordinatorFencedError  a marker of an older coordinator
    │       ├── InvalidTransactionStateError what the producer's transaction does not allow
    │       └── PolicyViolationError       what the topic's settings do not allow
    ├── RemoteStorageError                 the object store
    │   ├── RemoteResourceNotFoundError    the object, or the metadata, is not there (also LookupError)
    │   │   └── RemoteIndexAbsentError     the segment is there, and never had such an index
    │   ├── RemoteConflictError            an object is there already, with other bytes
    │   ├── RemoteIntegrityError           stored bytes disagree with their checksum or manifest
    │   │   ├── RemoteObjectTooLargeError  the object is larger than any of its kind, and is not read
    │   │   └── RemoteUnauthenticatedError nothing proves that a holder of the key ring wrote the object
    │   ├── RemoteObjectRetainedError      the store keeps it: Object Lock, retention or legal hold
    │   ├── ObjectVersionsUnknownError     the store cannot tell which older versions of objects it keeps
    │   ├── RemoteKeyMissingError          encrypted under a key that is not in the key ring
    │   ├── RemoteFormatError              stored in a format that this tierd does not know
    │   ├── RemoteAccessError              refused: credentials, bucket, region; a person must act
    │   ├── RetriableRemoteStorageError    retriable; slow, busy, reset, gone for a moment
    │   ├── RemoteStorageNotReadyError     retriable; the partition's metadata is not loaded
    │   ├── RemoteReaderBusyError          retriable; too many remote reads wait already; nothing was read
    │   ├── RemoteReaderClosedError        a cache or the fetch service was closed, and takes no more calls
    │   └── ForeignTierError               the prefix belongs to another metadata store
    ├── MetadataError                      the metadata store
    │   ├── InvalidSegmentTransitionError  the lifecycle has no such step
    │   ├── InvalidMetadataError           a value that breaks a rule of the model (also ValueError)
    │   ├── MetadataDecodeError            a stored value that cannot be decoded; names the key
    │   ├── PreconditionFailedError        a batch refused by the store; names the key
    │   ├── FencedError                    a newer leader, or a newer session of ours, owns the partition
    │   ├── LeaseHeldError                 another process holds the lease; names it and the end
    │   ├── LeaseLostError                 the lease is not the caller's any more
    │   ├── MetadataFillingRefusedError    an import or rebuild would mix two tiers, or another program writes
    │   ├── MetadataExportError            what should be an export is none, or is damaged; names the line
    │   ├── BackendUnavailableError        retriable; definitely not written
    │   └── OutcomeUnknownError            retriable after reload; may or may not have been written
    ├── KafkaError                         the cluster that leadership comes from
    │   ├── KafkaUnreachableError          retriable; no broker answered in time
    │   ├── KafkaTlsError                  certificates, or TLS on one side only
    │   ├── KafkaAuthenticationError       login refused: mechanism, user or password
    │   ├── KafkaProtocolError             what answered is no broker that we can talk to
    │   └── ForeignClusterError            the brokers belong to another cluster
    ├── PipelineError                      the jobs on Spark
    │   ├── SparkMissingError              pyspark or Java, which the job needs, is missing or too old
    │   ├── WorkOrderError                 an order, or a message about one, that cannot be understood; names the field
    │   ├── PipelineBusyError              retriable; a run is under way, and there is one at a time
    │   ├── ReadOptionError                an option of a query that cannot be used; names it (also ValueError)
    │   ├── DataLossError                  offsets that a query needs are not there, or not there any more
    │   └── LeaderChannelError             the leader or the job is gone, too slow, or breaks the protocol
    └── OffsetOutOfRangeError              the offset is neither in the local log nor in the tier

A message says what, which, and what next.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import ClassVar


def install_extra(extra: str) -> str:
    """Return the remedy for a package that comes with an extra; tierd is in no index, so it names the repository."""
    files = f"-r requirements/base.txt -r requirements/{extra}.txt"
    return f"in tierd's repository, with the pip of this Python: pip install --require-hashes {files}"


class TierError(Exception):
    """The root: ``str()`` is the cause in one line, ``remedy`` the next step in one line."""

    retriable: ClassVar[bool] = False

    def __init__(self, cause: str, *, remedy: str = "") -> None:
        super().__init__(cause)
        self.remedy = remedy


@dataclass(frozen=True, slots=True)
class ConfigFault:
    """One mistake in a configuration file; ``line`` and ``column`` start at 1, 0 when there is no place."""

    file: Path
    line: int
    column: int
    message: str

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}:{self.column}" if self.line else str(self.file)
        return f"{place}: {self.message}"


class ConfigError(TierError):
    """The configuration cannot be used; ``faults`` lists every mistake, in the order of the file."""

    def __init__(self, faults: Sequence[ConfigFault]) -> None:
        super().__init__("\n".join(map(str, faults)), remedy="correct the file, then run tierd check-config")
        self.faults = tuple(faults)


class AlreadyRunningError(TierError):
    """Another tierd holds the state directory."""


class StateDirError(TierError):
    """The state directory cannot be used: not writable, full, read-only, or not a directory."""


class ListenError(TierError):
    """An address or socket cannot be bound."""


class ControlError(TierError):
    """The daemon refused a control request, or answered with something that is not its protocol."""


class DaemonUnreachableError(TierError):
    """The control socket is missing or does not answer."""


class UnknownPartitionError(TierError):
    """The partition is in no log dir and in no metadata."""


class UnknownErasureError(TierError):
    """There is no request to erase keys of that id."""


class RecordLineError(TierError, ValueError):
    """A line of input that should be a record, and is none."""


class NotConfirmedError(TierError):
    """The removal was not confirmed; nothing was done."""


class RefusedError(TierError):
    """The request would do harm, or would be undone at once; nothing was done."""


class InputsChangedError(RefusedError):
    """A segment that a compaction or merge is to replace is not what it was when that began; nothing was written."""


class LogError(TierError):
    """Something on local disk."""


class PartitionNameError(LogError, ValueError):
    """A name that is not ``topic-partition`` in any of Kafka's forms."""


class CheckpointError(LogError):
    """A checkpoint, ``partition.metadata`` or ``meta.properties`` that cannot be understood."""


class CorruptRecordError(LogError):
    """A batch that is torn, damaged or impossible.

    Attributes:
        file: the segment, or a name for bytes that are in no file.
        position: byte position of the batch in it.
    """

    def __init__(self, file: Path | str, position: int, problem: str, *, remedy: str = "") -> None:
        super().__init__(
            f"{file}: {problem} at position {position}",
            remedy=remedy or f"run tierd inspect {file}; a replica may still have the segment intact",
        )
        self.file = file
        self.position = position


class InvalidRecordError(CorruptRecordError):
    """A record inside a batch whose checksum is right, yet it cannot be decoded."""


class BatchTooLargeError(InvalidRecordError):
    """A batch that unpacks to more bytes than tierd holds in memory. It is intact, and a producer may write it."""

    def __init__(self, file: Path | str, position: int, problem: str) -> None:
        super().__init__(
            file,
            position,
            problem,
            remedy="the batch is intact and stays where it is, but tierd does not open it: read around its offsets, "
            "or read it with a Kafka consumer that has the memory",
        )


class EndMarkerError(LogError, ValueError):
    """A producer's control batch that neither aborts nor commits; nothing that Kafka writes, so nothing to cut off."""


class CorruptIndexError(LogError):
    """An index or producer snapshot that cannot be understood."""


class InvalidIndexOffsetError(LogError):
    """An index entry was refused because its offset does not follow the last one's."""


class MissingArtefactError(LogError):
    """A file that belongs to every rolled segment is not there."""


class SegmentChangedError(LogError):
    """The source shrank, grew, was replaced or vanished while it was read."""

    retriable: ClassVar[bool] = True


class LogDirOfflineError(LogError):
    """A log dir cannot be listed: unmounted, unreadable, or its disk is failing."""

    retriable: ClassVar[bool] = True


class LogDirLockedError(LogError):
    """Another process has the log dir; two writers would destroy it."""


class LogConfigError(LogError, ValueError):
    """A setting of a log that does not exist, or a value that it cannot have."""


class LogClosedError(LogError):
    """The log was closed, renamed away or deleted, and takes no more calls."""


class CleaningAbortedError(LogError):
    """A round of the log cleaner ended early: it was told to, or the log changed under it; a later round goes on."""

    retriable: ClassVar[bool] = True


class CleaningNoSpaceError(CleaningAbortedError):
    """A round of the log cleaner ended early: the disk has no room for its output; the log is as it was."""


class LogBusyError(LogError):
    """More calls, or more bytes, wait for a log's writer than may; nothing was done."""

    retriable: ClassVar[bool] = True


class LogTimeoutError(LogError):
    """A log's disk did not answer in time; what was asked for may still happen, and has to be looked up."""


class InconsistentTopicIdError(LogError):
    """``partition.metadata`` names another topic id than the caller."""


class DuplicateLogError(LogError):
    """Two directories claim to be the same replica of a partition; a person must remove one."""


class DamagedLogError(LogError):
    """A log is visibly damaged where a broker would load it and lose, or serve, what is damaged; nothing was changed.

    Attributes:
        problems: every one that was found, each naming its file.
    """

    def __init__(self, directory: Path, problems: Sequence[str], *, remedy: str = "") -> None:
        more = f", and {len(problems) - 1} more" if len(problems) > 1 else ""
        super().__init__(
            f"{directory}: damaged: {problems[0]}{more}",
            remedy=remedy or f"run tierd inspect {directory}; load without strict recovery to do as a broker does",
        )
        self.problems = tuple(problems)


class OffsetOverflowError(LogError):
    """An offset that lies too far from its segment's base to be indexed; the segment has to be split."""


class AppendError(LogError):
    """A set of records was refused; nothing of it was written."""


class RecordTooLargeError(AppendError):
    """A batch is larger than ``max.message.bytes``."""


class RecordBatchTooLargeError(AppendError):
    """A set of records is larger than ``segment.bytes``."""


class OffsetsOutOfOrderError(AppendError):
    """The batches of a follower's append do not ascend."""


class UnexpectedAppendOffsetError(AppendError):
    """A follower's batch begins below the log end offset.

    Attributes:
        first_offset: of the set.
        last_offset: of the set, inclusive.
    """

    def __init__(self, cause: str, *, first_offset: int, last_offset: int) -> None:
        super().__init__(cause)
        self.first_offset = first_offset
        self.last_offset = last_offset


class RecordValidationError(AppendError):
    """A leader refused records.

    Attributes:
        record_errors: (index of the record in the set, why), every one that was found.
    """

    def __init__(self, cause: str, *, record_errors: Sequence[tuple[int, str]] = (), remedy: str = "") -> None:
        super().__init__(cause, remedy=remedy)
        self.record_errors = tuple(record_errors)


class InvalidTimestampError(RecordValidationError):
    """A leader refused records, at least one for its timestamp."""


class UnsupportedForMessageFormatError(AppendError):
    """The request cannot be expressed in the batch's format."""


class OutOfOrderSequenceError(AppendError):
    """An idempotent producer's batch does not follow its last one."""


class InvalidProducerEpochError(AppendError):
    """The producer's epoch is older than one that was seen."""


class TransactionCoordinatorFencedError(AppendError):
    """A transaction marker of an older coordinator epoch."""


class InvalidTransactionStateError(AppendError):
    """The state of the producer's transaction does not allow the append."""


class PolicyViolationError(AppendError):
    """The topic's settings do not allow the append."""


class RemoteStorageError(TierError):
    """The object store failed, and repeating the call will not help by itself."""


class RemoteResourceNotFoundError(RemoteStorageError, LookupError):
    """The object or its metadata is not there, and waiting will not bring it back."""


class RemoteIndexAbsentError(RemoteResourceNotFoundError):
    """The segment is there, and has no index of this type: normal for that of aborted transactions."""


class RemoteConflictError(RemoteStorageError):
    """An object exists already under this key, with other content."""


class RemoteIntegrityError(RemoteStorageError):
    """Stored bytes do not agree with their checksum, size or manifest."""


class RemoteObjectTooLargeError(RemoteIntegrityError):
    """The object is larger than its kind can be, so that it is not read: reading it would fill the memory."""


class RemoteUnauthenticatedError(RemoteIntegrityError):
    """A key ring is configured, and no tag proves that a holder of the key ring wrote the object."""


class RemoteObjectRetainedError(RemoteStorageError):
    """The store refuses to delete the object: Object Lock, a retention policy or a legal hold keeps it."""


class ObjectVersionsUnknownError(RemoteStorageError):
    """The store cannot tell which older versions of objects it keeps, or not to us."""


class RemoteKeyMissingError(RemoteStorageError):
    """The segment is encrypted, and the key that wraps its data key is not in ``remote.encryption.keys``."""


class RemoteFormatError(RemoteStorageError):
    """A manifest, tombstone or custom metadata is of a format that this tierd does not know."""


class RemoteAccessError(RemoteStorageError):
    """The store refused us: wrong credentials, bucket, region or clock."""


class RetriableRemoteStorageError(RemoteStorageError):
    """The store was slow, busy or unreachable; the same call may succeed later."""

    retriable: ClassVar[bool] = True


class RemoteStorageFullError(RetriableRemoteStorageError):
    """The store answers and has no room for more."""


class RemoteStorageNotReadyError(RetriableRemoteStorageError):
    """The metadata of the partition is not loaded, or has to be loaded again."""


class RemoteReaderBusyError(RetriableRemoteStorageError):
    """More remote reads wait for their turn than may; nothing was read."""


class RemoteReaderClosedError(RemoteStorageError):
    """A cache of remote data or the fetch service was closed, and takes no more calls."""


class ForeignTierError(RemoteStorageError):
    """The prefix in the bucket belongs to another metadata store."""


class MetadataError(TierError):
    """The metadata store or its rules."""


class InvalidSegmentTransitionError(MetadataError):
    """The segment lifecycle has no such step; nothing was written."""


class InvalidMetadataError(MetadataError, ValueError):
    """A value that breaks a rule of the model; nothing was written."""


class MetadataDecodeError(MetadataError):
    """A stored value that cannot be decoded; the partition stays not ready."""


class PreconditionFailedError(MetadataError):
    """The store refused a batch because a key did not hold what was expected; nothing was written.

    Attributes:
        key: the key whose value differed.
        actual: what it holds, None when it is absent.
    """

    def __init__(self, key: str, actual: bytes | None) -> None:
        super().__init__(f"precondition on {key} failed")
        self.key = key
        self.actual = actual


class FencedError(MetadataError):
    """Another leader epoch or session owns the partition; this writer must stop until leadership changes."""


class LeaseHeldError(MetadataError):
    """Another process holds the lease, or has just taken it.

    Attributes:
        holder: who.
        expires_at_ms: wall clock from which on it is free, unless it is renewed.
    """

    retriable: ClassVar[bool] = True

    def __init__(self, name: str, holder: str, expires_at_ms: int) -> None:
        until = datetime.fromtimestamp(expires_at_ms / 1000, tz=UTC).isoformat(timespec="milliseconds")
        super().__init__(
            f"the lease {name} is held by {holder} until {until}", remedy="wait for it to be released or to expire"
        )
        self.holder = holder
        self.expires_at_ms = expires_at_ms


class LeaseLostError(MetadataError):
    """The lease ran out and is another holder's, or free; what it protected must stop."""


class MetadataFillingRefusedError(MetadataError):
    """An import or a rebuild would overwrite metadata or mix two tiers; what was there is as it was."""


class MetadataExportError(MetadataError):
    """An exported file that is none, is cut short, or was changed; nothing was taken from it."""


class BackendUnavailableError(MetadataError):
    """The metadata store did not take the call; nothing was written."""

    retriable: ClassVar[bool] = True


class OutcomeUnknownError(MetadataError):
    """The metadata store may or may not have applied the batch; the partition reloads before its next use."""

    retriable: ClassVar[bool] = True


class KafkaError(TierError):
    """Asking the cluster for leaders or topic settings failed; roles stay as they are until it answers."""


class KafkaUnreachableError(KafkaError):
    """No broker answered in time, or the connection broke."""

    retriable: ClassVar[bool] = True


class KafkaTlsError(KafkaError):
    """A certificate was refused or cannot be read, or only one side speaks TLS."""


class KafkaAuthenticationError(KafkaError):
    """The login was refused: the mechanism is not enabled, or user or password are wrong."""


class KafkaProtocolError(KafkaError):
    """The peer is no broker, is too old, or its message is damaged."""


class ForeignClusterError(KafkaError):
    """The bootstrap servers belong to another cluster than the log dirs."""


class OffsetOutOfRangeError(TierError):
    """The offset is neither in the local log nor in the tier."""


class PipelineError(TierError):
    """A job on Spark, or how it and the leader work together."""


class SparkMissingError(PipelineError):
    """The job cannot be started on this host: pyspark or Java is missing, too old, or cannot be run."""


class WorkOrderError(PipelineError):
    """A work order, or a message about one, cannot be understood; the message names the field."""


class PipelineBusyError(PipelineError):
    """A run is under way, and there is one at a time; nothing was begun."""

    retriable: ClassVar[bool] = True


class LeaderChannelError(PipelineError):
    """Between leader and job: the other side is gone, did not answer in time, or does not speak the protocol."""


class ReadOptionError(PipelineError, ValueError):
    """An option of a query that cannot be used."""


class DataLossError(PipelineError):
    """Offsets that a query needs are not in the tier, or not any more."""
