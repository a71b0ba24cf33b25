"""LogFile: the ``.log`` file of a segment, for one writer (Kafka: FileRecords)."""

import errno
import os
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from tierd.errors import CorruptRecordError
from tierd.log.files.disk import Buffer, Disk, DiskFile, Readable
from tierd.log.files.held_file import HeldFile
from tierd.log.log_errors import LogClosedError
from tierd.log.records.log_config import MAX_INT
from tierd.log.segments.segment_reading import opener


class LogFile(HeldFile):
    """File to which bytes are appended in memory and written in one piece; preallocated files have room behind them.

    The handle is opened when it is needed, and may be closed in between. Readers open the file separately.

    Attributes:
        path: the present name of the file.
        size_bytes: size of the log, with the bytes that ``write_out`` has yet to write.
        written_bytes: size of the log without those bytes.
    """

    def __init__(self, disk: Disk, path: Path, *, create: bool, room_bytes: int = 0) -> None:
        """Open a file, or with ``create`` make one with room for ``room_bytes``.

        Raises:
            FileNotFoundError: it is not there, and is not to be made.
            IsADirectoryError: it is no file.
            CorruptRecordError: it is larger than a segment may be.
        """
        super().__init__(disk, path)
        self._is_closed = False
        self._is_synced = not create  # what was there is the recovery point's concern
        self._has_room = False  # the file is longer than the log
        self._buffered: list[Buffer] = []
        self.size_bytes = self.written_bytes = self._create(room_bytes) if create else self._existing_size()

    def append(self, pieces: Sequence[Buffer], size_bytes: int) -> None:
        """Take ``pieces``, which have ``size_bytes`` and must not change until they are written.

        Raises:
            ValueError: the file would become larger than a segment may be; nothing was taken.
        """
        if size_bytes > MAX_INT - self.size_bytes:
            raise ValueError(f"{self.path}: {size_bytes} bytes more would make it larger than a segment may be")
        self._buffered += pieces
        self.size_bytes += size_bytes

    def write_out(self) -> None:
        """Write everything that was appended, in one piece."""
        if self._buffered:
            self._handle().write(self.written_bytes, self._buffered)
            self._buffered = []
            self.written_bytes = self.size_bytes
            self._is_synced = False

    def flush(self) -> None:
        """Write out and make durable."""
        self.write_out()
        self._handle().sync()
        self._is_synced = True

    def truncate(self, size_bytes: int) -> int:
        """Cut the log, and return how many bytes were cut.

        Raises:
            ValueError: the log does not reach so far.
        """
        self.write_out()
        cut = self.size_bytes - size_bytes
        if cut < 0 or size_bytes < 0:
            raise ValueError(f"{self.path}: {self.size_bytes} bytes cannot be cut to {size_bytes}")
        if cut:
            self._handle().truncate(size_bytes)
            self.size_bytes = self.written_bytes = size_bytes
            self._is_synced = self._has_room = False
        return cut

    def trim(self) -> None:
        """Give back the room behind the log."""
        if self._has_room:
            self._handle().truncate(self.size_bytes)
            self._is_synced = self._has_room = False

    def reading(self) -> AbstractContextManager[Readable]:
        """Open the file for reading; it may be longer than the log.

        Raises:
            SegmentChangedError: it is not there.
        """
        return opener(self._disk)(self.path)

    def release_handle(self) -> None:
        """Give the open file back; the next call that writes opens it again."""
        self.write_out()
        super().release_handle()

    def close(self) -> None:
        """Leave the file as a clean stop leaves it, durable, and take no more calls."""
        self.write_out()
        self.trim()
        if not self._is_synced:
            self.flush()
        self.close_handle()

    def close_handle(self) -> None:
        """Take no more calls; the file stays as it is."""
        super().release_handle()
        self._is_closed = True

    def _handle(self) -> DiskFile:
        if self._is_closed:
            raise LogClosedError(f"{self.path}: closed")
        if self._file is None:
            self._file = self._disk.open(self.path)
        return self._file

    def _create(self, room_bytes: int) -> int:
        self._file = self._disk.open(self.path, create=True)
        if room_bytes:
            try:
                self._file.truncate(room_bytes)
            except OSError:
                self._file.close()  # the caller gets no handle to close
                raise
            self._has_room = True
        return 0

    def _existing_size(self) -> int:
        status = self._disk.status(self.path)
        if status is None:
            raise FileNotFoundError(str(self.path))
        if status.is_directory:
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(self.path))
        if status.size_bytes > MAX_INT:
            raise CorruptRecordError(self.path, 0, f"{status.size_bytes} bytes are more than a segment may have")
        return status.size_bytes
