"""Supervision with a fake clock: a failure stays with its task, a recovery resets it, a task that hangs is named."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
import pytest_asyncio
from structlog.testing import capture_logs
from structlog.typing import EventDict

from tests.fakes.clock import FakeClock
from tests.fakes.eventually import eventually
from tierd.app.daemon.task_supervisor import REST, TaskSupervisor
from tierd.backoff import Backoff
from tierd.errors import CorruptRecordError, FencedError, RetriableRemoteStorageError, TierError

Step = BaseException | float | None | Callable[[], Awaitable[float | None]]


class ScriptedTask:
    """Task that in each pass raises, returns a delay, or awaits, as scripted; idle after its script."""

    def __init__(self, name: str, *script: Step) -> None:
        self.name = name
        self.wake = asyncio.Event()
        self.passes = 0
        self._script = list(script)

    async def run_once(self) -> float | None:
        self.passes += 1
        step = self._script.pop(0) if self._script else None
        if isinstance(step, BaseException):
            raise step
        return await step() if callable(step) else step


class Steady(FakeClock):
    """Clock that stands still while a task sleeps, until the test moves the time."""

    def __init__(self) -> None:
        super().__init__()
        self._sleepers: list[tuple[float, asyncio.Event]] = []

    async def sleep(self, delay_s: float) -> None:
        self.sleeps_s.append(delay_s)
        due = asyncio.Event()
        self._sleepers.append((self.monotonic_s() + delay_s, due))
        await due.wait()

    def advance(self, delay_s: float) -> None:
        super().advance(delay_s)
        for due_s, due in self._sleepers:
            if due_s <= self.monotonic_s():
                due.set()


@pytest.fixture
def clock() -> Steady:
    return Steady()


@pytest_asyncio.fixture
async def supervisor(clock: Steady) -> AsyncIterator[TaskSupervisor]:
    async with asyncio.TaskGroup() as group:
        supervisor = TaskSupervisor(
            group,
            clock=clock,
            random=lambda: 0.5,
            backoff=Backoff(base_s=1, cap_s=300),
            progress_of=lambda task: getattr(task, "mark", None),
            stall_s=60,
        )
        yield supervisor
        await supervisor.drain(0)


def events(logs: list[EventDict], name: str) -> list[EventDict]:
    return [entry for entry in logs if entry["event"] == name]


def torn() -> CorruptRecordError:
    return CorruptRecordError("00000000000000000000.log", 8192, "torn batch")


async def test_first_pass_runs_at_once_and_an_idle_task_runs_only_when_woken(
    supervisor: TaskSupervisor, clock: Steady
) -> None:
    task = ScriptedTask("copy a-0")
    supervisor.start(task)
    await eventually(lambda: task.passes == 1, what="the first pass")
    assert clock.sleeps_s == []
    task.wake.set()
    await eventually(lambda: task.passes == 2, what="the pass after a wake")
    assert clock.sleeps_s == []


async def test_wake_during_a_pass_causes_another_pass(supervisor: TaskSupervisor) -> None:
    inside, go_on = asyncio.Event(), asyncio.Event()

    async def pass_with_news() -> None:
        inside.set()
        await go_on.wait()

    task = ScriptedTask("copy a-0", pass_with_news)
    supervisor.start(task)
    await inside.wait()
    task.wake.set()
    go_on.set()
    await eventually(lambda: task.passes == 2, what="the second pass")


@pytest.mark.parametrize("is_woken_first", [True, False])
async def test_delay_that_ends_together_with_a_wake_causes_one_pass(
    supervisor: TaskSupervisor, clock: Steady, *, is_woken_first: bool
) -> None:
    task = ScriptedTask("expire a-0", 30.0)
    supervisor.start(task)
    await eventually(lambda: clock.sleeps_s == [30.0], what="the wait")
    for act in (task.wake.set, lambda: clock.advance(30))[:: 1 if is_woken_first else -1]:
        act()
    for _ in range(20):
        await asyncio.sleep(0)
    assert task.passes == 2


@pytest.mark.parametrize("turns", range(5))
async def test_wake_just_after_a_delay_has_ended_is_not_lost(
    supervisor: TaskSupervisor, clock: Steady, turns: int
) -> None:
    task = ScriptedTask("expire a-0", 30.0)
    supervisor.start(task)
    await eventually(lambda: clock.sleeps_s == [30.0], what="the wait")
    clock.advance(30)
    for _ in range(turns):
        await asyncio.sleep(0)
    before = task.passes
    task.wake.set()
    await eventually(lambda: task.passes > before, what="a pass after the wake")


async def test_rest_that_a_wake_has_ended_leaves_no_sleeping_task(supervisor: TaskSupervisor, clock: Steady) -> None:
    task = ScriptedTask("expire a-0", 30.0)
    supervisor.start(task)
    await eventually(lambda: clock.sleeps_s == [30.0], what="the wait")
    task.wake.set()
    await eventually(lambda: task.passes == 2, what="the pass after the wake")
    await eventually(lambda: all(each.get_name() != REST for each in asyncio.all_tasks()), what="the end of the sleep")
    clock.advance(30)
    for _ in range(20):
        await asyncio.sleep(0)
    assert task.passes == 2, "the delay of a rest that is over begins no pass"


async def test_task_that_wakes_itself_in_each_pass_lets_others_run(supervisor: TaskSupervisor) -> None:
    async def woken_again() -> float:
        restless.wake.set()
        return 30.0

    restless = ScriptedTask("expire a-0", *[woken_again] * 1000)
    other = ScriptedTask("expire b-0")
    supervisor.start(restless)
    supervisor.start(other)
    await eventually(lambda: other.passes == 1, what="the pass of the other task")
    assert restless.passes < 1000


async def test_task_waits_for_its_delay_and_a_wake_shortens_it(supervisor: TaskSupervisor, clock: Steady) -> None:
    task = ScriptedTask("copy a-0", 30.0, 30.0)
    supervisor.start(task)
    await eventually(lambda: clock.sleeps_s == [30.0], what="the first wait")
    clock.advance(30)
    await eventually(lambda: clock.sleeps_s == [30.0, 30.0], what="the second wait")
    assert task.passes == 2
    task.wake.set()
    await eventually(lambda: task.passes == 3, what="the pass after news")


async def test_a_failing_task_is_quarantined_with_growing_waits_and_reset_by_success(
    supervisor: TaskSupervisor, clock: Steady
) -> None:
    task = ScriptedTask("copy a-0", torn(), torn(), torn())
    with capture_logs() as logs:
        supervisor.start(task)
        for passes, delay_s in ((1, 1.0), (2, 2.0), (3, 4.0)):
            await eventually(lambda n=passes: len(clock.sleeps_s) == n, what=f"wait {passes}")  # type: ignore[misc] # n binds the loop variable
            health = supervisor.statistics()["copy a-0"]
            assert clock.sleeps_s[-1] == delay_s
            assert health.failures == passes
            assert health.last_error == "00000000000000000000.log: torn batch at position 8192"
            assert health.remedy == torn().remedy != ""
            assert health.retry_at_ms == clock.now_ms() + delay_s * 1000
            clock.advance(delay_s)
        await eventually(lambda: task.passes == 4, what="the pass that ends well")
        await eventually(lambda: supervisor.statistics()["copy a-0"].failures == 0, what="the reset")
    assert supervisor.statistics()["copy a-0"].last_error is None
    assert len(clock.sleeps_s) == 3  # a wait for each failed pass
    [quarantined] = events(logs, "task_quarantined")  # once, not at every retry
    assert quarantined["log_level"] == "error"
    assert "tierd inspect" in quarantined["remedy"]
    assert len(events(logs, "task_recovered")) == 1


async def test_different_error_of_a_quarantined_task_is_logged(supervisor: TaskSupervisor, clock: Steady) -> None:
    task = ScriptedTask("copy a-0", torn(), RetriableRemoteStorageError("503 SlowDown"))
    with capture_logs() as logs:
        supervisor.start(task)
        await eventually(lambda: len(clock.sleeps_s) == 1, what="the first failure")
        clock.advance(1)
        await eventually(lambda: len(clock.sleeps_s) == 2, what="the second failure")
    assert [entry["log_level"] for entry in events(logs, "task_quarantined")] == ["error", "warning"]


async def test_retry_by_hand_ends_a_quarantine_and_a_wake_does_not(supervisor: TaskSupervisor, clock: Steady) -> None:
    task = ScriptedTask("copy a-0", torn())
    supervisor.start(task)
    await eventually(lambda: len(clock.sleeps_s) == 1, what="the quarantine")
    for _ in range(10):
        task.wake.set()
        await asyncio.sleep(0)
    assert task.passes == 1
    supervisor.retry(["copy a-0"])
    await eventually(lambda: task.passes == 2, what="the pass by hand")


@pytest.mark.parametrize("failure", [torn(), MemoryError(), RuntimeError("a bug"), asyncio.CancelledError()])
async def test_any_exception_of_a_task_leaves_the_others_running(
    supervisor: TaskSupervisor, clock: Steady, failure: BaseException
) -> None:
    bad, good = ScriptedTask("copy bad-0", failure), ScriptedTask("copy good-0")
    with capture_logs() as logs:
        supervisor.start(bad)
        supervisor.start(good)
        await eventually(lambda: len(clock.sleeps_s) == 1, what="the quarantine")
    good.wake.set()
    await eventually(lambda: good.passes == 2, what="the good task to go on")
    health = supervisor.statistics()
    assert health["copy bad-0"].failures == 1
    assert health["copy good-0"].failures == 0
    clock.advance(2)
    await eventually(lambda: bad.passes == 2, what="the bad task to be tried again")
    if not isinstance(failure, TierError):
        assert [entry for entry in logs if entry["log_level"] == "error" and entry.get("exc_info")]


async def test_a_fenced_task_waits_for_leadership(supervisor: TaskSupervisor, clock: Steady) -> None:
    task = ScriptedTask("copy a-0 @1", FencedError("leader epoch 2 owns a-0"))
    supervisor.start(task)
    await eventually(lambda: supervisor.statistics()[task.name].failures == 1, what="the fence")
    clock.advance(1e6)
    task.wake.set()
    await asyncio.sleep(0)
    assert clock.sleeps_s == []
    assert task.passes == 1
    assert supervisor.statistics()[task.name].retry_at_ms is None
    await supervisor.stop(task.name)
    supervisor.start(successor := ScriptedTask("copy a-0 @2"))
    await eventually(lambda: successor.passes == 1, what="the new leadership's task")


async def test_stop_cancels_and_returns_when_the_task_has_cleaned_up(supervisor: TaskSupervisor) -> None:
    inside, cleaned = asyncio.Event(), asyncio.Event()

    async def long_pass() -> None:
        inside.set()
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            cleaned.set()

    supervisor.start(ScriptedTask("copy a-0", long_pass))
    await inside.wait()
    await supervisor.stop("copy a-0")
    assert cleaned.is_set()
    assert supervisor.statistics() == {}
    await supervisor.stop("copy a-0")  # an unknown name is no error


async def test_stop_returns_although_a_pass_swallows_the_cancellation(supervisor: TaskSupervisor) -> None:
    inside = asyncio.Event()

    async def deaf_pass() -> None:
        inside.set()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.Event().wait()

    supervisor.start(task := ScriptedTask("copy a-0", deaf_pass))
    await inside.wait()
    await supervisor.stop("copy a-0")
    assert task.passes == 1


async def test_task_with_the_name_of_a_running_one_is_refused(supervisor: TaskSupervisor) -> None:
    supervisor.start(ScriptedTask("copy a-0"))
    with pytest.raises(ValueError, match="runs already"):
        supervisor.start(ScriptedTask("copy a-0"))


async def test_drain_waits_for_running_passes_and_begins_no_other(supervisor: TaskSupervisor) -> None:
    inside, go_on = asyncio.Event(), asyncio.Event()

    async def long_pass() -> float:
        inside.set()
        await go_on.wait()
        return 0.0

    running, idle = ScriptedTask("copy a-0", long_pass), ScriptedTask("copy b-0")
    supervisor.start(running)
    supervisor.start(idle)
    await inside.wait()
    draining = asyncio.create_task(supervisor.drain(30))
    await eventually(lambda: supervisor.running_passes == 1, what="only the running pass")
    idle.wake.set()
    go_on.set()
    assert await draining
    assert (running.passes, idle.passes) == (1, 1)
    supervisor.start(late := ScriptedTask("copy c-0"))
    await asyncio.sleep(0)
    assert late.passes == 0


async def test_drain_cancels_passes_that_exceed_its_timeout(supervisor: TaskSupervisor) -> None:
    inside, cancelled = asyncio.Event(), asyncio.Event()

    async def endless_pass() -> None:
        inside.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    supervisor.start(ScriptedTask("copy a-0", endless_pass))
    await inside.wait()
    assert not await supervisor.drain(0)
    assert cancelled.is_set()


async def test_pass_without_progress_is_named_as_stalled_and_one_with_progress_is_not(
    supervisor: TaskSupervisor, clock: Steady
) -> None:
    inside = asyncio.Event()

    async def long_pass() -> None:
        inside.set()
        await asyncio.Event().wait()

    task = ScriptedTask("copy a-0", long_pass)
    supervisor.start(task)
    await inside.wait()
    assert supervisor.stalled() is None
    clock.advance(59)
    assert supervisor.stalled() is None
    task.mark = "another segment"  # type: ignore[attr-defined] # what progress_of of this test looks at
    clock.advance(2)
    assert supervisor.stalled() is None
    clock.advance(61)
    assert supervisor.stalled() == "copy a-0"


async def test_ten_thousand_idle_tasks_set_no_timer(supervisor: TaskSupervisor, clock: Steady) -> None:
    tasks = [ScriptedTask(f"copy a-{n}") for n in range(10_000)]
    for task in tasks:
        supervisor.start(task)
    await eventually(lambda: all(task.passes == 1 for task in tasks), what="every first pass")
    assert clock.sleeps_s == []
