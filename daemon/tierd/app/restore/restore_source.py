"""RestoreSource: the tier that a restore reads, opened without a daemon and without a broker (DESIGN 13)."""

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import partial
from uuid import uuid4

from tierd.app.engine.compose import Engine
from tierd.app.engine.deployment import Deployment, OpenStores
from tierd.app.restore.standby_directories import StandbyDirectories
from tierd.clock import Clock
from tierd.errors import ConfigError, ConfigFault, MetadataError, UnknownPartitionError
from tierd.log import BrokerIdentity
from tierd.metadata import (
    MemoryKeyValueStore,
    PartitionView,
    RebuildProblem,
    RebuildSeverity,
    copied_last_ms,
    holds_segments,
    is_tier_known,
    list_partitions,
    read_partition,
)
from tierd.model import TopicIdPartition, TopicPartition
from tierd.remote import KeyRing, ObjectStore, PacedReads, SegmentStorage, open_transform
from tierd.restore import CatalogueStorage
from tierd.tiering import MetadataRebuild, RebuildReport, StoredTier

_NO_NODE = -1  # only written objects name a node, and a restore writes none


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceRequest:
    """Selection of the tier and of its metadata.

    Attributes:
        cluster_id: of the tier; None takes the one of the configuration or of the log dirs.
        from_bucket: read the metadata from the bucket, although the metadata store may have it.
        accepts_unauthenticated: with a key ring, believe also objects without proof.
        max_bytes_per_second: limit of the rate at which objects are read; None for no limit.
        may_be_empty: a tier that has nothing is no error, because there are other sources.
    """

    cluster_id: str | None = None
    from_bucket: bool = False
    accepts_unauthenticated: bool = False
    max_bytes_per_second: int | None = None
    may_be_empty: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreSource:
    """Tier that is restored from; nothing of it is written.

    Attributes:
        stored: its objects, and its metadata, which may be in memory.
        new_storage: maker of segment storages over the objects.
        ring: the keys that wrap the keys of segments.
        identity: cluster of the tier; the node is -1 where it is not known.
        is_from_bucket: the metadata was read from the bucket.
        problems: what in the bucket did not become metadata; notes are left out.
        strict_kafka_compat: as in ``PartitionView``.
    """

    stored: StoredTier
    new_storage: "partial[SegmentStorage]"
    ring: KeyRing
    identity: BrokerIdentity
    is_from_bucket: bool
    problems: tuple[RebuildProblem, ...] = ()
    strict_kafka_compat: bool = False

    @property
    def catalogue(self) -> CatalogueStorage:
        """Return the catalogue of the tier."""
        return CatalogueStorage(self.stored.objects, self.stored.object_keys, self.ring)

    async def view(self, partition: TopicIdPartition) -> PartitionView:
        """Return the metadata of a partition."""
        return await read_partition(
            self.stored.rows, self.stored.row_keys, partition, strict_kafka_compat=self.strict_kafka_compat
        )

    async def partitions(
        self, names: Collection[TopicPartition] = (), *, standbys: StandbyDirectories | None = None
    ) -> list[TopicIdPartition]:
        """Return the partitions of these names, or all; of several incarnations the one that was written last.

        Args:
            names: partitions that are wanted; none means all.
            standbys: directories that may have partitions, or incarnations of them, that the tier does not have.

        Raises:
            UnknownPartitionError: neither the tier nor a standby has a partition of a name.
        """
        copies = {} if standbys is None else await asyncio.to_thread(standbys.newest)
        incarnations: defaultdict[TopicPartition, list[TopicIdPartition]] = defaultdict(list)
        for partition in await list_partitions(self.stored.rows, self.stored.row_keys):
            incarnations[partition.topic_partition].append(partition)
        wanted: Sequence[TopicPartition] = list(dict.fromkeys(names)) or sorted({*incarnations, *copies})
        for name in wanted:
            if name not in incarnations and name not in copies:
                raise UnknownPartitionError(
                    f"the tier of cluster {self.identity.cluster_id} has no partition {name}",
                    remedy="tierd restore log-dir --dry-run lists what it has",
                )
        return [await self._written_last(incarnations[name], copies.get(name), standbys) for name in wanted]

    async def _written_last(
        self,
        incarnations: Sequence[TopicIdPartition],
        copy: TopicIdPartition | None,
        standbys: StandbyDirectories | None,
    ) -> TopicIdPartition:
        if copy is None or standbys is None or not incarnations:
            return copy if copy is not None and not incarnations else await self._copied_last(incarnations)
        last = await self._copied_last(incarnations)
        if copy in incarnations:
            return copy if len(incarnations) == 1 else last
        _, copied_ms = copied_last_ms(await self.view(last))
        return copy if await asyncio.to_thread(standbys.written_ms, copy) > copied_ms else last

    async def _copied_last(self, incarnations: Sequence[TopicIdPartition]) -> TopicIdPartition:
        if len(incarnations) == 1:
            return incarnations[0]
        return max([await self.view(each) for each in incarnations], key=copied_last_ms).partition


