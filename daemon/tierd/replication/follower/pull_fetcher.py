"""PullFetcher: asks one leader for the partitions that are in pull mode (push-replication 2.12).

::

    every round, until the task is cancelled:
      questions of all replicas of this leader ─► EpochEndOffsets, LogBounds, FetchRecords (long poll)
      each answer, under the lock of its partition: does it still count? ─► decision ─► change of the log
      nothing to ask ─► wait until a replica has something to ask

The decisions are those of ``pull_answers``. An error of the link delays all partitions of the leader.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

import structlog

from tierd.backoff import Backoff
from tierd.clock import Clock, wait_for_event
from tierd.errors import TierError
from tierd.model import EpochEndOffset, PartitionKey
from tierd.replication.follower.leader_connection import LeaderConnection
from tierd.replication.follower.leader_refusals import refusal_text
from tierd.replication.follower.pull_changes import Decision, PullChanges
from tierd.replication.follower.record_intake import RecordIntake, size_of
from tierd.replication.follower.rules.followed_partition import LeaderQuestion, QuestionKind
from tierd.replication.follower.rules.log_facts import NO_EPOCH
from tierd.replication.follower.rules.pull_answers import (
    take_bounds,
    take_compared,
    take_epoch_end,
    take_failure,
    take_fetched,
)
from tierd.replication.follower.rules.truncation_rules import LeaderBounds
from tierd.replication.follower.standby_identity import StandbyIdentity
from tierd.replication.follower.standby_replicas import StandbyReplica, StandbyReplicas
from tierd.replication.model.messages import (
    EpochEndOffsetsRequest,
    EpochEndOffsetsResponse,
    EpochQuery,
    FetchRecordsRequest,
    FetchRecordsResponse,
    LogBoundsRequest,
    LogBoundsResponse,
    PartitionFetchResult,
    ReplicaFetch,
)
from tierd.replication.model.push_error_code import PushErrorCode

_LOG = structlog.get_logger(__name__)
_Asked = tuple[StandbyReplica, LeaderQuestion]

# After these answers the follower asks who leads: its view of the leader is not the leader's own.
_STALE_VIEW: Final = frozenset(
    {
        PushErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        PushErrorCode.NOT_LEADER_OR_FOLLOWER,
        PushErrorCode.FENCED_LEADER_EPOCH,
        PushErrorCode.UNKNOWN_TOPIC_ID,
        PushErrorCode.INCONSISTENT_TOPIC_ID,
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PullSettings:
    """Limits of the requests to one leader (push-replication 2.12).

    Attributes:
        max_wait_s: time for which the leader may hold a fetch back until it has records.
        timeout_s: limit for the answer, beyond ``max_wait_s``.
        partition_max_bytes: records of one partition.
        max_bytes: records of one answer.
        max_partitions: partitions of one request; the others come with the next one.
        pause_s: pause after a round that gave nothing although the leader did not hold it back.
        idle_s: time after which a fetcher without a question looks again.
    """

    max_wait_s: float = 0.5
    timeout_s: float = 10.0
    partition_max_bytes: int = 1 << 20
    max_bytes: int = 10 << 20
    max_partitions: int = 2000
    pause_s: float = 0.05
    idle_s: float = 1.0


class PullFetcher:
    """Fetcher of one leader's partitions. For one event loop; ``run`` is its task."""

    def __init__(
        self,
        leader_id: int,
        connection: LeaderConnection,
        replicas: StandbyReplicas,
        changes: PullChanges,
        *,
        identity: StandbyIdentity,
        clock: Clock,
        settings: PullSettings | None = None,
        on_stale_view: Callable[[int], None] = lambda _leader_id: None,
    ) -> None:
        """Prepare; ``on_stale_view`` is called with the leader's id when another node may lead a partition by now."""
        self._leader_id = leader_id
        self._connection = connection
        self._replicas = replicas
        self._changes = changes
        self._identity = identity
        self._clock = clock
        self._settings = settings or PullSettings()
        self._on_stale_view = on_stale_view
        self._awake = asyncio.Event()
        self._backoff = Backoff(base_s=0.1, cap_s=1.0)  # what a leader writes meanwhile has no second copy
        self._failures = 0
        self._turn = 0

    async def run(self, *, random: Callable[[], float]) -> None:
        """Ask until cancelled; ``random`` is in [0, 1) and spreads the retries."""
        self._replicas.on_pull(self._leader_id, self._awake.set)
        try:
            while True:
                pause_s = await self._try_round(random)
                if pause_s > 0:
                    await wait_for_event(self._awake, self._clock, pause_s)  # a replica has something to ask
        finally:
            self._replicas.on_pull(self._leader_id, None)

    async def _try_round(self, random: Callable[[], float]) -> float:
        """Do one round; return the pause after it."""
        try:
            pause_s = await self.run_round()
        except TierError as error:
            self._failures += 1
            for replica in self._replicas.pulling_from(self._leader_id):
                replica.note(error)
            if self._failures == 1:
                _LOG.warning("leader_not_reached", leader=self._leader_id, error=str(error))
            return self._backoff.delay_s(self._failures, random=random)
        if self._failures:
            _LOG.info("leader_reached_again", leader=self._leader_id, failures=self._failures)
        self._failures = 0
        return pause_s

    async def run_round(self) -> float:
        """Ask everything that is to be asked now; return the pause until the next round.

        Raises:
            TierError: an error of the channel, or of a request as a whole.
        """
        self._awake.clear()
        asked = self._questions()
        if not asked:
            return self._until_next_question()
        by_kind = {kind: [each for each in asked if each[1].kind is kind] for kind in QuestionKind}
        began_s = self._clock.monotonic_s()
        took_any = False
        if epochs := by_kind[QuestionKind.EPOCH_END]:
            took_any |= await self._ask_epoch_ends(epochs)
        if bounds := by_kind[QuestionKind.BOUNDS]:
            took_any |= await self._ask_bounds(bounds)
        if (records := by_kind[QuestionKind.RECORDS]) and not took_any and self._intake.may_fetch:
            took_any |= await self._fetch(records)
        was_held = self._clock.monotonic_s() - began_s >= self._settings.max_wait_s / 2
        return 0.0 if took_any or (was_held and records) else self._settings.pause_s

    # Requests

    async def _ask_epoch_ends(self, asked: Sequence[_Asked]) -> bool:
        queries = tuple(_epoch_query(*each) for each in asked)
        request = EpochEndOffsetsRequest(replica_id=self._identity.node_id, partitions=queries)
        response = await self._connection.ask(request, EpochEndOffsetsResponse, self._settings.timeout_s)
        answers = {(each.topic_id, each.partition): each for each in response.partitions}
        codes = {key: each.error_code for key, each in answers.items()}
        ends = {key: EpochEndOffset(each.epoch, each.end_offset) for key, each in answers.items()}
        return await self._take_all(
            asked, codes, lambda key, replica: lambda log: take_epoch_end(replica.followed, ends[key], log)
        )

    async def _ask_bounds(self, asked: Sequence[_Asked]) -> bool:
        queries = tuple(_epoch_query(*each) for each in asked)
        request = LogBoundsRequest(replica_id=self._identity.node_id, partitions=queries)
        response = await self._connection.ask(request, LogBoundsResponse, self._settings.timeout_s)
        answers = {(each.topic_id, each.partition): each for each in response.partitions}
        codes = {key: each.error_code for key, each in answers.items()}
        bounds = {
            key: LeaderBounds(each.log_start_offset, each.log_end_offset, each.end_epoch)
            for key, each in answers.items()
        }
        now_s = self._clock.monotonic_s()
        return await self._take_all(
            asked, codes, lambda key, replica: lambda log: take_bounds(replica.followed, bounds[key], log, now_s=now_s)
        )

    async def _fetch(self, asked: Sequence[_Asked]) -> bool:
        settings = self._settings
        first = self._turn % len(asked)
        turn = [*asked[first:], *asked[:first]][: settings.max_partitions]
        self._turn = first + 1 if len(turn) == len(asked) else first + len(turn)
        request = FetchRecordsRequest(
            replica_id=self._identity.node_id,
            replica_epoch=self._identity.process_epoch,
            max_wait_ms=round(settings.max_wait_s * 1000),
            min_bytes=1,
            max_bytes=settings.max_bytes,
            partitions=tuple(self._partition_fetch(*each) for each in turn),
        )
        response = await self._connection.ask(request, FetchRecordsResponse, settings.timeout_s + settings.max_wait_s)
        answers = {(each.topic_id, each.partition): each for each in response.partitions}
        codes = {key: each.error_code for key, each in answers.items()}
        now_s = self._clock.monotonic_s()
        with self._intake.holding(sum(size_of(each.records) for each in response.partitions)):
            compared = await self._compare(turn, request.partitions, answers)
            await self._take_all(
                turn,
                codes,
                lambda key, replica: (
                    compared.get(key) or (lambda log: take_fetched(replica.followed, answers[key], log, now_s=now_s))
                ),
            )
        compared_keys = {(each.topic_id, each.partition) for each in request.partitions if each.is_comparison}
        return any(_moves(each, is_compared=key in compared_keys) for key, each in answers.items())

    async def _compare(
        self,
        asked: Sequence[_Asked],
        fetches: Sequence[ReplicaFetch],
        answers: Mapping[PartitionKey, PartitionFetchResult],
    ) -> dict[PartitionKey, Decision]:
        """Compare what was fetched for that; return the decisions about it."""
        decisions: dict[PartitionKey, Decision] = {}
        for (replica, _), fetch in zip(asked, fetches, strict=True):
            key = _key(replica)
            if fetch.is_comparison and key in answers and not answers[key].error_code:
                match = await self._changes.match(replica, answers[key])
                differs_at = None if match is None else match.differs_at
                if differs_at is not None and replica.is_news(answers[key].log_version, differs_at):
                    where = {"partition": str(replica.partition), "leader": self._leader_id}
                    _LOG.warning("log_differs_from_leader", offset=differs_at, **where)
                decisions[key] = partial(take_compared, replica.followed, answers[key], match, start=fetch.fetch_offset)
        return decisions

    # Answers

    async def _take_all(
        self,
        asked: Sequence[_Asked],
        codes: Mapping[PartitionKey, int],
        decision: Callable[[PartitionKey, StandbyReplica], Decision],
    ) -> bool:
        """Take the answers; return True if any was without an error."""
        has_stale_view = False
        async with asyncio.TaskGroup() as group:
            for replica, question in asked:
                key = _key(replica)
                code = codes.get(key, int(PushErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
                if code:
                    self._refused(replica, question, code)
                    has_stale_view |= code in _STALE_VIEW
                else:
                    taking = self._changes.take(replica, question, decision(key, replica))
                    group.create_task(taking, name=f"follow {replica.partition}")
        if has_stale_view:
            self._on_stale_view(self._leader_id)
        return not all(codes.values())

    def _refused(self, replica: StandbyReplica, question: LeaderQuestion, code: int) -> None:
        log = replica.usable_log
        if log is None or not replica.followed.is_current(question, log.facts):
            return
        if code != PushErrorCode.OFFSET_OUT_OF_RANGE:
            replica.note(f"node {self._leader_id} answered {question.kind.value} with {refusal_text(code)}")
        take_failure(replica.followed, code, now_s=self._clock.monotonic_s())
        if replica.followed.compared_version != question.compared_version:
            _LOG.warning("leader_not_compared", partition=str(replica.partition), error=replica.last_error)

    # Questions

    @property
    def _intake(self) -> RecordIntake:
        return self._changes.intake

    def _questions(self) -> list[_Asked]:
        now_s = self._clock.monotonic_s()
        found: list[_Asked] = []
        for replica in self._replicas.pulling_from(self._leader_id):
            log = replica.usable_log
            if log is None or replica.lock.locked():
                continue
            question = replica.followed.question(log.facts, now_s=now_s)
            if question is not None:
                found.append((replica, question))
        return found

    def _until_next_question(self) -> float:
        now_s = self._clock.monotonic_s()
        times = (replica.followed.paused_until_s() for replica in self._replicas.pulling_from(self._leader_id))
        next_s = min(
            (each for each in times if each is not None and each > now_s), default=now_s + self._settings.idle_s
        )
        return min(max(next_s - now_s, self._settings.pause_s), self._settings.idle_s)

    def _partition_fetch(self, replica: StandbyReplica, question: LeaderQuestion) -> ReplicaFetch:
        partition, comparison = replica.partition, question.comparison
        fetch = ReplicaFetch(
            topic_id=partition.topic_id,
            partition=partition.partition,
            current_leader_epoch=question.leader.leader_epoch,
            fetch_offset=question.log_end_offset,
            last_fetched_epoch=question.epoch,
            log_start_offset=question.log_start_offset,
            max_bytes=self._settings.partition_max_bytes,
            session_id=question.session_id,
            compared_version=question.compared_version,
        )
        if comparison is None or replica.log is None:
            return fetch
        start = comparison.start
        if start is None:
            start = max(replica.log.start_before(comparison.below, comparison.size_bytes), comparison.lowest_offset)
        return replace(
            fetch,
            fetch_offset=start,
            last_fetched_epoch=NO_EPOCH,  # the leader has compared that of the log end
            max_bytes=comparison.max_bytes,
            is_comparison=True,
        )


def _key(replica: StandbyReplica) -> PartitionKey:
    return replica.partition.topic_id, replica.partition.partition


def _epoch_query(replica: StandbyReplica, question: LeaderQuestion) -> EpochQuery:
    return EpochQuery(
        topic_id=replica.partition.topic_id,
        partition=replica.partition.partition,
        current_leader_epoch=question.leader.leader_epoch,
        epoch=question.epoch,
    )


def _moves(result: PartitionFetchResult, *, is_compared: bool) -> bool:
    """Return True if the answer changes what is asked next."""
    is_compared_next = result.log_version and not result.push_started and not is_compared
    return bool(result.error_code or result.diverging is not None or is_compared_next or size_of(result.records))
