"""ChunkFiles: the directory of the chunk cache. Every call blocks.

A chunk is one file, ``<hash of the key>-<first byte>-<last byte>.chunk``. Its modification time is that of its last
read, so that the order of use survives a restart and is shared by every process that uses the directory.
"""

import os
import time
from collections.abc import Iterable
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

from tierd.files import make_private_directory
from tierd.model import ByteRange
from tierd.open_file import OpenFile
from tierd.remote.cache.checked_file import TEMPORARY_SUFFIX, open_checked, read_checked, write_checked

_SUFFIX = ".chunk"
_STALE_S = 3600.0  # a temporary file of a process that died; no write takes that long


class ChunkFiles:
    """Chunks in one directory, for any thread and any number of processes at once."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def prepare(self) -> list[tuple[str, int]]:
        """Make the directory, remove what a dead process left, and list the chunks, those used longest ago first.

        Raises:
            OSError: it cannot be made or listed.
        """
        make_private_directory(self.directory)
        return self.list()

    def list(self) -> list[tuple[str, int]]:
        """Return name and file size of every chunk, those used longest ago first.

        Raises:
            OSError: the directory cannot be listed.
        """
        found: list[tuple[int, str, int]] = []
        with os.scandir(self.directory) as entries:
            for entry in entries:
                with suppress(FileNotFoundError):  # another process removed it
                    status = entry.stat(follow_symlinks=False)
                    if entry.name.endswith(_SUFFIX):
                        found.append((status.st_mtime_ns, entry.name, status.st_size))
                    elif entry.name.endswith(TEMPORARY_SUFFIX) and status.st_mtime < time.time() - _STALE_S:
                        Path(entry.path).unlink()
        return [(name, size) for _, name, size in sorted(found)]

    def read(self, name: str, *, identity: str) -> bytes:
        """Return a chunk's bytes, and note that it was used.

        Raises:
            FileNotFoundError: there is no such chunk.
            DamagedFileError: the file differs from the bytes that were written.
            OSError: it cannot be read.
        """
        return read_checked(self.directory / name, identity=identity, touch=True)

    def open(self, name: str, *, size_bytes: int, crc32c: int) -> OpenFile:
        """Check a chunk of ``size_bytes`` against its checksum, note that it was used, and return its file, still open.

        Raises:
            FileNotFoundError: there is no such chunk.
            DamagedFileError: the file has other bytes.
            OSError: it cannot be opened or read.
        """
        return open_checked(self.directory / name, size_bytes=size_bytes, content_crc32c=crc32c, touch=True)

    def write(self, name: str, content: bytes, *, identity: str, is_direct: bool = False) -> None:
        """Keep a chunk; with ``is_direct`` it is written past the page cache, and the call waits for the disk.

        Raises:
            OSError: the disk is full or not writable.
        """
        write_checked(self.directory / name, content, identity=identity, is_direct=is_direct)

    def remove(self, names: Iterable[str]) -> None:
        """Remove chunks; those that are gone or cannot be removed are left to the next listing."""
        for name in names:
            with suppress(OSError):
                (self.directory / name).unlink()


def chunk_name(key: str, byte_range: ByteRange) -> str:
    """Return the file name for a range of an object."""
    return f"{_hashed(key)}-{byte_range.start}-{byte_range.end}{_SUFFIX}"


def is_chunk_of(name: str, key: str) -> bool:
    """Return True if the file named ``name`` holds a range of the object ``key``."""
    return name.startswith(f"{_hashed(key)}-")


def object_part(key: str) -> str:
    """Return the beginning, up to the first dash, of the names of all chunks of the object ``key``."""
    return _hashed(key)


def object_part_of(name: str) -> str:
    """Return the ``object_part`` of the object that the file named ``name`` holds a range of."""
    return name.partition("-")[0]


def purge_chunks(directory: Path, keys: Iterable[str]) -> int:
    """Remove every chunk of these objects from a directory that no cache has open; return how many are left. Blocking.

    Raises:
        OSError: the directory cannot be listed.
    """
    files, parts = ChunkFiles(directory), {object_part(key) for key in keys}
    files.remove([name for name, _ in files.list() if object_part_of(name) in parts])
    return sum(object_part_of(name) in parts for name, _ in files.list())


def chunk_identity(key: str, byte_range: ByteRange) -> str:
    """Return what the file's checksum covers besides its content, so that no other chunk is taken for it."""
    return f"{key} {byte_range.start}-{byte_range.end}"


def _hashed(key: str) -> str:
    return sha256(key.encode()).hexdigest()[:32]
