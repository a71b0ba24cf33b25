"""Errors of the restore of state stores, as a tree.

::

    RestoreError
    ├── IllegalRestoreError        a call that breaks a rule of the reader: a bug of the caller
    │   └── IllegalTransitionError
    ├── CheckpointFileError        ``.checkpoint`` or its side file cannot be read or written
    ├── LostPositionError          the store has to be restored from the beginning
    │   ├── ChangelogRangeError    the offset lies below the log start or above the log end
    │   └── OutdatedPositionError  deletions on the way to the offset may have been missed
    ├── InvalidOffsetsError        several of them, in one poll of the old reader
    ├── SourceUnavailableError     retriable
    ├── CorruptSourceError         the bytes of the changelog are damaged, or records are missing
    ├── StoreFailedError           the store could not take or keep data
    ├── RestoreCallbackError       a store or a listener failed in a callback
    ├── TaskCorruptedError         stores of the tasks have to be wiped
    └── RestoreTimeoutError        no progress until the deadline
"""

from collections.abc import Collection, Mapping
from enum import StrEnum
from typing import ClassVar

from tierd.errors import TierError
from tierd.model import TopicPartition


class RestoreError(TierError):
    """A restore of a state store, or a part of it, that cannot go on."""


class IllegalRestoreError(RestoreError):
    """A call that the state of the reader does not allow; nothing was changed."""


class IllegalTransitionError(IllegalRestoreError):
    """A move that the state machine of the reader or of a changelog does not have; the state is as it was."""

    def __init__(self, subject: str, source: object, target: object) -> None:
        super().__init__(f"{subject} is {source} and cannot become {target}")


class CheckpointFault(StrEnum):
    """Kind of a fault of a ``.checkpoint`` file; Kafka throws another exception for each."""

    VERSION = "version"  # Kafka: IllegalArgumentException
    ENDS_EARLY = "ends_early"  # Kafka: EOFException
    FORMAT = "format"  # Kafka: IOException
    NUMBER = "number"  # Kafka: NumberFormatException
    DISK = "disk"  # the file system refused


class CheckpointFileError(RestoreError):
    """A ``.checkpoint`` file, or its side file, that cannot be read or written; the old content is as it was.

    Attributes:
        fault: kind of the fault.
    """

    def __init__(self, file: object, fault: CheckpointFault, problem: str, *, remedy: str = "") -> None:
        super().__init__(
            f"{file}: {problem}", remedy=remedy or "remove the file; the store is then restored from the beginning"
        )
        self.fault = fault


class LostPositionError(RestoreError):
    """A position from which a restore cannot go on: its store has to be restored from the beginning."""


class ChangelogRangeError(LostPositionError):
    """An offset that lies below the log start or above the log end.

    Attributes:
        partition: the changelog.
        offset: the offset that was asked for.
        earliest_offset: log start, inclusive.
        end_offset: log end, exclusive.
    """

    def __init__(self, partition: TopicPartition, *, offset: int, earliest_offset: int, end_offset: int) -> None:
        super().__init__(
            f"{partition}: offset {offset} is outside the changelog, which has [{earliest_offset}, {end_offset})",
            remedy="wipe the store and restore it from the beginning",
        )
        self.partition = partition
        self.offset = offset
        self.earliest_offset = earliest_offset
        self.end_offset = end_offset


class OutdatedPositionError(LostPositionError):
    """A position in a compacted changelog that was reached so slowly that deleted keys could come back."""

    def __init__(self, partition: TopicPartition, *, offset: int, age_ms: int, delete_retention_ms: int) -> None:
        super().__init__(
            f"{partition}: after {age_ms // 1000} s the restore is at offset {offset}; deleted keys could come back, "
            f"since delete.retention.ms is {delete_retention_ms // 1000} s",
            remedy="raise delete.retention.ms of the changelog until the restore is done, then restore it again",
        )
        self.partition = partition


class InvalidOffsetsError(RestoreError):
    """Positions that lie outside their changelogs; nothing of the poll was delivered.

    Attributes:
        partitions: the changelogs.
    """

    def __init__(self, errors: Collection[ChangelogRangeError]) -> None:
        super().__init__("; ".join(map(str, errors)), remedy="restore these changelogs from the beginning")
        self.partitions = frozenset(error.partition for error in errors)


class SourceUnavailableError(RestoreError):
    """The source did not answer in time, or not at all; the same call may succeed later."""

    retriable: ClassVar[bool] = True


class CorruptSourceError(RestoreError):
    """A part of the changelog that is damaged, or records that are missing between two segments.

    Attributes:
        partition: the changelog.
    """

    def __init__(self, partition: TopicPartition, problem: str, *, remedy: str = "") -> None:
        super().__init__(f"{partition}: {problem}", remedy=remedy or "run tierd verify, then restore from another copy")
        self.partition = partition


class StoreFailedError(RestoreError):
    """A state store that could not take, keep or return data.

    Attributes:
        store: name of the store.
    """

    def __init__(self, store: str, problem: str, *, remedy: str = "") -> None:
        super().__init__(f"store {store}: {problem}", remedy=remedy or "make room or mend the disk, then restore again")
        self.store = store


class RestoreCallbackError(RestoreError):
    """A store or a listener that failed in a callback; fatal for the changelog.

    Attributes:
        partition: the changelog.
        phase: name of the callback.
    """

    def __init__(self, partition: TopicPartition, store: str, phase: str, error: Exception) -> None:
        super().__init__(f"{partition}: {phase} of store {store} failed: {error}")
        self.partition = partition
        self.phase = phase


class TaskCorruptedError(RestoreError):
    """Tasks whose stores have to be wiped and restored from the beginning.

    Attributes:
        tasks: for each task the changelogs whose offsets are out of range, and why.
    """

    def __init__(self, tasks: Mapping[str, Mapping[TopicPartition, LostPositionError]]) -> None:
        reasons = "; ".join(f"task {task}: {error}" for task, errors in tasks.items() for error in errors.values())
        super().__init__(reasons, remedy="wipe the stores of these tasks, then restore them from the beginning")
        self.tasks = {task: dict(errors) for task, errors in tasks.items()}


class RestoreTimeoutError(RestoreError):
    """Changelogs without progress until their deadline, although they are behind.

    Attributes:
        partitions: the changelogs.
        reason: the last failure.
    """

    def __init__(self, partitions: Collection[TopicPartition], *, timeout_s: float, reason: str) -> None:
        names = ", ".join(map(str, sorted(partitions)))
        super().__init__(
            f"{names}: no progress for {timeout_s:g} s: {reason}", remedy="mend the source, then restore again"
        )
        self.partitions = frozenset(partitions)
        self.reason = reason