@contextlib.asynccontextmanager
async def restore_source(
    deployment: Deployment, request: SourceRequest, *, clock: Clock, on_progress: Callable[[str], None]
) -> AsyncIterator[RestoreSource]:
    """Open the tier for reading. Neither a broker nor a daemon is needed, and either may run.

    The metadata comes from the configured metadata store if that has the metadata of this tier. Otherwise, as after the
    loss of the host, it is read from the bucket into memory.

    Raises:
        ConfigError: the cluster is not known.
        UnknownPartitionError: neither the metadata store nor the bucket has anything of the cluster.
        TierError: a store cannot be opened or read.
    """
    config = deployment.config
    identity = await _identity(deployment, request)
    async with contextlib.AsyncExitStack() as stack:
        in_memory = MemoryKeyValueStore()
        opened = await _open(stack, deployment, identity, in_memory, request, clock=clock)
        source = RestoreSource(
            stored=opened.stored,
            new_storage=opened.new_storage,
            ring=opened.ring,
            identity=identity,
            is_from_bucket=opened.stored.rows is in_memory,
            strict_kafka_compat=config.metadata.strict_kafka_compat,
        )
        if source.is_from_bucket:
            problems = await _read_bucket(deployment, source, request, clock=clock, on_progress=on_progress)
            source = replace(source, problems=problems)
        yield source


def engine_source(engine: Engine, *, max_bytes_per_second: int | None) -> RestoreSource:
    """Return the tier over the stores of a daemon, which are closed with the engine."""
    deployment = engine.deployment
    objects = _paced(engine.store, max_bytes_per_second, clock=engine.clock)
    new_storage = deployment.segment_storages(engine.identity, objects, engine.transform)
    stored = StoredTier(
        objects=objects,
        segments=new_storage(),
        object_keys=deployment.object_keys(engine.identity),
        rows=engine.rows,
        row_keys=deployment.metadata_keys(engine.identity),
    )
    return RestoreSource(
        stored=stored,
        new_storage=new_storage,
        ring=engine.ring,
        identity=engine.identity,
        is_from_bucket=False,
        strict_kafka_compat=deployment.config.metadata.strict_kafka_compat,
    )


def _paced(objects: ObjectStore, max_bytes_per_second: int | None, *, clock: Clock) -> ObjectStore:
    if max_bytes_per_second is None:
        return objects
    return PacedReads(objects, bytes_per_second=max_bytes_per_second, clock=clock)


async def _identity(deployment: Deployment, request: SourceRequest) -> BrokerIdentity:
    cluster_id = request.cluster_id or await deployment.known_cluster_id()
    if cluster_id is None:
        what = "cluster_id is not set, and no log dir names it: set cluster_id, or give --cluster-id"
        raise ConfigError([ConfigFault(deployment.config_file, 0, 0, what)])
    node_id = deployment.config.node_id
    return BrokerIdentity(cluster_id, _NO_NODE if node_id is None else node_id)


async def _open(
    stack: contextlib.AsyncExitStack,
    deployment: Deployment,
    identity: BrokerIdentity,
    in_memory: MemoryKeyValueStore,
    request: SourceRequest,
    *,
    clock: Clock,
) -> OpenStores:
    """Open the objects, and the metadata store if it has this tier; otherwise the rows are those of ``in_memory``."""
    objects = await stack.enter_async_context(deployment.object_store(clock=clock))
    objects = _paced(objects, request.max_bytes_per_second, clock=clock)
    transform = stack.enter_context(contextlib.closing(open_transform(deployment.config.remote)))
    new_storage = deployment.segment_storages(identity, objects, transform)
    keys = deployment.metadata_keys(identity)
    stored = StoredTier(
        objects=objects,
        segments=new_storage(),
        object_keys=deployment.object_keys(identity),
        rows=in_memory,
        row_keys=keys,
    )
    if not request.from_bucket:
        try:
            configured = await stack.enter_async_context(deployment.metadata_store(read_only=True))
            prefix = deployment.config.remote.key_prefix
            if await is_tier_known(configured, keys, key_prefix=prefix) and await holds_segments(configured, keys):
                stored = replace(stored, rows=configured)
        except MetadataError as error:
            error.remedy = f"{error.remedy}; or restore with --from-bucket, which needs no metadata store".lstrip("; ")
            raise
    return OpenStores(stored=stored, new_storage=new_storage, ring=transform.ring)


async def _read_bucket(
    deployment: Deployment,
    source: RestoreSource,
    request: SourceRequest,
    *,
    clock: Clock,
    on_progress: Callable[[str], None],
) -> tuple[RebuildProblem, ...]:
    accepts, stored = request.accepts_unauthenticated, source.stored
    report = await read_bucket(
        deployment, stored, accepts_unauthenticated=accepts, clock=clock, on_progress=on_progress
    )
    if not (report.partitions or request.may_be_empty):
        raise UnknownPartitionError(
            f"neither the metadata store nor the bucket has anything of cluster {source.identity.cluster_id}",
            remedy="look at cluster_id and at remote.prefix; --cluster-id names another cluster",
        )
    return tuple(problem for problem in report.problems if problem.severity is not RebuildSeverity.NOTE)


async def read_bucket(
    deployment: Deployment,
    stored: StoredTier,
    *,
    accepts_unauthenticated: bool,
    clock: Clock,
    on_progress: Callable[[str], None],
) -> RebuildReport:
    """Read the metadata of a tier from its objects into ``stored.rows``, which are empty.

    Raises:
        TierError: the bucket cannot be read.
    """
    config = deployment.config
    return await MetadataRebuild(
        stored,
        session_id=uuid4(),
        grace_ends_ms=clock.now_ms() + int(config.expire.grace_s * 1000),
        on_progress=lambda text: on_progress(f"reading the bucket: {text}"),
        accepts_unauthenticated=accepts_unauthenticated,
        strict_kafka_compat=config.metadata.strict_kafka_compat,
    ).run()
