"""KafkaLeadership: the cluster as the source of the leaders of partitions (DESIGN: Metadata, KRaft included)."""

import asyncio
import random as _random
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import Final
from uuid import UUID

import structlog

from tierd.clock import Clock, wait_for_event
from tierd.config import KafkaConnectionSettings
from tierd.control.broker_connections import BACKOFF, BrokerConnections
from tierd.control.cluster_metadata import ClusterMetadata, TopicKnowledge
from tierd.control.kafka_messages import metadata
from tierd.control.leadership import Leadership
from tierd.control.partition_roles import PartitionRoles, RoleCounts
from tierd.errors import KafkaError
from tierd.model import TopicIdPartition

log = structlog.get_logger()

_TOPICS_PER_REQUEST: Final = 250
_PARTITIONS_PER_REQUEST: Final = 1_000  # an answer is decoded in about ten milliseconds, on the event loop
_JITTER: Final = 0.2
_ROUNDS_PER_BROKER: Final = 60  # at the default refresh five minutes; a broker without its controller still answers
_PROBLEMS_SHOWN: Final = 20
_FAILURES_THAT_MATTER: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class LeadershipStatistics:
    """State of the connection to the cluster's metadata.

    Attributes:
        broker: the broker that is asked, empty while none answers.
        last_refresh_ms: wall clock of the last complete round, None before the first.
        errors: rounds that failed since start.
        last_error, remedy: of the present failure; empty once a round is complete.
        stale_answers: answers older than what was known, which changed nothing.
        problems: some partitions whose role may have changed without an answer, each with the reason.
    """

    source: str = "kafka"
    broker: str = ""
    brokers: int = 0
    last_refresh_ms: int | None = None
    errors: int = 0
    last_error: str = ""
    remedy: str = ""
    stale_answers: int = 0
    roles: RoleCounts
    problems: dict[str, str]


