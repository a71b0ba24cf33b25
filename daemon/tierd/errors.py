"""Errors that tierd raises on purpose and that more than one room knows, as a tree.

::

    TierError
    ├── ConfigError  AlreadyRunningError  StateDirError  ListenError  DaemonUnreachableError
    ├── UnknownPartitionError  OffsetOutOfRangeError  RecordLineError  NotConfirmedError  RefusedError
    ├── ScanRequestError  ArrowMissingError       readers in Python, and exports
    ├── LogError                                  what is on local disk; more in log/log_errors.py
    │   ├── PartitionNameError  MissingArtefactError  CorruptIndexError  LogConfigError
    │   ├── OffsetOverflowError  DamagedLogError
    │   ├── CorruptRecordError ── InvalidRecordError ── BatchTooLargeError
    │   ├── SegmentChangedError                   retriable
    │   └── LogDirOfflineError                    retriable;  LogDirLockedError
    ├── RemoteStorageError                        the object store
    │   ├── RemoteResourceNotFoundError ── RemoteIndexAbsentError
    │   ├── RemoteIntegrityError ── RemoteObjectTooLargeError, RemoteUnauthenticatedError
    │   ├── RemoteConflictError  RemoteObjectRetainedError  ObjectVersionsUnknownError  RemoteKeyMissingError
    │   ├── RemoteFormatError  RemoteAccessError  ForeignTierError
    │   └── RetriableRemoteStorageError           retriable
    │       └── RemoteStorageFullError  RemoteStorageNotReadyError
    ├── MetadataError                             the metadata store
    │   ├── InvalidSegmentTransitionError  InvalidMetadataError  MetadataDecodeError  PreconditionFailedError
    │   ├── FencedError  LeaseLostError  MetadataFillingRefusedError  MetadataExportError
    │   └── LeaseHeldError  BackendUnavailableError  OutcomeUnknownError      retriable, the last one after a reload
    ├── KafkaError                                the cluster that leadership comes from
    │   └── KafkaUnreachableError                 retriable;  ForeignClusterError
    ├── ControlPlaneError                         the MQTT broker, and peers behind it
    │   └── ControlPlaneUnreachableError          retriable;  IdentityTakenError
    ├── DamagedMessageError                       of Kafka's protocol, from either side of a connection
    └── PipelineError                             the jobs on Spark; more in pipeline/pipeline_errors.py
        └── PipelineBusyError                     retriable;  SparkMissingError

A class is for those who act on it: a handler, an exit code, a retry, a backend of another package. What only a reader
distinguishes is a ``TierErrorCode`` of the nearest class. A message says what, which, and what next.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import ClassVar


def install_extra(extra: str) -> str:
    """Return the remedy for a package that comes with an extra; tierd is in no index, so it names the repository."""
    files = f"-r requirements/base.txt -r requirements/{extra}.txt"
    return f"in tierd's repository, with the pip of this Python: pip install --require-hashes {files}"


class TierErrorCode(StrEnum):
    """Reason of an error for which there is no class, since no code acts on it."""

    CONTROL = "control"  # the daemon refused a control request, or answered with something that is not its protocol
    UNKNOWN_ERASURE = "unknown_erasure"  # no request to erase keys has that id
    UNKNOWN_GROUP = "unknown_group"  # the catalogue has no committed offset of the consumer group at that moment
    INPUTS_CHANGED = "inputs_changed"  # a segment that a compaction is to replace is not what it was; nothing written
    INVALID_INDEX_OFFSET = "invalid_index_offset"  # the offset of an index entry does not follow the last one's
    INCONSISTENT_TOPIC_ID = "inconsistent_topic_id"  # ``partition.metadata`` names another topic id than the caller
    DUPLICATE_LOG = "duplicate_log"  # two directories claim to be the same replica of a partition
    RECORD_TOO_LARGE = "record_too_large"  # a batch is larger than ``max.message.bytes``
    RECORD_BATCH_TOO_LARGE = "record_batch_too_large"  # a set of records is larger than ``segment.bytes``
    OFFSETS_OUT_OF_ORDER = "offsets_out_of_order"  # the batches of a follower's append do not ascend
    UNEXPECTED_APPEND_OFFSET = "unexpected_append_offset"  # a follower's batch begins below the log end
    INVALID_TIMESTAMP = "invalid_timestamp"  # a leader refused records, at least one for its timestamp
    UNSUPPORTED_FOR_MESSAGE_FORMAT = "unsupported_for_message_format"  # the format of the batch cannot express it
    OUT_OF_ORDER_SEQUENCE = "out_of_order_sequence"  # an idempotent producer's batch does not follow its last one
    INVALID_PRODUCER_EPOCH = "invalid_producer_epoch"  # the producer's epoch is older than one that was seen
    TRANSACTION_COORDINATOR_FENCED = "transaction_coordinator_fenced"  # a marker of an older coordinator epoch
    POLICY_VIOLATION = "policy_violation"  # the topic's settings do not allow it
    READER_BUSY = "reader_busy"  # more remote reads wait than may; nothing was read
    READER_CLOSED = "reader_closed"  # a cache of remote data or the fetch service was closed
    KAFKA_TLS = "kafka_tls"  # a certificate was refused or cannot be read, or only one side speaks TLS
    KAFKA_AUTHENTICATION = "kafka_authentication"  # the mechanism is not enabled, or user or password are wrong
    KAFKA_PROTOCOL = "kafka_protocol"  # the peer is no broker, is too old, or its message is damaged


class TierError(Exception):
    """The root: ``str()`` is the cause in one line, ``remedy`` the next step in one line.

    Attributes:
        retriable: the same call may succeed later, unchanged.
        code: which of the errors of this class it is, where the class alone does not say it.
    """

    retriable: ClassVar[bool] = False

    def __init__(self, cause: str, *, remedy: str = "", code: TierErrorCode | None = None) -> None:
        super().__init__(cause)
        self.remedy = remedy
        self.code = code

    @property
    def explained(self) -> str:
        """Return cause and remedy in one line, for a status that keeps the text alone."""
        return "; ".join(filter(None, (str(self), self.remedy)))


@contextmanager
def with_remedy() -> Iterator[None]:
    """Add the remedy of a ``TierError`` to its notes, because a notebook and Spark show only the traceback."""
    try:
        yield
    except TierError as error:
        if error.remedy and error.remedy not in getattr(error, "__notes__", ()):
            error.add_note(error.remedy)
        raise


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


class DaemonUnreachableError(TierError):
    """The control socket is missing or does not answer."""


class UnknownPartitionError(TierError):
    """The partition is in no log dir and in no metadata."""


class RecordLineError(TierError, ValueError):
    """A line of input that should be a record, and is none."""


class ScanRequestError(TierError, ValueError):
    """A read of a topic was asked for in a way that cannot be understood, or has no meaning."""


class ArrowMissingError(TierError):
    """The package pyarrow, which readers in Python and exports need, is not installed."""


class NotConfirmedError(TierError):
    """The removal was not confirmed; nothing was done."""


class RefusedError(TierError):
    """The request would do harm, or would be undone at once; nothing was done."""


class PlanOutdatedError(RefusedError):
    """Refusal of a plan, because what it was made for has changed since; another plan may be possible."""


class LogError(TierError):
    """A file or directory on local disk is not as it should be, or cannot be used."""


class PartitionNameError(LogError, ValueError):
    """A name that is not ``topic-partition`` in any of Kafka's forms."""


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


class CorruptIndexError(LogError):
    """An index or producer snapshot that cannot be understood."""


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


class ForeignClusterError(KafkaError):
    """The bootstrap servers belong to another cluster than the log dirs."""


class ControlPlaneError(TierError):
    """The MQTT broker refused this daemon, or a request to a peer was refused."""


class ControlPlaneUnreachableError(ControlPlaneError):
    """The MQTT broker did not answer in time, the connection broke, or a peer did not answer."""

    retriable: ClassVar[bool] = True


class IdentityTakenError(ControlPlaneError):
    """Another process connected to the MQTT broker with the identity of this daemon."""


class DamagedMessageError(TierError):
    """A message of Kafka's protocol that cannot be decoded: cut short, or its lengths do not fit."""


class OffsetOutOfRangeError(TierError):
    """The offset is neither in the local log nor in the tier."""


class PipelineError(TierError):
    """A job on Spark, or how it and the leader work together."""


class SparkMissingError(PipelineError):
    """The job cannot be started on this host: pyspark or Java is missing, too old, or cannot be run."""


class PipelineBusyError(PipelineError):
    """A run is under way, and there is one at a time; nothing was begun."""

    retriable: ClassVar[bool] = True
