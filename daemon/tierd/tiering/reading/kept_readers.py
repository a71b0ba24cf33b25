"""Sessions of sequential readers, kept between two reads so that the next read finds its bytes under way."""

import asyncio
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from tierd.clock import Clock
from tierd.model import IsolationLevel, TopicIdPartition
from tierd.tasks import end_tasks, wait_all
from tierd.tiering.reading.read_session import ReadSession

_IDLE_S = 30.0


class ReaderPlace(NamedTuple):
    """The place behind a kept session. The next read from this place takes the session over."""

    partition: TopicIdPartition
    offset: int
    isolation: IsolationLevel


@dataclass(slots=True)
class _Kept:
    session: ReadSession
    since_s: float


class KeptReaders:
    """Sessions between two reads, the oldest first. A session belongs to ``KeptReaders`` until a read takes it."""

    def __init__(self, *, capacity: int, clock: Clock, idle_s: float = _IDLE_S) -> None:
        """Keep at most ``capacity`` sessions, each for ``idle_s``."""
        self._capacity = capacity
        self._clock = clock
        self._idle_s = idle_s
        self._kept: OrderedDict[ReaderPlace, _Kept] = OrderedDict()
        self._sweeper: asyncio.Task[None] | None = None
        self._is_closed = False

    def __len__(self) -> int:
        return len(self._kept)

    def __contains__(self, place: ReaderPlace) -> bool:
        return place in self._kept

    def take(self, place: ReaderPlace) -> ReadSession | None:
        """Return the session that stands at ``place``, or None. The caller keeps or closes the session."""
        kept = self._kept.pop(place, None)
        return None if kept is None else kept.session

    async def keep(self, place: ReaderPlace, session: ReadSession) -> None:
        """Take ``session`` over, and close the session at the same place and the oldest one beyond the capacity.

        A cancellation is raised when these are closed.
        """
        surplus = [self._kept.pop(place).session] if place in self._kept else []
        if self._is_closed:
            surplus.append(session)
        else:
            self._kept[place] = _Kept(session, self._clock.monotonic_s())
            if self._sweeper is None or self._sweeper.done():
                self._sweeper = asyncio.create_task(self._sweep(), name="close idle remote readers")
        while len(self._kept) > self._capacity:
            surplus.append(self._kept.popitem(last=False)[1].session)
        await _close(surplus)

    async def close(self) -> None:
        """Close all sessions, and keep none from now on. A cancellation is raised then; a second call does nothing."""
        self._is_closed = True
        sessions = [kept.session for kept in self._kept.values()]
        self._kept.clear()
        try:
            if self._sweeper is not None:
                await end_tasks([self._sweeper])
        finally:
            await _close(sessions)

    async def _sweep(self) -> None:
        while self._kept:
            oldest = next(iter(self._kept.values()))
            due_s = oldest.since_s + self._idle_s - self._clock.monotonic_s()
            if due_s > 0:
                await self._clock.sleep(due_s)
            else:
                await self._kept.popitem(last=False)[1].session.close()


async def _close(sessions: Iterable[ReadSession]) -> None:
    """Close sessions at the same time; a cancellation is raised when all are closed."""
    await wait_all([fetch for session in sessions for fetch in session.abandon()])
