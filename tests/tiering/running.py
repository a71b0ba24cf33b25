"""Running manager: a clock that stands still for long waits, and a minimal supervisor."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Collection, Mapping

from tests.fakes.clock import FakeClock
from tests.tiering.setups import Session
from tierd.errors import TierError
from tierd.tiering import PartitionTask, TaskHealth

SHORT_S = 1.0


class StandingClock(FakeClock):
    """Clock with which short sleeps end at once; longer ones last until the test moves time beyond them."""

    def __init__(self) -> None:
        super().__init__()
        self._moved = asyncio.Event()

    async def sleep(self, delay_s: float) -> None:
        self.sleeps_s.append(delay_s)
        due_s = self.monotonic_s() + delay_s
        while delay_s > SHORT_S and self.monotonic_s() < due_s:
            await self._moved.wait()
        await asyncio.sleep(0)

    def advance(self, delay_s: float) -> None:
        super().advance(delay_s)
        moved, self._moved = self._moved, asyncio.Event()
        moved.set()


class PlainSupervisor:
    """Supervisor with one asyncio task per partition task; a failed pass waits for ``retry``."""

    def __init__(self, group: asyncio.TaskGroup, clock: StandingClock) -> None:
        self._group = group
        self._clock = clock
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._health: dict[str, TaskHealth] = {}
        self._retry = asyncio.Event()

    def start(self, task: PartitionTask) -> None:
        assert task.name not in self._tasks
        self._health[task.name] = TaskHealth()
        self._tasks[task.name] = self._group.create_task(self._run(task), name=task.name)

    async def stop(self, name: str) -> None:
        task = self._tasks.pop(name, None)
        self._health.pop(name, None)
        if task is not None:
            task.cancel()
            await asyncio.wait([task])

    def retry(self, names: Collection[str] | None = None) -> None:
        retry, self._retry = self._retry, asyncio.Event()
        retry.set()

    def statistics(self) -> Mapping[str, TaskHealth]:
        return self._health

    async def end(self) -> None:
        for name in list(self._tasks):
            await self.stop(name)

    async def _run(self, task: PartitionTask) -> None:
        while True:
            task.wake.clear()
            try:
                delay_s = await task.run_once()
            except TierError as error:
                self._health[task.name] = TaskHealth(failures=1, last_error=str(error))
                await self._retry.wait()
                continue
            self._health[task.name] = TaskHealth()
            waits = [asyncio.create_task(_woken(task.wake))]
            if delay_s is not None:
                waits.append(asyncio.create_task(self._clock.sleep(max(delay_s, 2 * SHORT_S))))
            try:
                await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for wait in waits:
                    wait.cancel()


async def _woken(wake: asyncio.Event) -> None:
    await wake.wait()


@contextlib.asynccontextmanager
async def running(session: Session, supervisor: PlainSupervisor) -> AsyncIterator[None]:
    """Run the session's manager while the block lasts."""
    manager = asyncio.create_task(session.manager.run(), name="manager")
    try:
        await asyncio.wait(
            [manager, asyncio.ensure_future(session.manager.first_reconcile_done.wait())],
            return_when=asyncio.FIRST_COMPLETED,
        )
        if manager.done():
            manager.result()
        yield
    finally:
        manager.cancel()
        await asyncio.wait([manager])
        await supervisor.end()
        session.hold.close()
