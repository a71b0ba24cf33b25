"""Files that prove their content, so that a torn, damaged or foreign file is not taken for a written one.

::

    content | magic 4 bytes | crc32c u32 | content size u64
                              of the identity and the content

Files are not flushed. A file that a loss of power tears or empties fails its checksum, and the store has its bytes.

Large files are written past the page cache (``O_DIRECT``) where the file system can do it: the pages of the broker stay
in memory, and a byte costs a tenth of the CPU, for the kernel has to find no page for it.
"""

import errno
import mmap
import os
import stat
import struct
import threading
from contextlib import suppress
from pathlib import Path
from secrets import token_hex

from tierd.kernels import crc32c
from tierd.open_file import OpenFile

TEMPORARY_SUFFIX = ".tmp"

_FOOTER = struct.Struct(">4sIQ")
_MAGIC = b"tcf1"
_BLOCK_BYTES = 4096  # positions, sizes and addresses of direct writes are multiples of it
_STEP_BYTES = 1 << 20

_local = threading.local()  # the buffer of a thread for direct writes and for checks


class DamagedFileError(Exception):
    """The content of the file is not the content that was written under this name."""


def file_size_of(content_bytes: int) -> int:
    """Return the size of a file with so much content."""
    return content_bytes + _FOOTER.size


def write_checked(path: Path, content: bytes, *, identity: str, is_direct: bool = False) -> None:
    """Write the file under a temporary name, then rename it: a reader of ``path`` finds the whole file. Blocking.

    Args:
        path: replaced if it is there.
        content: may be empty.
        identity: name of the content, which ``read_checked`` has to be given too.
        is_direct: write past the page cache if the file system can do it. Then the call waits for the disk.

    Raises:
        OSError: the disk is full or not writable; nothing is left.
    """
    temporary = path.with_name(f"{path.name}.{os.getpid()}-{token_hex(4)}{TEMPORARY_SUFFIX}")
    footer = _FOOTER.pack(_MAGIC, _checksum(content, identity), len(content))
    try:
        if not (is_direct and _has_written_direct(temporary, content, footer)):
            _write(temporary, content, footer)
        temporary.replace(path)
    except BaseException:
        with suppress(OSError):
            temporary.unlink()
        raise


def read_checked(path: Path, *, identity: str, touch: bool = False) -> bytes:
    """Return the content that was written as ``identity``. Blocking.

    Args:
        path: of the file.
        identity: as it was written.
        touch: set the file's time to now, by which files are listed in order of use.

    Raises:
        FileNotFoundError: there is no such file.
        DamagedFileError: the file is torn, damaged, another user's or of another format.
        OSError: it cannot be read.
    """
    fd = _open(path)
    try:
        size = os.fstat(fd).st_size - _FOOTER.size
        if size < 0:
            raise DamagedFileError(f"{path}: too short")
        content = _read_exactly(fd, size, 0, path)
        magic, checksum, stored_size = _FOOTER.unpack(_read_exactly(fd, _FOOTER.size, size, path))
        if magic != _MAGIC or stored_size != size or checksum != _checksum(content, identity):
            raise DamagedFileError(f"{path}: does not match its checksum")
        if touch:
            with suppress(OSError):  # of another user, perhaps
                os.utime(fd)
        return content
    finally:
        os.close(fd)


def open_checked(path: Path, *, size_bytes: int, content_crc32c: int, touch: bool = False) -> OpenFile:
    """Open a file whose first ``size_bytes``, its whole content, have this checksum. Blocking.

    The content is read into the page cache, and is not kept in memory.

    Args:
        path: of the file.
        size_bytes: of the content.
        content_crc32c: CRC-32C of the content alone, which the caller knows from another place.
        touch: as in ``read_checked``.

    Raises:
        FileNotFoundError: there is no such file.
        DamagedFileError: the file has other bytes, or is another user's.
        OSError: it cannot be opened or read.
    """
    fd = _open(path)
    try:
        _require_content(fd, size_bytes, content_crc32c, path)
        if touch:
            with suppress(OSError):  # of another user, perhaps
                os.utime(fd)
    except BaseException:  # the error keeps this frame, until Python collects garbage
        os.close(fd)
        raise
    return OpenFile(path, fd)


