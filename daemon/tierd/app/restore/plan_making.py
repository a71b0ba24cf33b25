"""PlanMaking: gathers the facts about each partition, and has the planner make the plans."""

import asyncio
import contextlib
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from uuid import UUID

from tierd.app.engine.deployment import Deployment
from tierd.app.engine.host_caches import fetch_service
from tierd.app.restore.catalogue_facts import CatalogueFacts, read_catalogue, read_newest_snapshot, read_node_of
from tierd.app.restore.log_dir_plan import LogDirPlan, LogDirPlanRequest
from tierd.app.restore.partition_facts import (
    archive_findings,
    archived_objects,
    directory_findings,
    highest_producer_id,
    newest_lineage,
    restored_as,
)
from tierd.app.restore.plan_targets import PlanTargets, describe_time_rule
from tierd.app.restore.restore_source import RestoreSource
from tierd.app.restore.standby_directories import StandbyDirectories
from tierd.app.restore.target_directories import TargetDirectories
from tierd.app.restore.topic_facts import ControllerEpochs, TopicFacts, broker_settings, controller_epochs, topic_facts
from tierd.clock import Clock
from tierd.cost import PriceList, reading_cost
from tierd.metadata import PartitionView
from tierd.model import Lineage, TopicIdPartition
from tierd.remote import ObjectInfo
from tierd.restore import (
    JoinSource,
    JoinSourceReader,
    NodeFacts,
    NodePlan,
    PartitionPlan,
    PlanFinding,
    PlanRequest,
    PlanSeverity,
    RestoreFacts,
    RestoreMode,
    had_metadata,
    join_sources,
    plan_node,
    plan_partition,
    restored_lineage,
)
from tierd.tiering import FetchService, SilentRecorder

