"""ExportDirectory: the files of an export and its journal, so that a killed run loses no record and writes none twice.

::

    <into>/.tierd-export/journal            the job, then a line for every finished step
                        /<name>.part        a file that is being written
                        /<name>.done        a finished file that has no place yet
    <into>/<folders>/<name>                 a finished file

A step is a range of offsets of one partition, with the files that have its records. Its files are on stable storage
before its line is; the line makes them count, and only then they get their places. What a crash leaves between the
two is moved at the next opening, and what belongs to no line is removed. Of many lines, the last one of each partition
stays.
"""

import contextlib
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

from tierd.errors import RefusedError, StateDirError
from tierd.files import bytes_left_to_broker, nearest_existing, sync_directory
from tierd.model import TopicIdPartition, uuid_from_text, uuid_to_text
from tierd.restore import Journal, JournalOfAnotherJobError, read_job, read_steps

_STAGING: Final = ".tierd-export"
_JOURNAL: Final = "journal"
_DONE: Final = ".done"
_PART: Final = ".part"
_MOST_STEPS: Final = 20_000  # in the journal, which is read as a whole


@dataclass(frozen=True, slots=True)
class StagedFile:
    """Closed file of a step, at ``<staging>/<staged>``.

    Attributes:
        place: its path below the directory of the export.
    """

    staged: str
    place: str
    records: int
    size_bytes: int


class ExportDirectory:
    """Directory of one export, locked against a second one. Calls block; one thread at a time."""

    def __init__(self, into: Path, journal: Journal, *, reserve_bytes: int = 0) -> None:
        self._into = into
        self._reserve_bytes = reserve_bytes
        self._staging = into / _STAGING
        self._journal = journal
        self._most_steps = _MOST_STEPS

    @classmethod
    def open(cls, into: Path, job: Mapping[str, Any], *, reserve_bytes: int = 0) -> Self:
        """Open the directory of an earlier run of ``job``, or begin in an empty one.

        Args:
            into: the directory.
            job: what tells this export from others; JSON values.
            reserve_bytes: that the export leaves free on the disk.

        Raises:
            AlreadyRunningError: another process exports into it.
            RefusedError: the directory has files of another kind, or an export with other arguments.
            StateDirError: it cannot be read or written.
        """
        _require_usable(into, job)
        staging = into / _STAGING
        with _usable(into):
            staging.mkdir(parents=True, exist_ok=True)
            sync_directory(into)
            sync_directory(into.parent)
        try:
            opened = cls(into, Journal.open(staging / _JOURNAL, job, work="export"), reserve_bytes=reserve_bytes)
        except JournalOfAnotherJobError as error:
            raise _another_export(into) from error
        try:
            opened._mend()
        except BaseException:
            opened.close()
            raise
        return opened

    def next_offsets(self) -> dict[TopicIdPartition, int]:
        """Return for each partition of the journal the offset behind its last finished step."""
        return {partition: end.next_offset for partition, end in _exported_ends(self._journal.steps).items()}

    def require_room(self, size_bytes: int) -> None:
        """Require that the disk has room for ``size_bytes`` more, and for what the export leaves free.

        Raises:
            StateDirError: it has not.
        """
        if not self._reserve_bytes:
            return
        with self.on_disk():
            free = shutil.disk_usage(self._staging).free
        if free - size_bytes < self._reserve_bytes:
            raise StateDirError(
                f"{self._into}: {free} bytes are free on a disk that has a log dir too; the export leaves "
                f"{self._reserve_bytes} to the broker",
                remedy="make room, then run it again; or export to another disk",
            )

    def part(self, name: str) -> Path:
        """Return the path at which a new file is written. A file that is there is from a run that was killed."""
        return self._staging / f"{name}{_PART}"

    def stage(self, part: Path, name: str) -> str:
        """Rename a closed file, whose bytes are on stable storage, for the step that will have it.

        Raises:
            StateDirError: the disk fails.
        """
        with self.on_disk():
            part.rename(self._staging / f"{name}{_DONE}")
        return f"{name}{_DONE}"

    def commit(
        self,
        partition: TopicIdPartition,
        from_offset: int,
        next_offset: int,
        files: Sequence[StagedFile],
        *,
        epoch: int | None = None,
    ) -> None:
        """Make a step count, and give its files their places.

        Args:
            partition: whose records they are.
            from_offset: inclusive.
            next_offset: exclusive.
            files: of the step; none where the range has no record.
            epoch: leader epoch that wrote the last offset of the step; None where it is not known.

        Raises:
            StateDirError: the disk is full or failing.
        """
        line = {
            "topic": partition.topic,
            "topic_id": uuid_to_text(partition.topic_id),
            "partition": partition.partition,
            "from_offset": from_offset,
            "next_offset": next_offset,
            "epoch": epoch,
            "files": [
                {"staged": f.staged, "place": f.place, "records": f.records, "size_bytes": f.size_bytes} for f in files
            ],
        }
        if files:
            with self.on_disk():
                sync_directory(self._staging)
        self._journal.append(line)
        self._place(line)
        self._shorten()

    def abandon(self, part: Path) -> None:
        """Remove a file that no step will have."""
        part.unlink(missing_ok=True)

    @contextlib.contextmanager
    def on_disk(self) -> Iterator[None]:
        """Turn the errors of the disk into ``StateDirError``."""
        with _usable(self._into):
            yield

    def close(self) -> None:
        """Release the lock."""
        self._journal.close()

    def _mend(self) -> None:
        """Move files of finished steps to their places, and remove those of unfinished ones."""
        for line in self._journal.steps[-1:]:  # a line is written after the files of the line before have their places
            self._place(line)
        with self.on_disk():
            for path in self._staging.iterdir():
                if path.name.endswith((_PART, _DONE)):
                    path.unlink()
        self._shorten()

    def _shorten(self) -> None:
        """Leave the last step of each partition in a journal of many, once all their files have their places."""
        if len(self._journal.steps) < self._most_steps:
            return
        last: dict[tuple[str, int], Mapping[str, Any]] = {}
        for step in self._journal.steps:
            name = step["topic_id"], step["partition"]
            last.pop(name, None)  # the last step of all stays the last one
            last[name] = step
        self._most_steps = max(_MOST_STEPS, 2 * len(last))
        if len(self._journal.steps) >= self._most_steps:
            self._journal.replace_steps(list(last.values()))

    def _place(self, line: Mapping[str, Any]) -> None:
        folders: set[Path] = set()
        with self.on_disk():
            for file in line["files"]:
                staged, place = self._staging / file["staged"], self._into / file["place"]
                if not staged.exists():
                    continue
                place.parent.mkdir(parents=True, exist_ok=True)
                staged.rename(place)
                folders.update((place.parent, *place.parent.parents))
            for folder in sorted(folders, key=lambda each: len(each.parts), reverse=True):
                if folder.is_relative_to(self._into):
                    sync_directory(folder)


