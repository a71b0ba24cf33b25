"""Supervision of partition tasks: a failing one is quarantined, shown and retried, and the others go on.

::

    start ──► waiting ──wake or delay──► running a pass ──ends well──► waiting
                                             │
                                             ├─ fails ──► quarantined ──backoff──► running a pass
                                             └─ fenced ─► parked until it is stopped, or retried by hand
"""

import asyncio
from collections.abc import Callable, Collection, Coroutine, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import structlog

from tierd.backoff import Backoff
from tierd.clock import Clock
from tierd.errors import FencedError, TierError
from tierd.lazy_event import LazyEvent
from tierd.masking import Masking
from tierd.tiering import PartitionTask, TaskHealth

log = structlog.get_logger()

REST: Final = "rest"
"""Name of the asyncio tasks that wait for the end of a rest: its time, or an event before that."""


@dataclass(slots=True, eq=False)
class _Supervised:
    """Task and its health."""

    task: PartitionTask
    retry: asyncio.Event = field(default_factory=LazyEvent)  # set by hand: ends a quarantine early
    health: TaskHealth = field(default_factory=TaskHealth)
    runner: "asyncio.Task[None] | None" = None
    sleep: "asyncio.Task[None] | None" = None  # of the rest under way, if it has a delay
    progress_at_s: float = 0.0  # monotonic, of the last sign of life of the pass under way
    progress_mark: object = None
    stopping: bool = False  # its loop ends even where a pass swallowed the cancellation


