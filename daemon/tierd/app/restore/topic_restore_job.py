"""TopicRestoreJob: topics of the tier planned for a live cluster, and carried out."""

import asyncio
import contextlib
import hashlib
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tierd.app.engine.deployment import Deployment
from tierd.app.engine.host_caches import fetch_service
from tierd.app.restore.log_dir_plan import LogDirPlan, LogDirPlanRequest
from tierd.app.restore.plan_making import PlanMaking
from tierd.app.restore.restore_source import RestoreSource, SourceRequest, restore_source
from tierd.app.services.broker_cost import prices_of
from tierd.clock import SystemClock
from tierd.config import KafkaConnectionSettings
from tierd.control import NewTopic
from tierd.errors import RefusedError, TierError
from tierd.model import TopicIdPartition
from tierd.restore import (
    OFFSET_MAP_FILE,
    AcknowledgedCount,
    CataloguedTopic,
    ExpiredSegments,
    PartitionOutcome,
    PartitionPlan,
    RestoredTopic,
    RestoreMode,
    RestoreProgress,
    TargetCluster,
    TopicRestore,
    delete_retention_ms_of,
    open_target,
    topic_settings,
)
from tierd.tasks import first_error
from tierd.tiering import SilentRecorder, TieredLog

_INTERNAL = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state", "__cluster_metadata"})
_PARTITIONS_AT_ONCE = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTopicOptions:
    """Properties of the new topics that a person gave; the catalogue has the others.

    Attributes:
        config: settings that replace those of the catalogue; None leaves a setting out.
        may_exist: add the records to topics that exist already.
    """

    partition_count: int | None = None
    replication_factor: int | None = None
    config: Mapping[str, str | None] = field(default_factory=dict)
    may_exist: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicRestoreRequest:
    """Request to restore topics into a live cluster.

    Attributes:
        topics: full-match regular expressions over names of topics.
        renames: new names, by the old ones.
        to: the target cluster.
        from_time_ms: begin each partition with its first record of this time or later; None for the log start.
        to_time_ms: the moment up to which records are restored; None for the newest.
        by_timestamp: as in ``LogDirPlanRequest``.
        expired: treatment of segments that retention would delete at once.
        accepts_holes: restore partitions although offsets in their middle are missing.
        journal: directory of journal and offset map; None is one of the job in the state directory.
        patience_s: how long tierd waits for the target or the store without any progress.
        on_progress: is called with lines about the progress.
    """

    topics: tuple[str, ...]
    renames: Mapping[str, str]
    to: KafkaConnectionSettings
    new_topics: NewTopicOptions = field(default_factory=NewTopicOptions)
    from_time_ms: int | None = None
    to_time_ms: int | None = None
    by_timestamp: bool = False
    expired: ExpiredSegments = ExpiredSegments.REFUSE
    accepts_holes: bool = False
    journal: Path | None = None
    patience_s: float = 600.0
    source: SourceRequest = field(default_factory=SourceRequest)
    on_progress: Callable[[str], None] = lambda _: None

    def job(self, *, source_cluster: str, target_cluster: str) -> dict[str, Any]:
        """Return what tells this restore from others."""
        return {
            "kind": "topics",
            "source_cluster": source_cluster,
            "target_cluster": target_cluster,
            "topics": sorted(self.topics),
            "renames": dict(sorted(self.renames.items())),
            "from_time_ms": self.from_time_ms,
            "to_time_ms": self.to_time_ms,
            "by_timestamp": self.by_timestamp,
        }


