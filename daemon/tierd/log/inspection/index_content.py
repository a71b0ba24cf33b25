"""Check that a segment's index can be parsed, as a reader parses it, and that it tells of the batches in the log."""

import struct
from pathlib import Path
from typing import Final, NamedTuple

from tierd.errors import CorruptIndexError
from tierd.log.files.checkpoints import parse_lineage
from tierd.log.files.source import Source, open_source
from tierd.log.indexes.offset_index import OffsetIndex
from tierd.log.indexes.time_index import TimeIndex
from tierd.log.indexes.transaction_index import TransactionIndex
from tierd.log.loading.artefact_checks import NEVER, CheckedBatch, OffsetIndexCheck, TimeIndexCheck
from tierd.log.producers.producer_state import parse_producer_snapshot
from tierd.log.records.batch_header import LOG_OVERHEAD_BYTES, OVERHEAD_BYTES, iter_headers
from tierd.model import IndexType

_WINDOW_BYTES: Final = 256 << 10
_HEADER: Final = struct.Struct(">qi4xb6xi8xq")  # HEADER_V2 without the fields that no index has, for speed


def check_index(index_type: IndexType, content: bytes, *, base_offset: int, log_bytes: int, name: str) -> None:
    """Parse an index. No I/O.

    Args:
        index_type: which one it is.
        content: all of it.
        base_offset: of its segment.
        log_bytes: size of the segment's log, behind which nothing may point.
        name: for messages.

    Raises:
        LogError: it cannot be understood.
    """
    match index_type:
        case IndexType.OFFSET:
            index = OffsetIndex.from_bytes(content, base_offset, name)
            if len(index) and index[len(index) - 1].position >= log_bytes:
                raise CorruptIndexError(f"{name}: points behind the end of the log")
        case IndexType.TIMESTAMP:
            TimeIndex.from_bytes(content, base_offset, name)
        case IndexType.TRANSACTION:
            TransactionIndex.from_bytes(content, base_offset, name)
        case IndexType.PRODUCER_SNAPSHOT:
            parse_producer_snapshot(content, name)
        case IndexType.LEADER_EPOCH:
            parse_lineage(content, name=name)
        case IndexType.KEY_HASHES:
            from tierd.log.indexes.key_hashes import KeyHashes  # noqa: PLC0415  loads numpy

            KeyHashes.from_bytes(content, base_offset, name)


def check_indexes_of_log(log: Path, *, base_offset: int, offset_index: bytes, time_index: bytes) -> None:
    """Compare the offset and the time index of a rolled segment with its batches. CRCs are not checked. Blocking.

    Args:
        log: the log file, under any name.
        base_offset: of the segment.
        offset_index: all of it; unused room at its end is refused.
        time_index: the same.

    Raises:
        CorruptIndexError: an index cannot be parsed, leads to a place where no batch begins, or lacks the newest
            timestamp.
        CorruptRecordError: an impossible or incomplete batch.
        SegmentChangedError: the log vanished, or changed while it was read.
        LogDirOfflineError: the log cannot be read.
    """
    offsets = OffsetIndex.from_bytes(offset_index, base_offset, f"offset index of {log}")
    times = TimeIndex.from_bytes(time_index, base_offset, f"time index of {log}")
    if (offsets.size_bytes, times.size_bytes) != (len(offset_index), len(time_index)):
        raise CorruptIndexError(f"{log}: zeros at the end of an index, which a broker takes for entries")
    walk = _IndexWalk(OffsetIndexCheck(offsets), TimeIndexCheck(times))
    with open_source(log) as source:
        walk.run(source)
        source.require_unchanged()
    problem = walk.problem or walk.of_offsets.finish() or walk.of_times.finish()
    if walk.newest_ms > (times.entries[-1].timestamp_ms if times.entries else -1):
        problem = problem or f"the newest timestamp, {walk.newest_ms}, is not in the time index"
    if problem:
        raise CorruptIndexError(f"{log}: {problem}")


class _Place(NamedTuple):
    """Batch of magic 2, as far as an index tells of it."""

    base_offset: int
    last_offset: int
    max_timestamp_ms: int
    position: int


class _IndexWalk:
    """Walk over the batches of a log beside its indexes.

    An object is made only of a batch that an entry tells of: an object for each batch would cost more than everything
    else that a restore does with batches of 1 KiB.

    Attributes:
        newest_ms: largest timestamp so far; -1 without one.
        problem: first disagreement.
    """

    def __init__(self, of_offsets: OffsetIndexCheck, of_times: TimeIndexCheck) -> None:
        self.of_offsets = of_offsets
        self.of_times = of_times
        self.newest_ms = -1
        self.problem: str | None = None

    def run(self, source: Source) -> None:
        """Walk over a whole log.

        Raises:
            CorruptRecordError: an impossible or incomplete batch.
            SegmentChangedError: the log became shorter.
        """
        position, size_bytes = 0, source.size_bytes
        while position < size_bytes:
            wanted = min(_WINDOW_BYTES, size_bytes - position)
            window = source.read(position, wanted)
            if len(window) < wanted:
                raise source.changed()
            walked = self._walk_window(window, position)
            position = position + walked if walked else self._walk_others(source, position)

    def _walk_window(self, window: bytes, origin: int) -> int:
        """Take the whole batches of magic 2 that ``window`` begins with, and return their size.

        The state is in local names, because every line runs once per batch.
        """
        unpack, end, at, newest_ms = _HEADER.unpack_from, len(window), 0, self.newest_ms
        due_position, due_offset = self._due()
        while end - at >= OVERHEAD_BYTES:
            base, length, magic, delta, max_ms = unpack(window, at)
            size, last = length + LOG_OVERHEAD_BYTES, base + delta
            if magic != 2 or size < OVERHEAD_BYTES or at + size > end or base < 0 or delta < 0:
                break
            if max_ms > newest_ms:  # noqa: PLR1730  a call of max costs more
                newest_ms = max_ms
            if origin + at >= due_position or last >= due_offset:
                if last > NEVER:
                    break
                self._compare(_Place(base, last, max_ms, origin + at))
                due_position, due_offset = self._due()
            at += size
        self.newest_ms = newest_ms
        return at

    def _walk_others(self, source: Source, position: int) -> int:
        """Take what no window has whole: legacy entries up to one of magic 2, a large batch, or a fault."""
        for header in iter_headers(source, position=position, may_be_torn=False):
            self.newest_ms = max(self.newest_ms, header.max_timestamp_ms)
            self._compare(header)
            position = header.end_position
            if header.magic >= 2:
                break
        return position

    def _due(self) -> tuple[int, int]:
        """Return position and last offset; a batch below both is in no entry that is still to be compared."""
        if self.problem is not None:
            return NEVER, NEVER
        return self.of_offsets.due_position, min(self.of_offsets.due_offset, self.of_times.due_offset)

    def _compare(self, batch: CheckedBatch) -> None:
        self.problem = self.problem or self.of_offsets.follow(batch) or self.of_times.follow(batch)
