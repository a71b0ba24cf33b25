"""LeaderDelivery: sends the batches of many partitions to their leaders, several requests at a time, until it is ended.

A request has at most one batch of each partition, because a leader takes no more (Kafka:
ProduceRequest.validateRecords). All requests to a broker go over one connection, so that the batches of a partition
arrive in order.
"""

import asyncio
import random
from collections import deque
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple
from uuid import UUID

import structlog

from tierd.backoff import Backoff
from tierd.control import KafkaConnection, ProduceAnswer, ProduceOutcome, Request, TopicKnowledge, produce
from tierd.errors import KafkaError
from tierd.model import TopicPartition
from tierd.restore.live_cluster.batch_transform import OutgoingBatch
from tierd.restore.live_cluster.delivery_window import MAX_IN_FLIGHT, DeliveryWindow
from tierd.restore.live_cluster.target_cluster import TargetCluster
from tierd.restore.live_cluster.target_errors import (
    Reaction,
    is_another_topic,
    reaction_to,
    refused_batch,
    replaced_topic,
)
from tierd.tasks import first_error, raise_if_cancelled

log = structlog.get_logger()

_BACKOFF: Final = Backoff(base_s=0.1, cap_s=5.0)
_REQUEST_BYTES: Final = 4 << 20  # of a request with several batches
_REPLICATION_TIMEOUT_S: Final = 15.0
_ANSWER_TIMEOUT_S: Final = 25.0
_TIMER_S: Final = 0.01  # a timer may fire a clock tick early, and would then be in vain
_SILENCE_S: Final = 10.0  # a wait that is longer is reported


class _Sent(NamedTuple):
    """A request whose answer is not there yet."""

    request: Request[ProduceAnswer]
    number: int
    batches: Mapping[TopicPartition, OutgoingBatch]


class _Leader:
    """One broker, and what it leads."""

    def __init__(self, node_id: int) -> None:
        self.node_id = node_id
        self.windows: dict[TopicPartition, DeliveryWindow] = {}
        self.wake = asyncio.Event()
        self.failures = 0
        self.not_before_s = 0.0  # on the loop's clock: until then a quota forbids to send


