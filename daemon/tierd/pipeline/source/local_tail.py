"""Part of a partition that is on this host and not in the tier yet: rolled segments, and the active one."""

from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tierd.errors import LogDirOfflineError, SegmentChangedError
from tierd.log import (
    REPLICATION_OFFSET_CHECKPOINT,
    AbortedTransaction,
    DirectoryKind,
    EndMarkerAt,
    LocalLog,
    PartitionDirectory,
    PartitionScan,
    data_bytes,
    find_cut_end,
    find_log_end_offset,
    first_since,
    identify_directory,
    iter_batches,
    last_stable_offset,
    list_log_dir,
    read_lineage,
    read_log_start,
    read_offset_checkpoint,
    scan_partition,
)
from tierd.model import TimestampOffset, TopicIdPartition
from tierd.pipeline.pipeline_errors import DataLossError, ReadOptionError

_READ_BYTES: Final = 4 << 20


@dataclass(frozen=True, slots=True)
class LocalTail:
    """Local log of a partition at one moment, which is picklable, and readable on this host only.

    A read is an error unless the log still has the committed records of that moment: the directory is of the same
    topic, no later leader epoch has written committed offsets anew, and the log reaches its high watermark. Compaction
    may have removed records meanwhile.

    Attributes:
        high_watermark: exclusive end of the readable offsets: the broker's high watermark, or the end of the files if
            the log was cut back below it.
        last_stable_offset: exclusive end of the decided offsets.
        checkpointed_start: log start in the checkpoint of the broker; None without an entry.
        lost_to: exclusive end of the committed offsets that a log which was cut back has lost, and which the broker may
            get back from another replica; None for every other log.
    """

    scan: PartitionScan
    high_watermark: int
    last_stable_offset: int
    checkpointed_start: int | None
    lost_to: int | None = None

    @property
    def start_offset(self) -> int:
        """Return the first offset on disk; the high watermark without segments."""
        return self.scan.segments[0].base_offset if self.scan.segments else self.high_watermark

    def size_bytes(self, start_offset: int) -> int:
        """Return about how many bytes follow ``start_offset``. A file that is gone counts as 0 bytes. Blocking."""
        behind = (s for s in self.scan.segments if s.next_base_offset is None or s.next_base_offset > start_offset)
        return sum(map(data_bytes, behind))

    def aborted(self, start_offset: int, end_offset: int) -> tuple[AbortedTransaction, ...]:
        """Return the aborted transactions that touch ``[start_offset, end_offset)`` and ended on this host. Blocking.

        Raises:
            DataLossError: the log has changed meanwhile.
        """
        with self._whole_log() as log:
            return log.aborted_transactions(max(start_offset, self.start_offset), end_offset)

    def end_markers(self, producer_ids: Sequence[int], from_offset: int) -> dict[int, EndMarkerAt]:
        """Return the first decided marker of each producer from ``from_offset`` on. Blocking.

        Raises:
            DataLossError: the log has changed meanwhile.
        """
        with self._whole_log() as log:
            return log.end_markers(producer_ids, from_offset)

    def first_since(self, timestamp_ms: int, *, start_offset: int, end_offset: int) -> TimestampOffset | None:
        """Find the first record of ``[start_offset, end_offset)`` that is no older than ``timestamp_ms``. Blocking.

        Raises:
            DataLossError: the log has changed meanwhile.
        """
        with self._whole_log() as log:
            return first_since(log.scan, timestamp_ms, start=start_offset, end=end_offset)

    def pieces(self, start_offset: int, end_offset: int) -> Iterator[bytes]:
        """Yield the complete batches of ``[start_offset, end_offset)``, perhaps with neighbouring batches. Blocking.

        Raises:
            DataLossError: the log has changed meanwhile, or this is another host.
        """
        log, at = self._log(), start_offset
        with _as_data_loss():
            while at < end_offset:
                data = log.read(at, max_bytes=_READ_BYTES)
                if not data:  # compaction left no record
                    _require_whole(self.scan, self.high_watermark)
                    return
                _require_same_log(self.scan, self.high_watermark)
                yield data
                at = _behind(data)

    @contextmanager
    def _whole_log(self) -> Iterator[LocalLog]:
        """Yield the log, and check at the end that it was whole up to the high watermark.

        Raises:
            DataLossError: the log has changed meanwhile.
        """
        with _as_data_loss():
            yield self._log()
            _require_whole(self.scan, self.high_watermark)

    def _log(self) -> LocalLog:
        return LocalLog(self.scan, high_watermark=self.high_watermark, last_stable_offset=self.last_stable_offset)