class KafkaLeadership:
    """Source of leadership that asks brokers periodically for the leaders of the observed partitions.

    All work happens within ``changes``, in the task of its one consumer. While no broker answers every role stays as
    it is: the metadata store fences a daemon whose broker is no longer the leader.
    """

    def __init__(
        self,
        settings: KafkaConnectionSettings,
        *,
        cluster_id: str,
        node_id: int,
        clock: Clock,
        random: Callable[[], float] = _random.random,
        deletion_grace_s: float = 30.0,
        on_outcome: Callable[[KafkaError | None], None] = lambda _: None,
    ) -> None:
        """Keep the collaborators; no connection is made yet.

        Args:
            settings: how to connect, and how often to ask.
            cluster_id: the log dirs'; brokers of another cluster are refused.
            node_id: this broker.
            clock: time.
            random: in [0, 1), for jitter.
            deletion_grace_s: how long a topic must be unknown to the cluster before it counts as deleted.
            on_outcome: called after every round of questions: with the failure if no broker answered, else None.
        """
        self._connections = BrokerConnections(settings, cluster_id=cluster_id, random=random)
        self._roles = PartitionRoles(node_id, deletion_grace_s=deletion_grace_s)
        self._refresh_s = settings.refresh_s
        self._node_id = node_id
        self._clock = clock
        self._random = random
        self._on_outcome = on_outcome
        self._changed = asyncio.Event()
        self._last_refresh_ms: int | None = None
        self._errors = 0
        self._failures = 0  # in a row
        self._failure: KafkaError | None = None
        self._rounds_at_broker = 0

    def observe(self, partition: TopicIdPartition, leader_epoch: int | None) -> None:
        """Take note of a replica; a new replica, or an epoch that no answer has had, is asked for at once."""
        if self._roles.observe(partition, leader_epoch):
            self._changed.set()

    def forget(self, partition: TopicIdPartition) -> None:
        """Note that the replica left this host; its topic is asked for ten minutes longer, in case it was deleted."""
        self._roles.forget(partition, self._clock.monotonic_s())
        self._changed.set()

    async def changes(self) -> AsyncIterator[Leadership]:
        """Yield every role as it begins or changes; ends never. One consumer; a cancellation closes the connection."""
        try:
            next_round_s = self._clock.monotonic_s()
            while True:
                is_round = self._clock.monotonic_s() >= next_round_s
                events = await self._ask(everything=is_round)
                for event in events:
                    if self._roles.is_current(event):
                        yield event
                if is_round or self._failure is not None:
                    next_round_s = self._clock.monotonic_s() + self._pause_s()
                await self._wait_for_round(next_round_s)
        finally:
            self.close()

    async def refresh_once(self) -> list[Leadership]:
        """Ask for everything observed and return the roles that began; for a caller that does not consume ``changes``.

        A failure is no exception: ``statistics`` and ``not_ready`` show it.
        """
        return await self._ask(everything=True)

    def statistics(self) -> LeadershipStatistics:
        """Return the present state of the connection to the cluster's metadata."""
        current = self._connections.current
        return LeadershipStatistics(
            broker=str(current.address) if current else "",
            brokers=len(self._connections.brokers),
            last_refresh_ms=self._last_refresh_ms,
            errors=self._errors,
            last_error=str(self._failure) if self._failure else "",
            remedy=self._failure.remedy if self._failure else "",
            stale_answers=self._roles.stale_answers,
            roles=self._roles.counts(),
            problems=self._roles.problems(_PROBLEMS_SHOWN),
        )

    @property
    def never_heard(self) -> KafkaError | None:
        """Return the present failure while no round was ever complete; None otherwise, and before the first failure."""
        return self._failure if self._last_refresh_ms is None else None

    def not_ready(self) -> str:
        """Return in one line why the roles are unknown or may be out of date; empty when neither is so.

        The loss of one broker is no reason: the next one is asked at once. Known roles may be out of date only after
        several failures in a row.
        """
        is_known = self._last_refresh_ms is not None
        if self._failure is not None and (self._failures >= _FAILURES_THAT_MATTER or not is_known):
            return f"leaders cannot be asked for: {self._failure}"
        return "" if is_known else "leaders have not been asked for yet"

    def close(self) -> None:
        """Drop the connection."""
        self._connections.close()

    # ---------------------------------------------------------------- one round

    async def _ask(self, *, everything: bool) -> list[Leadership]:
        """Ask for all topics, or only for those that are due; note a failure, which leaves other roles as they are."""
        self._changed.clear()
        now_s = self._clock.monotonic_s()
        due = self._roles.due()
        events: list[Leadership] = []
        try:
            for topic_ids in self._portions(self._roles.topics(now_s) if everything else due):
                answer = await self._connections.call(metadata(topic_ids))
                self._connections.learn(answer.brokers)
                events += self._roles.apply(answer.topics, now_s)
            events += await self._confirm_deletions(now_s)
        except KafkaError as error:
            self._failed(error)
        else:
            self._succeeded(everything=everything)
        return events

    def _portions(self, topic_ids: Sequence[UUID]) -> list[list[UUID]]:
        """Split into requests with bounded answers, at least one, since any answer names the brokers."""
        portions: list[list[UUID]] = [[]]
        partitions = 0
        for topic_id in topic_ids:
            count = self._roles.partition_count(topic_id)
            if len(portions[-1]) >= _TOPICS_PER_REQUEST or partitions + count > _PARTITIONS_PER_REQUEST:
                portions.append([])
                partitions = 0
            portions[-1].append(topic_id)
            partitions += count
        return [portion for portion in portions if portion] or [[]]

    async def _confirm_deletions(self, now_s: float) -> list[Leadership]:
        """Ask every broker about topics that earlier answers have not known for a while."""
        suspects = self._roles.unconfirmed(now_s)
        if not suspects:
            return []
        request = metadata(suspects)
        answers = await self._connections.ask_every(request)
        electorate = max([len(self._connections.brokers), *(len(answer.brokers) for answer in answers)])
        events = []
        for topic_id in suspects:
            votes = [_knowledge(answer, topic_id) for answer in answers]
            deleted = self._roles.confirm(topic_id, votes, electorate=electorate)
            if deleted:
                log.warning("topic_deleted", topic=deleted[0].partition.topic, partitions=len(deleted))
            events += deleted
        return events

    def _failed(self, error: KafkaError) -> None:
        self._errors += 1
        self._failures += 1
        if self._failure is None or str(self._failure) != str(error):  # once per change, not at every retry
            log.warning("leadership_refresh_failed", problem=str(error), remedy=error.remedy)
        self._failure = error
        self._on_outcome(error)

    def _succeeded(self, *, everything: bool) -> None:
        self._on_outcome(None)
        if self._failure is not None:
            log.info("leadership_refresh_recovered", failures=self._failures)
        self._failures, self._failure = 0, None
        if everything:
            self._last_refresh_ms = self._clock.now_ms()
            self._stay_or_move_on()

    def _stay_or_move_on(self) -> None:
        """Change the broker now and then: one that is cut off from its controller answers, but learns of no change."""
        self._rounds_at_broker += 1
        if self._rounds_at_broker >= _ROUNDS_PER_BROKER and len(self._connections.brokers) > 1:
            self._rounds_at_broker = 0
            self._connections.move_on()

    def _pause_s(self) -> float:
        if self._failures:
            return BACKOFF.delay_s(self._failures, random=self._random)
        return self._refresh_s * (1 - _JITTER + 2 * _JITTER * self._random())

    async def _wait_for_round(self, until_s: float) -> None:
        """Wait for the next round, or for a topic that is due; after a failure only for the round, as a backoff."""
        left_s = max(0.0, until_s - self._clock.monotonic_s())
        if self._failures:
            await self._clock.sleep(left_s)
        else:
            await wait_for_event(self._changed, self._clock, left_s)


def _knowledge(answer: ClusterMetadata, topic_id: UUID) -> TopicKnowledge:
    return next((each.knowledge for each in answer.topics if each.topic_id == topic_id), TopicKnowledge.FAILED)
