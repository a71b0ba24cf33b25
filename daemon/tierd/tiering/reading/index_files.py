"""IndexFiles: the directory of the index cache (remote-tiering 16). Every call blocks.

An entry is three files, ``<start offset>_<segment id>`` with ``.index``, ``.timeindex`` and ``.txnindex``, each the
index followed by a checksum of our own. All three are there, or the entry is not.
"""

import fcntl
import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

from tierd.errors import CorruptIndexError
from tierd.files import make_private_directory, open_regular
from tierd.log import OffsetIndex, TimeIndex, TransactionIndex
from tierd.model import IndexType, RemoteLogSegmentMetadata, uuid_from_text, uuid_to_text
from tierd.remote import (
    TEMPORARY_SUFFIX,
    DamagedFileError,
    is_complete,
    read_checked,
    write_checked,
)

DELETED_SUFFIX = ".deleted"
SUFFIXES: Mapping[IndexType, str] = {
    IndexType.OFFSET: ".index",
    IndexType.TIMESTAMP: ".timeindex",
    IndexType.TRANSACTION: ".txnindex",
}

_LOCK_FILE = ".lock"


@dataclass(frozen=True, slots=True)
class CachedEntry:
    """Entry that is on disk; the names of its files are ``stem`` and a suffix."""

    segment_id: UUID
    stem: str
    size_bytes: int


def stem_of(metadata: RemoteLogSegmentMetadata) -> str:
    """Return the common part of the names of the segment's files."""
    return f"{metadata.start_offset}_{uuid_to_text(metadata.segment.id)}"


class IndexFiles:
    """Directory of the index cache, which one process at a time locks. Safe in any thread."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._lock: int | None = None

    def open(self) -> list[CachedEntry]:
        """Make and lock the directory, clean it up, and list what is whole, the entries used longest ago first.

        Raises:
            BlockingIOError: another process has the directory.
            OSError: the directory cannot be made, locked or listed.
        """
        make_private_directory(self.directory)
        lock = open_regular(self.directory / _LOCK_FILE, os.O_RDWR | os.O_CREAT)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            entries = self._clean_up()
        except BaseException:
            os.close(lock)
            raise
        self._lock = lock
        return entries

    def close(self) -> None:
        """Release the directory for another process; the files stay for the next start."""
        lock, self._lock = self._lock, None
        if lock is not None:
            os.close(lock)

    def read(self, stem: str, index_type: IndexType) -> bytes | None:
        """Return an index that is there and undamaged; None otherwise."""
        try:
            return read_checked(self._path(stem, index_type), identity=stem + SUFFIXES[index_type], touch=True)
        except (OSError, DamagedFileError):
            return None

    def write(self, stem: str, contents: Mapping[IndexType, bytes]) -> int:
        """Keep indexes under their names; return the size of the entry's files.

        Raises:
            OSError: the disk is full or not writable.
        """
        for index_type, content in contents.items():
            write_checked(self._path(stem, index_type), content, identity=stem + SUFFIXES[index_type])
        return sum(self._path(stem, index_type).stat().st_size for index_type in SUFFIXES)

    def mark_deleted(self, stem: str) -> list[Path]:
        """Give the entry's files the deleted suffix, and return the new names; a reader that has them open reads on."""
        marked: list[Path] = []
        for index_type in SUFFIXES:
            path = self._path(stem, index_type)
            target = path.with_name(path.name + DELETED_SUFFIX)
            with suppress(FileNotFoundError):
                path.replace(target)
                marked.append(target)
        return marked

    def remove(self, paths: Iterable[Path]) -> list[OSError]:
        """Remove files; return why some could not be."""
        failures: list[OSError] = []
        for path in paths:
            try:
                path.unlink(missing_ok=True)
            except OSError as error:
                failures.append(error)
        return failures

    def _clean_up(self) -> list[CachedEntry]:
        whole: list[tuple[int, CachedEntry]] = []
        stems: dict[str, set[str]] = {}
        for path in list(self.directory.iterdir()):
            if path.name.endswith((TEMPORARY_SUFFIX, DELETED_SUFFIX)):
                self.remove([path])
            elif path.suffix in SUFFIXES.values():
                stems.setdefault(path.stem, set()).add(path.suffix)
        for stem, suffixes in stems.items():
            files = [self.directory / (stem + suffix) for suffix in suffixes]
            segment_id = _segment_id_of(stem)
            if segment_id is None or len(suffixes) < len(SUFFIXES) or not all(map(_is_sound, files)):
                self.remove(files)
                continue
            states = [file.stat() for file in files]
            size = sum(state.st_size for state in states)
            whole.append((max(s.st_mtime_ns for s in states), CachedEntry(segment_id, stem, size)))
        return [entry for _, entry in sorted(whole, key=lambda item: item[0])]

    def _path(self, stem: str, index_type: IndexType) -> Path:
        return self.directory / (stem + SUFFIXES[index_type])


def require_sound(metadata: RemoteLogSegmentMetadata, index_type: IndexType, content: bytes) -> None:
    """Raise unless ``content`` is an index of that type of the segment.

    Raises:
        CorruptIndexError: ``content`` is no such index.
    """
    name = f"{metadata.segment} {index_type.value} index"
    match index_type:
        case IndexType.OFFSET:
            OffsetIndex.from_bytes(content, metadata.start_offset, name)
        case IndexType.TIMESTAMP:
            TimeIndex.from_bytes(content, metadata.start_offset, name)
        case IndexType.TRANSACTION:
            TransactionIndex.from_bytes(content, metadata.start_offset, name)
        case _:
            raise CorruptIndexError(f"{name}: is not kept in the index cache")


def _is_sound(path: Path) -> bool:
    try:
        return is_complete(path)
    except OSError:
        return False


def _segment_id_of(stem: str) -> UUID | None:
    start, separator, text = stem.partition("_")
    if not (separator and start.isdecimal()):
        return None
    try:
        return uuid_from_text(text)
    except ValueError:
        return None
