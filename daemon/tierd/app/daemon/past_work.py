"""PastWorkReader: runs, drills, deletions and cost for the pages, from the files of the state directory."""

import asyncio
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

from tierd.app.daemon.bounded_jobs import BoundedJobs
from tierd.app.services.broker_cost import broker_cost
from tierd.clock import Clock
from tierd.config import RemoteSettings
from tierd.cost import CostReport
from tierd.errors import TierError
from tierd.model import TopicPartition
from tierd.pipeline import RunHistory
from tierd.restore import DrillHistory
from tierd.serve import MOST_DELETIONS, MOST_DRILLS, MOST_RUNS, PastWork
from tierd.tiering import read_newest

_T = TypeVar("_T")

_COST_DAYS: Final = 30
_COST_AGE_S: Final = 600.0  # the ledger grows once an hour
_COST_PATIENCE_S: Final = 2.0


class PastWorkReader:
    """Reader of what the daemon has done. The cost is computed at most every ten minutes, one computation at a time."""

    def __init__(
        self, state_dir: Path, remote: RemoteSettings, price_file: Path | None, *, jobs: BoundedJobs, clock: Clock
    ) -> None:
        """Read nothing yet."""
        self._state_dir = state_dir
        self._compute = partial(broker_cost, state_dir, remote, days=_COST_DAYS, price_file=price_file)
        self._jobs = jobs
        self._clock = clock
        self._cost: CostReport | None = None
        self._cost_s = -_COST_AGE_S
        self._computing: asyncio.Task[CostReport] | None = None

    async def read(self, partition: TopicPartition | None) -> PastWork:
        """Return past work, with the deletions of ``partition``, None for all; files that cannot be read are named."""
        problems: list[str] = []
        runs = await self._reading(lambda: RunHistory(self._state_dir).read()[-MOST_RUNS:][::-1], problems)
        drills = await self._reading(lambda: DrillHistory(self._state_dir).read()[-MOST_DRILLS:][::-1], problems)
        deletions = await self._reading(lambda: read_newest(self._state_dir, partition, limit=MOST_DELETIONS), problems)
        return PastWork(
            runs=tuple(runs),
            drills=tuple(drills),
            deletions=tuple(deletions),
            cost=await self._current_cost(problems),
            problems=tuple(problems),
        )

    async def _reading(self, job: Callable[[], list[_T]], problems: list[str]) -> list[_T]:
        try:
            found = await self._jobs.run(job, default=None)
        except TierError as error:
            problems.append(error.explained)
            return []
        if found is None:
            problems.append("the disk of state_dir did not answer in time")
            return []
        return found

    async def _current_cost(self, problems: list[str]) -> CostReport | None:
        """Return the cost, None while it is computed for the first time."""
        if self._computing is None and self._clock.monotonic_s() - self._cost_s >= _COST_AGE_S:
            self._computing = asyncio.ensure_future(asyncio.to_thread(self._compute))
        if self._computing is not None:
            done, _ = await asyncio.wait({self._computing}, timeout=_COST_PATIENCE_S)
            if done:
                ended, self._computing = self._computing, None
                self._cost_s = self._clock.monotonic_s()
                try:
                    self._cost = ended.result()
                except TierError as error:
                    problems.append(f"the cost is not known: {error}")
        return self._cost
