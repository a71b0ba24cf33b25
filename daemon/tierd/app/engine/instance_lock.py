"""One daemon per state directory: an advisory lock that the kernel drops when its holder dies."""

import asyncio
import contextlib
import fcntl
import os
import stat
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import structlog

from tierd.errors import AlreadyRunningError, StateDirError
from tierd.files import make_private, make_private_directory

log = structlog.get_logger()

LOCK_NAME = "lock"


@contextlib.asynccontextmanager
async def owned_state_dir(state_dir: Path) -> AsyncIterator[None]:
    """Create the state directory if it is missing, and hold it for this process.

    Raises:
        AlreadyRunningError: another process holds it; names its pid.
        StateDirError: it cannot be made or locked, or others may change what is in it.
    """
    await asyncio.to_thread(make_state_dir, state_dir)
    with instance_lock(state_dir):
        yield


def make_state_dir(state_dir: Path) -> None:
    """Create the state directory for its owner alone; one of ours that others may enter is closed to them. Blocking.

    Keys of open erasures and the control socket are in it. Files of ours at its top are closed as well; what lies in
    its directories is out of reach then, and may be a link to a file of the broker.

    Raises:
        StateDirError: it cannot be made, something else has its name, or others may change what is in it.
    """
    try:
        make_private_directory(state_dir)
        _close_to_others(state_dir)
    except OSError as error:
        raise _unusable(state_dir, error) from error


def _close_to_others(state_dir: Path) -> None:
    status = state_dir.stat()
    if make_private(f"{state_dir}/."):  # a state_dir may be a link
        log.warning("state_dir_mended", path=str(state_dir), mode=f"{stat.S_IMODE(status.st_mode):04o}")
    elif status.st_uid != os.geteuid() and stat.S_IMODE(status.st_mode) & 0o077:
        raise StateDirError(
            f"state_dir {state_dir} is open to other users and belongs to user id {status.st_uid}",
            remedy=f"chown {os.geteuid()} {state_dir} && chmod 700 {state_dir}, or set state_dir to another directory",
        )
    with os.scandir(state_dir) as entries:
        for entry in entries:
            _require_owner(entry, {status.st_uid, os.geteuid(), 0})
            with contextlib.suppress(FileNotFoundError):  # another command may remove it meanwhile
                make_private(Path(entry.path))


def _require_owner(entry: os.DirEntry[str], owners: set[int]) -> None:
    try:
        owner = entry.stat(follow_symlinks=False).st_uid
    except FileNotFoundError:
        return
    if owner not in owners:
        raise StateDirError(
            f"{entry.path} belongs to user id {owner}, who could change it under tierd",
            remedy="find out who put it there; then move it away, or chown it to the user of tierd",
        )


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
