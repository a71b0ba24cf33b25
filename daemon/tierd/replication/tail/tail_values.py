"""Values of tail mode: the place in a broker's log up to which batches were taken, and the result of one poll of it."""

import os
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Final, NamedTuple

from tierd.errors import TierError
from tierd.log import PartitionDirectory, file_name
from tierd.model import Lineage

ANYTHING_CHANGED: Final = -1
"""In the place of a modification time: the file counts as changed."""


def segment_end_offset(base_offset: int, next_base_offset: int | None) -> int:
    """Return the exclusive end of the offsets that a segment may have; None for the base offset behind the active one.

    An index entry has 31 bits for the distance to the base offset.
    """
    return base_offset + (1 << 31) if next_base_offset is None else next_base_offset


class TailLimit(Enum):
    """The end of what tail mode takes from a broker's log."""

    HWM = "high-watermark"
    LEO = "log-end"


@dataclass(frozen=True, slots=True, kw_only=True)
class TailSettings:
    """Limits of tail mode.

    Attributes:
        interval_s: smallest time between two polls of a partition that grows.
        limit: the end of what is taken.
        readers: threads per log dir.
        poll_bytes: most bytes of one poll of one partition, unless one batch is larger.
        job_bytes: most bytes of one job, which polls many partitions; the bytes in flight are bounded by this number
            for each thread, and by one larger batch for each thread.
        open_files: logs that grew lately and whose active file stays open.
        check_interval_s: time between two polls of a partition that does not seem to grow.
        start_timeout_s: longest wait for the first poll.
    """

    interval_s: float = 0.01
    limit: TailLimit = TailLimit.LEO
    readers: int = 2
    poll_bytes: int = 1 << 20
    job_bytes: int = 4 << 20
    open_files: int = 256
    check_interval_s: float = 300.0
    start_timeout_s: float = 30.0


class LastBatch(NamedTuple):
    """The last batch that was taken. When its header is not there any more, the broker cut the log back."""

    segment_base: int
    position: int
    header: bytes


class FileStamp(NamedTuple):
    """Size and modification time of the active file at a poll that left nothing behind."""

    size_bytes: int
    mtime_ns: int

    def is_of(self, status: os.stat_result) -> bool:
        """Return True if ``status`` has this size and time."""
        return (status.st_size, status.st_mtime_ns) == self


@dataclass(frozen=True, slots=True, kw_only=True)
class TailPosition:
    """Place between two batches of a broker's log.

    Attributes:
        directory_mtime_ns: at the last scan; ``ANYTHING_CHANGED`` to scan again.
        first_base: base offset of the first segment.
        segment_base: base offset of the segment in which the next batch is, or will be.
        next_base: base offset of the segment behind that one; None for the active segment.
        inode: of the segment's file; 0 before it was opened.
        position: of the next batch in that file.
        next_offset: behind the last offset that was taken.
        last: None before the first batch.
        lineage: leader epochs of the broker's file and of the batches; some may begin above ``next_offset``.
        drained: None when the file may have more.
    """

    directory: PartitionDirectory
    directory_mtime_ns: int
    first_base: int
    segment_base: int
    next_base: int | None
    inode: int
    position: int
    next_offset: int
    last: LastBatch | None
    lineage: Lineage
    drained: FileStamp | None = None

    @property
    def known_lineage(self) -> Lineage:
        """Return the leader epochs that begin up to ``next_offset``."""
        return self.lineage.truncated_from_end(self.next_offset + 1)

    @property
    def end_offset(self) -> int:
        """Return the exclusive end of the offsets that the segment may have."""
        return segment_end_offset(self.segment_base, self.next_base)

    @property
    def log(self) -> Path:
        """Return the file in which the next batch is, or will be."""
        return self.directory.path / file_name(self.segment_base, ".log")


@dataclass(frozen=True, slots=True)
class TailAppend:
    """Whole batches of one file that were taken.

    Attributes:
        append_offset: log end offset before them.
        next_offset: log end offset behind them.
        offsets, positions: the log end offset before each batch, and the position of the batch in its file.
        lineage: leader epochs up to ``next_offset``.
    """

    segment_base: int
    inode: int
    append_offset: int
    next_offset: int
    records: bytes
    offsets: list[int]
    positions: list[int]
    lineage: Lineage


@dataclass(frozen=True, slots=True, kw_only=True)
class TailPoll:
    """Result of one poll.

    Attributes:
        position: the place now.
        appends: in log order.
        is_restarted: the log was cut back, or begins behind the former place: ``position`` is its end, and earlier
            appends may not be in it any more.
        has_more: the poll ended early, at its bound on bytes.
        is_settled: False while the broker replaces files: the next poll comes soon.
        unread_bytes: bytes of the active file behind ``position`` that are no whole and sound batch: one that the
            broker is writing, or a damaged one; None where the file was not read.
        is_gone: the directory is not there any more: the log was deleted, or moved to another log dir.
        descriptor: of the file of ``position``, open for the receiver; -1 without one.
        problem: the reason why there is no progress.
    """

    position: TailPosition
    appends: tuple[TailAppend, ...] = ()
    is_restarted: bool = False
    has_more: bool = False
    is_settled: bool = True
    unread_bytes: int | None = None
    is_gone: bool = False
    descriptor: int = -1
    problem: TierError | None = None
