"""LogDirRestore: partitions of the tier planned for one log dir, and carried out after a person agreed."""

import asyncio
import contextlib
import errno
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from tierd.app.engine.deployment import Deployment
from tierd.app.restore.log_dir_plan import LogDirPlan, LogDirPlanRequest
from tierd.app.restore.plan_making import PlanMaking
from tierd.app.restore.restore_source import RestoreSource, SourceRequest, restore_source
from tierd.app.restore.retention_holds import RetentionHolds
from tierd.app.restore.target_directories import TargetDirectories, stage_beside
from tierd.app.services.broker_cost import prices_of
from tierd.clock import Clock, SystemClock
from tierd.errors import (
    CorruptRecordError,
    PlanOutdatedError,
    RefusedError,
    RemoteFormatError,
    RemoteIntegrityError,
    RemoteKeyMissingError,
    RemoteResourceNotFoundError,
    StateDirError,
    TierError,
)
from tierd.log import read_meta_properties
from tierd.model import TopicIdPartition
from tierd.restore import (
    ClusterSnapshot,
    HeldLogDir,
    LogDirRequest,
    LogDirTarget,
    PartitionPlan,
    RestoredPartition,
    RestoreMode,
    held_log_dir,
    producer_id_problem,
    restore_cluster_metadata,
    restore_partition,
    write_identity,
)
from tierd.tasks import in_thread

_PARTITIONS_AT_ONCE = 4
_PLANS_AGAIN = 2  # of one partition, after the first
_NO_RIGHT = frozenset({errno.EACCES, errno.EPERM})
_OF_ONE_PARTITION = (
    CorruptRecordError,
    RefusedError,
    RemoteFormatError,
    RemoteIntegrityError,
    RemoteKeyMissingError,
    RemoteResourceNotFoundError,
)

