"""Changelogs for tests: log dirs as a leader writes them, and a tier that holds copies of their segments."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from uuid import UUID

from tests.fakes.log_dirs import LogDirWriter, PartitionWriter
from tests.fakes.remote_segments import PARTITION, segment
from tests.fakes.storage_manager import UnusedStorage
from tests.log.logs import NOW_MS, TransactionalProducers
from tierd.errors import RemoteIndexAbsentError, RemoteResourceNotFoundError
from tierd.log import (
    CLEANER_OFFSET_CHECKPOINT,
    REPLICATION_OFFSET_CHECKPOINT,
    LogConfig,
    NewRecord,
    encode_batch,
    identify_directory,
    opened_partition,
    scan_partition,
)
from tierd.log.producers.producer_state import encode_producer_snapshot
from tierd.metadata import Claim, PartitionRow, PartitionView
from tierd.model import (
    ByteRange,
    IndexType,
    IsolationLevel,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    RemoteLogSegmentState,
    TopicIdPartition,
    TopicPartition,
)
from tierd.restore.changelog.changelog_source import ChangelogSource
from tierd.restore.changelog.sources.remote_segment_source import RemoteSegmentSource, RemoteTier

NAME = PARTITION.topic_partition
UNCOMMITTED, COMMITTED = IsolationLevel.READ_UNCOMMITTED, IsolationLevel.READ_COMMITTED

Batch = Sequence[tuple[bytes | None, bytes | None]]


def batch_of(records: Batch, *, base_offset: int = 0, epoch: int = 0) -> bytes:
    """Return a batch of keys and values, with the offset as timestamp."""
    rows = [NewRecord(key, value, base_offset + n) for n, (key, value) in enumerate(records)]
    return bytes(encode_batch(rows, base_offset=base_offset, leader_epoch=epoch))


def counted(start: int, end: int, *, step: int = 5, epoch: int = 0, word: str = "v") -> bytes:
    """Return batches of ``step`` records for the offsets ``[start, end)``; the value of a record names its offset."""
    return b"".join(
        batch_of(
            [(b"k%d" % n, f"{word}{n}".encode()) for n in range(at, min(at + step, end))], base_offset=at, epoch=epoch
        )
        for at in range(start, end, step)
    )


def write_counted(
    writer: PartitionWriter, segments: Iterable[tuple[int, int]], *, word: str = "v", step: int = 5
) -> None:
    """Append offsets segment by segment and roll behind each; the last segment stays active."""
    for start, end in segments:
        assert writer.end_offset == start
        for at in range(start, end, step):
            stop = min(at + step, end)
            writer.append_batch(
                batch_of([(b"k%d" % n, f"{word}{n}".encode()) for n in range(at, stop)], base_offset=at), stop - at
            )
        writer.roll()


def local_log(root: Path, segments: Iterable[tuple[int, int]], *, word: str = "v") -> LogDirWriter:
    """Write a log dir with the partition in these segments, and an empty active one."""
    log_dir = LogDirWriter(root)
    write_counted(log_dir.add_partition(NAME.topic, NAME.partition, topic_id=PARTITION.topic_id), segments, word=word)
    log_dir.write_checkpoints()
    return log_dir


def write_cleaned_to(log_dir: Path, offset: int) -> None:
    """Note in the checkpoint of a log dir that the cleaner has cleaned the partition up to ``offset``."""
    (log_dir / CLEANER_OFFSET_CHECKPOINT).write_text(f"0\n1\n{NAME.topic} {NAME.partition} {offset}\n")


def transactional_log(root: Path, layout: str, *, is_rolled: bool = True) -> Path:
    """Write a log of ``TransactionalProducers``, a segment for each entry if ``is_rolled``; return its directory."""
    log_dir = LogDirWriter(root)
    path = log_dir.path / str(NAME)
    with opened_partition(path, config=LogConfig(), now_ms=NOW_MS, create_with=PARTITION.topic_id) as log:
        log.assign_leader_epoch(0, 0)
        producers = TransactionalProducers(log)
        for entry in layout.split():
            producers.append(entry)
            if is_rolled:
                log.roll(now_ms=NOW_MS)
        end = log.log_end_offset
    (log_dir.path / REPLICATION_OFFSET_CHECKPOINT).write_text(f"0\n1\n{NAME.topic} {NAME.partition} {end}\n")
    return path


class RemoteLogs(UnusedStorage):
    """``RemoteStorageManager`` of segments in memory, with the metadata of one partition."""

    def __init__(self, partition: TopicIdPartition = PARTITION) -> None:
        self.view = PartitionView(partition)
        self.loads = 0
        self.ranges: list[tuple[int, ByteRange]] = []
        self.indexes: list[tuple[int, IndexType]] = []
        self.on_load: Callable[[], None] = lambda: None
        self._logs: dict[UUID, bytes] = {}
        self._artefacts: dict[tuple[UUID, IndexType], bytes] = {}

    def add(
        self,
        log: bytes,
        *,
        start: int,
        end: int,
        epochs: Mapping[int, int] | int = 0,
        artefacts: Mapping[IndexType, bytes] | None = None,
    ) -> RemoteLogSegmentMetadata:
        """Add a finished segment of ``[start, end)``."""
        artefacts = artefacts or {IndexType.PRODUCER_SNAPSHOT: encode_producer_snapshot(())}
        metadata = segment(
            start,
            end - 1,
            epochs,
            partition=self.view.partition,
            size_bytes=len(log),
            txn_index_empty=not artefacts.get(IndexType.TRANSACTION),
        )
        self.view = self.view.with_adopted(metadata).view
        self._logs[metadata.segment.id] = log
        self._artefacts.update({(metadata.segment.id, kind): data for kind, data in artefacts.items()})
        return metadata

    def add_rolled(self, path: Path) -> None:
        """Add the rolled segments of a partition directory."""
        directory = identify_directory(path)
        assert directory is not None
        for files in scan_partition(directory).segments[:-1]:
            paths = {
                IndexType.OFFSET: files.offset_index,
                IndexType.TRANSACTION: files.transaction_index,
                IndexType.PRODUCER_SNAPSHOT: files.producer_snapshot,
            }
            artefacts = {kind: each.read_bytes() for kind, each in paths.items() if each.exists()}
            self.add(files.log.read_bytes(), start=files.base_offset, end=files.end_offset + 1, artefacts=artefacts)

    def damage(self, metadata: RemoteLogSegmentMetadata, position: int) -> None:
        """Flip a bit of a log."""
        log = bytearray(self._logs[metadata.segment.id])
        log[position] ^= 1
        self._logs[metadata.segment.id] = bytes(log)

    def replace_index(self, metadata: RemoteLogSegmentMetadata, kind: IndexType, data: bytes) -> None:
        """Replace an artefact."""
        self._artefacts[metadata.segment.id, kind] = data

    def vanish(self, metadata: RemoteLogSegmentMetadata) -> None:
        """Remove the objects of a segment; its metadata stay."""
        del self._logs[metadata.segment.id]

    def expire(self, metadata: RemoteLogSegmentMetadata) -> None:
        """Begin to delete a segment in the metadata."""
        update = RemoteLogSegmentMetadataUpdate(
            segment=metadata.segment,
            state=RemoteLogSegmentState.DELETE_SEGMENT_STARTED,
            event_timestamp_ms=metadata.event_timestamp_ms + 1,
            broker_id=1,
            custom_metadata=None,
        )
        self.view = self.view.with_updated(update).view

    def replace(self, metadata: RemoteLogSegmentMetadata) -> RemoteLogSegmentMetadata:
        """Replace a segment by an equal one, as a compaction does that finds nothing to remove; its objects go."""
        log = self._logs[metadata.segment.id]
        artefacts = {kind: data for (id_, kind), data in self._artefacts.items() if id_ == metadata.segment.id}
        self.vanish(metadata)
        self.expire(metadata)
        return self.add(log, start=metadata.start_offset, end=metadata.end_offset + 1, artefacts=artefacts)

    def move_log_start(self, offset: int) -> None:
        """Move the log start, as DeleteRecords does; segments stay until the expiration takes them."""
        claimed = replace(self.view, row=PartitionRow(topic=NAME.topic, revision=1, claim=Claim(5, 1, UUID(int=9))))
        self.view = claimed.with_log_start_offset(offset).view

    async def load_view(self, partition: TopicIdPartition) -> PartitionView:
        """Return the metadata, as a metadata store does."""
        self.loads += 1
        self.on_load()
        return self.view if partition == self.view.partition else PartitionView(partition)

    def tier(self, **options: object) -> RemoteTier:
        """Return the tier."""
        return RemoteTier(load_view=self.load_view, storage=self, **options)  # type: ignore[arg-type]

    def source(self, *, delete_retention_ms: int | None = None, **options: object) -> RemoteSegmentSource:
        """Return a source over the segments; ``delete_retention_ms`` makes the topic a compacted one."""
        return RemoteSegmentSource(
            {NAME: self.view.partition}, self.tier(**options), delete_retention=lambda _: delete_retention_ms
        )

    async def fetch_log_segment(self, metadata: RemoteLogSegmentMetadata, byte_range: ByteRange) -> bytes:
        """Return bytes of a log."""
        self.ranges.append((metadata.start_offset, byte_range))
        if metadata.segment.id not in self._logs:
            raise RemoteResourceNotFoundError(f"{metadata.segment}: gone")
        return self._logs[metadata.segment.id][byte_range.start : byte_range.end + 1]

    async def fetch_index(self, metadata: RemoteLogSegmentMetadata, index_type: IndexType) -> bytes:
        """Return an artefact."""
        self.indexes.append((metadata.start_offset, index_type))
        if metadata.segment.id not in self._logs:
            raise RemoteResourceNotFoundError(f"{metadata.segment}: gone")
        found = self._artefacts.get((metadata.segment.id, index_type))
        if found is None:
            raise RemoteIndexAbsentError(f"{metadata.segment}: no {index_type.value}")
        return found


class MovingLogs(RemoteLogs):
    """Tier in which a segment is replaced in the moment in which a part of it is asked for, a few times.

    Attributes:
        moved_by: the part: an index, or None for the log.
        moves_left: replacements that are still to come.
    """

    def __init__(self, moved_by: IndexType | None, moves_left: int, partition: TopicIdPartition = PARTITION) -> None:
        super().__init__(partition)
        self.moved_by = moved_by
        self.moves_left = moves_left

    async def fetch_log_segment(self, metadata: RemoteLogSegmentMetadata, byte_range: ByteRange) -> bytes:
        """Return bytes of a log."""
        self._move(None, metadata)
        return await super().fetch_log_segment(metadata, byte_range)

    async def fetch_index(self, metadata: RemoteLogSegmentMetadata, index_type: IndexType) -> bytes:
        """Return an artefact."""
        self._move(index_type, metadata)
        return await super().fetch_index(metadata, index_type)

    def _move(self, asked_for: IndexType | None, metadata: RemoteLogSegmentMetadata) -> None:
        is_there = metadata.segment.id in self._logs
        if asked_for is self.moved_by and self.moves_left and is_there:
            self.moves_left -= 1
            self.replace(metadata)


async def read_rest(
    source: ChangelogSource,
    offset: int = 0,
    *,
    isolation: IsolationLevel = UNCOMMITTED,
    max_bytes: int = 1 << 20,
    partition: TopicPartition = NAME,
) -> tuple[list[tuple[int, bytes | None]], int]:
    """Read from ``offset`` to the end; return offsets with values, and the offset where the reading ended."""
    found: list[tuple[int, bytes | None]] = []
    while True:
        result = await source.read(partition, offset, max_bytes=max_bytes, isolation=isolation)
        assert result.next_offset > offset or result.at_end
        found += zip(result.records.offsets, result.records.values, strict=True)
        if result.next_offset == offset:
            return found, offset
        offset = result.next_offset


async def offsets_of(source: ChangelogSource, offset: int = 0, **options: object) -> list[int]:
    """Return the offsets of all records from ``offset`` on."""
    found, _ = await read_rest(source, offset, **options)  # type: ignore[arg-type]
    return [each for each, _ in found]
