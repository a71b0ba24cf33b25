"""LocalPartitions: the partitions in the log dirs that the catalogue tells of, and their offsets at this moment."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import structlog

from tierd.errors import LogError, SegmentChangedError
from tierd.log import (
    LOG_START_OFFSET_CHECKPOINT,
    REPLICATION_OFFSET_CHECKPOINT,
    DirectoryKind,
    KnownDirectory,
    PartitionDirectory,
    PartitionScan,
    SegmentFiles,
    find_segment_end_offset,
    list_log_dir,
    read_offset_checkpoint,
    scan_partition,
)
from tierd.model import TopicIdPartition
from tierd.restore.catalogue.catalogue_objects import PartitionPositions

log = structlog.get_logger()

OFFSETS_TOPIC: Final = "__consumer_offsets"

_Signature = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class LocalPartition:
    """Partition in a log dir.

    Attributes:
        high_watermark: as the broker last wrote it down; None until it wrote one.
        log_start_offset: the same, listed only while it lies above the base of the first segment.
    """

    scan: PartitionScan
    high_watermark: int | None
    log_start_offset: int | None

    @property
    def partition(self) -> TopicIdPartition:
        """Return the partition, by topic id."""
        return self.scan.directory.partition

    @property
    def latest_epoch(self) -> int | None:
        """Return the latest epoch in the partition's checkpoint; None while it has none."""
        latest = self.scan.lineage.latest
        return latest.epoch if latest else None

    @property
    def first_offset(self) -> int:
        """Return the log start."""
        first = self.scan.segments[0].base_offset if self.scan.segments else 0
        return max(first, self.log_start_offset or 0)


class LocalPartitions:
    """Reader of the log dirs. Calls block, one at a time; a partition that did not change is not read again."""

    def __init__(self, log_dirs: Sequence[Path], *, wants: Callable[[str], bool]) -> None:
        """Read nothing yet; ``wants`` tells whether a topic is tiered."""
        self._log_dirs = tuple(log_dirs)
        self._wants = wants
        self._scans: dict[Path, PartitionScan] = {}
        self._ends: dict[TopicIdPartition, tuple[_Signature, int]] = {}
        self._problem = ""

    @property
    def log_dirs(self) -> tuple[Path, ...]:
        """Return the log dirs."""
        return self._log_dirs

    @property
    def problem(self) -> str:
        """Return why the last ``find`` lacks partitions; empty when it has all."""
        return self._problem

    def find(self) -> dict[TopicIdPartition, LocalPartition]:
        """Return the partitions of tiered topics and of ``__consumer_offsets``; those that cannot be read are left out.

        The high watermarks of a log dir are read first and together. A commit that lies below the watermark of its
        partition then concerns records that lie below the watermarks of theirs.
        """
        problems: list[str] = []
        found: dict[TopicIdPartition, LocalPartition] = {}
        for log_dir in self._log_dirs:
            try:
                watermarks = read_offset_checkpoint(log_dir / REPLICATION_OFFSET_CHECKPOINT)
                starts = read_offset_checkpoint(log_dir / LOG_START_OFFSET_CHECKPOINT)
                scans = self._scan(log_dir, problems)
            except LogError as error:
                problems.append(str(error))
                continue
            for scan in scans:
                name = scan.directory.topic_partition
                found[scan.directory.partition] = LocalPartition(scan, watermarks.get(name), starts.get(name))
        self._ends = {partition: end for partition, end in self._ends.items() if partition in found}
        self._problem = problems[0] if problems else ""
        return found

    def positions(
        self, found: Mapping[TopicIdPartition, LocalPartition], led: Mapping[TopicIdPartition, int]
    ) -> dict[TopicIdPartition, PartitionPositions]:
        """Return the offsets of the partitions in ``led``, which has their leader epochs.

        A partition without a high watermark yet is left out, and so is one whose files change or are damaged. Damage is
        the ``problem``.
        """
        positions: dict[TopicIdPartition, PartitionPositions] = {}
        for partition, leader_epoch in led.items():
            local = found.get(partition)
            if local is None or local.high_watermark is None:
                continue
            try:
                end = self._end_offset(local)
            except SegmentChangedError as error:
                log.info("positions_not_read", partition=str(partition), problem=str(error))
                continue
            except LogError as error:
                self._problem = self._problem or str(error)
                continue
            positions[partition] = PartitionPositions(
                log_start_offset=local.first_offset,
                log_end_offset=max(end, local.high_watermark),
                high_watermark=max(local.high_watermark, local.first_offset),
                leader_epoch=leader_epoch,
            )
        return positions

    def _scan(self, log_dir: Path, problems: list[str]) -> list[PartitionScan]:
        here = {path: scan for path, scan in self._scans.items() if path.parent == log_dir}
        known = {path.name: KnownDirectory(scan.directory, scan.mtime_ns) for path, scan in here.items()}
        listing = list_log_dir(log_dir, known=known)
        scans: dict[Path, PartitionScan] = {}
        for directory in listing.partitions:
            if not self._is_wanted(directory):
                continue
            before = here.get(directory.path)
            try:
                scans[directory.path] = _scanned(directory, before)
            except SegmentChangedError as error:
                if before is not None and before.directory == directory:
                    scans[directory.path] = before  # the cleaner is at work, below the active segment
                else:
                    log.info("positions_not_read", path=str(directory.path), problem=str(error))
            except LogError as error:
                problems.append(str(error))
        for path in here:
            self._scans.pop(path)
        self._scans.update(scans)
        return list(scans.values())

    def _is_wanted(self, directory: PartitionDirectory) -> bool:
        if directory.kind is not DirectoryKind.CURRENT or directory.topic_id is None:
            return False
        topic = directory.topic_partition.topic
        return topic == OFFSETS_TOPIC or self._wants(topic)

    def _end_offset(self, local: LocalPartition) -> int:
        """Return the log end. The active segment is read again only if its file has changed."""
        if not local.scan.segments:
            return local.first_offset
        active = local.scan.segments[-1]
        signature = _signature(active)
        known = self._ends.get(local.partition)
        if known is not None and signature is not None and known[0] == signature:
            return known[1]
        end = find_segment_end_offset(active)
        if signature is not None:
            self._ends[local.partition] = (signature, end)
        return end


def _scanned(directory: PartitionDirectory, before: PartitionScan | None) -> PartitionScan:
    """Scan the directory, unless nothing changed in it since ``before``."""
    if before is not None and before.directory == directory and before.mtime_ns != -1:
        try:
            status = directory.path.stat()
        except OSError:
            return scan_partition(directory)
        if KnownDirectory(directory, before.mtime_ns).is_still(status):
            return before
    return scan_partition(directory)


def _signature(segment: SegmentFiles) -> _Signature | None:
    try:
        status = os.stat(segment.log)  # noqa: PTH116 - asked for every partition
    except OSError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns
