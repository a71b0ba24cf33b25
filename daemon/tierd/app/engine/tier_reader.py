"""TierReader: the common part of the reading commands, which writes nothing. A daemon may run meanwhile."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import UUID

import structlog

import tierd.tiering
from tierd.app.engine.deployment import Deployment, OpenStores
from tierd.app.engine.host_caches import fetch_service
from tierd.app.engine.row_reader import Located, RowReader
from tierd.app.engine.tiered_log_reader import TieredLogReader
from tierd.clock import Clock, SystemClock
from tierd.log import BrokerIdentity
from tierd.metadata import PartitionView
from tierd.model import TopicIdPartition, TopicPartition, uuid_from_text
from tierd.tiering import (
    FetchService,
    FetchTask,
    LedgerStep,
    SilentRecorder,
    StoredTier,
    TieredLog,
    partitions_left,
    read_ledger,
)

# The audit and the repair of the tier are a third of its code, and most commands that read need neither.
if TYPE_CHECKING:
    from tierd.tiering import AuditLimits, DeepChoice, Finding, RepairPlanner, TierAudit

log = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class TierReaderSettings:
    """Settings of a reader of the tier and the local logs.

    Attributes:
        log_dirs: the log dirs of the broker.
        state_dir: the directory of the deletion ledger.
        hold_dir: the directory of held segments.
        grace_s: age up to which a copy without an end counts as under way.
        attempt_timeout_s: deadline for copying one segment.
    """

    log_dirs: tuple[Path, ...]
    state_dir: Path
    hold_dir: Path
    grace_s: float
    attempt_timeout_s: float


class TierReader:
    """Reader of the tier and the local logs, which writes nothing.

    Attributes:
        tier: the tier in its two stores.
        identity: the broker that the tier belongs to.
        fetches: the reads of this process.
        clock: time.
        grace_s: age up to which a copy without an end counts as under way.
    """

    def __init__(
        self,
        tier: StoredTier,
        *,
        identity: BrokerIdentity,
        fetches: FetchService,
        clock: Clock,
        settings: TierReaderSettings,
    ) -> None:
        self.tier = tier
        self.identity = identity
        self.fetches = fetches
        self.clock = clock
        self.grace_s = settings.grace_s
        self._settings = settings
        self._rows = RowReader(tier.rows, tier.row_keys, settings.log_dirs)
        self._logs = TieredLogReader(self._rows, tier.object_keys, hold_dir=settings.hold_dir)

    async def locate(self, name: TopicPartition) -> Located:
        """Find the incarnation that ``name`` means: the local one, else the one that was copied last.

        Raises:
            UnknownPartitionError: neither a log dir nor the metadata knows the name.
        """
        return await self._rows.locate(name)

    async def partitions(self) -> list[TopicIdPartition]:
        """Return every partition that the metadata knows."""
        return await self._rows.partitions()

    async def view(self, partition: TopicIdPartition) -> PartitionView:
        """Return the stored metadata of the partition's remote segments."""
        return await self._rows.view(partition)

    async def tiered_log(self, located: Located) -> TieredLog:
        """Read the tier and the local log anew; the local directory is found again, because it may have moved or gone.

        Raises:
            TierError: a log or the metadata store cannot be read.
        """
        return await self._logs.tiered_log(located)

    def fetch_task(self, located: Located) -> FetchTask:
        """Return a reader of the partition's records."""
        return self.fetches.task(lambda: self.tiered_log(located))

    async def verify(
        self, names: Iterable[TopicPartition], *, deep: "bool | DeepChoice", on_progress: Callable[[str], None]
    ) -> AsyncGenerator["Finding", None]:
        """Yield the faults of the tier: of some partitions, or of everything below the prefix.

        Args:
            names: none means everything; a name that comes twice is checked once.
            deep: also download every segment, or the chosen ones, and check every batch.
            on_progress: is called with lines about the progress.

        Raises:
            UnknownPartitionError: neither a log dir nor the metadata knows one of the names.
            RemoteStorageError: the store does not answer.
        """
        only = [(await self.locate(name)).partition for name in dict.fromkeys(names)]
        async with contextlib.aclosing(self.audit(on_progress=on_progress).run(only or None, deep=deep)) as reports:
            async for report in reports:
                for finding in report.findings:
                    yield finding

    async def tiered_log_of(self, partition: TopicIdPartition) -> TieredLog:
        """Read the tier and the local log of a partition anew."""
        return await self.tiered_log(Located(partition, None))

    async def local_partitions(self) -> list[TopicIdPartition]:
        """Return the partitions that have a replica on this host."""
        return [d.partition for d in await self._rows.local_directories() if d.topic_id is not None]

    async def partitions_left(self, local: Collection[TopicIdPartition]) -> list[TopicIdPartition]:
        """Return the partitions that this broker led last and that are not among those in ``local``.

        Raises:
            MetadataError: the metadata store does not answer, or is damaged.
        """
        is_here = frozenset(local).__contains__
        rows, keys = self.tier.rows, self.tier.row_keys
        return [*await partitions_left(rows, keys, broker_id=self.identity.node_id, is_here=is_here)]

    def audit(self, *, on_progress: Callable[[str], None]) -> "TierAudit":
        """Return the audit that compares this tier with its metadata."""
        return tierd.tiering.TierAudit(
            self.tier,
            tiered_log=self.tiered_log_of,
            clock=self.clock,
            limits=self._limits(),
            retained=self._retained,
            on_progress=on_progress,
        )

    def repair_planner(
        self,
        led: Collection[TopicIdPartition],
        *,
        min_age_s: float,
        accepts_unauthenticated: bool,
        on_progress: Callable[[str], None],
    ) -> "RepairPlanner":
        """Return the planner of repairs for the ``led`` partitions of this tier."""
        tier = self.tier
        return tierd.tiering.RepairPlanner(
            audit=self.audit(on_progress=on_progress),
            orphans=tierd.tiering.OrphanInspector(
                check=tierd.tiering.SegmentCheck(
                    tier.objects,
                    tier.segments,
                    cluster_id=self.identity.cluster_id,
                    clock=self.clock,
                    limits=self._limits(),
                    retained=self._retained,
                ),
                bucket=tierd.tiering.BucketReader(
                    tier.objects, tier.segments, tier.object_keys, accepts_unauthenticated=accepts_unauthenticated
                ),
                segments=tier.segments,
                tiered_log=self.tiered_log_of,
                clock=self.clock,
            ),
            tier=tier,
            tiered_log=self.tiered_log_of,
            led=led,
            hold_dir=self._settings.hold_dir,
            clock=self.clock,
            min_age_s=min_age_s,
        )

    def _limits(self) -> "AuditLimits":
        return tierd.tiering.AuditLimits(self.grace_s, self._settings.attempt_timeout_s)

    async def _retained(self) -> frozenset[UUID]:
        return await asyncio.to_thread(_retained, self._settings.state_dir)


