"""TopicRestore: topics of the tier into a live cluster: created, filled partition by partition, and configured."""

import asyncio
import gc
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeVar
from uuid import UUID

import structlog

from tierd.control import (
    CreatedTopic,
    NewTopic,
    TopicConfig,
    TopicKnowledge,
    TopicLeaders,
    change_topic_config,
    create_topic,
    describe_broker_config,
    describe_topic_configs,
)
from tierd.errors import KafkaError, RefusedError, TierError
from tierd.model import TopicPartition
from tierd.remote import RemoteStorageManager
from tierd.restore.live_cluster.committed_source import CommittedSource
from tierd.restore.live_cluster.leader_delivery import LeaderDelivery
from tierd.restore.live_cluster.partition_restore import PartitionRestore, PartitionTransfer, RestoreParts
from tierd.restore.live_cluster.restore_progress import RestoreProgress
from tierd.restore.live_cluster.target_cluster import TargetCluster
from tierd.restore.live_cluster.target_errors import replaced_topic
from tierd.restore.live_cluster.topic_settings import TopicSettings, objection
from tierd.restore.plan.partition_plan import PartitionPlan
from tierd.restore.plan.tombstone_age import DELETE_RETENTION_MS

log = structlog.get_logger()

A = TypeVar("A")

_PARTITIONS_AT_ONCE: Final = 16
_ALLOCATIONS: Final = 100_000  # between two collections of the youngest objects
_CREATION_TIMEOUT_S: Final = 8.0
_EXPIRATION: Final = "producer.id.expiration.ms"
_DEFAULT_EXPIRATION_MS: Final = 86_400_000
_UNKNOWN_TOPIC: Final = "unknown_topic_or_partition"
_MAX_MESSAGE_BYTES: Final = "max.message.bytes"
_DEFAULT_MAX_MESSAGE_BYTES: Final = 1_048_588
_CHECKED: Final = ("message.timestamp.before.max.ms", "message.timestamp.type", _MAX_MESSAGE_BYTES)


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoredTopic:
    """One topic to restore.

    Attributes:
        source: name in the tier.
        new: the topic to create in the target.
        settings: meanwhile and afterwards.
        plans: of its partitions.
        delete_retention_ms: how long the source kept tombstones; for compacted partitions.
        may_exist: add the records to a topic that exists already.
    """

    source: str
    new: NewTopic
    settings: TopicSettings
    plans: Sequence[PartitionPlan]
    delete_retention_ms: int = DELETE_RETENTION_MS
    may_exist: bool = False


@dataclass(frozen=True, slots=True)
class PartitionOutcome:
    """Outcome of one partition; ``problem`` is None when all its records are in the target."""

    name: TopicPartition
    target: TopicPartition
    problem: TierError | None


@dataclass(frozen=True, slots=True)
class AcknowledgedCount:
    """Records and bytes that the target has acknowledged in this run."""

    records: int = 0
    size_bytes: int = 0


class _PreparedTopic(NamedTuple):
    """Topic of the target that can take the records; its id is None where the brokers do not tell it."""

    topic_id: UUID | None
    max_batch_bytes: int