_PARTITIONS_AT_ONCE = 16
_WITH_ARCHIVES = "s3"
_UNKNOWN_TOPIC = PlanFinding(
    PlanSeverity.WARNING,
    "the cluster has no topic of this id: a broker that starts moves the directory aside as stray",
    "restore the cluster metadata that has the topic first, or restore with --mode import",
)
_UNKNOWN_REPLICAS = PlanFinding(
    PlanSeverity.REFUSED,
    "the catalogue does not say which brokers have replicas of it",
    "name the partitions of the broker: tierd restore partition",
)
_YOUNG_TOPIC = _UNKNOWN_REPLICAS._replace(severity=PlanSeverity.LEFT_OUT)
"""Only a standby has the partition, which was made after the last look of the catalogue: the others are not held up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _CommonFacts:
    """Facts that the plans of all partitions share.

    Attributes:
        standbys: directories that are sources beside the tier.
        settings: of topics, as the brokers have them.
    """

    partitions: Sequence[TopicIdPartition]
    standbys: StandbyDirectories
    catalogue: CatalogueFacts
    node: NodePlan
    settings: Mapping[str, Mapping[str, str]]
    epochs: ControllerEpochs


class PlanMaking:
    """Maker of the plans for one log dir; reads the tier and the log dir, and asks the brokers where they may answer.

    Args:
        deployment: the configuration.
        source: the tier.
        request: the partitions, and how.
        directories: present content of the log dir; None in mode ``import`` where no log dir is written.
        clock: time.
    """

    def __init__(
        self,
        deployment: Deployment,
        source: RestoreSource,
        request: LogDirPlanRequest,
        directories: TargetDirectories | None,
        *,
        clock: Clock,
    ) -> None:
        self._deployment = deployment
        self._source = source
        self._request = request
        self._directories = directories
        self._clock = clock
        self._common: _CommonFacts | None = None

    async def plan(self, *, prices: PriceList, on_progress: Callable[[str], None]) -> LogDirPlan:
        """Plan every partition of the request.

        Args:
            prices: of the store.
            on_progress: is called with lines about the progress.

        Raises:
            UnknownPartitionError: the tier has no partition of a name.
            TierError: a store cannot be read.
        """
        request, source = self._request, self._source
        common = await self._common_facts()
        planned = await self._plan_each(common, on_progress=on_progress)
        plans = [plan for plan, _ in planned]
        wanted = [plan for plan in plans if not plan.is_refused]
        requests, size_bytes = sum(p.fetch_requests for p in wanted), sum(p.fetch_bytes for p in wanted)
        return LogDirPlan(
            plans=tuple(plans),
            results={plan.partition: restored_as(plan.partition, request, self._directories) for plan in plans},
            is_many=not request.names,
            is_from_bucket=source.is_from_bucket,
            catalogue_problems=common.catalogue.problems,
            time_rule=describe_time_rule(request, common.catalogue),
            unchecked_epochs=common.epochs.problem,
            topics=common.catalogue.topics,
            problems=source.problems,
            node=common.node,
            archived=tuple(info for _, archived in planned for info in archived),
            cost=reading_cost(prices, requests=requests, size_bytes=size_bytes),
            currency=prices.currency,
        )

    async def plan_one(self, partition: TopicIdPartition) -> PartitionPlan:
        """Plan one partition of a request without a time, from its metadata as it is now.

        The facts that all partitions share are read for the first plan and kept for the later ones.

        Raises:
            TierError: a store cannot be read.
        """
        if self._common is None:
            self._common = await self._common_facts()
        targets = PlanTargets(self._request, self._common.catalogue, None)
        plan, _ = await self._plan_one(partition, self._common, targets, JoinSourceReader())
        return plan

    async def _common_facts(self) -> "_CommonFacts":
        request, source = self._request, self._source
        standbys = await asyncio.to_thread(StandbyDirectories.read, request.standbys)
        found = await source.partitions(request.names, standbys=standbys)
        partitions = [each for each in found if self._is_wanted(each.topic)]
        by_positions = request.to_time_ms is not None and not request.by_timestamp
        catalogue = await read_catalogue(source, partitions, at_ms=request.to_time_ms if by_positions else None)
        if request.for_broker is not None and not request.names:
            partitions = [each for each in partitions if catalogue.is_of(each, request.for_broker) is not False]
        node = await self._node()
        if request.for_broker is not None:
            node = node.naming_empty_topics(partitions, node_id=request.for_broker)
        return _CommonFacts(
            partitions=partitions,
            standbys=standbys,
            catalogue=catalogue,
            node=node,
            settings=await self._settings({each.topic for each in partitions}),
            epochs=await self._controller_epochs({each.topic_id for each in partitions}),
        )

    async def _plan_each(
        self, common: "_CommonFacts", *, on_progress: Callable[[str], None]
    ) -> list[tuple[PartitionPlan, tuple[ObjectInfo, ...]]]:
        """Return the plan of each partition, and the archived objects that it reads."""
        planned: list[tuple[PartitionPlan, tuple[ObjectInfo, ...]]] = []
        async with self._fetches() as fetches:
            targets, reader = PlanTargets(self._request, common.catalogue, fetches), JoinSourceReader()
            for at in range(0, len(common.partitions), _PARTITIONS_AT_ONCE):
                some = common.partitions[at : at + _PARTITIONS_AT_ONCE]
                async with asyncio.TaskGroup() as group:
                    tasks = [group.create_task(self._plan_one(each, common, targets, reader)) for each in some]
                planned += [task.result() for task in tasks]
                on_progress(f"planning: {len(planned)} of {len(common.partitions)} partitions")
        return planned

    def _fetches(self) -> contextlib.AbstractAsyncContextManager[FetchService | None]:
        """Open the reads that find records by time; None where no time is asked for."""
        if self._request.to_time_ms is None:
            return contextlib.nullcontext()
        return fetch_service(
            self._deployment.config,
            self._source.stored.objects,
            self._source.new_storage,
            recorder=SilentRecorder(),
            clock=self._clock,
            is_daemon=False,
        )

    async def _node(self) -> NodePlan:
        """Plan what comes back of a node whose log dir was wiped: the broker is registered with its directory id."""
        request, directories = self._request, self._directories
        if request.for_broker is None or request.mode is RestoreMode.IMPORT or directories is None:
            return NodePlan()
        if directories.identity is not None and directories.has_metadata:
            return NodePlan()
        node, log_dir = await read_node_of(self._source, request.for_broker), str(directories.log_dir)
        is_lost = node is not None and not directories.has_metadata and had_metadata(node, log_dir)
        facts = NodeFacts(
            node_id=request.for_broker,
            log_dir=log_dir,
            node=node,
            newest=await read_newest_snapshot(self._source) if is_lost else None,
            identity=directories.identity,
            has_metadata=directories.has_metadata,
            is_whole=not request.names and not request.topics,
            survivors=len(directories.elsewhere),
            are_others_down=request.are_others_down,
        )
        return plan_node(facts)

    def _is_wanted(self, topic: str) -> bool:
        patterns = self._request.topics
        return not patterns or any(re.fullmatch(pattern, topic) for pattern in patterns)

    async def _settings(self, topics: Collection[str]) -> dict[str, Mapping[str, str]]:
        """Return what the brokers say of the topics. Only a replica's cluster is sure to run, and is asked."""
        if self._request.mode is not RestoreMode.REPLICA:
            return {}
        return await broker_settings(
            self._deployment.config.leadership, self._source.identity, topics, clock=self._clock
        )

    async def _controller_epochs(self, topic_ids: Collection[UUID]) -> ControllerEpochs:
        """Return the leader epochs of the controller; nothing is asked for an import, whose epochs become 0."""
        if self._request.mode is RestoreMode.IMPORT or not self._request.is_for_broker or not topic_ids:
            return ControllerEpochs()
        kafka = self._deployment.kafka
        return await controller_epochs(kafka, self._source.identity.cluster_id, topic_ids)

    async def _plan_one(
        self, partition: TopicIdPartition, common: "_CommonFacts", targets: PlanTargets, reader: JoinSourceReader
    ) -> tuple[PartitionPlan, tuple[ObjectInfo, ...]]:
        """Return the plan of a partition, and the archived objects that it reads."""
        catalogue, epochs, node = common.catalogue, common.epochs, common.node
        settings = common.settings.get(partition.topic)
        view = await self._source.view(partition)
        sources = await asyncio.to_thread(self._sources, partition, common.standbys, reader)
        lineage = await self._lineage(view, sources)
        known = self._topic_facts(view, catalogue.settings(partition.topic_id) if settings is None else settings)
        target = await targets.find(view, lineage)
        objections = await asyncio.to_thread(directory_findings, partition, self._request, self._directories)
        findings = [*target.findings, *objections]
        node_id = self._request.for_broker
        is_known = node.metadata is not None or self._request.names
        if node_id is not None and not is_known and catalogue.is_of(partition, node_id) is None:
            findings.append(_UNKNOWN_REPLICAS if view.list() else _YOUNG_TOPIC)
        if node_id is not None and node.metadata is not None:
            highest = await highest_producer_id(view, self._source.stored.segments)
            findings += node.partition_findings(
                partition, node_id=node_id, lineage=lineage, highest_producer_id=highest
            )
        if partition.topic_id in epochs.unknown_topics:
            findings.append(_UNKNOWN_TOPIC)
        facts = RestoreFacts(
            lineage=lineage,
            is_compacted=known.is_compacted,
            retention=known.retention,
            target_offset=target.offset,
            known_end=catalogue.ends.get(partition),
            committed_end=catalogue.committed.get(partition.topic_partition, 0),
            replicas=catalogue.replicas(partition),
            controller_epoch=epochs.of(partition),
            findings=tuple(findings),
            has_sources=not all(each.is_existing for each in sources),
        )
        plan = await asyncio.to_thread(plan_partition, view, facts, self._plan_request())
        if sources:
            plan = join_sources(plan, sources)
        archived = await self._archived(plan)
        return replace(plan, findings=(*plan.findings, *archive_findings(archived))), archived

    async def _archived(self, plan: PartitionPlan) -> tuple[ObjectInfo, ...]:
        """Return the archived objects that a plan reads; of the backends, s3 alone tells them."""
        if plan.is_refused or self._deployment.config.remote.backend != _WITH_ARCHIVES:
            return ()
        stored = self._source.stored
        return await archived_objects(plan, stored.objects, stored.object_keys)

    def _plan_request(self) -> PlanRequest:
        request = self._request
        return PlanRequest(
            mode=request.mode,
            expired=request.expired,
            accepts_holes=request.accepts_holes,
            are_others_down=request.are_others_down,
            for_broker=request.for_broker,
            now_ms=self._clock.now_ms(),
        )

    def _topic_facts(self, view: PartitionView, settings: Mapping[str, str] | None) -> TopicFacts:
        configured = self._deployment.config.topics.for_topic(view.partition.topic)
        return topic_facts(
            configured.cleanup_policy,
            settings,
            retention_ms=self._request.retention_ms,
            is_cleaned=view.compacted_to is not None,
        )

    def _sources(
        self, partition: TopicIdPartition, standbys: StandbyDirectories, reader: JoinSourceReader
    ) -> list[JoinSource]:
        """Return the directories that may have records beyond the end of the tier, the existing one first."""
        if self._has_target:
            return []
        existing = self._existing(partition, reader)
        own = [] if existing is None else [existing]
        return [*own, *standbys.sources(partition, reader)]

    @property
    def _has_target(self) -> bool:
        return self._request.to_offset is not None or self._request.to_time_ms is not None

    def _existing(self, partition: TopicIdPartition, reader: JoinSourceReader) -> JoinSource | None:
        if self._request.mode is RestoreMode.IMPORT or self._directories is None:
            return None
        directory = self._directories.by_name.get(partition.topic_partition)
        if directory is None or directory.topic_id != partition.topic_id:
            return None
        return reader.read(directory, is_existing=True)

    async def _lineage(self, view: PartitionView, sources: Sequence[JoinSource]) -> Lineage:
        """Return the leader epochs that count: those of the newest segment, and of the directories that are there."""
        stored, local = await newest_lineage(view, self._source.stored.segments), Lineage()
        if self._request.mode is not RestoreMode.IMPORT and self._directories is not None:
            name, topic_id = view.partition.topic_partition, view.partition.topic_id
            local = await asyncio.to_thread(self._directories.lineage, name, topic_id)
        lineages = [local, *(each.lineage for each in sources)]
        newest = max(lineages, key=lambda each: -1 if each.latest is None else each.latest.epoch)
        return restored_lineage(view, newest=stored, local=newest)