def _retained(state_dir: Path) -> frozenset[UUID]:
    """Return the segments whose objects the store retained, as the ledger has them. Blocking."""
    lines = read_ledger(state_dir)
    return frozenset(uuid_from_text(line.segment_id) for line in lines if line.step == LedgerStep.RETAINED)


@contextlib.asynccontextmanager
async def tier_reader(deployment: Deployment) -> AsyncIterator[TierReader]:
    """Open both stores for reading.

    Raises:
        ConfigError: cluster or node are not known.
        TierError: a store cannot be opened.
    """
    clock = SystemClock()
    identity = await deployment.identity()
    async with (
        deployment.tier(identity, clock=clock, read_only=True) as stores,
        reader_of_stores(deployment, identity, stores, log_dirs=deployment.log_dirs, clock=clock) as reader,
    ):
        yield reader


@contextlib.asynccontextmanager
async def reader_of_stores(
    deployment: Deployment, identity: BrokerIdentity, stores: OpenStores, *, log_dirs: tuple[Path, ...], clock: Clock
) -> AsyncIterator[TierReader]:
    """Open the reads of a process over open stores and ``log_dirs``, which are some of the configuration, or none."""
    config = deployment.config
    async with fetch_service(
        config, stores.stored.objects, stores.new_storage, recorder=SilentRecorder(), clock=clock, is_daemon=False
    ) as fetches:
        yield TierReader(
            stores.stored,
            identity=identity,
            fetches=fetches,
            clock=clock,
            settings=TierReaderSettings(
                log_dirs=log_dirs,
                state_dir=config.state_dir,
                hold_dir=config.hold_dir,
                grace_s=config.copying.dangling_grace_s,
                attempt_timeout_s=config.copying.attempt_timeout_s,
            ),
        )