class TopicRestore:
    """One run of a restore. A run that is interrupted goes on with the next one."""

    def __init__(
        self,
        target: TargetCluster,
        remote: RemoteStorageManager,
        progress: RestoreProgress,
        *,
        on_progress: Callable[[AcknowledgedCount], None],
    ) -> None:
        """Keep the collaborators.

        Args:
            target: the cluster to write to.
            remote: the tier's segments.
            progress: of the job.
            on_progress: is called with the counts of this run whenever they grow.
        """
        self._target = target
        self._remote = remote
        self._progress = progress
        self._on_progress = on_progress
        self._count = AcknowledgedCount()

    async def run(self, topics: Sequence[RestoredTopic]) -> list[PartitionOutcome]:
        """Create the topics, send their records, and configure the topics that are complete.

        A partition that fails does not keep the others from being restored.

        Raises:
            RefusedError: a topic exists already, cannot take the records, or was deleted since an earlier run.
            KafkaError: the target does not answer, or refuses a topic.
            StateDirError: the journal cannot be written.
        """
        prepared = {topic.source: await self._prepare(topic) for topic in topics}
        expiration_ms = await self._producer_expiration_ms()
        parts = RestoreParts(
            target=self._target,
            delivery=LeaderDelivery(self._target),
            progress=self._progress,
            clock=self._target.clock,
            producer_expiration_ms=expiration_ms,
            on_acknowledged=self._acknowledged,
        )
        slots = asyncio.Semaphore(_PARTITIONS_AT_ONCE)
        with rare_collections():
            outcomes = await self._deliver(topics, prepared, parts, slots)
        for topic in topics:
            if not any(each.problem for each in outcomes if each.name.topic == topic.source):
                await self._configure(topic)
        return outcomes

    async def _deliver(
        self,
        topics: Sequence[RestoredTopic],
        prepared: Mapping[str, _PreparedTopic],
        parts: RestoreParts,
        slots: asyncio.Semaphore,
    ) -> list[PartitionOutcome]:
        async with asyncio.TaskGroup() as group:
            delivering = group.create_task(parts.delivery.run(), name="deliver")
            tasks = [
                group.create_task(
                    self._one(plan, topic, prepared[topic.source], parts, slots), name=f"{plan.partition}"
                )
                for topic in topics
                for plan in topic.plans
            ]
            outcomes = [await task for task in tasks]
            delivering.cancel()
        return outcomes

    async def _one(
        self,
        plan: PartitionPlan,
        topic: RestoredTopic,
        prepared: _PreparedTopic,
        parts: RestoreParts,
        slots: asyncio.Semaphore,
    ) -> PartitionOutcome:
        name = plan.partition.topic_partition
        target = TopicPartition(topic.new.name, name.partition)
        task = PartitionTransfer(
            name=name,
            target=target,
            topic_id=prepared.topic_id,
            start_offset=plan.log_start_offset,
            end_offset=plan.end_offset,
            max_batch_bytes=prepared.max_batch_bytes,
            delete_retention_ms=topic.delete_retention_ms if plan.is_compacted else None,
        )
        async with slots:
            try:
                await PartitionRestore(task, CommittedSource(self._remote, plan.parts), parts).run()
            except TierError as error:
                log.warning("partition_not_restored", partition=str(name), problem=str(error), remedy=error.remedy)
                return PartitionOutcome(name, target, error)
        return PartitionOutcome(name, target, None)

    def _acknowledged(self, records: int, size_bytes: int) -> None:
        self._count = AcknowledgedCount(self._count.records + records, self._count.size_bytes + size_bytes)
        self._on_progress(self._count)

    # ---------------------------------------------------------------- topics

    async def _prepare(self, topic: RestoredTopic) -> _PreparedTopic:
        """Make sure that the topic is there, and the one of earlier runs."""
        name = topic.new.name
        known = (await self._leaders(name)).get(name)
        self._require_same(topic, known)
        if known is None:
            await self._create(topic)
            known = await self._created(name)
        elif known.knowledge is TopicKnowledge.DENIED:
            raise _denied(name)
        elif not (topic.may_exist or self._progress.may_have_created(name)):
            raise _exists(topic)
        elif topic.settings.held and self._progress.may_have_created(name):
            # An earlier run may have created it without: nothing of what is restored may go meanwhile.
            await self._change(topic, {key: topic.new.config[key] for key in topic.settings.held})
        config = await self._config(topic)
        if why := objection(config):
            raise RefusedError(
                f"topic {name} of the target cannot take the records: {why}",
                remedy="change the setting until the restore is done, with kafka-configs.sh --alter",
            )
        if known is not None and known.partitions:
            self._require_partitions(topic, len(known.partitions))
        return _PreparedTopic(
            topic_id=known.topic_id if known is not None and known.topic_id.int else None,
            max_batch_bytes=int(config.get(_MAX_MESSAGE_BYTES, _DEFAULT_MAX_MESSAGE_BYTES)),
        )

    def _require_same(self, topic: RestoredTopic, known: TopicLeaders | None) -> None:
        """Raise if an earlier run has sent records to a topic that is not there any more: they are lost, not restored.

        Raises:
            RefusedError: the topic was deleted since, or another one has its name.
        """
        begun = [self._progress.partition(plan.partition.topic_partition) for plan in topic.plans]
        is_other = any(
            state is not None and (known is None or known.topic_id != (state.topic_id or known.topic_id))
            for state in begun
        )
        if is_other and (known is None or known.knowledge is TopicKnowledge.KNOWN):
            raise replaced_topic(topic.new.name, since="an earlier run")

    async def _created(self, name: str) -> TopicLeaders | None:
        """Return a topic that was just created, once a broker knows it."""

        async def ask() -> TopicLeaders | None:
            return (await self._target.leaders([name])).get(name)

        return await self._target.patiently(ask, lambda each: _UNKNOWN_TOPIC if each is None else "")

    def _require_partitions(self, topic: RestoredTopic, count: int) -> None:
        needed = max(plan.partition.partition for plan in topic.plans) + 1
        if count < needed:
            raise RefusedError(
                f"topic {topic.new.name} of the target has {count} partitions, the restore needs {needed}",
                remedy="add partitions with kafka-topics.sh --alter, or restore into a new topic with --rename",
            )

    async def _leaders(self, name: str) -> Mapping[str, TopicLeaders]:
        return await self._target.patiently(lambda: self._target.leaders([name]), lambda _: "")

    async def _create(self, topic: RestoredTopic) -> None:
        """Create the topic; an attempt without an answer, of this run or an earlier one, may have done it."""
        new, attempts = topic.new, 0
        may_be_ours = self._progress.may_have_created(new.name)
        if not may_be_ours:
            await self._progress.create(new.name)
        request = create_topic(new, timeout_s=_CREATION_TIMEOUT_S)

        async def ask() -> CreatedTopic:
            nonlocal attempts
            attempts += 1
            nodes = self._target.node_ids
            return await self._target.ask_broker(nodes[attempts % len(nodes)], request)

        created = await self._target.patiently(ask, lambda each: each.error)
        if created.error == "topic_already_exists":
            if attempts == 1 and not may_be_ours:
                await self._progress.not_created(new.name)
                if not topic.may_exist:
                    raise _exists(topic)
            return
        if created.error:
            raise refused_topic(new.name, created)
        log.info("topic_created", topic=new.name, partitions=new.partition_count)

    async def _config(self, topic: RestoredTopic) -> Mapping[str, str]:
        name = topic.new.name
        request = describe_topic_configs([name], _CHECKED)

        async def ask() -> TopicConfig:
            return (await self._target.ask(request))[0]

        found = await self._ask_about(topic, ask, lambda each: each.error)
        if found.settings is None:
            raise KafkaError(
                f"the settings of topic {name} are not told: {found.error}",
                remedy="grant the user of the target the right DescribeConfigs on the topic",
            )
        return found.settings

    async def _ask_about(
        self, topic: RestoredTopic, ask: Callable[[], Awaitable[A]], error_of: Callable[[A], str]
    ) -> A:
        """Ask patiently about a topic, but not for longer than the topic is there.

        A broker tells the leaders of a deleted topic until it knows of the deletion, which may be just after it told
        them to this restore.
        """

        async def ask_once() -> A:
            answer = await ask()
            if error_of(answer) == _UNKNOWN_TOPIC:
                self._require_same(topic, (await self._target.leaders([topic.new.name])).get(topic.new.name))
            return answer

        return await self._target.patiently(ask_once, error_of)

    async def _configure(self, topic: RestoredTopic) -> None:
        """Give a topic that the restore has created its final settings."""
        name = topic.new.name
        if not self._progress.may_have_created(name) or self._progress.is_configured(name):
            return
        if topic.settings.afterwards:
            await self._change(topic, topic.settings.afterwards)
        await self._progress.configured(name)

    async def _change(self, topic: RestoredTopic, changes: Mapping[str, str | None]) -> None:
        name = topic.new.name
        request = change_topic_config(name, changes)
        outcome = await self._ask_about(topic, lambda: self._target.ask(request), lambda each: each.error)
        if outcome.error:
            raise KafkaError(
                f"the settings of topic {name} cannot be changed: {outcome.error}: {outcome.message}",
                remedy="grant the user of the target the right AlterConfigs, then run the same command again",
            )

    async def _producer_expiration_ms(self) -> int:
        """Return the shortest time after which a broker forgets an idle producer; Kafka's default if none tells it."""
        found = []
        for node_id in self._target.node_ids:
            try:
                config = await self._target.ask_broker(node_id, describe_broker_config(node_id, [_EXPIRATION]))
            except KafkaError as error:
                log.warning("broker_setting_unknown", broker=node_id, setting=_EXPIRATION, problem=str(error))
            else:
                found.append(int(config.get(_EXPIRATION, _DEFAULT_EXPIRATION_MS)))
        return min(found, default=_DEFAULT_EXPIRATION_MS)


