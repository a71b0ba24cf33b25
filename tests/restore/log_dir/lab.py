"""A partition's log, its segments in a tier, and restores of them into a log dir."""

import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from uuid import UUID

from tests.fakes.memory_object_store import MemoryObjectStore
from tests.log.logs import TransactionalProducers, lead, open_log, records
from tierd.log import (
    CLEAN_SHUTDOWN_FILE,
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    LogConfig,
    Record,
    UnifiedLog,
    check_segment,
    encode_lineage,
    file_name,
    identify_directory,
    read_lineage,
    read_offset_checkpoint,
    scan_partition,
)
from tierd.log.files.checkpoints import encode_topic_id
from tierd.log.files.partition_scan import SegmentFiles
from tierd.model import (
    EpochEntry,
    Lineage,
    LogSegmentData,
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
    TopicIdPartition,
)
from tierd.remote import ObjectStore, SegmentStorage
from tierd.restore.log_dir.held_log_dir import LogDirTarget, held_log_dir
from tierd.restore.log_dir.partition_restore import restore_partition
from tierd.restore.log_dir.restored_partition import LogDirRequest, RestoredPartition
from tierd.restore.plan.partition_plan import PartitionPlan, RestoreMode, SegmentPart

CLUSTER_ID = "dGllcmQtc3ludGhldGljLQ"
PARTITION = TopicIdPartition(UUID(int=7), "orders", 0)
NEW_TOPIC = TopicIdPartition(UUID(int=8), "orders", 0)
_SESSION = UUID(int=0x5E55)


def new_log(log_dir: Path, *, log_start_offset: int = 0) -> UnifiedLog:
    """Begin, or load, the log of ``PARTITION`` in ``log_dir``."""
    directory = log_dir / str(PARTITION)
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "partition.metadata").write_bytes(encode_topic_id(PARTITION.topic_id))
    return open_log(log_dir, config=LogConfig(index_interval_bytes=200), log_start_offset=log_start_offset)


def write_segments(log: UnifiedLog, segments: int, *, batches: int = 10, first_ms: int = 1_000) -> None:
    """Write segments of ``batches`` batches of two records each, and roll behind every one."""
    for _ in range(segments):
        for _ in range(batches):
            at = first_ms + log.log_end_offset
            lead(log, records(2, timestamp_ms=at, value=b"%06d" % log.log_end_offset), now_ms=at)
        log.roll(now_ms=at)


def closed(log: UnifiedLog) -> Path:
    """Stop cleanly, and return the directory."""
    log.flush(including_active=True)
    log.close()
    return log.directory


def values(found: list[Record]) -> list[tuple[int, int, bytes | None]]:
    """Return offset, timestamp and value of each record."""
    return [(record.offset, record.timestamp_ms, record.value) for record in found]


def stored_log(directory: Path) -> list[tuple[int, bytes]]:
    """Return base offset and bytes of each log file with content, ascending."""
    logs = sorted(directory.glob("*.log"))
    return [(int(path.stem), path.read_bytes()) for path in logs if path.stat().st_size]


def content_of(directory: Path) -> dict[str, bytes]:
    """Return every file of a directory."""
    return {path.name: path.read_bytes() for path in directory.iterdir()}


