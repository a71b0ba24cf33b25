"""FetchPolls: long polls of standbys for records (FetchRecords of push-replication 2.12 and 3.4).

::

    take note of every partition of the request ──► an answer without records for some: answer at once
        ▼ none
    records, or a higher watermark? ──no──► wait: an append of one of the partitions wakes the poll ──► ask again
        ▼ yes, or the time is over
    reserve memory ──► read partition after partition, up to the limits ──► answer
"""

import asyncio
import weakref
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple, Protocol, TypeVar
from uuid import UUID

import structlog

from tierd.clock import Clock, wait_for_event
from tierd.errors import CorruptRecordError, LogError, OffsetOutOfRangeError
from tierd.replication.leader.logs.record_memory import batch_bounds
from tierd.replication.leader.replicas.partition_replicator import PartitionReplicator
from tierd.replication.model.messages import (
    FetchRecordsRequest,
    FetchRecordsResponse,
    PartitionFetchResult,
    RecordBytes,
    ReplicaFetch,
)
from tierd.replication.model.push_error_code import PushErrorCode
from tierd.replication.model.push_session import PeerIdentity

log = structlog.get_logger()

_THROTTLE_MS: Final = 100
_WARNING_INTERVAL_S: Final = 60.0
_TURN_ITEMS: Final = 200

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, kw_only=True)
class StandbyFetchLimits:
    """Limits of the answers to fetches.

    Attributes:
        max_wait_s: longest time for which a poll waits.
        answer_max_bytes: records of one answer; one larger batch is sent alone.
        memory_max_bytes: records of all answers that were read and not yet sent.
        polls_per_peer: fetches of one standby at a time; more are refused.
    """

    max_wait_s: float = 30.0
    answer_max_bytes: int = 10 << 20
    memory_max_bytes: int = 64 << 20
    polls_per_peer: int = 8


class StandbyAnswerMemory:
    """Budget of bytes. Made on the event loop, which it then belongs to.

    Records stay charged for as long as the view that ``charge`` returns is alive: the answer holds it, and the
    connection that sends the answer. The bound can be exceeded by one batch for each answer that is being read, because
    a read returns one batch at least.

    Attributes:
        cap_bytes: the bound.
        used_bytes: bytes that are reserved or charged.
        freed: set whenever bytes are given back.
    """

    def __init__(self, cap_bytes: int) -> None:
        """Begin with nothing charged."""
        self.cap_bytes = cap_bytes
        self.used_bytes = 0
        self.freed = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    def reserve(self, size_bytes: int) -> int:
        """Reserve up to ``size_bytes`` and return how many; 0 while everything is in use."""
        granted = max(min(size_bytes, self.cap_bytes - self.used_bytes), 0)
        self.used_bytes += granted
        return granted

    def release(self, size_bytes: int) -> None:
        """Give back what was reserved."""
        self.used_bytes -= size_bytes
        self.freed.set()

    def charge(self, data: bytes) -> memoryview:
        """Return a view of ``data``, and charge its size for as long as the view lives."""
        self.used_bytes += len(data)
        view = memoryview(data)
        weakref.finalize(view, self._release_later, len(data)).atexit = False
        return view

    def _release_later(self, size_bytes: int) -> None:
        """Give back the bytes of a view, which may end in any thread."""
        with suppress(RuntimeError):  # the event loop is closed, and the budget with it
            self._loop.call_soon_threadsafe(self.release, size_bytes)


class ReplicatorLookup(Protocol):
    """The replicators of this node."""

    def find(self, topic_id: UUID, partition: int) -> PartitionReplicator | None:
        """Return the replicator of a partition; None if this node does not lead it."""


class _Asked(NamedTuple):
    """Partition of a fetch that may get records."""

    place: int
    fetch: ReplicaFetch
    replicator: PartitionReplicator


class _WaitingPoll:
    """Poll that waits for records. After a wake it looks at the partitions that have changed, and at no others."""

    def __init__(self, asked: Sequence[_Asked], min_bytes: int, peer: PeerIdentity) -> None:
        self.woken = asyncio.Event()
        self._asked = {each.place: each for each in asked}
        self._min_bytes = min_bytes
        self._peer = peer
        self._changed = dict.fromkeys(self._asked)
        self._sizes: dict[int, int] = {}

    @contextmanager
    def subscribed(self) -> Iterator[None]:
        """Be woken by each partition during the block."""
        wakers = {place: partial(self._wake, place) for place in self._asked}
        for place, waker in wakers.items():
            self._asked[place].replicator.subscribe(waker)
        try:
            yield
        finally:
            for place, waker in wakers.items():
                self._asked[place].replicator.unsubscribe(waker)

    async def is_due(self) -> bool:
        """Return True if the poll is to be answered now: with records, a watermark, or an error."""
        self.woken.clear()
        changed, self._changed = self._changed, {}
        async for place in in_turns(changed):
            each = self._asked[place]
            answers = each.replicator.answers
            if answers.has_news(self._peer) or answers.without_records(each.fetch, self._peer) is not None:
                return True
            self._sizes[place] = each.replicator.bytes_after(each.fetch.fetch_offset)
        return sum(self._sizes.values()) >= self._min_bytes

    def _wake(self, place: int) -> None:
        self._changed[place] = None
        self.woken.set()


async def in_turns(items: Iterable[_T]) -> AsyncIterator[_T]:
    """Yield items, and let other tasks of the event loop have a turn now and then."""
    for number, item in enumerate(items, 1):
        yield item
        if number % _TURN_ITEMS == 0:
            await asyncio.sleep(0)


