"""TailRecords: the newest batches of a broker's log in an open file; it stays readable when the broker deletes it.

::

    RecentBatches of a log that grew lately          [ b | b | b | b | b ]  one descriptor
    TailRecords from 7 to the log end                        [ b | b | b ]  a descriptor of its own
"""

import os
import threading
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from tierd.errors import LogError, SegmentChangedError
from tierd.log import OVERHEAD_BYTES
from tierd.model import TopicIdPartition
from tierd.replication.tail.tail_reads import LogDirThreads
from tierd.replication.tail.tail_values import TailAppend
from tierd.replication.tail.whole_batches import TailStop, whole_batches

_BATCHES: Final = 256


class SharedDescriptor:
    """Descriptor of an open file that threads may read when its owner closes it: then the last of them closes it."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._readers = 0
        self._is_closing = False
        self._lock = threading.Lock()

    @contextmanager
    def reading(self) -> Iterator[int]:
        """Keep the file open for a read.

        Raises:
            LogError: the owner has closed it.
        """
        with self._lock:
            if self._is_closing:
                raise LogError("the records were released", remedy="nothing to do: the session has ended")
            self._readers += 1
        try:
            yield self._fd
        finally:
            with self._lock:
                self._readers -= 1
                self._close_unused()

    def close(self) -> None:
        """Close the file as soon as it is not being read; a second call does nothing."""
        with self._lock:
            if not self._is_closing:
                self._is_closing = True
                self._close_unused()

    def _close_unused(self) -> None:
        if self._is_closing and not self._readers:
            os.close(self._fd)


class TailRecords:
    """The ``FileRecords`` of a range at the end of a broker's log."""

    def __init__(
        self,
        descriptor: SharedDescriptor | None,
        threads: LogDirThreads,
        *,
        first_offset: int,
        next_offset: int,
        begin: int,
        end: int,
    ) -> None:
        """Describe the range.

        Args:
            descriptor: of the file; it belongs to these records from now on. None for an empty range.
            threads: for the reads.
            first_offset: of the range.
            next_offset: exclusive end of the range.
            begin: position of the first batch.
            end: position behind the last batch.
        """
        self.first_offset = first_offset
        self.next_offset = next_offset
        self.size_bytes = end - begin
        self._descriptor = descriptor
        self._threads = threads
        self._begin = begin

    async def read(self, position: int, max_bytes: int) -> bytes:
        """Return the whole batches from byte ``position`` of the range on: one, or as many as fit ``max_bytes``.

        Raises:
            LogError: the records were closed, or the broker has cut the log back.
        """
        descriptor = self._descriptor
        if descriptor is None or position >= self.size_bytes:
            return b""
        return await self._threads.run(lambda: self._read(descriptor, position, max_bytes))

    def close(self) -> None:
        """Release the file."""
        if self._descriptor is not None:
            self._descriptor.close()

    def _read(self, descriptor: SharedDescriptor, position: int, max_bytes: int) -> bytes:
        left = self.size_bytes - position
        with descriptor.reading() as fd:
            size = min(max_bytes, left)
            while True:
                data = _read_at(fd, size, self._begin + position)
                found = whole_batches(data, next_offset=self.first_offset, limit_offset=self.next_offset)
                if found.size_bytes:
                    return data if found.size_bytes == len(data) else data[: found.size_bytes]
                # The first batch is larger than ``max_bytes``, or not even its header fits.
                wanted = max(found.wanted_bytes, OVERHEAD_BYTES)
                if found.stop is not TailStop.TORN or not size < wanted <= left:
                    break
                size = wanted
        raise SegmentChangedError("the broker has cut its log back", remedy="nothing to do: the standby truncates")


def _read_at(fd: int, size: int, position: int) -> bytes:
    try:
        return os.pread(fd, size, position)
    except OSError as error:
        raise LogError(f"records in an open file: {error.strerror}", remedy="check the disk") from error


class RecentBatches:
    """Places of the newest batches of a log, all in one file, and a descriptor of that file."""

    def __init__(self, fd: int, append: TailAppend) -> None:
        """Keep ``fd``, the file of ``append``."""
        self._fd = fd
        self._segment_base = append.segment_base
        self.inode = append.inode
        self._offsets: list[int] = []
        self._positions: list[int] = []
        self._next_offset = append.append_offset
        self._end = 0
        self.add(append)

    def is_of(self, append: TailAppend) -> bool:
        """Return True if ``append`` goes on in the same file."""
        is_same = (append.segment_base, append.inode) == (self._segment_base, self.inode)
        return is_same and append.append_offset == self._next_offset

    def add(self, append: TailAppend) -> None:
        """Take note of the batches that follow."""
        self._offsets += append.offsets
        self._positions += append.positions
        self._next_offset = append.next_offset
        self._end = append.positions[0] + len(append.records)
        if len(self._offsets) > _BATCHES:
            del self._offsets[:-_BATCHES]
            del self._positions[:-_BATCHES]

    def records(self, from_offset: int, to_offset: int, threads: LogDirThreads) -> TailRecords | None:
        """Return the records of ``[from_offset, to_offset)``; None where a bound is not known to begin a batch."""
        begin, end = self._position(from_offset), self._position(to_offset)
        if begin is None or end is None:
            return None
        return TailRecords(
            SharedDescriptor(os.dup(self._fd)),
            threads,
            first_offset=from_offset,
            next_offset=to_offset,
            begin=begin,
            end=end,
        )

    def close(self) -> None:
        """Close the file."""
        os.close(self._fd)

    def _position(self, offset: int) -> int | None:
        if offset == self._next_offset:
            return self._end
        index = bisect_left(self._offsets, offset)
        is_known = index < len(self._offsets) and self._offsets[index] == offset
        return self._positions[index] if is_known else None


class OpenTails:
    """The recent batches of the logs that grew lately, at most ``limit`` of them."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._open: OrderedDict[TopicIdPartition, RecentBatches] = OrderedDict()

    def __len__(self) -> int:
        return len(self._open)

    def has_file(self, partition: TopicIdPartition, inode: int) -> bool:
        """Return True if the file ``inode`` is open for a log."""
        known = self._open.get(partition)
        return known is not None and known.inode == inode

    def get(self, partition: TopicIdPartition) -> RecentBatches | None:
        """Return the recent batches of a log; None when its file is not open."""
        return self._open.get(partition)

    def add(self, partition: TopicIdPartition, append: TailAppend, fd: int) -> None:
        """Take note of batches, and of a descriptor of their file, which belongs to this object from now on.

        ``fd``: -1 without one.
        """
        known = self._open.get(partition)
        if known is not None and known.is_of(append):
            known.add(append)
            self._open.move_to_end(partition)
            if fd >= 0:
                os.close(fd)
            return
        self.drop(partition)
        if fd >= 0:
            self._open[partition] = RecentBatches(fd, append)
            if len(self._open) > self._limit:
                self._open.popitem(last=False)[1].close()

    def drop(self, partition: TopicIdPartition) -> None:
        """Forget a log, whose records may have changed."""
        if (known := self._open.pop(partition, None)) is not None:
            known.close()

    def close(self) -> None:
        """Forget all logs."""
        for partition in list(self._open):
            self.drop(partition)