class TopicRestoreJob:
    """One restore into a live cluster: its plan, and the way to carry it out.

    Attributes:
        plan: of every partition.
        topics: as they are to be in the target.
        journal: directory of the journal.
        offset_map: file of the offset map, which the run writes.
        target_cluster: id of the target.
    """

    def __init__(
        self,
        request: TopicRestoreRequest,
        source: RestoreSource,
        target: TargetCluster,
        *,
        plan: LogDirPlan,
        topics: Sequence[RestoredTopic],
        journal: Path,
    ) -> None:
        self.plan = plan
        self.topics = topics
        self.journal = journal
        self.offset_map = journal / OFFSET_MAP_FILE
        self.target_cluster = target.cluster_id
        self._request = request
        self._source = source
        self._target = target

    async def run(self, *, on_progress: Callable[[AcknowledgedCount], None]) -> list[PartitionOutcome]:
        """Carry out the plan; after an interruption the same call goes on where that ended.

        Raises:
            RefusedError: the plan is refused, or the target has such a topic already.
            KafkaError: the target does not answer, or refuses a topic.
            StateDirError: the journal cannot be written.
        """
        self.plan.require_accepted()
        source_cluster = self._source.identity.cluster_id
        job = self._request.job(source_cluster=source_cluster, target_cluster=self.target_cluster)
        progress = await asyncio.to_thread(
            lambda: RestoreProgress.open(
                self.journal, job, source_cluster=source_cluster, target_cluster=self.target_cluster
            )
        )
        with progress:
            restore = TopicRestore(self._target, self._source.stored.segments, progress, on_progress=on_progress)
            return await restore.run(self.topics)


@contextlib.asynccontextmanager
async def topic_restore_job(deployment: Deployment, request: TopicRestoreRequest) -> AsyncIterator[TopicRestoreJob]:
    """Open the tier and the target, and plan the restore; nothing is written.

    Raises:
        ConfigError: the cluster of the tier is not known, or the file of prices is wrong.
        RefusedError: no topic of the tier matches, two would get one name, or the journal is to be in a log dir.
        KafkaError: the target does not answer.
        TierError: a store cannot be opened or read.
    """
    if request.journal is not None:
        await asyncio.to_thread(deployment.require_outside_log_dirs, request.journal)
    clock = SystemClock()
    config = deployment.config
    async with (
        restore_source(deployment, request.source, clock=clock, on_progress=request.on_progress) as source,
        open_target(request.to, clock=clock, patience_s=request.patience_s) as target,
    ):
        names = await _topics(source, request)
        prices = await asyncio.to_thread(prices_of, config.remote, config.cost.price_file)
        making = PlanMaking(deployment, source, _plan_request(request, names), None, clock=clock)
        plan = await making.plan(prices=prices, on_progress=request.on_progress)
        if request.from_time_ms is not None:
            plan = await _begun_at(
                plan, request.from_time_ms, deployment, source, clock=clock, on_progress=request.on_progress
            )
        by_name = {each.partition.topic: plan.topics.get(each.partition.topic_id) for each in plan.plans}
        topics = [_restored_topic(name, by_name.get(name), plan.wanted, request) for name in names]
        job = request.job(source_cluster=source.identity.cluster_id, target_cluster=target.cluster_id)
        yield TopicRestoreJob(
            request,
            source,
            target,
            plan=plan,
            topics=[topic for topic in topics if topic.plans],
            journal=request.journal or deployment.state_dir / "restore" / _digest(job),
        )


async def _topics(source: RestoreSource, request: TopicRestoreRequest) -> list[str]:
    """Return the topics of the tier that the request means."""
    known = {each.topic for each in await source.partitions()}
    names = sorted(name for name in known - _INTERNAL if any(re.fullmatch(pattern, name) for pattern in request.topics))
    if not names:
        raise RefusedError(
            f"no topic of the tier of cluster {source.identity.cluster_id} matches {', '.join(request.topics)}",
            remedy="tierd restore log-dir --dry-run lists what the tier has",
        )
    if unknown := sorted(set(request.renames) - set(names)):
        raise RefusedError(f"--rename names {', '.join(unknown)}, which is not restored", remedy="correct the name")
    targets = [request.renames.get(name, name) for name in names]
    if twice := sorted({name for name in targets if targets.count(name) > 1}):
        raise RefusedError(f"two topics would become {', '.join(twice)}", remedy="give other names with --rename")
    return names


def _plan_request(request: TopicRestoreRequest, names: Sequence[str]) -> LogDirPlanRequest:
    retention = request.new_topics.config.get("retention.ms")
    return LogDirPlanRequest(
        topics=tuple(map(re.escape, names)),
        mode=RestoreMode.IMPORT,
        to_time_ms=request.to_time_ms,
        by_timestamp=request.by_timestamp,
        expired=request.expired,
        accepts_holes=request.accepts_holes,
        retention_ms=None if retention is None else int(retention),
    )


