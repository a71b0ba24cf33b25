"""Errors as exit codes, and as the two lines that a person reads: the cause and the next step."""

import functools
from collections.abc import Callable
from enum import IntEnum
from typing import ParamSpec

import typer

from tierd import errors
from tierd.cli.output.printing import drop_output, flush_output, print_error
from tierd.errors import ConfigError, TierError

P = ParamSpec("P")


class ExitCode(IntEnum):
    """Exit code of a command."""

    DONE = 0
    NO = 1
    USAGE = 2
    UNREACHABLE = 3
    REFUSED = 4
    INTERRUPTED = 130


# The first class that fits counts: subclasses stand before their base class.
_CODES: tuple[tuple[type[TierError], ExitCode], ...] = (
    (ConfigError, ExitCode.USAGE),
    (errors.PartitionNameError, ExitCode.USAGE),
    (errors.UnknownPartitionError, ExitCode.USAGE),
    # Another process may have the address for a moment: systemd tries again.
    (errors.ListenError, ExitCode.UNREACHABLE),
    (errors.ForeignClusterError, ExitCode.USAGE),
    (errors.KafkaError, ExitCode.UNREACHABLE),
    (errors.IdentityTakenError, ExitCode.REFUSED),
    (errors.ControlPlaneError, ExitCode.UNREACHABLE),
    (errors.AlreadyRunningError, ExitCode.REFUSED),
    (errors.ForeignTierError, ExitCode.REFUSED),
    (errors.RemoteConflictError, ExitCode.REFUSED),
    (errors.FencedError, ExitCode.REFUSED),
    (errors.MetadataFillingRefusedError, ExitCode.REFUSED),
    (errors.MetadataExportError, ExitCode.NO),
    (errors.CorruptRecordError, ExitCode.NO),
    (errors.CorruptIndexError, ExitCode.NO),
    (errors.RemoteIntegrityError, ExitCode.NO),
    (errors.RemoteKeyMissingError, ExitCode.USAGE),
    (errors.RemoteResourceNotFoundError, ExitCode.NO),
    (errors.OffsetOutOfRangeError, ExitCode.NO),
    (errors.DaemonUnreachableError, ExitCode.UNREACHABLE),
    (errors.StateDirError, ExitCode.UNREACHABLE),
    (errors.LogDirOfflineError, ExitCode.UNREACHABLE),
    (errors.LogDirLockedError, ExitCode.REFUSED),
    (errors.LogConfigError, ExitCode.USAGE),
    (errors.RecordLineError, ExitCode.USAGE),
    (errors.ScanRequestError, ExitCode.USAGE),
    (errors.ArrowMissingError, ExitCode.USAGE),
    (errors.SparkMissingError, ExitCode.USAGE),
    (errors.NotConfirmedError, ExitCode.REFUSED),
    (errors.RefusedError, ExitCode.REFUSED),
    (errors.BackendUnavailableError, ExitCode.UNREACHABLE),
    (errors.OutcomeUnknownError, ExitCode.UNREACHABLE),
    (errors.RemoteStorageError, ExitCode.UNREACHABLE),
    (errors.MetadataError, ExitCode.UNREACHABLE),
    (TierError, ExitCode.NO),
)


def exit_code_of(error: TierError) -> ExitCode:
    """Return the exit code of a command that ends with ``error``."""
    return next(code for kind, code in _CODES if isinstance(error, kind))


def reported(command: Callable[P, None]) -> Callable[P, None]:
    """Wrap a command so that every expected failure becomes a cause, a remedy and an exit code, never a traceback."""

    @functools.wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            try:
                command(*args, **kwargs)
            except typer.Exit:  # an answer such as "no", which is in the buffer
                flush_output()
                raise
            flush_output()
        except (TierError, ExceptionGroup) as error:
            failure = first_failure(error)
            if failure is None:
                raise
            print_failure(failure)
            raise typer.Exit(exit_code_of(failure)) from None
        except BrokenPipeError:
            drop_output()
            raise typer.Exit(ExitCode.DONE) from None
        except KeyboardInterrupt:
            raise typer.Exit(ExitCode.INTERRUPTED) from None

    return run


def first_failure(error: Exception) -> TierError | None:
    """Return the ``TierError`` in ``error`` or its groups; None if a bug is among them, which must stay visible."""
    if isinstance(error, TierError):
        return error
    if not isinstance(error, ExceptionGroup):
        return None
    found = [first_failure(inner) for inner in error.exceptions]
    return found[0] if all(found) else None


def print_failure(error: TierError) -> None:
    """Write cause and remedy to standard error."""
    lines = str(error).splitlines() if isinstance(error, ConfigError) else [" ".join(str(error).split())]
    for line in lines:
        print_error(f"tierd: {line}")
    if error.remedy:
        print_error(f"  next: {error.remedy}")
