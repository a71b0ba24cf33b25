"""PollQueue: which partitions of a log dir are polled next, and when. No I/O, no clock.

::

              mark, or its time has come            take                      done
    resting ────────────────────────────► waiting ──────► running ──────────────────► resting, with a time
                                             ▲               │ marked meanwhile, or more to take
                                             └───────────────┘
"""

import heapq
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final, Generic, TypeVar

from tierd.backoff import Backoff

KeyT = TypeVar("KeyT", bound=Hashable)

_FAILED: Final = Backoff(base_s=0.1)
_UNSETTLED: Final = Backoff(base_s=0.02, cap_s=1.0)
_POLLED_AT_MOST_S: Final = 1.0
_POLLS_PER_S: Final = 2_000  # beyond that each partition is polled less often
_SPREAD: Final = 0.25


class PollResult(Enum):
    """Result of a poll, as far as it decides when the next one is due."""

    GROWN = auto()
    IDLE = auto()
    MORE = auto()
    UNSETTLED = auto()
    FAILED = auto()


@dataclass(slots=True)
class _QueuedPoll:
    due_s: float
    listed_s: float  # of the earliest entry in the heap
    is_waiting: bool = False
    is_running: bool = False
    delay_s: float = 0.0
    failures: int = 0


class PollQueue(Generic[KeyT]):
    """The partitions of one log dir."""

    def __init__(self, *, interval_s: float, check_interval_s: float, random: Callable[[], float]) -> None:
        """Make an empty queue.

        Args:
            interval_s: shortest time between two polls of a partition.
            check_interval_s: time between two polls of a watched partition without events.
            random: in [0, 1).
        """
        self._interval_s = interval_s
        self._check_interval_s = check_interval_s
        self._random = random
        self._polls: dict[KeyT, _QueuedPoll] = {}
        self._waiting: dict[KeyT, None] = {}
        self._heap: list[tuple[float, int, KeyT]] = []
        self._serial = 0
        self._unwatched: set[KeyT] = set()

    def __len__(self) -> int:
        return len(self._polls)

    @property
    def waiting(self) -> int:
        """Return the number of partitions that wait for a poll."""
        return len(self._waiting)

    @property
    def unwatched(self) -> int:
        """Return the number of partitions that are not watched."""
        return len(self._unwatched)

    @property
    def next_due_s(self) -> float | None:
        """Return a time before which ``wake`` has nothing to do; None without any partition that rests."""
        return self._heap[0][0] if self._heap else None

    def add(self, key: KeyT) -> None:
        """Take a partition into the queue; it waits for its first poll."""
        self._polls[key] = _QueuedPoll(due_s=float("inf"), listed_s=float("inf"))
        self.mark(key)

    def remove(self, key: KeyT) -> None:
        """Forget a partition; one that is not in the queue is no error."""
        self._polls.pop(key, None)
        self._waiting.pop(key, None)
        self._unwatched.discard(key)

    def mark(self, key: KeyT) -> None:
        """Let a partition wait for a poll; a partition that is not in the queue is no error."""
        poll = self._polls.get(key)
        if poll is not None and not poll.is_waiting:
            poll.is_waiting = True
            if not poll.is_running:
                self._waiting[key] = None

    def mark_all(self) -> None:
        """Let all partitions wait for a poll."""
        for key in self._polls:
            self.mark(key)

    def wake(self, now_s: float) -> None:
        """Let the partitions wait whose time has come."""
        while self._heap and self._heap[0][0] <= now_s:
            listed_s, _, key = heapq.heappop(self._heap)
            poll = self._polls.get(key)
            if poll is None or poll.listed_s != listed_s:
                continue
            poll.listed_s = float("inf")
            if poll.due_s <= now_s:
                self.mark(key)
            elif not poll.is_running:
                self._list(key, poll)

    def take(self, limit: int) -> list[KeyT]:
        """Return up to ``limit`` partitions that wait, in the order in which they began to; they run from now on."""
        taken = [key for key, _ in zip(self._waiting, range(limit), strict=False)]
        for key in taken:
            del self._waiting[key]
            poll = self._polls[key]
            poll.is_waiting, poll.is_running = False, True
        return taken

    def done(self, key: KeyT, result: PollResult, *, now_s: float, is_watched: bool) -> None:
        """Take note of the result of a poll; a partition that was removed meanwhile is no error."""
        poll = self._polls.get(key)
        if poll is None:
            return
        poll.is_running = False
        (self._unwatched.discard if is_watched else self._unwatched.add)(key)
        poll.failures = poll.failures + 1 if result in {PollResult.FAILED, PollResult.UNSETTLED} else 0
        poll.delay_s = self._delay_s(poll, result, is_watched=is_watched)
        poll.due_s = now_s + poll.delay_s * (1 + _SPREAD * (self._random() - 0.5))
        if result is PollResult.MORE:
            poll.is_waiting = True
        if poll.is_waiting:
            self._waiting[key] = None
        if poll.due_s < poll.listed_s:
            self._list(key, poll)

    def _delay_s(self, poll: _QueuedPoll, result: PollResult, *, is_watched: bool) -> float:
        match result:
            case PollResult.FAILED:
                return _FAILED.delay_s(poll.failures, random=self._random)
            case PollResult.UNSETTLED:
                return _UNSETTLED.delay_s(poll.failures, random=self._random)
            case _ if is_watched:
                return self._check_interval_s
            case PollResult.IDLE:
                longest_s = max(_POLLED_AT_MOST_S, len(self._unwatched) / _POLLS_PER_S)
                return min(max(2 * poll.delay_s, self._interval_s), longest_s)
            case _:
                return self._interval_s

    def _list(self, key: KeyT, poll: _QueuedPoll) -> None:
        self._serial += 1
        poll.listed_s = poll.due_s
        heapq.heappush(self._heap, (poll.due_s, self._serial, key))
