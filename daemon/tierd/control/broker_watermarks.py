"""BrokerWatermarks: high watermarks and last stable offsets from one broker, as soon as they move.

::

    follow: a Fetch that waits at the high watermark of every partition in use ──answer: one moved──┐
    ask:    a Fetch that waits for nothing, for partitions that the other does not cover yet ───────┴─► listeners

Each has a connection of its own, because a broker answers the requests of one connection in their order. A partition
that comes into use joins the next waiting Fetch. Until then, while it has listeners, it is asked for again and again.
"""

import asyncio
import contextlib
import random as _random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

import structlog

from tierd.clock import Clock
from tierd.config import KafkaConnectionSettings
from tierd.control.broker_connections import BACKOFF, BrokerConnections
from tierd.control.cluster_metadata import BrokerAddress
from tierd.control.followed_watermarks import RETRY_S, FollowedWatermarks
from tierd.control.kafka_connection import KafkaConnection
from tierd.control.kafka_messages import metadata
from tierd.control.watermark_session import (
    Watermark,
    WatermarkAnswer,
    WatermarkSession,
    ask_watermarks,
    key_of,
)
from tierd.errors import KafkaError, KafkaUnreachableError
from tierd.model import PartitionKey, TopicIdPartition

log = structlog.get_logger()

_POLL_S: Final = 0.5
_PAUSE_S: Final = 0.005  # a partition that is written all the time answers at once: at most 200 answers a second
_BYTES_PER_S: Final = 100_000_000  # of the records that come along with the answers
_ANSWER_TIMEOUT_S: Final = 1.0
_REPEAT_S: Final = 0.01  # a new partition is asked for again so long after a question
_REPEAT_PER_PARTITION_S: Final = 0.0002  # to ask for many costs the broker more


@dataclass(frozen=True, slots=True, kw_only=True)
class WatermarkStatistics:
    """State of the questions to the broker.

    Attributes:
        broker: its address; empty while it does not answer.
        followed: number of partitions in use.
        silent_s: time since the last answer; None before the first.
        last_error, remedy: of the present failure; empty without one.
        refused: some partitions that the broker does not answer for, each with the reason.
    """

    broker: str
    followed: int
    silent_s: float | None
    last_error: str
    remedy: str
    refused: dict[PartitionKey, str]


