"""SimulatedDisk: a ``Disk`` in memory that loses power, fills up and fails on request.

A power cut keeps as little as ext4, XFS and btrfs may keep:

- Bytes: synced ones. An unsynced page has any of its states since the last sync; pages are independent.
- Sizes: any of those since the last sync. Pages inside the size that were not written are zeros, or garbage.
- Names: those synced with the directory, and any number of the changes after the sync, in their order. A rename is one
  change. Directories are independent of each other, and of the content of the files.
"""

import errno
import os
import random
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tierd.errors import SegmentChangedError
from tierd.log.files.disk import Buffer, FileStatus

PAGE_SIZES_BYTES = (512, 4096)


class PowerLostError(BaseException):
    """The power of the machine is off. Not even an ``Exception``: no handler may clean up or go on."""


@dataclass(slots=True)
class Fault:
    """A later ``OSError``.

    Attributes:
        operation: a method of ``Disk`` or ``DiskFile``, such as ``write``.
        name_parts: parts that the path of a failing file has, all of them.
        error_number: such as ENOSPC.
        skip: number of fitting calls that succeed before the first failure.
        times: number of failures; None for all later calls.
    """

    operation: str
    name_parts: tuple[str, ...] = ()
    error_number: int = errno.EIO
    skip: int = 0
    times: int | None = 1


@dataclass(frozen=True, slots=True)
class _Write:
    moment: int
    position: int
    data: bytes


@dataclass(frozen=True, slots=True)
class _Truncate:
    moment: int
    size_bytes: int


