"""OpenSegments: the newest batches of owned logs in open segment files, as ``FileRecords`` that survive a deletion.

::

    RecentSets of a log that grew lately         [ a | a | a | a | a ]  one descriptor of the active segment
    OpenRange from an append to the log end                [ a | a | a ]  the same descriptor, counted

Only the log's active segment is kept, and only of the logs that grew last: a standby that is further behind reads by
offset.
"""

from collections import OrderedDict
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

from tierd.errors import CorruptRecordError, LogError
from tierd.log import AppendedRecords
from tierd.model import TopicIdPartition
from tierd.replication.leader.logs.record_memory import batch_bounds
from tierd.replication.leader.logs.shared_file import RecentPositions, SharedFile, SharedRange

_SETS: Final = 256
_HEADER_BYTES: Final = 61

RunRead = Callable[[Callable[[], bytes]], Awaitable[bytes]]
"""Runs a blocking read in a thread of the log dir, within a deadline."""


class OpenRange(SharedRange):
    """The ``FileRecords`` of whole sets at the end of an owned log."""

    def __init__(
        self, file: SharedFile | None, run: RunRead, *, first_offset: int, next_offset: int, begin: int, end: int
    ) -> None:
        """Describe the range as ``SharedRange``; ``run`` runs the reads."""
        super().__init__(file, first_offset=first_offset, next_offset=next_offset, begin=begin, end=end)
        self._run = run

    async def read(self, position: int, max_bytes: int) -> bytes:
        """Return the whole batches from byte ``position`` of the range on: one, or as many as fit ``max_bytes``.

        Raises:
            LogError: the range was closed, or its bytes are not what they were.
        """
        self._require_open()
        file = self._file
        if file is None or position >= self.size_bytes:
            return b""

        def read() -> bytes:
            with file.reading():  # in the thread: a call that is cancelled before its turn never gets there
                return _read_batches(file, self._begin + position, self.size_bytes - position, max_bytes)

        return await self._run(read)


def _read_batches(file: SharedFile, position: int, left: int, max_bytes: int) -> bytes:
    data = file.read(position, min(max(max_bytes, _HEADER_BYTES), left))
    end = whole_batches_end(data)
    if not end and len(data) >= _HEADER_BYTES:  # the first batch is larger than ``max_bytes``
        size = int.from_bytes(data[8:12], "big") + 12
        if size <= left:
            data = file.read(position, size)
            end = whole_batches_end(data)
    if not end:
        raise LogError("records in an open segment are no whole batch", remedy="run tierd inspect on the log")
    return data if end == len(data) else data[:end]


def whole_batches_end(data: bytes, *, before_offset: int | None = None) -> int:
    """Return the end of the whole batches at the beginning of ``data``: of magic 2, and below ``before_offset``."""
    end = 0
    try:
        for batch in batch_bounds(data):
            if before_offset is not None and batch.next_offset > before_offset:
                break
            end = batch.end_position
    except CorruptRecordError:  # the last batch is incomplete
        pass
    return end


class RecentSets:
    """Places of the newest appends of one log, all in its active segment."""

    def __init__(self, file: SharedFile, first: AppendedRecords) -> None:
        """Begin with an append; this object is a holder of ``file`` from now on."""
        self.path = first.path
        self._file = file
        self._places = RecentPositions(first.append_offset, first.position, kept=_SETS, most=2 * _SETS)

    def follows(self, append: AppendedRecords) -> bool:
        """Return True if ``append`` goes on in the same file."""
        places = self._places
        return (append.path, append.append_offset, append.position) == (self.path, places.next_offset, places.end)

    def add(self, append: AppendedRecords) -> None:
        """Take note of the next append."""
        end = append.position + len(append.records)
        self._places.add((append.append_offset,), (append.position,), next_offset=append.next_offset, end=end)

    def range_from(self, from_offset: int, to_offset: int, run: RunRead) -> OpenRange | None:
        """Return the records of ``[from_offset, to_offset)``; None where a bound is not known to begin a set."""
        begin, end = self._places.position(from_offset), self._places.position(to_offset)
        if begin is None or end is None:
            return None
        self._file.hold()
        return OpenRange(self._file, run, first_offset=from_offset, next_offset=to_offset, begin=begin, end=end)

    def close(self) -> None:
        """Release the file."""
        self._file.release()


class OpenSegments:
    """Recent appends of the logs that grew lately, at most ``limit`` of them. For one event loop."""

    def __init__(self, limit: int = 1000) -> None:
        """Begin without a file."""
        self._limit = limit
        self._open: OrderedDict[TopicIdPartition, RecentSets] = OrderedDict()

    def __len__(self) -> int:
        """Return the number of open files."""
        return len(self._open)

    def get(self, partition: TopicIdPartition) -> RecentSets | None:
        """Return the recent appends of a log; None when its active segment is not open."""
        return self._open.get(partition)

    def has_file(self, partition: TopicIdPartition, path: Path) -> bool:
        """Return True if the segment ``path`` is open for a log. For any thread, as a guess."""
        known = self._open.get(partition)
        return known is not None and known.path == path

    def add(self, partition: TopicIdPartition, append: AppendedRecords, file: SharedFile | None) -> None:
        """Take note of an append, and of an open file of its segment; without one an unknown segment stays unknown."""
        known = self._open.get(partition)
        if known is None or not known.follows(append):
            self.drop(partition)
            if file is None:
                return
            file.hold()
            known = self._open[partition] = RecentSets(file, append)
            if len(self._open) > self._limit:
                self._open.popitem(last=False)[1].close()
        known.add(append)
        self._open.move_to_end(partition)

    def drop(self, partition: TopicIdPartition) -> None:
        """Forget a log."""
        if (known := self._open.pop(partition, None)) is not None:
            known.close()

    def close(self) -> None:
        """Forget all logs."""
        for partition in list(self._open):
            self.drop(partition)
