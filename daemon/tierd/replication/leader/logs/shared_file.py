"""An open log file with several holders, the ranges of it that they hold, and the places of its newest offsets."""

import os
import threading
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Self

from tierd.errors import LogError


class SharedFile:
    """Open file with a count of holders; the last of them closes it. For any thread."""

    def __init__(self, fd: int) -> None:
        """Take an open descriptor for its first holder."""
        self._fd = fd
        self._holders = 1
        self._lock = threading.Lock()

    @classmethod
    def open(cls, path: Path) -> Self:
        """Open a file for its first holder.

        Raises:
            OSError: the file cannot be opened.
        """
        return cls(os.open(path, os.O_RDONLY | os.O_CLOEXEC))

    def hold(self) -> None:
        """Add a holder.

        Raises:
            LogError: the last holder has closed the file.
        """
        with self._lock:
            if not self._holders:
                raise _released()
            self._holders += 1

    def release(self) -> None:
        """Remove a holder."""
        with self._lock:
            self._holders -= 1
            if not self._holders:
                os.close(self._fd)

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Be a holder for a read.

        Raises:
            LogError: the last holder has closed the file.
        """
        self.hold()
        try:
            yield
        finally:
            self.release()

    def read(self, position: int, size: int) -> bytes:
        """Read up to ``size`` bytes. Blocking; the caller is a holder.

        Raises:
            LogError: the disk failed.
        """
        try:
            return os.pread(self._fd, size, position)
        except OSError as error:
            raise LogError(f"records in an open file: {error.strerror}", remedy="check the disk") from error


class SharedRange:
    """Range of a log that is a holder of its file until ``close``.

    Attributes:
        first_offset: of the range.
        next_offset: exclusive end of the range.
        size_bytes: of the range.
    """

    def __init__(self, file: SharedFile | None, *, first_offset: int, next_offset: int, begin: int, end: int) -> None:
        """Describe the range.

        Args:
            file: the range is a holder of it from now on; None for an empty range.
            first_offset: of the range.
            next_offset: exclusive end of the range.
            begin: position of the first batch.
            end: position behind the last batch.
        """
        self.first_offset = first_offset
        self.next_offset = next_offset
        self.size_bytes = end - begin
        self._file = file
        self._begin = begin
        self._is_closed = False

    def close(self) -> None:
        """Release the file; a second call does nothing."""
        if not self._is_closed and self._file is not None:
            self._file.release()
        self._is_closed = True

    def _require_open(self) -> None:
        if self._is_closed:
            raise _released()


def _released() -> LogError:
    return LogError("the records were released", remedy="nothing to do: the session has ended")


class RecentPositions:
    """Positions at which the newest sets or batches of a file begin, by offset; ascending.

    Attributes:
        next_offset: offset behind the last one.
        end: position behind the last one.
    """

    def __init__(self, next_offset: int, end: int, *, kept: int, most: int) -> None:
        """Begin without any.

        Args:
            next_offset: offset of the first one to come.
            end: its position.
            kept: number of positions that stay when there are more than ``most``.
            most: number of positions that are not exceeded after ``add``.
        """
        self.next_offset = next_offset
        self.end = end
        self._kept = kept
        self._most = most
        self._offsets: list[int] = []
        self._positions: list[int] = []

    def add(self, offsets: Sequence[int], positions: Sequence[int], *, next_offset: int, end: int) -> None:
        """Take note of the ones that follow; the oldest are forgotten."""
        self._offsets += offsets
        self._positions += positions
        self.next_offset, self.end = next_offset, end
        if len(self._offsets) > self._most:
            del self._offsets[: -self._kept]
            del self._positions[: -self._kept]

    def position(self, offset: int) -> int | None:
        """Return the position at which ``offset`` begins, or will begin; None if it is not known to begin anything."""
        if offset == self.next_offset:
            return self.end
        index = bisect_left(self._offsets, offset)
        is_known = index < len(self._offsets) and self._offsets[index] == offset
        return self._positions[index] if is_known else None
