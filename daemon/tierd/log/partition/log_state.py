"""LogState: the parts of a partition's log, and the work on the disk that its writer has postponed."""

from dataclasses import dataclass, field
from uuid import UUID

import structlog

from tierd.errors import LogDirOfflineError
from tierd.log.files.disk import Disk
from tierd.log.files.leader_epoch import LeaderEpochFileCache
from tierd.log.files.offline import OfflineFlag
from tierd.log.files.partition_metadata import PartitionMetadataFile
from tierd.log.log_errors import LogClosedError
from tierd.log.partition.exposed_offsets import ExposedOffsets
from tierd.log.partition.log_observer import AppendedRecords, owned_bytes
from tierd.log.partition.retention import is_tiered
from tierd.log.producers.producer_manager import ProducerStateManager
from tierd.log.records.log_config import LogConfig
from tierd.log.records.record_rules import ValidationCounters
from tierd.log.segments.log_segment import LogSegment
from tierd.log.segments.segmented_log import SegmentedLog
from tierd.model import Lineage, TopicPartition

log = structlog.get_logger()


@dataclass(slots=True)
class LogState:
    """The parts of a log. One thread at a time changes them: the writer of the log.

    Attributes:
        leader_epochs: None once the directory was renamed for deletion or set aside.
        partition_metadata: None once the directory was renamed like that, and where topics have no ids.
        unsynced_snapshots: offsets of the snapshots that rolls wrote and that are not synced yet.
        rolled_up_to: base offset of the newest segment that a roll made; the segments below it are to be flushed.
        last_flushed_ms: wall clock of the last flush whose caller gave one; None before the first.
        unreported: appends that the observer of the log is to be told of once they are written.
    """

    disk: Disk
    topic_partition: TopicPartition
    config: LogConfig
    segments: SegmentedLog
    producers: ProducerStateManager
    leader_epochs: LeaderEpochFileCache | None
    partition_metadata: PartitionMetadataFile | None
    offsets: ExposedOffsets
    offline: OfflineFlag
    producer_expiry_due_ms: int
    topic_id: UUID | None = None
    counters: ValidationCounters = field(default_factory=ValidationCounters)
    unsynced_snapshots: list[int] = field(default_factory=list)
    rolled_up_to: int = 0
    last_flushed_ms: int | None = None
    unreported: list[AppendedRecords] = field(default_factory=list)
    is_closed: bool = False
    has_handles: bool = True
    name: str = field(init=False)  # for errors

    def __post_init__(self) -> None:
        self.name = str(self.topic_partition)

    @property
    def where(self) -> dict[str, str]:
        """Return the partition and the log dir, for events."""
        return {"partition": self.name, "log_dir": str(self.segments.directory.parent)}

    @property
    def is_tiered(self) -> bool:
        """Return True if the log's segments go to a tier."""
        return is_tiered(self.topic_partition.topic, self.config)

    @property
    def waits_for_copy(self) -> bool:
        """Return True if a segment stays in the local log until it is in the tier."""
        return self.is_tiered and self.config.is_copy_enabled

    def note_append(self, append_offset: int, records: memoryview) -> None:
        """Keep the append that was buffered last for the observer of the log."""
        segments = self.segments
        active = segments.active
        position = active.size_bytes - records.nbytes
        self.unreported.append(
            AppendedRecords(append_offset, owned_bytes(records), segments.next_offset, active.path, position)
        )

    def report_appends(self) -> None:
        """Tell the observer of the appends that were written."""
        appends, self.unreported = self.unreported, []
        if appends and self.offsets.observer is not None:
            self.offsets.observer.on_appended(appends, self.lineage)

    def report_truncation(self) -> None:
        """Tell the observer that the log was cut back."""
        if self.offsets.observer is not None:
            self.offsets.observer.on_truncated(
                self.segments.log_end.offset, self.offsets.local_log_start_offset, self.lineage
            )

    @property
    def lineage(self) -> Lineage:
        """Return the leader epochs."""
        return Lineage() if self.leader_epochs is None else self.leader_epochs.lineage

    def check_writable(self) -> None:
        """Do nothing as long as the log's files are open.

        Raises:
            LogClosedError: the log was closed or deleted.
            LogDirOfflineError: its files were closed because the log dir is going offline.
        """
        if self.is_closed:
            raise LogClosedError(f"{self.name}: the log is closed")
        if not self.has_handles:
            raise LogDirOfflineError(f"{self.name}: the log's files are closed", remedy="load the log again")

    def close_handles(self) -> None:
        """Close the files as they are; ``check_writable`` raises from now on."""
        self.has_handles = False
        self.segments.close_handles()

    def roll(self, *, now_ms: int, expected_next_offset: int | None = None) -> LogSegment:
        """Begin another segment, and take the producers' snapshot at its base (log-format 5.2; Kafka: UnifiedLog.roll).

        ``sync_rolled`` syncs the snapshot and the segments below later.

        Raises:
            OSError: the disk is full or failing.
        """
        segment = self.segments.roll(expected_next_offset, now_ms=now_ms)
        self.producers.update_map_end_offset(segment.base_offset)
        if self.producers.take_snapshot(sync=False) is not None:
            self.unsynced_snapshots.append(segment.base_offset)
        self.offsets.follow_log_end()
        self.rolled_up_to = segment.base_offset
        return segment

    def sync_rolled(self, *, now_ms: int | None = None) -> None:
        """Sync the snapshots of rolls, then the segments below the active one; raise the recovery point.

        Raises:
            OSError: the disk is failing; the recovery point stays.
        """
        while self.unsynced_snapshots:
            self.producers.snapshots.sync(self.unsynced_snapshots[0])
            self.unsynced_snapshots.pop(0)
        self.flush(self.rolled_up_to, now_ms=now_ms)

    def forget_rolls_above(self, offset: int) -> None:
        """Forget the rolls above ``offset`` after a truncation, so that they do not raise the recovery point."""
        self.unsynced_snapshots = [snapshot for snapshot in self.unsynced_snapshots if snapshot <= offset]
        self.rolled_up_to = min(self.rolled_up_to, max(offset, 0))

    def flush(self, offset: int, *, including: bool = False, now_ms: int | None = None) -> None:
        """Bring everything below ``offset`` to stable storage; the recovery point rises to ``offset`` (log-format 6.1).

        Args:
            offset: exclusive.
            including: the segment that begins there, empty, is materialised as well.
            now_ms: wall clock, for the log; None where the caller has none.

        Raises:
            OSError: the disk is full or failing; the recovery point stays.
        """
        up_to = offset + 1 if including else offset
        if up_to > self.segments.recovery_point:
            log.debug(
                "flushing_log",
                **self.where,
                offset=offset,
                including_active=including,
                recovery_point=self.segments.recovery_point,
                last_flushed_ms=self.last_flushed_ms,
                unflushed=self.segments.log_end.offset - self.segments.recovery_point,
            )
            self.segments.flush(up_to)
            self.segments.mark_flushed(offset)
            self.last_flushed_ms = self.last_flushed_ms if now_ms is None else now_ms

    def delete_snapshots(self, removed: list[LogSegment], *, now_ms: int) -> None:
        """Rename the snapshots at the bases of removed segments; they are unlinked later, as the segments are.

        Raises:
            OSError: a file cannot be renamed.
        """
        marked = [
            path.name
            for segment in removed
            if (path := self.producers.remove_and_mark_snapshot_for_deletion(segment.base_offset)) is not None
        ]
        if marked:
            self.segments.pending_deletions.add(marked, due_ms=now_ms + self.config.file_delete_delay_ms)