class TaskSupervisor:
    """Supervisor of partition tasks, each in an asyncio task of its own: none dies unseen or takes another down."""

    def __init__(
        self,
        group: asyncio.TaskGroup,
        *,
        clock: Clock,
        random: Callable[[], float],
        backoff: Backoff = Backoff(),  # noqa: B008 - frozen
        progress_of: Callable[[PartitionTask], object] = lambda _: None,
        stall_s: float = float("inf"),
    ) -> None:
        """Run nothing yet; a pass has stalled when its value from ``progress_of`` is unchanged for ``stall_s``."""
        self._group = group
        self._clock = clock
        self._random = random
        self._backoff = backoff
        self._progress_of = progress_of
        self._stall_s = stall_s
        self._supervised: dict[str, _Supervised] = {}
        self._passes: set[_Supervised] = set()  # those under way: few, however many tasks there are
        self._draining = False

    def start(self, task: PartitionTask) -> None:
        """Begin to run ``task``; its first pass comes at once. Ignored while draining.

        Raises:
            ValueError: a task of that name runs already.
        """
        if task.name in self._supervised:
            raise ValueError(f"task {task.name} runs already")
        if self._draining:
            return
        supervised = self._supervised[task.name] = _Supervised(task)
        supervised.runner = self._group.create_task(self._run(supervised), name=task.name)

    async def stop(self, name: str) -> None:
        """Cancel the task of that name and return when it has ended; an unknown name is no error."""
        supervised = self._supervised.pop(name, None)
        if supervised is not None:
            supervised.stopping = True
            await _end([supervised])

    def retry(self, names: Collection[str] | None = None) -> None:
        """Let quarantined and fenced tasks try again at once; None means all of them."""
        for name, supervised in self._supervised.items():
            if names is None or name in names:
                supervised.retry.set()

    def statistics(self) -> Mapping[str, TaskHealth]:
        """Return the health of every running task, by name."""
        return {name: supervised.health for name, supervised in self._supervised.items()}

    @property
    def running_passes(self) -> int:
        """Return the number of passes under way at this moment."""
        return len(self._passes)

    def stalled(self) -> str | None:
        """Return the name of a task whose pass has made no progress for longer than ``stall_s``; None without one."""
        now_s = self._clock.monotonic_s()
        for supervised in self._passes:
            mark = self._progress_of(supervised.task)
            if mark != supervised.progress_mark:
                supervised.progress_mark, supervised.progress_at_s = mark, now_s
            elif now_s - supervised.progress_at_s > self._stall_s:
                return supervised.task.name
        return None

    async def drain(self, timeout_s: float) -> bool:
        """Begin no further pass, let running ones end until the deadline, then cancel them.

        Returns:
            True if every pass ended by itself.
        """
        self._draining = True
        everyone = list(self._supervised.values())
        await _end([supervised for supervised in everyone if supervised not in self._passes])
        passes = [s.runner for s in everyone if s.runner is not None and not s.runner.done()]
        unfinished: Collection[asyncio.Task[None]] = ()
        if passes:
            _, unfinished = await asyncio.wait(passes, timeout=timeout_s)
        self._supervised.clear()
        await _end(everyone)
        return not unfinished

    async def _run(self, supervised: _Supervised) -> None:
        while not (self._draining or supervised.stopping):
            supervised.task.wake.clear()
            delay_s = await self._pass(supervised)
            if not (self._draining or supervised.stopping):
                await self._rest(supervised, delay_s)

    async def _pass(self, supervised: _Supervised) -> float | None:
        """Run one pass and return the wait before the next one."""
        supervised.progress_at_s = self._clock.monotonic_s()
        self._passes.add(supervised)
        try:
            delay_s = await supervised.task.run_once()
        except asyncio.CancelledError:
            if _cancelled_from_outside():
                raise
            # To let a cancellation that was not asked for end the task would be a silent death.
            return self._quarantined(supervised, RuntimeError("the pass was cancelled from within"))
        except Exception as error:  # noqa: BLE001 - one partition never takes the others down, whatever it raises
            return self._quarantined(supervised, error)
        finally:
            self._passes.discard(supervised)
        if supervised.health.failures:
            log.info("task_recovered", task=supervised.task.name, failures=supervised.health.failures)
            supervised.health = TaskHealth()
        return delay_s

    def _quarantined(self, supervised: _Supervised, failure: Exception) -> float | None:
        """Record the failure and return the wait before the next attempt, None for a fenced partition."""
        failures = supervised.health.failures + 1
        fenced = isinstance(failure, FencedError)
        delay_s = None if fenced else self._backoff.delay_s(failures, random=self._random)
        message = _one_line(failure)
        if message != supervised.health.last_error:  # once per change of error, not at every retry
            _report(supervised.task.name, failure, message)
        supervised.health = TaskHealth(
            failures=failures,
            last_error=message,
            remedy=failure.remedy if isinstance(failure, TierError) else "",
            retry_at_ms=None if delay_s is None else self._clock.now_ms() + round(delay_s * 1000),
        )
        supervised.retry.clear()
        return delay_s

    def _rest(self, supervised: _Supervised, delay_s: float | None) -> Coroutine[object, object, object]:
        """Return the wait for the task's event or the delay; a quarantined task waits for a retry by hand instead.

        An idle partition costs one sleeping task and no timer.
        """
        event = supervised.retry if supervised.health.failures else supervised.task.wake
        return event.wait() if delay_s is None else self._rest_for(supervised, event, delay_s)

    async def _rest_for(self, supervised: _Supervised, event: asyncio.Event, delay_s: float) -> None:
        if event.is_set():
            await asyncio.sleep(0)  # the others have their turn before the next pass
            return
        # The end of the delay sets the event, which is cleared before the next pass, or at the next failure. To wait
        # for two tasks of which one waits for the event costs another 1.5 kB for each of thousands of partitions.
        supervised.sleep = sleep = asyncio.create_task(self._clock.sleep(max(0.0, delay_s)), name=REST)
        sleep.add_done_callback(partial(_slept, supervised, event))
        try:
            await event.wait()
        finally:
            supervised.sleep = None
            sleep.cancel()


def _slept(supervised: _Supervised, event: asyncio.Event, sleep: "asyncio.Task[None]") -> None:
    """End the rest that ``sleep`` belongs to; after an event has ended that rest, nothing may begin another pass."""
    if supervised.sleep is sleep:
        event.set()


def _cancelled_from_outside() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


async def _end(supervised: Collection[_Supervised]) -> None:
    """Cancel the runners and return when all have ended; their group sees to what they raise."""
    ours = asyncio.current_task()
    runners = [each.runner for each in supervised if each.runner and each.runner is not ours and not each.runner.done()]
    for runner in runners:
        runner.cancel()
    if runners:
        await asyncio.wait(runners)


def _one_line(failure: Exception) -> str:
    if isinstance(failure, TierError):
        return " ".join(str(failure).split())
    return " ".join(Masking().error(failure).named.split())


def _report(task: str, failure: Exception, message: str) -> None:
    match failure:
        case FencedError():
            log.warning("task_fenced", task=task, problem=message, remedy=failure.remedy)
        case TierError() if failure.retriable:
            log.warning("task_quarantined", task=task, problem=message, remedy=failure.remedy)
        case TierError():
            log.error("task_quarantined", task=task, problem=message, remedy=failure.remedy)
        case _:
            log.error("task_quarantined_by_bug", task=task, problem=message, exc_info=failure)
