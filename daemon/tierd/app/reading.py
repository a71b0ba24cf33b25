"""The common part of the reading commands. They only read metadata, so they work beside a daemon and without one."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection, Iterable
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

import structlog

from tierd.app.caches import chunk_cache
from tierd.app.stores import log_dir_identities, metadata_store, object_store, segment_storage
from tierd.clock import Clock, SystemClock
from tierd.config import TierdConfig
from tierd.errors import LogDirOfflineError, TierError, UnknownPartitionError
from tierd.log import (
    LOG_START_OFFSET_CHECKPOINT,
    REPLICATION_OFFSET_CHECKPOINT,
    BrokerIdentity,
    DirectoryKind,
    PartitionDirectory,
    broker_identity,
    find_log_end_offset,
    last_stable_offset,
    list_log_dir,
    read_offset_checkpoint,
    scan_partition,
)
from tierd.metadata import (
    KeyValueStore,
    PartitionView,
    copied_last_ms,
    list_partitions,
    metadata_keys,
    read_partition,
)
from tierd.model import (
    IsolationLevel,
    RemoteLogSegmentMetadata,
    TimestampOffset,
    TopicIdPartition,
    TopicPartition,
    uuid_from_text,
    uuid_to_text,
)
from tierd.remote import ObjectKeyFactory, ObjectStore, SegmentStorage, open_transform
from tierd.tiering import (
    AuditLimits,
    BucketReader,
    Explanation,
    FetchService,
    FetchTask,
    Finding,
    LedgerStep,
    OffsetSpec,
    RepairPlanner,
    SegmentCheck,
    SilentRecorder,
    Tier,
    TierAudit,
    TieredLog,
    explain,
    linked_offsets,
    open_fetch_service,
    partitions_left,
    read_ledger,
)

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Located:
    """One incarnation of a partition and its local directory, None where this host has no replica."""

    partition: TopicIdPartition
    directory: PartitionDirectory | None


class TierReader:
    """Answers from both tiers, writing to none."""

    def __init__(
        self,
        config: TierdConfig,
        identity: BrokerIdentity,
        metadata: KeyValueStore,
        storage: SegmentStorage,
        *,
        store: ObjectStore,
        fetches: FetchService,
        clock: Clock,
    ) -> None:
        self.object_store = store
        self.identity = identity
        self.storage = storage
        self.fetches = fetches
        self.clock = clock
        self._config = config
        self._metadata = metadata
        self._keys = metadata_keys(config.metadata, identity.cluster_id)

    async def locate(self, name: TopicPartition) -> Located:
        """Find the incarnation that ``name`` means: the local one, else the one that was copied last.

        Raises:
            UnknownPartitionError: neither a log dir nor the metadata knows the name.
        """
        for directory in await self._local_directories():
            if directory.topic_partition == name and directory.topic_id is not None:
                return Located(directory.partition, directory)
        remote = [p for p in await list_partitions(self._metadata, self._keys) if p.topic_partition == name]
        if not remote:
            raise UnknownPartitionError(
                f"no log dir and no metadata knows {name}",
                remedy="name it as Kafka names its directories, such as orders-0; tierd status lists them",
            )
        views = [await self.view(partition) for partition in remote]
        latest = max(views, key=copied_last_ms)
        if len(remote) > 1:
            log.warning("several_incarnations", partition=str(name), shown=uuid_to_text(latest.partition.topic_id))
        return Located(latest.partition, None)

    async def partitions(self) -> list[TopicIdPartition]:
        """Return every partition that the metadata knows."""
        return await list_partitions(self._metadata, self._keys)

    async def view(self, partition: TopicIdPartition) -> PartitionView:
        """Return the stored metadata of the partition's remote segments."""
        return await read_partition(self._metadata, self._keys, partition)

    async def tiered_log(self, located: Located) -> TieredLog:
        """Look at both tiers anew; the local directory is found again, for it may have moved or gone.

        The metadata comes last: what the broker deletes after the listing is in the tier already, while the other
        order could miss a segment in both. The checkpoints come first, for what they say only grows.
        """
        directories = await self._local_directories()
        directory = next((d for d in directories if d.topic_id and d.partition == located.partition), None)
        held = await asyncio.to_thread(linked_offsets, self._config.hold_dir, located.partition)
        if directory is None:
            return TieredLog(located.partition, await self.view(located.partition), None, None, held=held)
        name, log_dir = directory.topic_partition, directory.path.parent
        starts = await asyncio.to_thread(read_offset_checkpoint, log_dir / LOG_START_OFFSET_CHECKPOINT)
        watermarks = await asyncio.to_thread(read_offset_checkpoint, log_dir / REPLICATION_OFFSET_CHECKPOINT)
        scan = await asyncio.to_thread(scan_partition, directory)
        view = await self.view(located.partition)
        return TieredLog(located.partition, view, scan, watermarks.get(name), starts.get(name), held)

    def remote_key(self, metadata: RemoteLogSegmentMetadata | None) -> str | None:
        """Return the key of the segment's log object; None without a segment."""
        if metadata is None:
            return None
        keys = ObjectKeyFactory(self._config.remote.key_prefix, self.identity.cluster_id)
        topic = metadata.segment.topic_id_partition.topic
        return keys.for_custom_metadata(metadata.custom_metadata, topic).segment(metadata, ".log")

    def fetch_task(self, located: Located) -> FetchTask:
        """Return a reader of the partition's records."""
        return self.fetches.task(lambda: self.tiered_log(located))

    async def verify(
        self, names: Iterable[TopicPartition], *, deep: bool, tell: Callable[[str], None]
    ) -> AsyncGenerator[Finding, None]:
        """Yield what is wrong with the tier: of some partitions, or of everything below the prefix.

        Args:
            names: none means everything; a name that comes twice is looked at once.
            deep: also download every segment and check every batch.
            tell: is told how far it is.

        Raises:
            UnknownPartitionError: nobody knows one of the names.
            RemoteStorageError: the store does not answer.
        """
        only = [(await self.locate(name)).partition for name in dict.fromkeys(names)]
        async with contextlib.aclosing(self.audit(tell=tell).run(only or None, deep=deep)) as reports:
            async for report in reports:
                for finding in report.findings:
                    yield finding

    async def tiered_log_of(self, partition: TopicIdPartition) -> TieredLog:
        """Look at both tiers of a partition anew."""
        return await self.tiered_log(Located(partition, None))

    async def local_partitions(self) -> list[TopicIdPartition]:
        """Return the partitions that have a replica on this host."""
        return [d.partition for d in await self._local_directories() if d.topic_id is not None]

    async def partitions_left(self, local: Collection[TopicIdPartition]) -> list[TopicIdPartition]:
        """The partitions whose last leader this broker was, and that are not among those in ``local``.

        Raises:
            MetadataError: the store cannot say what there is.
        """
        is_here = frozenset(local).__contains__
        return [*await partitions_left(self._metadata, self._keys, broker_id=self.identity.node_id, is_here=is_here)]

    @property
    def object_keys(self) -> ObjectKeyFactory:
        """The keys of the configured tier."""
        return ObjectKeyFactory(self._config.remote.key_prefix, self.identity.cluster_id)

    @property
    def grace_s(self) -> float:
        """The age from which unfinished uploads count as abandoned."""
        return self._config.copying.dangling_grace_s

    def audit(self, *, tell: Callable[[str], None]) -> TierAudit:
        """Return the audit that compares this tier with its metadata."""
        return TierAudit(
            store=self.object_store,
            storage=self.storage,
            keys=self.object_keys,
            rows=self._metadata,
            metadata_keys=self._keys,
            tiered_log=self.tiered_log_of,
            clock=self.clock,
            limits=self._limits(),
            retained=self._retained,
            tell=tell,
        )

    def repair_planner(
        self,
        led: Collection[TopicIdPartition],
        *,
        min_age_s: float,
        accepts_unauthenticated: bool,
        tell: Callable[[str], None],
    ) -> RepairPlanner:
        """Return the planner of repairs for the ``led`` partitions of this tier."""
        return RepairPlanner(
            audit=self.audit(tell=tell),
            check=SegmentCheck(
                self.object_store,
                self.storage,
                cluster_id=self.identity.cluster_id,
                clock=self.clock,
                limits=self._limits(),
                retained=self._retained,
            ),
            bucket=BucketReader(
                self.object_store,
                self.storage,
                self.object_keys,
                accepts_unauthenticated=accepts_unauthenticated,
            ),
            storage=self.storage,
            rows=self._metadata,
            metadata_keys=self._keys,
            tiered_log=self.tiered_log_of,
            led=led,
            hold_dir=self._config.hold_dir,
            clock=self.clock,
            min_age_s=min_age_s,
        )

    def _limits(self) -> AuditLimits:
        return AuditLimits(self.grace_s, self._config.copying.attempt_timeout_s)

    async def _retained(self) -> frozenset[UUID]:
        return await asyncio.to_thread(_retained, self._config.state_dir)

    async def _local_directories(self) -> list[PartitionDirectory]:
        found: list[PartitionDirectory] = []
        for log_dir in self._config.log_dirs:
            try:
                listing = await asyncio.to_thread(list_log_dir, log_dir.path)
            except LogDirOfflineError as error:  # the tier may still have everything
                log.warning("log_dir_offline", log_dir=str(log_dir.path), problem=str(error))
                continue
            found += [d for d in listing.partitions if d.kind is DirectoryKind.CURRENT]
        return found


