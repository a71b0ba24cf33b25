"""StandbyCopy: what a partition directory of a standby says of itself. A running standby may write into it."""

from dataclasses import dataclass
from typing import NamedTuple

from tierd.log import (
    CLEANER_OFFSET_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    LocalLog,
    PartitionDirectory,
    PartitionScan,
    find_log_end_offset,
    parse_header,
    read_offset_checkpoint,
    scan_partition,
)

_END = (1 << 63) - 1


class BatchEpoch(NamedTuple):
    """A batch and the leader epoch that wrote it; -1 where the batch has none."""

    base_offset: int
    leader_epoch: int


@dataclass(frozen=True, slots=True)
class StandbyCopy:
    """One standby's copy of a partition at one moment.

    Attributes:
        scan: its files.
        log_start_offset: first offset that readers may have.
        end_offset: exclusive end of the batches.
        cleaned_offset: exclusive end of what the standby's log cleaner has cleaned; 0 for what it never cleaned.
    """

    scan: PartitionScan
    log_start_offset: int
    end_offset: int
    cleaned_offset: int

    @property
    def directory(self) -> PartitionDirectory:
        """Return the partition directory."""
        return self.scan.directory

    @property
    def place(self) -> str:
        """Return the path of the directory, for findings."""
        return str(self.scan.directory.path)

    def batch_from(self, offset: int) -> BatchEpoch | None:
        """Return the batch that holds ``offset`` or follows it; None at the end of the log. Blocking.

        Raises:
            CorruptRecordError: a header on the way is damaged.
            SegmentChangedError: a file vanished.
            LogDirOfflineError: a file cannot be read.
        """
        data = _whole_log(self.scan).read(offset, max_bytes=1)
        header = parse_header(data, 0, name=self.place, position=0) if data else None
        return None if header is None else BatchEpoch(header.base_offset, header.partition_leader_epoch)


def read_standby_copy(directory: PartitionDirectory) -> StandbyCopy:
    """Read the files and checkpoints of a copy. Blocking.

    Raises:
        SegmentChangedError: a file vanished, or segments are being replaced.
        CorruptRecordError: a header on the way to the end is damaged.
        CheckpointError: a checkpoint of the log dir is damaged.
        LogDirOfflineError: a file cannot be read.
    """
    log_dir, name = directory.path.parent, directory.topic_partition
    # before the files: a log start only grows, and a cleaner raises its checkpoint after it has replaced files
    start = read_offset_checkpoint(log_dir / LOG_START_OFFSET_CHECKPOINT).get(name, 0)
    cleaned = read_offset_checkpoint(log_dir / CLEANER_OFFSET_CHECKPOINT).get(name, 0)
    scan = scan_partition(directory)
    first = scan.segments[0].base_offset if scan.segments else 0
    end = max(find_log_end_offset(scan), first)
    return StandbyCopy(scan, min(max(start, first), end), end, cleaned)


def _whole_log(scan: PartitionScan) -> LocalLog:
    return LocalLog(scan, high_watermark=_END, last_stable_offset=_END)