class ExportedEnd(NamedTuple):
    """End of what was exported of a partition.

    Attributes:
        next_offset: exclusive.
        epoch: leader epoch that wrote the last offset; None where it is not known, as in what earlier versions wrote.
    """

    next_offset: int
    epoch: int | None


def _exported_ends(steps: Sequence[Mapping[str, Any]]) -> dict[TopicIdPartition, ExportedEnd]:
    return {
        TopicIdPartition(uuid_from_text(step["topic_id"]), step["topic"], step["partition"]): ExportedEnd(
            step["next_offset"], step.get("epoch")
        )
        for step in steps
    }


def exported_ends(into: Path, job: Mapping[str, Any]) -> dict[TopicIdPartition, ExportedEnd]:
    """Return the ends in a directory that is not opened, as a run with ``job`` would find them. Blocking.

    Raises:
        RefusedError: as ``ExportDirectory.open``.
        StateDirError: the directory or its journal cannot be read.
    """
    _require_usable(into, job)
    return _exported_ends(read_steps(into / _STAGING / _JOURNAL))


def reserve_bytes_of(into: Path, log_dirs: Iterable[Path]) -> int:
    """Return how many bytes an export into a directory leaves free: some where a log dir is on its disk. Blocking.

    Raises:
        StateDirError: the disk cannot be asked.
    """
    with _usable(into):
        existing = nearest_existing(into)
        device = existing.stat().st_dev
        if not any(path.is_dir() and path.stat().st_dev == device for path in log_dirs):
            return 0
        return bytes_left_to_broker(existing)


def _require_usable(into: Path, job: Mapping[str, Any]) -> None:
    """Require an empty directory, or one of the same export, or none yet."""
    with _usable(into):
        names = {path.name for path in into.iterdir()} if into.exists() else set()
    found = read_job(into / _STAGING / _JOURNAL)
    if found is not None and found != dict(job):
        raise _another_export(into)
    if found is None and names - {_STAGING}:
        raise RefusedError(
            f"{into} is not empty: it has {min(names - {_STAGING})}",
            remedy="give --into a directory that is empty or does not exist, or one of an earlier run of this export",
        )


def sync_file(path: Path) -> int:
    """Return the size of a closed file once its bytes are on stable storage.

    Raises:
        OSError: the disk fails.
    """
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
        return os.fstat(fd).st_size
    finally:
        os.close(fd)


def _another_export(into: Path) -> RefusedError:
    return RefusedError(
        f"{into} has an export with other arguments",
        remedy="give the same arguments as before, or another directory --into",
    )


@contextlib.contextmanager
def _usable(into: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StateDirError(
            f"{error.filename or into}: {error.strerror or error}",
            remedy="make room or mend the disk, then run it again",
        ) from error