class BrokerWatermarks:
    """Watermarks of the partitions that are in use, from the broker with one node id. ``run`` does the work."""

    def __init__(
        self,
        settings: KafkaConnectionSettings,
        *,
        cluster_id: str,
        node_id: int,
        clock: Clock,
        random: Callable[[], float] = _random.random,
    ) -> None:
        """Keep the collaborators; no connection is made yet.

        Args:
            settings: how to connect; the user needs Read on the topics.
            cluster_id: brokers of another cluster are refused.
            node_id: the broker that is asked; it has a replica of every partition that is asked for.
            clock: time.
            random: in [0, 1), for jitter.
        """
        self._settings = settings
        self._connections = BrokerConnections(settings, cluster_id=cluster_id, random=random)
        self._locating = asyncio.Lock()
        self._node_id = node_id
        self._clock = clock
        self._random = random
        self._followed = FollowedWatermarks()
        self._session = WatermarkSession()
        self._waiting: dict[PartitionKey, asyncio.Future[None]] = {}
        self._in_use, self._wanted, self._joining = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._address: BrokerAddress | None = None
        self._failure: KafkaError | None = None
        self._answered_s: float | None = None

    async def run(self) -> None:
        """Follow and ask until cancelled, which closes both connections."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._repeated(self._follow), name="follow watermarks")
                group.create_task(self._repeated(self._ask), name="ask for watermarks")
                group.create_task(self._ask_for_joining(), name="ask for new watermarks again")
        finally:
            self._connections.close()

    # ---------------------------------------------------------------- what callers get

    async def current(self, partition: TopicIdPartition, *, from_offset: int) -> Watermark | None:
        """Return the offsets of now; those that are known where the broker does not answer soon, None where none are.

        ``from_offset``: an offset of the log at or below its high watermark.
        """
        key = self._use(partition, from_offset)
        now_s = self._clock.monotonic_s()
        if self._is_current(key) or self._failure is not None or self._followed.is_refused(key, now_s):
            return self._followed.known(key)
        answered = self._waiting.get(key)
        if answered is None:
            answered = self._waiting[key] = asyncio.get_running_loop().create_future()
        self._followed.want(key)
        self._wanted.set()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_ANSWER_TIMEOUT_S):
                await asyncio.shield(answered)
        return self._followed.known(key)

    def listen(
        self, partition: TopicIdPartition, on_change: Callable[[], None], *, from_offset: int
    ) -> Callable[[], None]:
        """Call ``on_change`` whenever an offset of the partition moved, until the returned function is called."""
        key = self._use(partition, from_offset)
        if not self._is_current(key):
            self._followed.want(key)
            self._wanted.set()
            self._joining.set()
        return self._followed.listen(key, on_change)

    @property
    def is_answering(self) -> bool:
        """Return True if the last question to the broker was answered."""
        return self._answered_s is not None and self._failure is None

    def statistics(self) -> WatermarkStatistics:
        """Return the present state."""
        failure, answered_s = self._failure, self._answered_s
        return WatermarkStatistics(
            broker=str(self._address) if self._address and self.is_answering else "",
            followed=len(self._followed),
            silent_s=None if answered_s is None else self._clock.monotonic_s() - answered_s,
            last_error=str(failure) if failure else "",
            remedy=failure.remedy if failure else "",
            refused=self._followed.problems(),
        )

    def _use(self, partition: TopicIdPartition, from_offset: int) -> PartitionKey:
        key = key_of(partition)
        self._followed.use(key, from_offset=from_offset, now_s=self._clock.monotonic_s())
        self._in_use.set()
        return key

    def _is_current(self, key: PartitionKey) -> bool:
        return self._failure is None and self._followed.is_current(key, self._session.covered)

    # ---------------------------------------------------------------- the questions

    async def _follow(self, connection: KafkaConnection) -> None:
        self._session = session = WatermarkSession()
        try:
            while True:
                await self._in_use.wait()
                sent_s = self._clock.monotonic_s()
                if not (offsets := self._followed.offsets(sent_s)):
                    self._in_use.clear()
                    await self._rest_for_refused()
                    continue
                answer = await connection.call(session.request(offsets, max_wait_s=_POLL_S))
                session.take(answer)
                _require_answer(answer, connection)
                self._take(answer, sent_s)
                pause_s = max(_PAUSE_S, answer.size_bytes / _BYTES_PER_S)
                await self._clock.sleep(RETRY_S if answer.error else pause_s)
        finally:
            self._session = WatermarkSession()  # nothing is covered any more

    async def _rest_for_refused(self) -> None:
        """Come back to partitions that the broker refused to answer for."""
        if len(self._followed):
            await self._clock.sleep(RETRY_S)
            self._in_use.set()

    async def _ask(self, connection: KafkaConnection) -> None:
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            while question := self._followed.question():
                sent_s = self._clock.monotonic_s()
                answer = await connection.call(ask_watermarks(question))
                _require_answer(answer, connection)
                self._take(answer, sent_s)
                self._answered(question)

    async def _ask_for_joining(self) -> None:
        """Ask at intervals for the partitions with listeners that the waiting request, of up to half a second, lacks.

        During a failure nothing is asked: the first request after it waits for all partitions.
        """
        asked = 0
        while True:
            await self._joining.wait()
            await self._clock.sleep(max(_REPEAT_S, asked * _REPEAT_PER_PARTITION_S))
            joining = [] if self._failure is not None else self._followed.joining(self._session.covered)
            asked = len(joining)
            if not joining:
                self._joining.clear()
                continue
            for key in joining:
                self._followed.want(key)
            self._wanted.set()

    def _take(self, answer: WatermarkAnswer, sent_s: float) -> None:
        now_s = self._clock.monotonic_s()
        for listener in self._followed.take(answer, sent_s=sent_s, now_s=now_s):
            listener()
        self._answered_s, self._failure = now_s, None

    def _answered(self, keys: "dict[PartitionKey, int]") -> None:
        for key in keys:
            if (waiting := self._waiting.pop(key, None)) is not None and not waiting.done():
                waiting.set_result(None)

    # ---------------------------------------------------------------- connections

    async def _repeated(self, work: Callable[[KafkaConnection], Awaitable[None]]) -> None:
        """Do ``work`` over a connection, and again over a new one after every failure, until cancelled."""
        failures = 0
        while True:
            begun_s = self._clock.monotonic_s()
            try:
                with contextlib.closing(await self._connect()) as connection:
                    await work(connection)
            except KafkaError as error:
                has_answered = self._answered_s is not None and self._answered_s >= begun_s
                failures = 1 if has_answered else failures + 1
                self._failed(error)
            await self._clock.sleep(BACKOFF.delay_s(failures, random=self._random))

    async def _connect(self) -> KafkaConnection:
        await self._in_use.wait()
        async with self._locating:
            address = self._address or await self._located()
        try:
            return await KafkaConnection.open(address, self._settings)
        except KafkaError:
            self._address = None  # the broker may have another address by now
            raise

    async def _located(self) -> BrokerAddress:
        brokers = (await self._connections.call(metadata())).brokers
        self._connections.close()
        found = next((each for each in brokers if each.node_id == self._node_id), None)
        if found is None:
            raise KafkaUnreachableError(
                f"broker {self._node_id} is not among the brokers of the cluster",
                remedy="start the broker beside tierd; its log is read up to the high watermark in its checkpoint",
            )
        self._address = found
        return found

    def _failed(self, error: KafkaError) -> None:
        if self._failure is None or str(self._failure) != str(error):
            log.warning("watermarks_unknown", problem=str(error), remedy=error.remedy)
        self._failure = error
        self._answered(dict.fromkeys(self._waiting, 0))


def _require_answer(answer: WatermarkAnswer, connection: KafkaConnection) -> None:
    if answer.error and not answer.is_session_lost:
        raise KafkaUnreachableError(
            f"{connection.address}: the broker answered Fetch with {answer.error}", remedy="look at that broker's log"
        )