@dataclass(slots=True, eq=False)
class _File:
    mtime_ms: int
    data: bytearray = field(default_factory=bytearray)
    durable: bytes = b""
    changes: list[_Write | _Truncate] = field(default_factory=list)

    def write(self, moment: int, position: int, data: bytes) -> None:
        if position > len(self.data):
            self.data.extend(bytes(position - len(self.data)))
        self.data[position : position + len(data)] = data
        self.changes.append(_Write(moment, position, data))

    def truncate(self, moment: int, size_bytes: int) -> None:
        _resize(self.data, size_bytes)
        self.changes.append(_Truncate(moment, size_bytes))

    def sync(self) -> None:
        if self.changes:
            self.durable = bytes(self.data)
            self.changes.clear()

    def crash(self, choice: random.Random, *, page_bytes: int, garbage: bool) -> None:
        """Take one of the contents that a power cut may leave."""
        if not self.changes:
            return
        steps = len(self.changes)
        kept_by_size = _cut(choice, steps)
        kept_by_page: dict[int, int] = {}
        size_bytes = len(self.durable)
        content = bytearray(self.durable)
        reached = len(self.durable)  # no byte behind this size was ever on stable storage
        for step, change in enumerate(self.changes):
            if isinstance(change, _Truncate):
                if step < kept_by_size:
                    size_bytes = change.size_bytes
                    content[size_bytes:] = bytes(max(len(content) - size_bytes, 0))
                    reached = min(reached, size_bytes)
                continue
            end = change.position + len(change.data)
            if step < kept_by_size:
                size_bytes = max(size_bytes, end)
            if end > len(content):
                content.extend(bytes(end - len(content)))
            for page in range(change.position // page_bytes, -(-end // page_bytes)):
                if page not in kept_by_page:
                    kept_by_page[page] = _cut(choice, steps)
                if step < kept_by_page[page]:
                    start, stop = max(page * page_bytes, change.position), min((page + 1) * page_bytes, end)
                    content[start:stop] = change.data[start - change.position : stop - change.position]
        _resize(content, size_bytes)
        if garbage:
            for page, kept in kept_by_page.items():
                start, stop = max(page * page_bytes, reached), min((page + 1) * page_bytes, size_bytes)
                if not kept and start < stop:
                    content[start:stop] = choice.randbytes(stop - start)
        self.data, self.durable = content, bytes(content)
        self.changes.clear()


_Names = dict[str, "_File | _Directory"]


@dataclass(slots=True, eq=False)
class _Directory:
    mtime_ms: int
    names: _Names = field(default_factory=dict)
    durable: _Names = field(default_factory=dict)
    changes: list[tuple[int, Callable[[_Names], None]]] = field(default_factory=list)

    def change(self, moment: int, change: Callable[[_Names], None]) -> None:
        change(self.names)
        self.changes.append((moment, change))

    def sync(self) -> None:
        if self.changes:
            self.durable = dict(self.names)
            self.changes.clear()

    def crash(self, kept: int) -> None:
        names = dict(self.durable)
        for _, change in self.changes[:kept]:
            change(names)
        self.names, self.durable = names, dict(names)
        self.changes.clear()


class SimulatedFile:
    """A ``DiskFile`` of a simulated disk, unusable after a power cut."""

    def __init__(self, disk: "SimulatedDisk", path: Path, file: _File) -> None:
        self.path = path
        self.size_bytes = len(file.data)
        self._disk = disk
        self._file = file
        self._boot = disk.boot
        self._closed = False
        disk.open_files += 1

    def renamed(self, path: Path) -> None:
        self.path = path

    def read(self, position: int, size: int) -> bytes:
        self._touch("read")
        return bytes(self._file.data[position : min(position + size, self.size_bytes)]) if size > 0 else b""

    def read_into(self, target: memoryview, position: int) -> None:
        self._touch("read")
        data = self._file.data[position : position + len(target)]
        if len(data) < len(target):
            raise self.changed()
        target[:] = data

    def write(self, position: int, pieces: Sequence[Buffer]) -> None:
        data = b"".join(pieces)
        with self._disk.lock:
            try:
                self._touch("write")
            except OSError:
                self._apply_write(position, data[: len(data) // 2])
                raise
            with self._disk.change() as moment:
                self._apply_write(position, data, moment)

    def _apply_write(self, position: int, data: bytes, moment: int | None = None) -> None:
        self._file.write(self._disk.moment if moment is None else moment, position, data)
        self._file.mtime_ms = self._disk.now_ms()
        self.size_bytes = max(self.size_bytes, position + len(data))

    def truncate(self, size_bytes: int) -> None:
        with self._disk.lock:
            self._touch("truncate")
            with self._disk.change() as moment:
                self._file.truncate(moment, size_bytes)
                self._file.mtime_ms = self._disk.now_ms()
                self.size_bytes = size_bytes

    def sync(self) -> None:
        with self._disk.lock:
            self._touch("sync")
            self._disk.syncs += 1
            with self._disk.change(after=True):
                self._file.sync()

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._disk.open_files -= 1

    def changed(self) -> SegmentChangedError:
        return SegmentChangedError(
            f"{self.path}: changed while it was read (it had {self.size_bytes} bytes)", remedy="read again"
        )

    def _touch(self, operation: str) -> None:
        if self._closed:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF), str(self.path))
        if self._boot != self._disk.boot:
            raise PowerLostError(f"{operation} of {self.path} from before the power cut")
        self._disk.check(operation, self.path)


class _Change:
    """One change of the disk's state: the power may fail before or after the change."""

    def __init__(self, disk: "SimulatedDisk", *, after: bool) -> None:
        self._disk = disk
        self._after = after

    def __enter__(self) -> int:
        disk = self._disk
        disk.moment += 1
        # An interrupted sync promised nothing; any other change may be among the kept ones.
        if self._after and disk.moment == disk.power_fails_at:
            disk.is_on = False
            raise PowerLostError(f"at change {disk.moment}")
        return disk.moment

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        disk = self._disk
        if kind is None and disk.moment == disk.power_fails_at:
            disk.is_on = False
            raise PowerLostError(f"at change {disk.moment}")


class SimulatedDisk:
    """Names and files in memory. Every path has to be absolute; ``/`` exists."""

    def __init__(self, *, now_ms: Callable[[], int] = lambda: 1_700_000_000_000) -> None:
        self.now_ms = now_ms
        self.lock = threading.RLock()
        self.moment = 0
        """How many changes there were; ``power_fails_at`` counts in it."""
        self.power_fails_at: int | None = None
        self.is_on = True
        self.boot = 0
        self.syncs = 0
        self.open_files = 0
        self.faults: list[Fault] = []
        self._root = _Directory(now_ms())

    # -- faults

    def lose_power(self) -> None:
        """Lose power and every unsynced change, and come back; open files are unusable."""
        self.crash(_Worst())

    def crash(self, choice: random.Random) -> None:
        """Lose power, keep the unsynced changes that ``choice`` picks, and come back; open files are unusable."""
        with self.lock:
            page_bytes = choice.choice(PAGE_SIZES_BYTES)
            garbage = choice.random() < 0.1
            in_step = choice.randrange(self.moment + 2) if choice.random() < 0.5 else None
            self._crash(self._root, choice, page_bytes=page_bytes, garbage=garbage, in_step=in_step)
            self.boot += 1
            self.open_files = 0
            self.power_fails_at = None
            self.is_on = True

    def _crash(
        self, directory: _Directory, choice: random.Random, *, page_bytes: int, garbage: bool, in_step: int | None
    ) -> None:
        if in_step is None:
            kept = _cut(choice, len(directory.changes))
        else:  # one journal for all directories
            kept = sum(moment <= in_step for moment, _ in directory.changes)
        directory.crash(kept)
        for _, entry in sorted(directory.names.items()):
            if isinstance(entry, _File):
                entry.crash(choice, page_bytes=page_bytes, garbage=garbage)
            else:
                self._crash(entry, choice, page_bytes=page_bytes, garbage=garbage, in_step=in_step)

    def check(self, operation: str, path: Path) -> None:
        """Raise the fault of this call, if there is one."""
        if not self.is_on:
            raise PowerLostError(f"{operation} of {path}: the power is off")
        for fault in self.faults:
            if (
                fault.operation != operation
                or fault.times == 0
                or any(part not in str(path) for part in fault.name_parts)
            ):
                continue
            if fault.skip:
                fault.skip -= 1
                continue
            if fault.times is not None:
                fault.times -= 1
            raise OSError(fault.error_number, os.strerror(fault.error_number), str(path))

    def change(self, *, after: bool = False) -> _Change:
        """Bracket one change; with ``after`` the change has not happened if the power fails at it."""
        return _Change(self, after=after)

    def snapshot(self, path: Path) -> dict[Path, bytes]:
        """Return every file below ``path`` with its content."""
        found: dict[Path, bytes] = {}
        for name, entry in self._directory(path).names.items():
            if isinstance(entry, _File):
                found[path / name] = bytes(entry.data)
            else:
                found.update(self.snapshot(path / name))
        return found

    # -- Disk

    def open(self, path: Path, *, create: bool = False, write: bool = True) -> SimulatedFile:
        with self.lock:
            self.check("open", path)
            directory = self._directory(path.parent)
            entry = directory.names.get(path.name)
            if entry is None:
                if not create:
                    raise _missing(path)
                self.check("create", path)
                entry = made = _File(self.now_ms())
                with self.change() as moment:
                    directory.change(moment, lambda names: names.__setitem__(path.name, made))
            if isinstance(entry, _Directory):
                number = errno.EISDIR if write else errno.EINVAL
                raise OSError(number, os.strerror(number), str(path))
            return SimulatedFile(self, path, entry)

    def list_names(self, path: Path) -> list[str]:
        self.check("list_names", path)
        return sorted(self._directory(path).names)

    def status(self, path: Path) -> FileStatus | None:
        self.check("status", path)
        entry = self._find(path)
        if isinstance(entry, _File):
            return FileStatus(len(entry.data), entry.mtime_ms, is_directory=False)
        return None if entry is None else FileStatus(4096, entry.mtime_ms, is_directory=True)

    def rename(self, source: Path, target: Path) -> None:
        with self.lock:
            self.check("rename", source)
            if source.parent != target.parent:  # a log renames within a directory only
                raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), str(source))
            directory = self._directory(source.parent)
            moved, replaced = directory.names.get(source.name), directory.names.get(target.name)
            if moved is None:
                raise _missing(source)
            if isinstance(moved, _File) and isinstance(replaced, _Directory):
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(target))
            if isinstance(moved, _Directory) and isinstance(replaced, _File):
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(target))
            if isinstance(replaced, _Directory) and replaced.names and source != target:
                raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), str(target))

            def change(names: _Names) -> None:
                names[target.name] = names.pop(source.name)

            with self.change() as moment:
                directory.change(moment, change)

    def unlink(self, path: Path) -> None:
        with self.lock:
            self.check("unlink", path)
            directory = self._directory(path.parent)
            entry = directory.names.get(path.name)
            if entry is None:
                raise _missing(path)
            if isinstance(entry, _Directory):
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
            with self.change() as moment:
                directory.change(moment, lambda names: names.__delitem__(path.name))

    def make_directory(self, path: Path) -> None:
        with self.lock:
            self.check("make_directory", path)
            directory = self._directory(path.parent)
            if path.name in directory.names:
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path))
            made = _Directory(self.now_ms())
            with self.change() as moment:
                directory.change(moment, lambda names: names.__setitem__(path.name, made))

    def remove_directory(self, path: Path) -> None:
        with self.lock:
            self.check("remove_directory", path)
            if self._directory(path).names:
                raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), str(path))
            with self.change() as moment:
                self._directory(path.parent).change(moment, lambda names: names.__delitem__(path.name))

    def sync_directory(self, path: Path) -> None:
        with self.lock:
            self.check("sync_directory", path)
            entry = self._find(path)
            if isinstance(entry, _Directory):
                self.syncs += 1
                with self.change(after=True):
                    entry.sync()

    def set_mtime_ms(self, path: Path, mtime_ms: int) -> None:
        self.check("set_mtime_ms", path)
        entry = self._find(path)
        if entry is None:
            raise _missing(path)
        entry.mtime_ms = mtime_ms

    def _find(self, path: Path) -> "_File | _Directory | None":
        entry: _File | _Directory = self._root
        for part in path.parts[1:]:
            if isinstance(entry, _File) or (found := entry.names.get(part)) is None:
                return None
            entry = found
        return entry

    def _directory(self, path: Path) -> _Directory:
        entry = self._find(path)
        if entry is None:
            raise _missing(path)
        if isinstance(entry, _File):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(path))
        return entry


class _Worst(random.Random):
    """Choice that keeps no unsynced change."""

    def random(self) -> float:
        return 0.999

    def randrange(self, *_: object) -> int:
        return _NOTHING


_EVERYTHING, _NOTHING = 0, 1


def _cut(choice: random.Random, steps: int) -> int:
    """Return how many of the first ``steps`` changes were kept: often all or none."""
    draw = choice.randrange(4)
    if draw == _EVERYTHING:
        return steps
    return 0 if draw == _NOTHING else choice.randrange(steps + 1)


def _resize(data: bytearray, size_bytes: int) -> None:
    if size_bytes < len(data):
        del data[size_bytes:]
    else:
        data.extend(bytes(size_bytes - len(data)))


def _missing(path: Path) -> FileNotFoundError:
    return FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