def refused_topic(name: str, created: CreatedTopic) -> KafkaError:
    """Return the error for a topic that the target does not create."""
    remedies = {
        "invalid_config": "leave the setting out with --topic-config KEY=, or give another value",
        "invalid_partitions": "give the number with --partitions",
        "invalid_replication_factor": "give the number with --replication-factor",
        "topic_authorization_failed": "grant the user of the target the right Create on the topic or the cluster",
    }
    return KafkaError(
        f"the target does not create topic {name}: {created.error}: {created.message}",
        remedy=remedies.get(created.error, "look at the log of the target's controller"),
    )


def _exists(topic: RestoredTopic) -> RefusedError:
    return RefusedError(
        f"the target has a topic {topic.new.name} already",
        remedy=f"give another name with --rename {topic.source}=NEW, or add the records to it with --append",
    )


def _denied(name: str) -> KafkaError:
    return KafkaError(
        f"the target does not let tierd describe topic {name}",
        remedy="grant the user of the target the rights Describe, Read, Write and DescribeConfigs on the topic",
    )


@contextmanager
def rare_collections() -> Iterator[None]:
    """Let Python look for unreachable cycles rarely: a restore makes objects by the million, which are in no cycle."""
    before = gc.get_threshold()
    gc.set_threshold(_ALLOCATIONS, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)
