"""FileUpload: one object on its way into a directory, as blocking steps: write, publish, close."""

import contextlib
import ctypes
import errno
import os
import threading
from collections.abc import Iterator
from pathlib import Path, PurePath

from tierd.errors import RemoteStorageError
from tierd.files import open_regular, open_to_read, sync_directory
from tierd.kernels import crc32c
from tierd.model import CHECKSUM_BLOCK_BYTES, ByteRange
from tierd.remote.backends.files.file_root import DIRECTORY_MODE, FILE_MODE, anchored, make_directories_below
from tierd.remote.chunks import Measured, changed, unreadable
from tierd.remote.object_store import Body, ChunkedBody, FileBody, max_size_of

_WRITE_BYTES = 1 << 18  # measured: a call of 1 MiB costs ext4 four to seven times the processor time
_LIBC = ctypes.CDLL(None, use_errno=True)
_SYNC_FILE_RANGE_WRITE = 2
_RENAME_NOREPLACE = 1
_RENAME_EXCHANGE = 2
_AT_FDCWD = -100
_NO_EXCHANGE = frozenset({errno.EINVAL, errno.ENOSYS})
_NO_LINKS = frozenset({errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK})


class FileUpload:
    """Upload into a temporary file, which then appears under its own name, whole, if the name is free.

    The bytes are read once: the checksum is compared with the bytes that are written. One call runs at a time, and the
    next call waits for one that outlives the cancellation of its awaiter.
    """

    def __init__(self, root: Path, folder: Path, name: PurePath, final: Path, body: Body) -> None:
        """``folder`` and ``final`` are below ``root``; ``name`` is where in ``folder`` it is written."""
        self.final = final
        self._root = root
        self._folder = folder
        self._temporary = folder / name
        self._body = body
        self._range = body.byte_range if isinstance(body, FileBody) else None
        if isinstance(body, FileBody) and self._range:
            _require_aligned(self._range, body.checksums.size_bytes)
        self._position = self._range.start if self._range else 0
        self._appended = Measured(0, 0)
        self._target = -1
        self._source = -1
        self._busy = threading.Lock()
        self._abandoned = False

    @property
    def remaining_bytes(self) -> int:
        """Return the number of bytes of the file body that are not copied yet."""
        return self._range.end + 1 - self._position if self._range else 0

    def write(self, size_bytes: int, buffer: memoryview) -> None:
        """Write about ``size_bytes`` more, in steps of ``buffer``, which holds one checksum block.

        Raises:
            RemoteIntegrityError: the source has changed since its check.
            RemoteStorageError: the source cannot be read.
            OSError: the temporary file cannot be written.
        """
        with self._busy:
            if self._target < 0:
                self._begin()
            if isinstance(self._body, FileBody):
                stop = self._position + min(size_bytes, self.remaining_bytes)
                while self._position < stop:
                    block = self._read_block(self._body, buffer)
                    _write(self._target, block)
                    self._position += len(block)
                _begin_write_back(self._target)

    def append(self, chunk: bytes) -> None:
        """Write one chunk of a ``ChunkedBody``.

        Raises:
            OSError: the temporary file cannot be written.
        """
        with self._busy:
            if self._target < 0:
                self._begin()
            _write(self._target, memoryview(chunk))
            size, crc = self._appended
            self._appended = Measured(size + len(chunk), crc32c(chunk, crc))
            _begin_write_back(self._target)

    def _begin(self) -> None:
        if isinstance(self._body, FileBody) and self._range:
            try:
                self._source = open_regular(self._body.path)
            except OSError as error:
                raise unreadable(self._body.path, error) from error
        make_directories(self._root)
        make_directories_below(self._root, self._temporary.parent)
        with anchored(self._root, self._temporary) as temporary:
            self._target = open_regular(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, FILE_MODE)
        if isinstance(self._body, bytes):
            _write(self._target, memoryview(self._body))

    def _read_block(self, body: FileBody, buffer: memoryview) -> memoryview:
        index = self._position // CHECKSUM_BLOCK_BYTES
        block = buffer[: body.checksums.block_size(index)]
        try:
            filled = _read(self._source, block, self._position)
        except OSError as error:
            raise unreadable(body.path, error) from error
        if filled != len(block) or crc32c(block) != body.checksums.crc32c[index]:
            raise changed(body.path, self._position)
        return block

    def publish(self) -> bool:
        """Make the object appear, durably. Return False when its name is taken.

        Raises:
            RemoteStorageError: the upload was abandoned meanwhile.
            FileNotFoundError: the directory of the final name is not there.
            OSError: the file or its directory cannot be synced.
        """
        with self._durably() as (temporary, final):
            return _link_or_rename(temporary, final)

    def replace(self) -> None:
        """Put this object in the place of the present one, durably.

        Raises:
            RemoteStorageError: the upload was abandoned meanwhile.
            FileNotFoundError: the present object is gone.
            OSError: the file or its directory cannot be synced.
        """
        with self._durably() as (temporary, final):
            _exchange_or_rename(temporary, final)

    @contextlib.contextmanager
    def _durably(self) -> Iterator[tuple[Path, Path]]:
        """Yield the temporary and the final name once the file is on the disk; at the end sync the final directory."""
        with self._busy:
            os.fsync(self._target)
            if self._abandoned:
                raise RemoteStorageError(f"{self.final}: the upload was abandoned before the object was there")
            with anchored(self._root, self._temporary) as temporary, anchored(self._root, self.final) as final:
                yield temporary, final
                sync_directory(final.parent)

    def same_content_as_final(self, buffer: memoryview) -> bool:
        """Return True if the file under the final name has the content of this upload.

        Raises:
            OSError: the file cannot be read.
        """
        with self._busy, anchored(self._root, self.final) as final, open_to_read(final) as file:
            if os.fstat(file.fileno()).st_size != self._size_bytes:
                return False
            if isinstance(self._body, bytes):
                return file.read() == self._body
            if isinstance(self._body, ChunkedBody):
                return _crc_of(file.fileno(), buffer) == self._appended.crc32c
            start = self._range.start if self._range else 0
            for position in range(0, self._body.size, CHECKSUM_BLOCK_BYTES):
                index = (start + position) // CHECKSUM_BLOCK_BYTES
                block = buffer[: self._body.checksums.block_size(index)]
                if _read(file.fileno(), block, position) != len(block):
                    return False
                if crc32c(block) != self._body.checksums.crc32c[index]:
                    return False
            return True

    @property
    def _size_bytes(self) -> int:
        return self._appended.size_bytes if isinstance(self._body, ChunkedBody) else max_size_of(self._body)

    def abandon(self) -> None:
        """Forbid a step that still runs to make the object appear: its segment may be deleted by then."""
        self._abandoned = True

    def close(self) -> None:
        """Close both files and remove the temporary one. Harmless when called twice."""
        with self._busy:
            for file in (self._source, self._target):
                if file >= 0:
                    os.close(file)
            self._source = self._target = -1
            with contextlib.suppress(OSError):  # a file that stays is listed as an unfinished upload
                remove_upload(self._root, self._temporary, self._folder)


