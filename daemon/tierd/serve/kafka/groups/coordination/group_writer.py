"""GroupWriter: the writes of one group in order, one batch at a time; commits that wait share the next batch."""

import asyncio
from collections import deque
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final, TypeAlias

import structlog
from kio.schema.errors import ErrorCode

from tierd.errors import MetadataError, OutcomeUnknownError
from tierd.serve.kafka.groups.protocol.durable_group import DurableGroup
from tierd.serve.kafka.groups.protocol.group_events import GroupEvent, GroupGone, RowNotStored, RowStored
from tierd.serve.kafka.groups.storage.claimed_group import ClaimedGroup, GroupClaimLostError
from tierd.serve.kafka.groups.storage.group_offset import GroupOffset, OffsetKey

_log = structlog.get_logger(__name__)

_ROWS_PER_BATCH: Final = 1000  # a single commit that has more goes alone

Spawn: TypeAlias = Callable[[Callable[[], Coroutine[object, object, None]], str], bool]
"""Begins a task of that name, which its owner ends; False where the owner has ended already."""


@dataclass(slots=True, eq=False)
class _Change:
    """Commits and removals of offsets; ``expected``: removals of offsets that have not changed meanwhile."""

    answer: "asyncio.Future[ErrorCode]"
    puts: Mapping[OffsetKey, GroupOffset] = field(default_factory=dict)
    deletes: Collection[OffsetKey] = ()
    expected: Mapping[OffsetKey, GroupOffset] = field(default_factory=dict)

    @property
    def size(self) -> int:
        return len(self.puts) + len(self.deletes) + len(self.expected)


@dataclass(slots=True, eq=False)
class _Removal:
    """Removal of the group, unless ``is_wanted`` says otherwise at the last moment."""

    answer: "asyncio.Future[ErrorCode]"
    is_wanted: Callable[[], bool]


_Work: TypeAlias = DurableGroup | _Change | _Removal


class GroupWriter:
    """Queue of the writes of one group.

    An answer is given when the write is durable, or an error that a client repeats the request on. A caller that is
    cancelled takes its work back, unless the write has begun: clients that go away leave no queue. A write whose
    outcome is unknown is followed by a new claim, before the next write.
    """

    def __init__(self, claimed: ClaimedGroup, *, spawn: Spawn, on_event: Callable[[GroupEvent], None]) -> None:
        self.claimed = claimed
        self._spawn = spawn
        self._on_event = on_event
        self._queue: deque[_Work] = deque()
        self._is_running = False
        self._is_doubtful = False

    @property
    def is_busy(self) -> bool:
        """Return True while a write is under way or waits, or the last one has to be read back."""
        return self._is_running or self._is_doubtful

    def store(self, row: DurableGroup) -> None:
        """Write the row of the group; the outcome is an event."""
        self._add(row)

    async def commit(self, puts: Mapping[OffsetKey, GroupOffset]) -> ErrorCode:
        """Write committed offsets, and return the answer to the client."""
        return await self._ask(_Change(_new_answer(), puts=puts))

    async def remove(self, deletes: Collection[OffsetKey]) -> ErrorCode:
        """Remove committed offsets, and return the answer to the client."""
        return await self._ask(_Change(_new_answer(), deletes=deletes))

    async def expire(self, expected: Mapping[OffsetKey, GroupOffset]) -> ErrorCode:
        """Remove those offsets that no client has committed anew meanwhile."""
        return await self._ask(_Change(_new_answer(), expected=expected))

    async def remove_group(self, is_wanted: Callable[[], bool]) -> ErrorCode:
        """Remove the group; NON_EMPTY_GROUP where ``is_wanted`` is not true when its turn has come."""
        return await self._ask(_Removal(_new_answer(), is_wanted))

    async def _ask(self, work: _Change | _Removal) -> ErrorCode:
        self._add(work)
        try:
            return await work.answer
        except asyncio.CancelledError:
            with suppress(ValueError):
                self._queue.remove(work)
            raise

    def _add(self, work: _Work) -> None:
        self._queue.append(work)
        if not self._is_running:
            self._is_running = self._spawn(self._drain, f"writes of group {self.claimed.group}")
            if not self._is_running:
                self._fail(self._queue, ErrorCode.coordinator_not_available)
                self._queue.clear()

    async def _drain(self) -> None:
        works: list[_Work] = []
        try:
            while self._queue:
                works = self._next()
                self._end(works, await self._outcome(works))
        finally:
            self._is_running = False
            self._fail([*works, *self._queue], ErrorCode.coordinator_not_available)
            self._queue.clear()

    def _next(self) -> list[_Work]:
        first = self._queue.popleft()
        works, rows = [first], first.size if isinstance(first, _Change) else _ROWS_PER_BATCH
        while self._queue and isinstance(following := self._queue[0], _Change):
            rows += following.size
            if rows > _ROWS_PER_BATCH:
                break
            works.append(self._queue.popleft())
        return works

    async def _outcome(self, works: list[_Work]) -> ErrorCode:
        try:
            if self._is_doubtful:
                await self.claimed.claim_again()
                self._is_doubtful = False
                self._on_event(RowStored(self.claimed.durable))
            return await self._write(works)
        except GroupClaimLostError:
            return ErrorCode.not_coordinator
        except MetadataError as error:
            self._is_doubtful |= isinstance(error, OutcomeUnknownError)
            _log.warning("group_not_written", group=self.claimed.group, error=str(error))
            return ErrorCode.coordinator_not_available

    async def _write(self, works: list[_Work]) -> ErrorCode:
        match works[0]:
            case DurableGroup() as row:
                await self.claimed.store(row)
            case _Removal() as removal:
                if not removal.is_wanted():
                    return ErrorCode.non_empty_group
                await self.claimed.delete()
            case _Change():
                await self._write_changes([each for each in works if isinstance(each, _Change)])
        return ErrorCode.none

    async def _write_changes(self, changes: list[_Change]) -> None:
        puts, deletes = dict[OffsetKey, GroupOffset](), dict[OffsetKey, None]()
        for change in changes:
            for key, committed in change.puts.items():
                puts[key] = committed
                deletes.pop(key, None)
            unchanged = [
                key
                for key, committed in change.expected.items()
                if key not in puts and self.claimed.offsets.get(key) == committed
            ]
            for key in (*change.deletes, *unchanged):
                puts.pop(key, None)
                deletes[key] = None
        if puts or deletes:
            await self.claimed.commit(puts, deletes)

    def _end(self, works: list[_Work], outcome: ErrorCode) -> None:
        is_gone = outcome is ErrorCode.not_coordinator or (outcome is ErrorCode.none and isinstance(works[0], _Removal))
        for work in works:
            if isinstance(work, DurableGroup) and not is_gone:
                is_stored = outcome is ErrorCode.none
                self._on_event(RowStored(work) if is_stored else RowNotStored())
        self._fail(works, outcome)
        works.clear()
        if is_gone:
            is_lost = outcome is ErrorCode.not_coordinator
            reason = "another endpoint has claimed the group" if is_lost else "deleted"
            self._on_event(GroupGone(reason, is_lost=is_lost))
            self._fail(self._queue, ErrorCode.not_coordinator)
            self._queue.clear()

    @staticmethod
    def _fail(works: Iterable[_Work], outcome: ErrorCode) -> None:
        for work in works:
            if not isinstance(work, DurableGroup) and not work.answer.done():
                work.answer.set_result(outcome)


def _new_answer() -> "asyncio.Future[ErrorCode]":
    return asyncio.get_running_loop().create_future()