async def list_offsets(
    config: TierdConfig, config_file: Path, name: TopicPartition, *, timestamp_ms: int | None
) -> dict[str, TimestampOffset | None]:
    """Return the named offsets of a partition; with ``timestamp_ms`` also ``time``, the first record no older.

    Raises:
        UnknownPartitionError: neither a log dir nor the metadata knows the name.
        TierError: a log or a store cannot be read.
    """
    asked: dict[str, int] = {
        "earliest": OffsetSpec.EARLIEST,
        "local": OffsetSpec.EARLIEST_LOCAL,
        "tiered": OffsetSpec.LATEST_TIERED,
        "pending": OffsetSpec.EARLIEST_PENDING_UPLOAD,
        "latest": OffsetSpec.LATEST,
    }
    if timestamp_ms is not None:
        asked["time"] = timestamp_ms
    async with tier_reader(config, config_file) as reader:
        task = reader.fetch_task(await reader.locate(name))
        return {which: await found_offset(reader, task, spec) for which, spec in asked.items()}


async def found_offset(reader: TierReader, task: FetchTask, timestamp_ms: int) -> TimestampOffset | None:
    """Return the first record no older than ``timestamp_ms``, or the place of an ``OffsetSpec``, within a deadline.

    Raises:
        TierError: a log or a store cannot be read, or the search took too long.
    """
    found = await reader.fetches.list_offset(task, timestamp_ms)
    if isinstance(found, TierError):
        raise found
    return found


