"""Promises of the tasks of this room and of the supervisor that runs the tasks; futures that wait for a pass."""

import asyncio
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Protocol


class PartitionTask(Protocol):
    """Work on one partition, done in passes. The supervisor calls ``run_once``, one pass at a time.

    After a pass the supervisor waits until ``wake`` is set or the returned delay is over; None waits for ``wake``
    alone, so that an idle partition costs nothing. The supervisor clears ``wake`` before a pass, never after, so that
    no event is lost.
    """

    @property
    def name(self) -> str:
        """Return the name, which is unique among running tasks."""

    @property
    def wake(self) -> asyncio.Event:
        """Return the event that wakes the task."""

    async def run_once(self) -> float | None:
        """Do what is due; return seconds until there is more, None when only an event can bring more.

        Raises:
            TierError: the pass failed; the task is quarantined and tried again with backoff.
        """


@dataclass(frozen=True, slots=True)
class TaskHealth:
    """Health of one task by its last passes.

    Attributes:
        failures: consecutive failed passes; 0 when the last one ended well.
        last_error: cause of the latest failure in one line, kept until a pass ends well.
        remedy: the next step against ``last_error``; empty where the error names none.
        retry_at_ms: wall clock of the next attempt while quarantined, else None.
    """

    failures: int = 0
    last_error: str | None = None
    remedy: str = ""
    retry_at_ms: int | None = None


class Supervisor(Protocol):
    """Runner of tasks: none dies unseen and none takes another down."""

    def start(self, task: PartitionTask) -> None:
        """Begin to run ``task``; its first pass comes at once. A name that runs already is a bug."""

    async def stop(self, name: str) -> None:
        """Cancel the task of that name and return when it has ended; an unknown name is no error."""

    def retry(self, names: Collection[str] | None = None) -> None:
        """Let failed tasks try again at once; None means all of them."""

    def statistics(self) -> Mapping[str, TaskHealth]:
        """Return the health of every running task, by name."""


class PassiveSupervisor:
    """Supervisor that runs nothing, for commands that run one pass of every task themselves and end."""

    def start(self, task: PartitionTask) -> None:
        """Do nothing; the maker of the task runs it."""

    async def stop(self, name: str) -> None:
        """Do nothing."""

    def retry(self, names: Collection[str] | None = None) -> None:
        """Do nothing."""

    def statistics(self) -> Mapping[str, TaskHealth]:
        """Return no statistics: no task is supervised."""
        return {}


class PassWaiters:
    """Futures that are done when a pass has ended, well or not."""

    def __init__(self) -> None:
        self._waiting: list[asyncio.Future[None]] = []

    def next_pass(self) -> "asyncio.Future[None]":
        """Return a future that is done when the next pass that begins has ended, or when there will be none."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(waiter)
        return waiter

    def begin(self) -> "list[asyncio.Future[None]]":
        """Begin a pass: return the futures that wait for it, which the caller gives to ``release`` at its end."""
        waiting, self._waiting = self._waiting, []
        return waiting

    def close(self) -> None:
        """Release all futures: there will be no pass any more."""
        release(self.begin())


def release(waiting: "list[asyncio.Future[None]]") -> None:
    """Mark the futures as done: the pass that they wait for has ended."""
    for waiter in waiting:
        if not waiter.done():
            waiter.set_result(None)
