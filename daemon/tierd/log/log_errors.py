"""Errors of logs on local disk on which only this room acts: its writer, its cleaner, its loading and its repair.

::

    LogError
    ├── CheckpointError  EndMarkerError  LogClosedError  LogTimeoutError
    ├── LogBusyError                              retriable
    ├── CleaningAbortedError ── CleaningNoSpaceError      retriable
    └── AppendError ── RecordValidationError, InvalidTransactionStateError
"""

from collections.abc import Sequence
from typing import ClassVar

from tierd.errors import LogError, TierErrorCode


class CheckpointError(LogError):
    """A checkpoint, ``partition.metadata`` or ``meta.properties`` that cannot be understood."""


class EndMarkerError(LogError, ValueError):
    """A producer's control batch that neither aborts nor commits; nothing that Kafka writes, so nothing to cut off."""


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


class AppendError(LogError):
    """A set of records was refused; nothing of it was written."""


class RecordValidationError(AppendError):
    """A leader refused records.

    Attributes:
        record_errors: (index of the record in the set, why), every one that was found.
    """

    def __init__(
        self,
        cause: str,
        *,
        record_errors: Sequence[tuple[int, str]] = (),
        remedy: str = "",
        code: TierErrorCode | None = None,
    ) -> None:
        super().__init__(cause, remedy=remedy, code=code)
        self.record_errors = tuple(record_errors)


class InvalidTransactionStateError(AppendError):
    """The state of the producer's transaction does not allow the append."""