Arrived = Callable[[int], None]
"""Callback with the number of log bytes that arrived since the call before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogDirRestoreRequest:
    """Request to restore partitions into a log dir.

    Attributes:
        into: the log dir, of a stopped broker or of none.
        stage: directory for what is not finished; None is one beside the log dir.
        plan: the partitions, and how.
        source: the tier and its metadata.
        on_progress: is called with lines about the progress.
    """

    into: Path
    stage: Path | None
    plan: LogDirPlanRequest
    source: SourceRequest = field(default_factory=SourceRequest)
    on_progress: Callable[[str], None] = lambda _: None


@dataclass(frozen=True, slots=True)
class LogDirOutcome:
    """Outcome of one partition: the report, or the error that concerns this partition alone."""

    plan: PartitionPlan
    restored: RestoredPartition | None
    problem: TierError | None = None


class LogDirRestore:
    """One restore: its plan, and the way to carry it out.

    Attributes:
        plan: of every partition.
        holds: holds of the retention that the plan needs.
    """

    def __init__(
        self,
        request: LogDirRestoreRequest,
        source: RestoreSource,
        plan: LogDirPlan,
        holds: RetentionHolds,
        *,
        target: LogDirTarget,
        replan: Callable[[TopicIdPartition], Awaitable[PartitionPlan]],
    ) -> None:
        """Prepare; ``replan`` plans one partition again, from what there is now."""
        self.plan = plan
        self.holds = holds
        self._request = request
        self._source = source
        self._target = target
        self._replan = replan

    async def run(self, *, arrived: Arrived, finished: Callable[[LogDirOutcome], None]) -> None:
        """Hold the retention of the topics that need it, then carry out the plan of every partition not left out.

        A partition whose objects are missing or damaged does not keep the others from being restored. The same call
        after an interruption goes on where that ended.

        Args:
            arrived: is called with the log bytes that arrived.
            finished: is called with each outcome, as it comes.

        Raises:
            RefusedError: a plan or the log dir is refused, or the brokers refuse the hold of a topic's retention, or a
                restored partition has a producer id that brokers would issue again under the cluster metadata, which
                then does not come back.
            KafkaError: no broker answers any more, so that the retention cannot be held.
            LogDirLockedError: a broker has the log dir.
            RemoteStorageError: the store does not answer.
            StateDirError: the stage or the log dir cannot be written, since a disk is full or failing.
        """
        self.plan.require_accepted()
        try:
            await self._run(self.plan.wanted, arrived, finished)
        except OSError as error:
            raise self._unwritable(error) from error

    async def _run(
        self, wanted: Sequence[PartitionPlan], arrived: Arrived, finished: Callable[[LogDirOutcome], None]
    ) -> None:
        slots = asyncio.Semaphore(_PARTITIONS_AT_ONCE)
        done: list[LogDirOutcome] = []

        async def restore(plan: PartitionPlan) -> None:
            async with slots:
                outcome = await self._one(plan, held, arrived)
                done.append(outcome)
                finished(outcome)

        async with held_log_dir(self._target, wanted) as held:
            await self.holds.hold()
            node = self.plan.node
            if node.metadata is None:
                await self._write_identity(held)
            async with asyncio.TaskGroup() as group:
                for plan in wanted:
                    group.create_task(restore(plan), name=f"restore {plan.partition}")
            if node.metadata is not None:
                _require_new_producer_ids(node.metadata.snapshot, done)
                await in_thread(restore_cluster_metadata, held, node.metadata.snapshot, node.metadata.content)
                # The last step: without it no node starts on the log dir, and none begins an empty cluster there.
                await self._write_identity(held)

    async def _write_identity(self, held: HeldLogDir) -> None:
        if self.plan.node.meta_properties is not None:
            await in_thread(write_identity, held, self.plan.node.meta_properties)

    async def _one(self, plan: PartitionPlan, held: HeldLogDir, arrived: Arrived) -> LogDirOutcome:
        """Restore a partition, by a new plan where a standby that runs was cleaned since the plan."""
        try:
            for _ in range(_PLANS_AGAIN):
                try:
                    return LogDirOutcome(plan, await self._restored(plan, held, arrived))
                except PlanOutdatedError:
                    plan = await self._replan(plan.partition)
            return LogDirOutcome(plan, await self._restored(plan, held, arrived))
        except _OF_ONE_PARTITION as error:
            return LogDirOutcome(plan, None, error)
        except OSError as error:  # of the disk, which all partitions share
            raise self._unwritable(error) from error

    async def _restored(self, plan: PartitionPlan, held: HeldLogDir, arrived: Arrived) -> RestoredPartition:
        request = LogDirRequest(
            log_dir=held,
            partition=self.plan.results[plan.partition],
            known_end_offset=plan.known_end_offset,
            standbys=self._request.plan.standbys,
        )
        return await restore_partition(
            plan, request, self._source.stored.segments, on_progress=lambda _, size_bytes: arrived(size_bytes)
        )

    def _unwritable(self, error: OSError) -> StateDirError:
        place, again = error.filename or self._target.log_dir, "run the same command again: it goes on where it ended"
        if error.errno in _NO_RIGHT:
            remedy = f"run it as the user that began it, or give {self._target.stage} to this user; then {again}"
        else:
            remedy = f"make room or mend the disk, then {again}"
        return StateDirError(f"{place}: {error.strerror or error}", remedy=remedy)


def _require_new_producer_ids(snapshot: ClusterSnapshot, outcomes: Iterable[LogDirOutcome]) -> None:
    """Raise if brokers would issue a producer id again that a restored partition has (DESIGN 13, trap 1).

    Raises:
        RefusedError: a partition has such an id.
    """
    for restored in [outcome.restored for outcome in outcomes if outcome.restored is not None]:
        problem = producer_id_problem(snapshot, restored.highest_producer_id)
        if problem is not None:
            raise RefusedError(f"{restored.partition}: {problem.text}", remedy=problem.remedy)


@contextlib.asynccontextmanager
async def log_dir_restore(deployment: Deployment, request: LogDirRestoreRequest) -> AsyncIterator[LogDirRestore]:
    """Open the tier and plan the restore; nothing is written.

    Raises:
        ConfigError: the cluster is not known, or the file of prices is wrong.
        UnknownPartitionError: the tier has no partition of a name.
        LogDirOfflineError: the log dir cannot be listed.
        TierError: a store cannot be opened or read.
    """
    clock = SystemClock()
    config, into = deployment.config, request.into
    async with restore_source(deployment, request.source, clock=clock, on_progress=request.on_progress) as source:
        prices = await asyncio.to_thread(prices_of, config.remote, config.cost.price_file)
        others = await asyncio.to_thread(_other_log_dirs, deployment.log_dirs, into)
        stage = request.stage or stage_beside(into)
        directories = await asyncio.to_thread(partial(TargetDirectories.read, into, others=others, stage=stage))
        making = PlanMaking(deployment, source, request.plan, directories, clock=clock)
        plan = await making.plan(prices=prices, on_progress=request.on_progress)
        holds = await _holds(deployment, request, source, plan, clock=clock)
        target = LogDirTarget(
            log_dir=into,
            stage=stage,
            cluster_id=None if request.plan.mode is RestoreMode.IMPORT else source.identity.cluster_id,
            node_id=request.plan.for_broker,
            other_log_dirs=others,
        )
        yield LogDirRestore(request, source, plan, holds, target=target, replan=making.plan_one)


def _other_log_dirs(log_dirs: Sequence[Path], into: Path) -> tuple[Path, ...]:
    """Return the other log dirs of the configuration if ``into`` is one of them, also behind links. Blocking."""
    others = tuple(path for path in log_dirs if path.resolve() != into.resolve())
    return others if len(others) < len(log_dirs) else ()


async def _holds(
    deployment: Deployment, request: LogDirRestoreRequest, source: RestoreSource, plan: LogDirPlan, *, clock: Clock
) -> RetentionHolds:
    """Return the holds of the retention that the plan needs, in the cluster that the log dir belongs to."""
    needed = [each for each in plan.wanted if each.needs_hold]
    cluster_id: str | None = source.identity.cluster_id
    if request.plan.mode is RestoreMode.IMPORT:
        meta = await asyncio.to_thread(read_meta_properties, request.into)
        cluster_id = None if meta is None else meta.cluster_id
    results = [plan.results[each.partition] for each in needed]
    topics = {result.topic: result.topic_id for result in results}
    known = {
        result.topic: topic.config
        for result in results
        if (topic := plan.topics.get(result.topic_id)) is not None and topic.is_from_cluster
    }
    if not topics:
        return RetentionHolds(deployment, (), cluster_id=cluster_id, clock=clock)
    return await RetentionHolds.plan(deployment, topics, known, cluster_id=cluster_id, clock=clock)
