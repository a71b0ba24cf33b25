"""TailRecords: the newest batches of a broker's log in an open file; it stays readable when the broker deletes it.

::

    RecentBatches of a log that grew lately          [ b | b | b | b | b ]  one descriptor
    TailRecords from 7 to the log end                        [ b | b | b ]  the same descriptor, counted
"""

import os
from collections import OrderedDict
from typing import Final

from tierd.errors import SegmentChangedError
from tierd.log import OVERHEAD_BYTES
from tierd.model import TopicIdPartition
from tierd.replication.leader.logs.shared_file import RecentPositions, SharedFile, SharedRange
from tierd.replication.tail.tail_reads import LogDirThreads
from tierd.replication.tail.tail_values import TailAppend
from tierd.replication.tail.whole_batches import TailStop, whole_batches

_BATCHES: Final = 256


class TailRecords(SharedRange):
    """The ``FileRecords`` of a range at the end of a broker's log."""

    def __init__(
        self,
        file: SharedFile | None,
        threads: LogDirThreads,
        *,
        first_offset: int,
        next_offset: int,
        begin: int,
        end: int,
    ) -> None:
        """Describe the range as ``SharedRange``; ``threads`` run the reads."""
        super().__init__(file, first_offset=first_offset, next_offset=next_offset, begin=begin, end=end)
        self._threads = threads

    async def read(self, position: int, max_bytes: int) -> bytes:
        """Return the whole batches from byte ``position`` of the range on: one, or as many as fit ``max_bytes``.

        Raises:
            LogError: the records were closed, or the broker has cut the log back.
        """
        file = self._file
        if file is None or position >= self.size_bytes:
            return b""
        self._require_open()
        return await self._threads.run(lambda: self._read(file, position, max_bytes))

    def _read(self, file: SharedFile, position: int, max_bytes: int) -> bytes:
        left = self.size_bytes - position
        with file.reading():
            size = min(max_bytes, left)
            while True:
                data = file.read(self._begin + position, size)
                found = whole_batches(data, next_offset=self.first_offset, limit_offset=self.next_offset)
                if found.size_bytes:
                    return data if found.size_bytes == len(data) else data[: found.size_bytes]
                # The first batch is larger than ``max_bytes``, or not even its header fits.
                wanted = max(found.wanted_bytes, OVERHEAD_BYTES)
                if found.stop is not TailStop.TORN or not size < wanted <= left:
                    break
                size = wanted
        raise SegmentChangedError("the broker has cut its log back", remedy="nothing to do: the standby truncates")


class RecentBatches:
    """Places of the newest batches of a log, all in one file, and a descriptor of that file."""

    def __init__(self, fd: int, append: TailAppend) -> None:
        """Keep ``fd``, the file of ``append``."""
        self._file = SharedFile(fd)
        self._segment_base = append.segment_base
        self.inode = append.inode
        self._places = RecentPositions(append.append_offset, 0, kept=_BATCHES, most=_BATCHES)
        self.add(append)

    def is_of(self, append: TailAppend) -> bool:
        """Return True if ``append`` goes on in the same file."""
        is_same = (append.segment_base, append.inode) == (self._segment_base, self.inode)
        return is_same and append.append_offset == self._places.next_offset

    def add(self, append: TailAppend) -> None:
        """Take note of the batches that follow."""
        end = append.positions[0] + len(append.records)
        self._places.add(append.offsets, append.positions, next_offset=append.next_offset, end=end)

    def records(self, from_offset: int, to_offset: int, threads: LogDirThreads) -> TailRecords | None:
        """Return the records of ``[from_offset, to_offset)``; None where a bound is not known to begin a batch."""
        begin, end = self._places.position(from_offset), self._places.position(to_offset)
        if begin is None or end is None:
            return None
        self._file.hold()
        return TailRecords(self._file, threads, first_offset=from_offset, next_offset=to_offset, begin=begin, end=end)

    def close(self) -> None:
        """Release the file."""
        self._file.release()


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