@dataclass
class Lab:
    """A tier, and a log dir with a stage beside it.

    Attributes:
        reported: stages and bytes that the restores reported, in order.
    """

    root: Path
    store: ObjectStore = field(default_factory=MemoryObjectStore)
    partition: TopicIdPartition = PARTITION
    reported: list[tuple[str, int]] = field(default_factory=list)
    loads: Iterator[int] = field(default_factory=count)
    copies: Iterator[int] = field(default_factory=count)

    def __post_init__(self) -> None:
        self.log_dir.mkdir(parents=True, exist_ok=True)
        self.storage = SegmentStorage(self.store, cluster_id=CLUSTER_ID, broker_id=1, chunk_size=1 << 20)

    @property
    def log_dir(self) -> Path:
        """Return the target."""
        return self.root / "restored"

    @property
    def stage(self) -> Path:
        """Return the stage of restores."""
        return self.root / "stage"

    @property
    def directory(self) -> Path:
        """Return the restored directory."""
        return self.log_dir / str(self.partition)

    @property
    def target(self) -> LogDirTarget:
        """Return the target of restores."""
        return LogDirTarget(log_dir=self.log_dir, stage=self.stage, cluster_id=CLUSTER_ID)

    async def copy(self, directory: Path, *, through: int | None = None) -> list[RemoteLogSegmentMetadata]:
        """Copy the segments with data of a partition directory, up to the one that begins at ``through``."""
        found = identify_directory(directory)
        assert found is not None
        scan = scan_partition(found)
        segments = [each for each in scan.segments if each.log.stat().st_size]
        return [
            await self._copy(each, scan.lineage) for each in segments if through is None or each.base_offset <= through
        ]

    async def _copy(self, files: SegmentFiles, lineage: Lineage) -> RemoteLogSegmentMetadata:
        checked = check_segment(files.log, base_offset=files.base_offset, next_base_offset=files.next_base_offset)
        end = checked.last_offset if files.next_base_offset is None else files.next_base_offset - 1
        snapshot = files.directory / file_name(end + 1, ".snapshot")
        epochs = lineage.entries_in(files.base_offset, end + 1).entries or (EpochEntry(0, files.base_offset),)
        metadata = RemoteLogSegmentMetadata(
            segment=RemoteLogSegmentId(self.partition, UUID(int=(1 << 64) + next(self.copies))),
            start_offset=files.base_offset,
            end_offset=end,
            max_timestamp_ms=checked.max_timestamp_ms,
            broker_id=1,
            event_timestamp_ms=1,
            size_bytes=checked.size_bytes,
            segment_leader_epochs=epochs,
            leader_epoch=epochs[-1].epoch,
            session_id=_SESSION,
            state=RemoteLogSegmentState.COPY_SEGMENT_FINISHED,
        )
        index = files.transaction_index
        data = LogSegmentData(
            log=files.log,
            log_checksums=checked.checksums,
            batch_count=checked.batch_count,
            record_count=checked.record_count,
            offset_index=_content(files.offset_index),
            time_index=_content(files.time_index),
            transaction_index=_content(index) or None,
            producer_snapshot=_content(snapshot) or b"lost",
            leader_epoch_index=encode_lineage(lineage.entries_in(-1, end + 1)),
        )
        custom = await self.storage.copy_log_segment_data(metadata, data)
        return replace(metadata, custom_metadata=custom)

    def plan(
        self,
        segments: Sequence[RemoteLogSegmentMetadata],
        *,
        mode: RestoreMode = RestoreMode.LAST_COPY,
        log_start_offset: int | None = None,
        end_offset: int | None = None,
        lineage: Lineage | None = None,
        is_compacted: bool = False,
    ) -> PartitionPlan:
        """Plan the restore of these segments, each cut where the next one begins."""
        start = segments[0].start_offset if log_start_offset is None else log_start_offset
        end = segments[-1].end_offset + 1 if end_offset is None else end_offset
        ends = [each.start_offset for each in segments[1:]] + [end]
        parts = [
            SegmentPart(each, max(each.start_offset, start), min(each.end_offset + 1, limit, end))
            for each, limit in zip(segments, ends, strict=True)
        ]
        parts = [part for part in parts if part.start_offset < part.end_offset]
        epochs = Lineage.of(sorted({entry for each in segments for entry in each.segment_leader_epochs}))
        return PartitionPlan(
            partition=self.partition,
            mode=mode,
            log_start_offset=start,
            end_offset=end,
            target_offset=end_offset,
            parts=tuple(parts),
            lineage=(lineage or epochs).entries_in(start, end),
            is_compacted=is_compacted,
            missing=(),
            newest_timestamp_ms=None,
            findings=(),
            fetch_bytes=sum(part.metadata.size_bytes for part in parts),
            fetch_requests=0,
        )

    async def restore(
        self,
        plan: PartitionPlan,
        *,
        known_end_offset: int = 0,
        merges_local: bool = True,
        standbys: tuple[Path, ...] = (),
        target: LogDirTarget | None = None,
        partition: TopicIdPartition | None = None,
    ) -> RestoredPartition:
        """Carry out a plan in a run of its own."""
        async with held_log_dir(target or self.target, [plan]) as held:
            request = LogDirRequest(
                log_dir=held,
                partition=partition or (NEW_TOPIC if plan.mode is RestoreMode.IMPORT else self.partition),
                known_end_offset=known_end_offset,
                merges_local=merges_local,
                standbys=standbys,
            )
            return await restore_partition(
                plan, request, self.storage, on_progress=lambda stage, size: self.reported.append((stage, size))
            )

    def load(self) -> UnifiedLog:
        """Load a copy of the restored directory as a broker does: with the checkpoints, and no clean marker."""
        copy = self.root / f"loaded-{next(self.loads)}"
        shutil.copytree(self.log_dir, copy)
        partition = self.partition.topic_partition
        starts = read_offset_checkpoint(copy / LOG_START_OFFSET_CHECKPOINT)
        recovery_points = read_offset_checkpoint(copy / RECOVERY_POINT_CHECKPOINT)
        return open_log(
            copy,
            name=str(self.partition),
            clean=(copy / CLEAN_SHUTDOWN_FILE).exists(),
            log_start_offset=starts.get(partition, 0),
            recovery_point=recovery_points.get(partition, 0),
        )

    def begin_anew(self) -> None:
        """Empty the log dir and the stage."""
        shutil.rmtree(self.stage)
        shutil.rmtree(self.log_dir)
        self.log_dir.mkdir()

    def epochs(self) -> Lineage:
        """Return the leader epochs of the restored directory."""
        return read_lineage(self.directory)


async def lost_partition(lab: Lab, mode: RestoreMode) -> PartitionPlan:
    """Copy a log of three segments, with transactions; the last two are not decided."""
    log = new_log(lab.root / "lost")
    producers = TransactionalProducers(log)
    for entries in (("-", "A", "A+"), ("B", "-", "B!"), ("-", "A", "-")):
        for entry in entries:
            producers.append(entry)
        log.roll(now_ms=1)
    return lab.plan(await lab.copy(closed(log)), mode=mode)


def _content(path: Path) -> bytes:
    return path.read_bytes() if path.exists() else b""
