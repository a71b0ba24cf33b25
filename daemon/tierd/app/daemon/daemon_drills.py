"""Drills inside a running daemon: begun by the schedule, shown in the status and the metrics.

::

    every minute, and at each begin:  history changed? ─► read it (tierd drill writes it too)
    at a begin of a schedule:         led partitions ─► DrillRun ─► a line in the history for each
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import structlog
from pydantic import JsonValue

from tierd.app.engine.compose import Engine
from tierd.app.restore.drill_run import DrillProgress, DrillRequest, DrillResult, DrillRun
from tierd.app.restore.restore_source import engine_source
from tierd.clock import Clock
from tierd.errors import TierError
from tierd.model import TopicIdPartition, uuid_from_text
from tierd.restore import DrilledPartition, DrillHistory, DrillProofs
from tierd.schedule import Schedule
from tierd.telemetry import DrillUse
from tierd.tiering import PartitionStatus

log = structlog.get_logger()

_LONGEST_SLEEP_S: Final = 60.0  # the wall clock may be set meanwhile, and a command may have drilled
_NAMED: Final = 20  # failing partitions in the status

Led = Callable[[], Sequence[TopicIdPartition]]
"""Function that returns the led partitions of which the tier has something."""


@dataclass(slots=True)
class _Counts:
    drilled: Counter[str]
    run_failures: int = 0


@dataclass(slots=True)
class _Timetable:
    """Schedule of one kind of drill, and its next begin; None for never."""

    schedule: Schedule | None
    is_broker: bool
    next_ms: int | None = None


class DaemonDrills:
    """Owner of the daemon's drills; without a schedule it follows the history alone."""

    def __init__(
        self,
        run: DrillRun,
        history: DrillHistory,
        led: Led,
        *,
        timetable: Schedule | None,
        broker_timetable: Schedule | None = None,
        clock: Clock,
        random: Callable[[], float],
    ) -> None:
        """Read and drill nothing yet.

        Args:
            run: does the drills.
            history: of the drills of this host.
            led: the partitions that drills of this daemon go through.
            timetable: when a drill begins; None for never.
            broker_timetable: when a drill of the whole broker begins; None for never.
            clock: time.
            random: returns a number in [0, 1).
        """
        self._run = run
        self._history = history
        self._led = led
        self._samples = _Timetable(timetable, is_broker=False)
        self._of_broker = _Timetable(broker_timetable, is_broker=True)
        self._is_scheduled = timetable is not None or broker_timetable is not None
        self._clock = clock
        self._random = random
        self._version: object = None
        self._proofs = DrillProofs({}, {})
        self._counts = _Counts(Counter())
        self._running: TopicIdPartition | None = None
        self._is_running = False
        self._problem = ""

    async def run(self) -> None:
        """Drill by the schedule until cancelled. A drill under way is ended then, and its scratch is cleared."""
        checked_ms = self._clock.now_ms()
        self._plan_begins(checked_ms)
        while True:
            await self._follow_history()
            now_ms = self._clock.now_ms()
            due = next((each for each in self._timetables if each.next_ms is not None and now_ms >= each.next_ms), None)
            if due is not None:
                due.next_ms = self._after(due, now_ms)
                await self._drill(is_broker=due.is_broker)
                continue
            if now_ms < checked_ms:  # the wall clock was set back
                self._plan_begins(now_ms)
            checked_ms = now_ms
            next_ms = self._next_begin_ms
            left_s = _LONGEST_SLEEP_S if next_ms is None else (next_ms - now_ms) / 1000
            await self._clock.sleep(min(max(left_s, 0.0), _LONGEST_SLEEP_S))

    def use(self) -> DrillUse | None:
        """Return the state for the metrics; None where no drill is scheduled and none was ever done."""
        if not self._is_scheduled and not self._proofs.last:
            return None
        led = self._led()
        until_s: dict[str, float] = {}
        for partition in led:
            proven_s = self._proofs.proven_until_ms(partition) / 1000
            until_s[partition.topic] = min(proven_s, until_s.get(partition.topic, proven_s))
        last_ms = self._proofs.last_proof_ms
        return DrillUse(
            proven_until_s=until_s,
            unproven=sum(partition not in self._proofs.proofs for partition in led),
            failing=len(self._failing(led)),
            last_success_s=None if last_ms is None else last_ms / 1000,
            drilled=dict(self._counts.drilled),
            run_failures=self._counts.run_failures,
            is_running=self._is_running,
            next_begin_s=None if (next_ms := self._next_begin_ms) is None else next_ms / 1000,
        )

    def facts(self, statuses: Sequence[PartitionStatus]) -> dict[str, JsonValue]:
        """Return the section ``drills`` of the status, for the status of all partitions."""
        led = led_partitions(statuses) if self._is_scheduled or self._proofs.last else ()
        proven_ms = [self._proofs.proven_until_ms(partition) for partition in led]
        failing = self._failing(led)
        return {
            "enabled": self._is_scheduled,
            "running": self._is_running,
            "partition": None if self._running is None else str(self._running),
            "next_begin_ms": self._samples.next_ms,
            "next_broker_begin_ms": self._of_broker.next_ms,
            "last_success_ms": self._proofs.last_proof_ms,
            "partitions": len(led),
            "unproven": proven_ms.count(0),
            "proven_until_ms": min(proven_ms, default=None),
            "failing": {each.partition: f"{each.outcome.value}: {each.problem}" for each in failing[:_NAMED]},
            "failing_partitions": len(failing),
            "problem": self._problem,
        }

    def _failing(self, led: Sequence[TopicIdPartition]) -> list[DrilledPartition]:
        last = (self._proofs.last.get(partition) for partition in led)
        return [each for each in last if each is not None and not each.outcome.is_proof]

    async def _follow_history(self) -> None:
        """Read the history if it has changed. One that cannot be read is a problem of the status, not an end."""
        try:
            version = await asyncio.to_thread(self._history.version)
            if version != self._version:
                self._proofs = await asyncio.to_thread(self._history.proofs)
                self._version = version
        except TierError as error:
            self._report(error)

    async def _drill(self, *, is_broker: bool) -> None:
        """Do one drill. No failure of it, not even a bug, ends the daemon: copies go on."""
        led = frozenset(self._led())
        if not led:
            return
        self._is_running = True
        try:
            await self._run.run(
                DrillRequest(trigger="schedule", is_broker=is_broker, wants=led.__contains__),
                DrillProgress(begun=self._begun, drilled=self._drilled),
            )
            self._problem = ""
        except TierError as error:
            self._counts.run_failures += 1
            self._report(error)
        except Exception as error:
            self._counts.run_failures += 1
            self._problem = f"{type(error).__name__}, a bug; the daemon's log has the traceback"
            log.exception("drill_failed_by_bug")
        finally:
            self._is_running, self._running = False, None

    def _begun(self, partition: TopicIdPartition) -> None:
        self._running = partition

    def _drilled(self, result: DrillResult) -> None:
        drilled = result.drilled
        self._counts.drilled[drilled.outcome.value] += 1
        self._proofs = self._proofs.after(drilled)
        (log.info if drilled.outcome.is_proof else log.error)(
            "partition_drilled",
            partition=drilled.partition,
            outcome=drilled.outcome.value,
            end_offset=drilled.end_offset,
            size_bytes=drilled.size_bytes,
            samples=drilled.samples,
            problem=drilled.problem,
            remedy=drilled.remedy,
        )

    def _report(self, error: TierError) -> None:
        if error.explained != self._problem:
            log.warning("drill_not_done", problem=str(error), remedy=error.remedy)
        self._problem = error.explained

    @property
    def _timetables(self) -> tuple[_Timetable, _Timetable]:
        return self._of_broker, self._samples

    @property
    def _next_begin_ms(self) -> int | None:
        return min((each.next_ms for each in self._timetables if each.next_ms is not None), default=None)

    def _plan_begins(self, now_ms: int) -> None:
        for each in self._timetables:
            each.next_ms = self._after(each, now_ms)

    def _after(self, timetable: _Timetable, now_ms: int) -> int | None:
        if timetable.schedule is None:
            return None
        return timetable.schedule.next_begin_ms(now_ms, random=self._random)


def new_daemon_drills(engine: Engine, status: Callable[[], tuple[PartitionStatus, ...]]) -> DaemonDrills:
    """Build the drills over the stores of the engine; nothing runs yet. ``status`` returns that of all partitions."""
    deployment, history = engine.deployment, DrillHistory(engine.deployment.state_dir)
    settings = deployment.drill
    source = engine_source(engine, max_bytes_per_second=settings.max_bytes_per_second)
    return DaemonDrills(
        DrillRun(deployment, source, history, clock=engine.clock, random=engine.random),
        history,
        lambda: led_partitions(status()),
        timetable=settings.timetable(),
        broker_timetable=settings.broker_timetable(),
        clock=engine.clock,
        random=engine.random,
    )


def led_partitions(statuses: Sequence[PartitionStatus]) -> tuple[TopicIdPartition, ...]:
    """Return the led partitions of which the tier has something."""
    return tuple(
        TopicIdPartition(uuid_from_text(each.topic_id), each.partition.topic, each.partition.partition)
        for each in statuses
        if each.role == "leader" and each.copied_through is not None and each.copied_through >= 0
    )
