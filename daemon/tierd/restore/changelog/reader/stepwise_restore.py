"""StepwiseRestore: one step for every changelog at a time, as the stream thread of Kafka Streams makes it (2.2)."""

import asyncio
from collections.abc import Callable, Sequence

from tierd.clock import Clock
from tierd.model import TopicPartition
from tierd.restore.changelog.changelog_errors import RestoreError, RestoreTimeoutError, SourceUnavailableError
from tierd.restore.changelog.reader.changelog_steps import ChangelogSteps, RecordAllowance
from tierd.restore.changelog.reader.parallel_restore import NOTHING_TO_READ, AfterBatches, ParallelRestore, by_store
from tierd.restore.changelog.reader.restore_limits import RestorerSettings
from tierd.restore.changelog.reader.restored_changelog import ChangelogState, RestoredChangelog


class StepOutcome:
    """One step of all changelogs: the records that it may still apply, and what came of it."""

    def __init__(self, max_records: int | None) -> None:
        self.allowance = RecordAllowance() if max_records is None else RecordAllowance(max_records)
        self.applied = 0
        self.has_moved = False
        self.failures: dict[TopicPartition, RestoreError] = {}


class StepwiseRestore:
    """Makes one step for every changelog: looks it up, reads once, applies."""

    def __init__(
        self, steps: ChangelogSteps, parallel: ParallelRestore, *, clock: Clock, settings: RestorerSettings
    ) -> None:
        self._steps = steps
        self._parallel = parallel
        self._clock = clock
        self._settings = settings
        self._limits_looked_up_s = clock.monotonic_s()

    async def restore(
        self,
        changelogs: Sequence[RestoredChangelog],
        step: StepOutcome,
        *,
        is_current: Callable[[RestoredChangelog], bool],
        is_standby: bool,
        after_batches: AfterBatches,
    ) -> None:
        """Make one step for every changelog, several stores at a time; ``step`` takes the outcome.

        Args:
            changelogs: of the tasks that are not paused.
            step: a failure is noted there, and does not keep the other changelogs from their step.
            is_current: tells the changelogs that are read in the present state of the reader.
            is_standby: the reader updates standbys: their limits are looked up anew when it is time.
            after_batches: called for each changelog that is read.
        """
        slots = asyncio.Semaphore(self._settings.parallelism)

        async def step_of_store(of_store: Sequence[RestoredChangelog]) -> None:
            async with slots:
                for changelog in of_store:
                    try:
                        await self._step_of(changelog, step, is_current, after_batches)
                    except SourceUnavailableError as error:
                        self._note_failure(changelog, str(error), step)
                    except RestoreError as error:
                        step.failures[changelog.partition] = error

        async with asyncio.TaskGroup() as group:
            for of_store in by_store(changelogs):
                group.create_task(step_of_store(of_store), name=f"step of {of_store[0].partition}")
        if is_standby:
            await self._refresh_limits([each for each in changelogs if is_current(each)], step)

    async def _step_of(
        self,
        changelog: RestoredChangelog,
        step: StepOutcome,
        is_current: Callable[[RestoredChangelog], bool],
        after_batches: AfterBatches,
    ) -> None:
        if changelog.state is ChangelogState.REGISTERED:
            await self._steps.initialise(changelog)
            changelog.note_progress()
            step.has_moved = True
            if changelog.limit_group is not None:
                self._limits_looked_up_s = self._clock.monotonic_s()
        if not is_current(changelog):
            return
        is_moved, unavailable = False, None
        is_full = changelog.buffered >= self._settings.buffer_records and not changelog.applicable
        if not changelog.is_complete() and not is_full:
            try:
                is_moved = self._steps.take(changelog, await self._steps.read(changelog))
            except SourceUnavailableError as error:  # what was read before is applied all the same
                unavailable = error
        applied = await self._steps.apply(changelog, step.allowance)
        step.applied += applied
        step.has_moved = step.has_moved or is_moved or applied > 0
        if changelog.is_complete():
            await self._steps.complete(changelog)
            step.has_moved = True
        elif unavailable is not None and not applied:
            self._note_failure(changelog, str(unavailable), step)
        elif changelog.is_active and not is_moved and not applied and step.allowance.left > 0:
            self._note_failure(changelog, NOTHING_TO_READ, step)
        await after_batches(changelog)

    def _note_failure(self, changelog: RestoredChangelog, cause: str, step: StepOutcome) -> None:
        try:
            self._parallel.require_in_time(changelog, cause)
        except RestoreTimeoutError as error:
            step.failures[changelog.partition] = error

    async def _refresh_limits(self, current: Sequence[RestoredChangelog], step: StepOutcome) -> None:
        """Look up the committed offsets of standbys on source topics, at most once an interval (2.2).

        What a higher limit allows is applied in the next step.
        """
        now_s = self._clock.monotonic_s()
        limited = [each for each in current if each.limit_group]
        is_due = now_s - self._limits_looked_up_s > self._settings.commit_interval_s
        if not is_due or not any(each.buffered for each in limited):
            return
        self._limits_looked_up_s = now_s
        for changelog in limited:
            try:
                committed = await self._steps.committed_offset(changelog)
                if committed is not None:
                    changelog.raise_limit(committed)
            except SourceUnavailableError as error:
                self._note_failure(changelog, str(error), step)
            except RestoreError as error:
                step.failures[changelog.partition] = error
