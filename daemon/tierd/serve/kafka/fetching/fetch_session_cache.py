"""FetchSessionCache: the fetch sessions of an endpoint (KIP-227). Decisions only, no I/O.

A session remembers which partitions a client wants and what it was told of each, so that a request names only what
changed and an answer holds only what is new::

    epoch 0 ──► answer names a session ──► epoch 1, 2, … ──► 2^31 - 1 ──► 1, 2, …
    any request with epoch 0 or -1 closes the session that it names

Sessions only save bytes. A client without one, since there was no room or its session was evicted, names every
partition in every request and loses nothing.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from kio.schema.errors import ErrorCode

from tierd.serve.kafka.fetching.fetch_demand import INITIAL_EPOCH, FetchDemand, FetchKey, PartitionFetch
from tierd.serve.kafka.fetching.fetch_session import (
    NO_SESSION,
    FetchSession,
    SessionAnswer,
    SessionOwner,
    SessionRefusal,
)
from tierd.serve.kafka.fetching.partition_answer import PartitionAnswer

MAX_SESSION_NUMBER: Final = 2**31 - 1


@dataclass(frozen=True, slots=True)
class FetchSessionLimits:
    """Bounds of the cache.

    Attributes:
        max_sessions: sessions at a time (Kafka: ``max.incremental.fetch.session.cache.slots``).
        max_partitions: partitions of all sessions at a time.
        eviction_s: an unused session may go after this time. A session that is used is safe from larger ones for as
            long after it was made (Kafka: ``MIN_INCREMENTAL_FETCH_SESSION_EVICTION_MS``).
        expiry_s: an unused session goes after this time also where there is room: its client has gone away.
    """

    max_sessions: int = 1000
    max_partitions: int = 200_000
    eviction_s: float = 120.0
    expiry_s: float = 900.0


@dataclass(frozen=True, slots=True)
class FetchSessionStatistics:
    """Sessions of an endpoint at one moment, and the number of all evictions since the start."""

    sessions: int
    partitions: int
    evictions: int


@dataclass(frozen=True, slots=True)
class FullFetch:
    """A request that names all its partitions.

    Attributes:
        cache: where a new session is made when the answer is ready; None for a request that wants none.
    """

    demand: FetchDemand
    owner: SessionOwner
    cache: "FetchSessionCache | None"

    @property
    def wanted(self) -> Mapping[FetchKey, PartitionFetch]:
        """Return the partitions to read, in order."""
        return self.demand.partitions

    def finish(self, answers: Mapping[FetchKey, PartitionAnswer], now_s: float) -> SessionAnswer:
        """Return the session part of the answer."""
        session_id = self.cache.create(self.demand, self.owner, answers, now_s) if self.cache else NO_SESSION
        return SessionAnswer(session_id, answers)

    def throttled(self) -> SessionAnswer:
        """Return the session part of an answer that only tells the client to wait (KIP-219)."""
        return SessionAnswer(NO_SESSION, ())


@dataclass(frozen=True, slots=True)
class IncrementalFetch:
    """A request of a session.

    Attributes:
        wanted: all partitions of the session, in the order to read them.
        epoch: that the session has while no later request uses it.
    """

    session: FetchSession
    wanted: Mapping[FetchKey, PartitionFetch]
    epoch: int

    def finish(self, answers: Mapping[FetchKey, PartitionAnswer], now_s: float) -> SessionAnswer:
        """Return the session part of the answer; an error when a later request has used the session meanwhile."""
        del now_s  # the session was used when the request came
        session_id = self.session.session_id
        if self.session.epoch != self.epoch:
            return SessionAnswer(session_id, (), ErrorCode.invalid_fetch_session_epoch)
        return SessionAnswer(session_id, self.session.told(answers))

    def throttled(self) -> SessionAnswer:
        """Return the session part of an answer that only tells the client to wait (KIP-219)."""
        return SessionAnswer(self.session.session_id, ())


class FetchSessionCache:
    """The sessions of all clients, within bounds."""

    def __init__(self, limits: FetchSessionLimits, *, new_id: Callable[[], int]) -> None:
        """Keep sessions within ``limits``; ``new_id`` returns random numbers from 1 to ``MAX_SESSION_NUMBER``."""
        self._limits = limits
        self._new_id = new_id
        self._sessions: OrderedDict[int, FetchSession] = OrderedDict()  # the longest unused first
        self._of_connection: dict[int, int] = {}
        self._partitions = 0
        self._evictions = 0

    def statistics(self) -> FetchSessionStatistics:
        """Return the numbers for status and metrics."""
        return FetchSessionStatistics(len(self._sessions), self._partitions, self._evictions)

    def open(
        self, demand: FetchDemand, owner: SessionOwner, now_s: float
    ) -> FullFetch | IncrementalFetch | SessionRefusal:
        """Begin a request: find its session, or close the one that it names and wants no more."""
        self._expire(now_s)
        session = self._sessions.get(demand.session_id)
        if session is not None and not owner.may_use(session):
            session = None
        if demand.is_full:
            if session is not None:
                self._remove(session)
            wants_session = demand.session_epoch == INITIAL_EPOCH
            return FullFetch(demand, owner, self if wants_session else None)
        if session is None:
            return SessionRefusal(ErrorCode.fetch_session_id_not_found)
        if session.epoch != demand.session_epoch:
            return SessionRefusal(ErrorCode.invalid_fetch_session_epoch)
        if session.uses_topic_ids != demand.uses_topic_ids:
            return SessionRefusal(ErrorCode.fetch_session_topic_id_error)
        return self._go_on(session, demand, owner, now_s)

    def create(
        self, demand: FetchDemand, owner: SessionOwner, answers: Mapping[FetchKey, PartitionAnswer], now_s: float
    ) -> int:
        """Make a session of a full request and its answer; return its id, or ``NO_SESSION`` when there is no room.

        A connection has one session at most: a new one takes the place of the earlier one.
        """
        earlier = self._sessions.get(self._of_connection.get(owner.connection_id, NO_SESSION))
        if earlier is not None:
            self._remove(earlier)
        if not answers or not self._make_room(len(answers), now_s):
            return NO_SESSION
        session = FetchSession(self._unused_id(), owner, demand.uses_topic_ids, created_s=now_s, used_s=now_s)
        session.update(demand)
        for key, answer in answers.items():
            session.partitions[key].take(answer)
        self._sessions[session.session_id] = session
        self._of_connection[owner.connection_id] = session.session_id
        self._count(session)
        return session.session_id

    def _expire(self, now_s: float) -> None:
        while self._sessions:
            longest_unused = next(iter(self._sessions.values()))
            if now_s - longest_unused.used_s < self._limits.expiry_s:
                return
            self._remove(longest_unused)

    def _go_on(
        self, session: FetchSession, demand: FetchDemand, owner: SessionOwner, now_s: float
    ) -> FullFetch | IncrementalFetch | SessionRefusal:
        session.update(demand)
        if not session.partitions:
            self._remove(session)
            return FullFetch(demand, owner, None)
        self._count(session)
        if self._partitions > self._limits.max_partitions:
            self._remove(session)  # the client asks for a new session, which is made if there is room
            return SessionRefusal(ErrorCode.fetch_session_id_not_found)
        session.used_s = now_s
        self._sessions.move_to_end(session.session_id)
        session.epoch = session.epoch + 1 if session.epoch < MAX_SESSION_NUMBER else 1
        wanted = {key: cached.wanted for key, cached in session.partitions.items()}
        return IncrementalFetch(session, wanted, session.epoch)

    def _make_room(self, size: int, now_s: float) -> bool:
        """Evict sessions until one of ``size`` partitions fits; evict none and return False if that is not enough."""
        slots = len(self._sessions) + 1 - self._limits.max_sessions
        partitions = self._partitions + size - self._limits.max_partitions
        if slots <= 0 and partitions <= 0:
            return True
        chosen = []
        for session in self._evictable(size, now_s):
            chosen.append(session)
            slots -= 1
            partitions -= session.counted
            if slots <= 0 and partitions <= 0:
                for each in chosen:
                    self._remove(each)
                self._evictions += len(chosen)
                return True
        return False

    def _evictable(self, size: int, now_s: float) -> Iterable[FetchSession]:
        """Yield sessions that a new one of ``size`` may evict: unused ones, then smaller ones that are not new."""
        before_s = now_s - self._limits.eviction_s
        unused = [each for each in self._sessions.values() if each.used_s < before_s]
        smaller = [
            each for each in self._sessions.values() if each.created_s < before_s <= each.used_s and each.counted < size
        ]
        yield from unused
        yield from sorted(smaller, key=lambda each: each.counted)

    def _count(self, session: FetchSession) -> None:
        self._partitions += len(session.partitions) - session.counted
        session.counted = len(session.partitions)

    def _remove(self, session: FetchSession) -> None:
        del self._sessions[session.session_id]
        self._partitions -= session.counted
        if self._of_connection.get(session.owner.connection_id) == session.session_id:
            del self._of_connection[session.owner.connection_id]

    def _unused_id(self) -> int:
        while (made := self._new_id()) in self._sessions:
            pass
        return made
