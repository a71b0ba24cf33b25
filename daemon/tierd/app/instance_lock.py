"""One daemon per state directory: an advisory lock that the kernel drops when its holder dies."""

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from tierd.errors import AlreadyRunningError, StateDirError

LOCK_NAME = "lock"


def make_state_dir(state_dir: Path) -> None:
    """Create the state directory, readable by its owner alone, unless it is there. Blocking.

    Raises:
        StateDirError: it cannot be made, or something else has its name.
    """
    try:
        state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise _unusable(state_dir, error) from error


@contextlib.contextmanager
def instance_lock(state_dir: Path) -> Iterator[None]:
    """Hold ``state_dir`` for this process; the file keeps the pid, for people. Blocking, never waits.

    Raises:
        AlreadyRunningError: another process holds it; names its pid.
        StateDirError: the lock file cannot be written: no permission, read-only, disk full.
    """
    path = state_dir / LOCK_NAME
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise _unusable(state_dir, error) from error
    try:
        _lock(descriptor, state_dir)
        _write_pid(descriptor, state_dir)
        yield
    finally:
        os.close(descriptor)  # and with it the lock; the file stays, for unlinking it would race with the next holder


def _lock(descriptor: int, state_dir: Path) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        holder = os.pread(descriptor, 32, 0).decode(errors="replace").strip() or "unknown"
        raise AlreadyRunningError(
            f"state_dir {state_dir} is in use by tierd process {holder}",
            remedy="stop that process, or give this one a state_dir of its own",
        ) from error
    except OSError as error:
        raise _unusable(state_dir, error) from error


def _write_pid(descriptor: int, state_dir: Path) -> None:
    try:
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
    except OSError as error:
        raise _unusable(state_dir, error) from error


def _unusable(state_dir: Path, error: OSError) -> StateDirError:
    return StateDirError(
        f"state_dir {state_dir} cannot be used: {error.strerror or error}",
        remedy="free space or grant this user write permission there, or set state_dir to another directory",
    )