def is_complete(path: Path) -> bool:
    """Return True if the file ends as it should; its content may still be damaged. Blocking.

    Raises:
        OSError: it cannot be read.
    """
    try:
        fd = _open(path)
    except DamagedFileError:
        return False
    try:
        size = os.fstat(fd).st_size - _FOOTER.size
        if size < 0:
            return False
        footer = os.pread(fd, _FOOTER.size, size)
        return len(footer) == _FOOTER.size and _FOOTER.unpack(footer)[::2] == (_MAGIC, size)
    finally:
        os.close(fd)


def _open(path: Path) -> int:
    """Open the file to read, if this user wrote it: other users could write a file with a right checksum."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)  # a pipe would never open
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise DamagedFileError(f"{path}: is a link") from error
        raise
    try:
        _require_ours(os.fstat(fd), path)
    except BaseException:
        os.close(fd)
        raise
    return fd


def _require_ours(status: os.stat_result, path: Path) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise DamagedFileError(f"{path}: is no file")
    user = os.geteuid()
    # A command of root's reads what the daemon wrote into its own directory.
    if status.st_uid != user and (user or status.st_uid != path.parent.stat().st_uid):
        raise DamagedFileError(f"{path}: belongs to another user")


def _require_content(fd: int, size_bytes: int, content_crc32c: int, path: Path) -> None:
    if os.fstat(fd).st_size != file_size_of(size_bytes):
        raise DamagedFileError(f"{path}: has another size")
    buffer, position, checksum = _thread_buffer(), 0, 0
    while position < size_bytes:
        read = os.preadv(fd, [buffer[: size_bytes - position]], position)
        if not read:
            raise DamagedFileError(f"{path}: became shorter")
        checksum = crc32c(buffer[:read], checksum)
        position += read
    if checksum != content_crc32c:
        raise DamagedFileError(f"{path}: does not match the checksum of the chunk")


def _checksum(content: bytes, identity: str) -> int:
    return crc32c(content, crc32c(identity.encode() + b"\0"))


def _write(path: Path, content: bytes, footer: bytes) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        _write_all(fd, memoryview(content))
        _write_all(fd, memoryview(footer))
    finally:
        os.close(fd)


def _has_written_direct(path: Path, content: bytes, footer: bytes) -> bool:
    """Write past the page cache; return False, without a file, where the file system cannot do it."""
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_DIRECT, 0o600)
        try:
            _write_blocks(fd, content, footer)
        finally:
            os.close(fd)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        path.unlink(missing_ok=True)  # some file systems make it before they refuse it
        return False
    return True


def _write_blocks(fd: int, content: bytes, footer: bytes) -> None:
    """Write the file in whole blocks, by way of an aligned buffer, and cut it to its size."""
    buffer, view = _thread_buffer(), memoryview(content)
    whole = len(view) - len(view) % _STEP_BYTES
    for start in range(0, whole, _STEP_BYTES):
        buffer[:] = view[start : start + _STEP_BYTES]
        _write_all(fd, buffer)
    rest = bytes(view[whole:]) + footer
    rest += bytes(-len(rest) % _BLOCK_BYTES)
    for start in range(0, len(rest), _STEP_BYTES):  # a second step if the footer does not fit into the first one
        step = memoryview(rest)[start : start + _STEP_BYTES]
        buffer[: len(step)] = step
        _write_all(fd, buffer[: len(step)])
    os.ftruncate(fd, len(view) + len(footer))


def _thread_buffer() -> memoryview:
    """Return the aligned buffer of this thread, ``_STEP_BYTES`` long; its content is that of the last use."""
    buffer: memoryview | None = getattr(_local, "buffer", None)
    if buffer is None:
        _local.buffer = buffer = memoryview(mmap.mmap(-1, _STEP_BYTES))
    return buffer


def _write_all(fd: int, view: memoryview) -> None:
    while view:
        view = view[os.write(fd, view) :]


def _read_exactly(fd: int, size: int, position: int, path: Path) -> bytes:
    data = os.pread(fd, size, position)
    while len(data) < size:  # above 2 GiB, or a file that became shorter
        more = os.pread(fd, size - len(data), position + len(data))
        if not more:
            raise DamagedFileError(f"{path}: became shorter")
        data += more
    return data