def remove_upload(root: Path, temporary: Path, folder: Path) -> None:
    """Remove a temporary file in ``folder`` and the directories of a long key; a missing file is no error.

    Raises:
        OSError: the file is there and cannot be removed.
    """
    with contextlib.suppress(FileNotFoundError, NotADirectoryError), anchored(root, temporary) as place:
        place.unlink()
    for parent in temporary.parents:
        if parent == folder:
            return
        with contextlib.suppress(OSError), anchored(root, parent) as place:
            place.rmdir()


def make_directories(directory: Path) -> None:
    """Create ``directory`` and its parents, each durably."""
    if directory.is_dir():
        return
    make_directories(directory.parent)
    with contextlib.suppress(FileExistsError):
        directory.mkdir(mode=DIRECTORY_MODE)
    sync_directory(directory.parent)


def _require_aligned(byte_range: ByteRange, file_size: int) -> None:
    end = byte_range.end + 1
    if byte_range.start % CHECKSUM_BLOCK_BYTES or (end % CHECKSUM_BLOCK_BYTES and end != file_size):
        raise ValueError(f"bytes {byte_range.start}-{byte_range.end} cut a checksum block in two")


def _read(file: int, block: memoryview, position: int) -> int:
    """Fill ``block`` from ``position`` on; return the number of bytes."""
    filled = 0
    while filled < len(block):
        count = os.preadv(file, [block[filled:]], position + filled)
        if not count:
            break
        filled += count
    return filled


def _crc_of(file: int, buffer: memoryview) -> int:
    position, crc = 0, 0
    while filled := _read(file, buffer, position):
        position, crc = position + filled, crc32c(buffer[:filled], crc)
    return crc


def _write(file: int, content: memoryview) -> None:
    while content:
        content = content[os.write(file, content[:_WRITE_BYTES]) :]


def _begin_write_back(file: int) -> None:
    """Have the kernel write dirty pages while the next step is copied, so that the sync at the end is short.

    The call is a hint: its result does not matter, and the bytes are durable after the sync.
    """
    _LIBC.sync_file_range(file, ctypes.c_int64(0), ctypes.c_int64(0), _SYNC_FILE_RANGE_WRITE)


def _link_or_rename(temporary: Path, final: Path) -> bool:
    try:
        final.hardlink_to(temporary)
    except FileExistsError:
        return False
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        return _rename_without_replacing(temporary, final)
    return True


def _rename_without_replacing(temporary: Path, final: Path) -> bool:
    code = _renameat2(temporary, final, _RENAME_NOREPLACE)
    if code in {0, errno.EEXIST}:
        return code == 0
    raise OSError(code, os.strerror(code), str(final))


def _exchange_or_rename(temporary: Path, final: Path) -> None:
    """Give ``temporary`` the name of the present object by exchange, so that a deleted object does not come back."""
    code = _renameat2(temporary, final, _RENAME_EXCHANGE)
    if code in _NO_EXCHANGE:
        temporary.replace(final)  # some network file systems cannot exchange
    elif code:
        raise OSError(code, os.strerror(code), str(final))


def _renameat2(source: Path, target: Path, flags: int) -> int:
    """Return 0, or the number of the error."""
    done = _LIBC.renameat2(_AT_FDCWD, os.fsencode(source), _AT_FDCWD, os.fsencode(target), flags) == 0
    return 0 if done else ctypes.get_errno()
