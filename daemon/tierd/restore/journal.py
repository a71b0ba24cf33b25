"""Journal of one job: what is done, as JSON lines, so that a killed run resumes (DESIGN 13).

::

    {"tierd_restore_journal":1,"job":{…}}      the job: what is restored, from where, to where; of an export likewise
    {…}                                        one line a step, in order

A line is durable before its step counts as done. A crash may leave half of the last line, which is cut off at the
next opening: its step counts as not done.
"""

import fcntl
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Self

from tierd.errors import AlreadyRunningError, RefusedError, StateDirError
from tierd.files import open_regular, sync_directory
from tierd.json_parsing import parse_json

JournalStep = Mapping[str, Any]

_RESTORE: Final = "restore"
_VERSION: Final = 1
_MAX_BYTES: Final = 256 << 20


class JournalOfAnotherJobError(RefusedError):
    """The journal is that of another job.

    Attributes:
        steps: the lines of that job, in order.
    """

    def __init__(self, path: Path, steps: Sequence[JournalStep], *, work: str = _RESTORE) -> None:
        super().__init__(
            f"{path} is the journal of another {work}",
            remedy=f"give the same arguments as before, or another target; to abandon that {work}, "
            f"move {path.parent} away",
        )
        self.steps = steps


class Journal:
    """Open journal of one job, locked against a second process. Calls block; one thread at a time.

    Attributes:
        steps: the lines that earlier runs of the job left, in order. ``append`` adds to it.
    """

    def __init__(self, path: Path, fd: int, steps: list[JournalStep], *, header: JournalStep) -> None:
        self.steps = steps
        self._path = path
        self._fd = fd
        self._header = header

    @classmethod
    def open(cls, path: Path, job: Mapping[str, Any], *, work: str = _RESTORE) -> Self:
        """Open the journal of ``job``, or begin it; half a last line is cut off.

        Args:
            path: the file; its directory exists.
            job: what tells this job from others; JSON values.
            work: the kind of job, in one word.

        Raises:
            AlreadyRunningError: another process has the journal open.
            JournalOfAnotherJobError: the journal is that of another job.
            StateDirError: it cannot be read or written, or is damaged before its last line.
        """
        try:
            fd = open_regular(path, os.O_RDWR | os.O_CREAT)
        except OSError as error:
            raise _unusable(path, error) from error
        try:
            _lock(fd, path, work)
            lines = _whole_lines(fd, path)
            header = {f"tierd_{work}_journal": _VERSION, "job": dict(job)}
            journal = cls(path, fd, lines[1:], header=header)
            if not lines:
                journal._write(header)
                sync_directory(path.parent)
            else:
                _require_same_job(lines, parse_json(json.dumps(header)), path, work)
        except BaseException:
            os.close(fd)
            raise
        return journal

    def append(self, step: JournalStep) -> None:
        """Make ``step`` durable; then it counts as done.

        Raises:
            StateDirError: the disk is full or failing; half a line may have been written.
        """
        self._write(step)
        self.steps.append(step)

    def replace_steps(self, steps: Sequence[JournalStep]) -> None:
        """Write the journal anew with other steps, durably; a crash leaves the former journal or the new one.

        Raises:
            StateDirError: the disk is full or failing; the steps are the former or the new ones.
        """
        draft = self._path.with_name(f"{self._path.name}.new")
        data = b"".join(map(_encoded, (self._header, *steps)))
        try:
            fd = open_regular(draft, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                _write_all(fd, data)
                os.fsync(fd)
                draft.rename(self._path)
            except BaseException:
                os.close(fd)
                raise
            former, self._fd, self.steps = self._fd, fd, list(steps)
            os.close(former)
            sync_directory(self._path.parent)
        except OSError as error:
            raise _unusable(self._path, error) from error

    def close(self) -> None:
        """Close the file and release the lock."""
        os.close(self._fd)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _write(self, line: JournalStep) -> None:
        data = _encoded(line)
        try:
            end = os.lseek(self._fd, 0, os.SEEK_END)
            try:
                _write_all(self._fd, data)
                os.fdatasync(self._fd)
            except OSError:
                os.ftruncate(self._fd, end)  # a later line must not follow half of this one
                raise
        except OSError as error:
            raise _unusable(self._path, error) from error


def read_steps(path: Path) -> list[JournalStep]:
    """Return the steps of a journal that another process may be writing; none without a journal. Blocking.

    Raises:
        StateDirError: it cannot be read, or is damaged before its last line.
    """
    return _read_lines(path)[1:]


def read_job(path: Path) -> object | None:
    """Return the job of a journal that another process may be writing; None without a whole first line. Blocking.

    Raises:
        StateDirError: as ``read_steps``.
    """
    lines = _read_lines(path)
    return lines[0].get("job") if lines else None


def _read_lines(path: Path) -> list[JournalStep]:
    try:
        fd = open_regular(path)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise _unusable(path, error) from error
    try:
        return _parsed(_read(fd, path), path)
    finally:
        os.close(fd)


def _require_same_job(lines: Sequence[JournalStep], wanted: object, path: Path, work: str) -> None:
    if lines[0] != wanted:
        raise JournalOfAnotherJobError(path, lines[1:], work=work)


def _encoded(line: JournalStep) -> bytes:
    return json.dumps(line, separators=(",", ":")).encode() + b"\n"


def _lock(fd: int, path: Path, work: str) -> None:
    """Lock the file, which must still be the journal: another process may have written the journal anew meanwhile."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.path.samestat(os.fstat(fd), path.lstat()):
            return
        problem: OSError | None = None
    except BlockingIOError as error:
        problem = error
    except OSError as error:
        raise _unusable(path, error) from error
    raise AlreadyRunningError(
        f"{path}: another process works on this {work}", remedy="wait for it, or end it; then run this again"
    ) from problem


def _whole_lines(fd: int, path: Path) -> list[JournalStep]:
    """Return the whole lines, and cut off what follows them."""
    data = _read(fd, path)
    end = data.rfind(b"\n") + 1
    try:
        if end < len(data):
            os.ftruncate(fd, end)
            os.fdatasync(fd)
    except OSError as error:
        raise _unusable(path, error) from error
    return _parsed(data, path)


def _read(fd: int, path: Path) -> bytes:
    try:
        size = os.fstat(fd).st_size
        if size > _MAX_BYTES:
            raise StateDirError(f"{path}: {size} bytes are too many for a journal", remedy="move the file away")
        return os.pread(fd, size, 0)
    except OSError as error:
        raise _unusable(path, error) from error


def _parsed(data: bytes, path: Path) -> list[JournalStep]:
    """Return the whole lines."""
    try:
        lines = [parse_json(line) for line in data[: data.rfind(b"\n") + 1].splitlines()]
    except ValueError as error:
        raise _damaged(path) from error
    steps: list[JournalStep] = [line for line in lines if isinstance(line, dict)]
    if len(steps) < len(lines):
        raise _damaged(path)
    return steps


def _write_all(fd: int, data: bytes) -> None:
    while data:
        data = data[os.write(fd, data) :]


def _unusable(path: Path, error: OSError) -> StateDirError:
    return StateDirError(f"{path}: {error.strerror}", remedy="make room or mend the disk, then run it again")


def _damaged(path: Path) -> StateDirError:
    return StateDirError(f"{path} is damaged", remedy=f"move {path.parent} away and begin again")