async def _begun_at(
    plan: LogDirPlan,
    from_time_ms: int,
    deployment: Deployment,
    source: RestoreSource,
    *,
    clock: SystemClock,
    on_progress: Callable[[str], None],
) -> LogDirPlan:
    """Return the plan without the records before the first one of a time or later, in each partition."""
    async with fetch_service(
        deployment.config,
        source.stored.objects,
        source.new_storage,
        recorder=SilentRecorder(),
        clock=clock,
        is_daemon=False,
    ) as fetches:

        async def first_offset(partition: TopicIdPartition) -> int | None:
            view = await source.view(partition)

            async def snapshot() -> TieredLog:
                return TieredLog(view.partition, view, None, None)

            found = await fetches.list_offset(fetches.task(snapshot), from_time_ms)
            if isinstance(found, TierError):
                raise found
            return None if found is None else found.offset

        return replace(plan, plans=tuple(await begun_plans(plan.plans, first_offset, on_progress=on_progress)))


async def begun_plans(
    plans: Sequence[PartitionPlan],
    first_offset: Callable[[TopicIdPartition], Awaitable[int | None]],
    *,
    on_progress: Callable[[str], None],
) -> list[PartitionPlan]:
    """Begin each plan that is not refused at its first offset; without one nothing of it is left.

    The partitions are asked for several at a time: each reads from the tier, which may be slow.

    Args:
        plans: of the partitions.
        first_offset: finds the first wanted offset of a partition.
        on_progress: is called with lines about the progress.

    Raises:
        TierError: the first failure of ``first_offset``.
    """
    slots, found = asyncio.Semaphore(_PARTITIONS_AT_ONCE), 0

    async def begun(plan: PartitionPlan) -> PartitionPlan:
        nonlocal found
        if not plan.is_refused:
            async with slots:
                first = await first_offset(plan.partition)
            plan = _from(plan, plan.end_offset if first is None else first)
        found += 1
        on_progress(f"looking for the first records: {found} of {len(plans)} partitions")
        return plan

    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(begun(each), name=f"first of {each.partition}") for each in plans]
    except* TierError as errors:
        raise first_error(errors) from None
    return [task.result() for task in tasks]


def _from(plan: PartitionPlan, start: int) -> PartitionPlan:
    first = min(max(plan.log_start_offset, start), plan.end_offset)
    parts = tuple(part for part in plan.parts if part.end_offset > first)
    size_bytes = sum({part.metadata.segment.id: part.metadata.size_bytes for part in parts}.values())
    return replace(plan, log_start_offset=first, parts=parts, fetch_bytes=size_bytes)


def _restored_topic(
    name: str, catalogued: CataloguedTopic | None, plans: Sequence[PartitionPlan], request: TopicRestoreRequest
) -> RestoredTopic:
    options = request.new_topics
    known = {} if catalogued is None else dict(catalogued.config)
    wanted = {key: value for key, value in {**known, **options.config}.items() if value is not None}
    of_topic = [plan for plan in plans if plan.partition.topic == name]
    settings = topic_settings(wanted, holds_retention=request.expired is ExpiredSegments.HOLD)
    in_tier = max((plan.partition.partition for plan in of_topic), default=0) + 1
    counted = max(in_tier, 0 if catalogued is None else catalogued.partition_count)
    factor = options.replication_factor or (catalogued.replication_factor if catalogued is not None else 0)
    return RestoredTopic(
        source=name,
        new=NewTopic(
            name=request.renames.get(name, name),
            partition_count=options.partition_count or counted,
            replication_factor=factor or -1,
            config=settings.at_creation,
        ),
        settings=settings,
        plans=of_topic,
        delete_retention_ms=delete_retention_ms_of(known),
        may_exist=options.may_exist,
    )


def _digest(job: Mapping[str, Any]) -> str:
    return "topics-" + hashlib.sha256(json.dumps(job, sort_keys=True).encode()).hexdigest()[:16]