class LocalTails:
    """Local logs of partitions, for a query that is planned on the broker's host. Every call blocks."""

    def __init__(self, log_dirs: Sequence[Path]) -> None:
        """Take the log dirs, at least one of which must be on this host.

        Raises:
            ReadOptionError: this host has none of the log dirs.
        """
        if not any(path.is_dir() for path in log_dirs):
            raise ReadOptionError(
                f"option includeLocal: this host has none of the log dirs {', '.join(map(str, log_dirs))}",
                remedy="plan and run the query on the broker's host, with master local[N], or leave the option out",
            )
        self._log_dirs = log_dirs

    def partitions(self) -> dict[TopicIdPartition, PartitionDirectory]:
        """Return the replicas on this host that have a topic id and are not being deleted or moved.

        Raises:
            LogDirOfflineError: a log dir cannot be listed.
        """
        listings = [list_log_dir(path) for path in self._log_dirs if path.is_dir()]
        current = (d for listing in listings for d in listing.partitions if d.kind is DirectoryKind.CURRENT)
        return {d.partition: d for d in current if d.topic_id is not None}

    def tail(self, directory: PartitionDirectory) -> LocalTail | None:
        """Return the local log of a partition as it is now; None while the broker has stored no high watermark of it.

        The checkpoints are read before the log, for their offsets only grow.

        Raises:
            DataLossError: the directory is changing.
            LogError: the log cannot be read.
        """
        name, log_dir = directory.topic_partition, directory.path.parent
        start = read_log_start(directory.path)
        high_watermark = read_offset_checkpoint(log_dir / REPLICATION_OFFSET_CHECKPOINT).get(name)
        if high_watermark is None:
            return None
        with _as_data_loss():
            scan = scan_partition(directory)
            cut_at = find_cut_end(scan, high_watermark=high_watermark)
            end_offset = high_watermark if cut_at is None else cut_at
            # The log begins in the tier: a transaction may be open that began below the first segment that is here.
            stable = last_stable_offset(scan, high_watermark=end_offset, log_start_offset=0)
            _require_same_log(scan, end_offset)
        lost_to = None if cut_at is None else high_watermark
        return LocalTail(scan, end_offset, stable, start, lost_to)


def _require_whole(scan: PartitionScan, high_watermark: int) -> None:
    """Raise if the log ends below ``high_watermark``, cut back since the scan, or is another one. Blocking.

    The segment that was active at the scan usually shows the end. The broker may have rolled and compacted it since.

    Raises:
        SegmentChangedError: the log ends below ``high_watermark`` or is changing; or as ``_require_same_log``.
    """
    end = find_log_end_offset(scan)
    if end < high_watermark:
        end = find_log_end_offset(scan_partition(scan.directory))
    if end < high_watermark:
        raise SegmentChangedError(f"{scan.directory.path}: the log was cut back to offset {end}, from {high_watermark}")
    _require_same_log(scan, high_watermark)


def _require_same_log(scan: PartitionScan, high_watermark: int) -> None:
    """Raise if what was read before this call may be of another log than ``scan``. Blocking.

    A broker stores a leader epoch before the first batch of the epoch, and moves no directory back to a former place.

    Raises:
        SegmentChangedError: the directory is gone or of another topic, or a later leader epoch has written offsets
            below ``high_watermark`` anew.
    """
    directory, planned = scan.directory, scan.lineage
    if identify_directory(directory.path) != directory:
        raise SegmentChangedError(f"{directory.path}: another directory has taken its name")
    if not planned:
        return
    for epoch, start_offset in read_lineage(directory.path).entries:
        if start_offset < high_watermark and planned.epoch_for(start_offset) not in (None, epoch):
            raise SegmentChangedError(
                f"{directory.path}: leader epoch {epoch} has written the offsets from {start_offset} on anew"
            )


def _behind(data: bytes) -> int:
    """Return the offset behind the last of some whole batches."""
    return deque(iter_batches(data, name="local log", check_crc=False), maxlen=1)[0].last_offset + 1


@contextmanager
def _as_data_loss() -> Iterator[None]:
    try:
        yield
    except (SegmentChangedError, LogDirOfflineError) as error:
        raise DataLossError(
            f"local segments changed or are not here: {error}",
            remedy="load the data frame again and query that one, on the broker's host, with master local[N]: a data "
            "frame keeps the local files that its first query found",
        ) from error