class FetchPolls:
    """Answers to FetchRecords requests. Made on the event loop.

    Attributes:
        memory: of the answers.
    """

    def __init__(self, led: ReplicatorLookup, limits: StandbyFetchLimits, *, clock: Clock) -> None:
        """Answer for the partitions of ``led``."""
        self._led = led
        self._limits = limits
        self._clock = clock
        self._polls = Counter[int]()
        self._warned_s = float("-inf")
        self.memory = StandbyAnswerMemory(limits.memory_max_bytes)

    async def answer(self, request: FetchRecordsRequest, peer: PeerIdentity) -> FetchRecordsResponse:
        """Answer a fetch: at once if there is something to say, otherwise after the time that the standby allows."""
        if self._polls[peer.node_id] >= self._limits.polls_per_peer:
            code = PushErrorCode.THROTTLING_QUOTA_EXCEEDED
            return FetchRecordsResponse(throttle_ms=_THROTTLE_MS, error_code=code)
        self._polls[peer.node_id] += 1
        try:
            return await self._poll(request, peer)
        finally:
            self._polls[peer.node_id] -= 1

    async def _poll(self, request: FetchRecordsRequest, peer: PeerIdentity) -> FetchRecordsResponse:
        until_s = self._clock.monotonic_s() + min(request.max_wait_ms / 1000, self._limits.max_wait_s)
        results: dict[int, PartitionFetchResult] = {}
        asked: list[_Asked] = []
        async for place, fetch in in_turns(enumerate(request.partitions)):
            replicator = self._led.find(fetch.topic_id, fetch.partition)
            result = _unknown(fetch) if replicator is None else replicator.take_fetch(fetch, peer)
            if result is not None:
                results[place] = result
            elif replicator is not None:
                asked.append(_Asked(place, fetch, replicator))
        if asked and not results and not any(each.fetch.is_comparison for each in asked):
            await self._wait_for_records(asked, request.min_bytes, peer, until_s)
        results |= await self._read(asked, request.max_bytes, peer, until_s)
        async for each in in_turns(asked):
            if each.place not in results:
                results[each.place] = _final(each, peer)
        return FetchRecordsResponse(partitions=tuple(results[place] for place in range(len(request.partitions))))

    async def _wait_for_records(
        self, asked: Sequence[_Asked], min_bytes: int, peer: PeerIdentity, until_s: float
    ) -> None:
        poll = _WaitingPoll(asked, min_bytes, peer)
        with poll.subscribed():
            while not await poll.is_due():
                if not await self._wait(poll.woken, until_s):
                    return

    async def _read(
        self, asked: Sequence[_Asked], max_bytes: int, peer: PeerIdentity, until_s: float
    ) -> dict[int, PartitionFetchResult]:
        readable = [each for each in asked if each.replicator.bytes_after(each.fetch.fetch_offset)]
        results: dict[int, PartitionFetchResult] = {}
        if not readable:
            return results
        left = await self._reserve(min(max_bytes, self._limits.answer_max_bytes), until_s)
        try:
            for each in readable:
                if left <= 0:
                    break
                data = await self._read_one(each, left)
                if isinstance(data, PushErrorCode):
                    results[each.place] = each.replicator.answers.result(each.fetch, peer, data)
                    continue
                taken = min(len(data), left)
                left -= taken
                self.memory.release(taken)
                results[each.place] = _final(each, peer, self.memory.charge(data))
        finally:
            self.memory.release(left)
        return results

    async def _reserve(self, size_bytes: int, until_s: float) -> int:
        while not (granted := self.memory.reserve(size_bytes)):
            self.memory.freed.clear()
            if not await self._wait(self.memory.freed, until_s):
                return 0
        return granted

    async def _read_one(self, asked: _Asked, max_bytes: int) -> bytes | PushErrorCode:
        fetch, replicator = asked.fetch, asked.replicator
        try:
            data = await replicator.log.read(fetch.fetch_offset, max(min(fetch.max_bytes, max_bytes), 1))
        except OffsetOutOfRangeError:
            return PushErrorCode.OFFSET_OUT_OF_RANGE
        except LogError as error:
            if error.retriable:  # files changed under the read: the standby asks again
                return PushErrorCode.REQUEST_TIMED_OUT
            self._warn(replicator, error)
            return PushErrorCode.KAFKA_STORAGE_ERROR
        with suppress(CorruptRecordError):  # a batch of an old format
            if first := next(batch_bounds(data), None):
                replicator.note_read(first.next_offset - first.base_offset, first.end_position)
        return data

    async def _wait(self, event: asyncio.Event, until_s: float) -> bool:
        """Wait for an event; return False if the time was over before."""
        left_s = until_s - self._clock.monotonic_s()
        if left_s <= 0:
            return False
        return await wait_for_event(event, self._clock, left_s)

    def _warn(self, replicator: PartitionReplicator, error: LogError) -> None:
        now_s = self._clock.monotonic_s()
        if now_s - self._warned_s >= _WARNING_INTERVAL_S:
            self._warned_s = now_s
            log.warning("fetch_of_standby_not_read", partition=str(replicator.partition), error=str(error))


def _final(asked: _Asked, peer: PeerIdentity, records: RecordBytes = b"") -> PartitionFetchResult:
    """Return the answer that is right now; the records are left out if the partition has changed meanwhile."""
    answers = asked.replicator.answers
    return answers.without_records(asked.fetch, peer) or answers.result(asked.fetch, peer, records=records)


def _unknown(fetch: ReplicaFetch) -> PartitionFetchResult:
    code = PushErrorCode.UNKNOWN_TOPIC_ID
    return PartitionFetchResult(topic_id=fetch.topic_id, partition=fetch.partition, error_code=code)