class LeaderDelivery:
    """Delivery of the windows that were added, each to the broker that leads it at the time."""

    def __init__(self, target: TargetCluster) -> None:
        """Keep the cluster; ``run`` does the work."""
        self._target = target
        self._windows: dict[TopicPartition, DeliveryWindow] = {}
        self._leaders: dict[int, _Leader] = {}
        self._leader_of: dict[TopicPartition, _Leader] = {}
        self._stale = asyncio.Event()  # the leaders have to be asked for

    def open_window(
        self,
        name: TopicPartition,
        *,
        max_bytes: int,
        topic_id: UUID | None = None,
        is_remembered: Callable[[OutgoingBatch], bool] = lambda _: True,
    ) -> DeliveryWindow:
        """Return a new window for a partition of the target, which is served until ``close_window``.

        Args:
            name: the partition.
            max_bytes: of queued batches.
            topic_id: of the topic that takes the batches, and no other one of its name; None is not compared.
            is_remembered: True if the leader recognizes a batch that comes again.
        """
        window = DeliveryWindow(
            name,
            max_bytes=max_bytes,
            wake=lambda: self._wake(name),
            topic_id=topic_id,
            is_remembered=is_remembered,
        )
        self._windows[name] = window
        self._stale.set()
        return window

    def close_window(self, window: DeliveryWindow) -> None:
        """Stop serving a window."""
        self._windows.pop(window.name, None)
        leader = self._leader_of.pop(window.name, None)
        if leader is not None:
            leader.windows.pop(window.name, None)

    async def run(self) -> None:
        """Deliver until cancelled; the failures of a partition end in its window."""
        async with asyncio.TaskGroup() as group:
            failures = 0
            while True:
                await self._stale.wait()
                self._stale.clear()
                try:
                    await self._find_leaders(group)
                    failures = 0
                except KafkaError as error:
                    failures += 1
                    self._stale.set()
                    self._expire(error)
                    await self._target.clock.sleep(_BACKOFF.delay_s(failures, random=random.random))

    # ---------------------------------------------------------------- leaders

    async def _find_leaders(self, group: asyncio.TaskGroup) -> None:
        topics = await self._target.leaders(sorted({name.topic for name in self._windows}))
        missing = False
        for name, window in list(self._windows.items()):
            known = topics.get(name.topic)
            if known is not None and known.knowledge is TopicKnowledge.DENIED:
                window.fail(refused_batch(name, "topic_authorization_failed", known.error))
                continue
            if known is not None and is_another_topic(known, window.topic_id):
                window.fail(replaced_topic(name.topic))  # it would take the rest of the records as if it had the others
                continue
            found = (
                next((each for each in known.partitions if each.partition == name.partition), None) if known else None
            )
            if found is None or found.leader_id < 0:
                missing = True
                continue
            self._move(group, window, found.leader_id)
        if missing:
            self._expire(None)
            asyncio.get_running_loop().call_later(1.0, self._stale.set)

    def _move(self, group: asyncio.TaskGroup, window: DeliveryWindow, node_id: int) -> None:
        leader = self._leaders.get(node_id)
        if leader is None:
            leader = self._leaders[node_id] = _Leader(node_id)
            group.create_task(self._serve(leader), name=f"deliver to broker {node_id}")
        before = self._leader_of.get(window.name)
        if before is not leader and not window.is_flying:  # over two connections batches could overtake each other
            if before is not None:
                before.windows.pop(window.name, None)
            self._leader_of[window.name] = leader
            leader.windows[window.name] = window
        leader.wake.set()

    def _wake(self, name: TopicPartition) -> None:
        leader = self._leader_of.get(name)
        if leader is not None:
            leader.wake.set()

    # ---------------------------------------------------------------- one broker

    async def _serve(self, leader: _Leader) -> None:
        while True:
            await leader.wake.wait()
            if not any(window.has_work for window in leader.windows.values()):
                leader.wake.clear()
                continue
            try:
                connection = await self._target.connect(leader.node_id)
            except KafkaError as error:
                await self._after_failure(leader, error)
                continue
            sent: deque[_Sent] = deque()
            try:
                await self._exchange(leader, connection, sent)
            except* KafkaError as errors:
                raise_if_cancelled()
                first = first_error(errors)
                for each in sent:
                    for name, batch in each.batches.items():
                        self._refused(name, batch, "network_exception", str(first))
                await self._after_failure(leader, first)
            finally:
                connection.close()

    async def _exchange(self, leader: _Leader, connection: KafkaConnection, sent: "deque[_Sent]") -> None:
        """Send and receive over one connection, until it fails or there is nothing to do."""
        arrived = asyncio.Event()  # something was sent
        async with asyncio.TaskGroup() as group:
            group.create_task(self._receive(leader, connection, sent, arrived), name=f"answers of {leader.node_id}")
            while True:
                is_allowed = len(sent) < MAX_IN_FLIGHT and self._now_s() >= leader.not_before_s
                batches = self._next_batches(leader) if is_allowed else {}
                if not batches:
                    leader.wake.clear()
                    await leader.wake.wait()
                    continue
                pieces = {name: (batch.header, batch.payload) for name, batch in batches.items()}
                request = produce(pieces, timeout_s=_REPLICATION_TIMEOUT_S)
                # Noted before the first byte leaves: whatever happens, these batches may be in the log.
                noted = _Sent(request, 0, batches)
                sent.append(noted)
                number = await connection.send(request)
                sent[sent.index(noted)] = noted._replace(number=number)
                arrived.set()

    def _next_batches(self, leader: _Leader) -> dict[TopicPartition, OutgoingBatch]:
        """Take one batch of each partition, as many as fit into a request."""
        now_s, size_bytes = self._now_s(), 0
        batches: dict[TopicPartition, OutgoingBatch] = {}
        for name, window in leader.windows.items():
            batch = window.next_batch(now_s)
            if batch is None:
                continue
            batches[name] = batch
            size_bytes += batch.size_bytes
            if size_bytes >= _REQUEST_BYTES:
                break
        else:
            return batches
        for name in batches:  # the next request begins with other partitions
            leader.windows[name] = leader.windows.pop(name)
        return batches

    async def _receive(
        self, leader: _Leader, connection: KafkaConnection, sent: "deque[_Sent]", arrived: asyncio.Event
    ) -> None:
        while True:
            while not sent or not sent[0].number:
                arrived.clear()
                await arrived.wait()
            first = sent[0]
            muted_s = max(0.0, leader.not_before_s - self._now_s())
            answer = await connection.receive(first.request, first.number, timeout_s=_ANSWER_TIMEOUT_S + muted_s)
            sent.popleft()
            leader.failures = 0
            if answer.throttle_s > 0:
                leader.not_before_s = self._now_s() + answer.throttle_s
                _tell_throttled(leader, answer.throttle_s)
                asyncio.get_running_loop().call_later(answer.throttle_s + _TIMER_S, leader.wake.set)
            for name, batch in first.batches.items():
                outcome = answer.outcomes.get(name, ProduceOutcome("network_exception", -1, "the answer leaves it out"))
                self._take(name, batch, outcome)
            leader.wake.set()

    # ---------------------------------------------------------------- outcomes

    def _take(self, name: TopicPartition, batch: OutgoingBatch, outcome: ProduceOutcome) -> None:
        window = self._windows.get(name)
        if window is None:
            return
        if not outcome.error:
            window.acknowledge(batch, outcome.base_offset)
            self._settled(window, window.settle(), "")
        else:
            self._refused(name, batch, outcome.error, outcome.message)

    def _refused(self, name: TopicPartition, batch: OutgoingBatch, error: str, message: str) -> None:
        window = self._windows.get(name)
        if window is not None and window.is_in_flight(batch):
            self._settled(window, window.refuse(batch, error), message)

    def _settled(self, window: DeliveryWindow, failure: str | None, message: str) -> None:
        """React to the failure of a whole flight, if there was one."""
        if failure is None:
            return
        patience_s = self._target.patience_s
        if reaction_to(failure) is not Reaction.SEND_AGAIN:
            window.fail(refused_batch(window.name, failure, message))
        elif self._now_s() - window.progress_s > patience_s:
            window.fail(refused_batch(window.name, failure, f"no progress for {patience_s:g} s: {message}"))
        else:
            self._tell_waiting(window, f"the target answers {failure}{': ' if message else ''}{message}")
            delay_s = _BACKOFF.delay_s(window.failures, random=random.random)
            window.not_before_s = self._now_s() + delay_s
            asyncio.get_running_loop().call_later(delay_s + _TIMER_S, self._wake, window.name)
            self._stale.set()

    async def _after_failure(self, leader: _Leader, error: KafkaError) -> None:
        """Wait before the next connection to a broker, and ask for the leaders meanwhile."""
        leader.failures += 1
        if leader.failures == 1:
            log.warning("target_broker_lost", broker=leader.node_id, problem=str(error), remedy=error.remedy)
        self._expire(error, leader)
        self._stale.set()
        await self._target.clock.sleep(_BACKOFF.delay_s(leader.failures, random=random.random))
        leader.wake.set()

    def _expire(self, error: KafkaError | None, leader: _Leader | None = None) -> None:
        """End the windows that made no progress for too long, and those that a final error ends."""
        windows = self._windows if leader is None else leader.windows
        for name, window in list(windows.items()):
            waited_s = self._now_s() - window.progress_s
            if (error is not None and not error.retriable) or (window.has_work and waited_s > self._target.patience_s):
                window.fail(error or refused_batch(name, "leader_not_available", f"no leader for {waited_s:.0f} s"))
            elif window.has_work:
                self._tell_waiting(window, "it has no leader" if error is None else str(error))

    def _tell_waiting(self, window: DeliveryWindow, problem: str) -> None:
        """Report a partition without progress, once until it makes some: no restore stands still in silence."""
        waited_s = self._now_s() - window.progress_s
        if waited_s > _SILENCE_S and not window.is_wait_told:
            window.is_wait_told = True
            log.warning("target_waits", partition=str(window.name), waited_s=round(waited_s), problem=problem)

    def _now_s(self) -> float:
        return asyncio.get_running_loop().time()


def _tell_throttled(leader: _Leader, throttle_s: float) -> None:
    """Report a quota that holds the restore up for long."""
    if throttle_s > _SILENCE_S:
        log.warning(
            "target_throttles",
            broker=leader.node_id,
            throttle_s=round(throttle_s),
            remedy="raise producer_byte_rate of the quota that applies to client id tierd or to its user",
        )