async def explain_offset(reader: TierReader, located: Located, offset: int) -> Explanation:
    """Explain where ``offset`` is, and why.

    Raises:
        LogError: the local log cannot be read.
    """
    tiered = await reader.tiered_log(located)
    stable = end = tiered.remote_end_offset
    if tiered.scan is not None and tiered.high_watermark is not None:
        stable = await asyncio.to_thread(last_stable_offset, tiered.scan, high_watermark=tiered.high_watermark)
    if tiered.scan is not None:
        end = await asyncio.to_thread(find_log_end_offset, tiered.scan)
    return explain(
        tiered,
        offset,
        last_stable_offset=stable,
        log_end_offset=end,
        remote_key=reader.remote_key(tiered.remote_segment(offset)),
        next_record=await _next_record(reader, located, tiered, offset),
    )


async def _next_record(reader: TierReader, located: Located, tiered: TieredLog, offset: int) -> int | None:
    """Return the offset of the first record from ``offset`` on, or the end; None for an offset that is not remote.

    None also when the store does not answer: the rest of the explanation needs no bytes.
    """
    if tiered.tier_of(offset) is Tier.LOCAL or not tiered.log_start_offset <= offset < tiered.end_offset:
        return None
    records = reader.fetch_task(located).records(offset, None, IsolationLevel.READ_UNCOMMITTED)
    try:
        async with contextlib.aclosing(records) as found:
            async for record in found:
                return record.offset
    except TierError as error:
        log.warning("offset_not_read", partition=str(located.partition), offset=offset, problem=str(error))
        return None
    return tiered.end_offset


def _retained(state_dir: Path) -> frozenset[UUID]:
    """The segments whose objects the store kept when they were to be deleted, as the ledger says. Blocking."""
    lines = read_ledger(state_dir)
    return frozenset(uuid_from_text(line.segment_id) for line in lines if line.step == LedgerStep.RETAINED)


@contextlib.asynccontextmanager
async def tier_reader(config: TierdConfig, config_file: Path) -> AsyncIterator[TierReader]:
    """Open both stores for reading.

    Raises:
        ConfigError: cluster or node are not known.
        TierError: a store cannot be opened.
    """
    clock = SystemClock()
    identity = broker_identity(
        config_file,
        cluster_id=config.cluster_id,
        node_id=config.node_id,
        found=await log_dir_identities(config),
    )
    async with (
        metadata_store(config, read_only=True) as metadata,
        object_store(config, clock=clock) as store,
    ):
        with contextlib.closing(open_transform(config.remote)) as transform:
            storage = segment_storage(config, identity, store, transform)
            async with (
                chunk_cache(config, store, clock=clock, is_daemon=False) as chunks,
                open_fetch_service(
                    storage(read_range=chunks.get, drop_range=chunks.drop, align_plain_reads=True)
                    if chunks
                    else storage(),
                    settings=config.fetch,
                    piece_bytes=config.remote.chunk_size_bytes,
                    index_directory=None,  # it is the daemon's
                    chunks=chunks,
                    recorder=SilentRecorder(),
                    clock=clock,
                ) as fetches,
            ):
                # What is verified comes from the store itself.
                yield TierReader(config, identity, metadata, storage(), store=store, fetches=fetches, clock=clock)
