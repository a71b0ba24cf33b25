"""ChangelogRestorer: the reader that fills state stores from their changelogs (changelog-restore 2 and 3.6).

::

                        transit_to_update_standby
    ACTIVE_RESTORING ─────────────────────────────► STANDBY_UPDATING
    initial; also       ◄─────────────────────────
    the state when      enforce_restore_active, or the last changelog is gone
    empty

Active changelogs are read in the first state, those of standbys in the second, never both.
"""

from collections.abc import Collection
from dataclasses import dataclass
from enum import Enum

import structlog

from tierd.clock import Clock
from tierd.model import TopicPartition
from tierd.restore.changelog.changelog_errors import (
    IllegalRestoreError,
    IllegalTransitionError,
    LostPositionError,
    RestoreError,
    RestoreTimeoutError,
    TaskCorruptedError,
)
from tierd.restore.changelog.changelog_source import ChangelogSource
from tierd.restore.changelog.reader.changelog_steps import ChangelogSteps
from tierd.restore.changelog.reader.parallel_restore import ParallelRestore
from tierd.restore.changelog.reader.restore_limits import RestorerSettings
from tierd.restore.changelog.reader.restore_progress import ChangelogProgress, ProgressReporter
from tierd.restore.changelog.reader.restore_task import RestoreTask
from tierd.restore.changelog.reader.restored_changelog import ChangelogState, RestoredChangelog
from tierd.restore.changelog.reader.stepwise_restore import StepOutcome, StepwiseRestore
from tierd.restore.changelog.restore_listener import RestoreListener, SuspendReason

log = structlog.get_logger()


class ReaderState(Enum):
    """State of the reader; the diagram is above."""

    ACTIVE_RESTORING = "active_restoring"
    STANDBY_UPDATING = "standby_updating"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreRestoreOutcome:
    """Outcome of ``run_until_completed``.

    Attributes:
        completed: active changelogs whose stores are complete.
        failed: changelogs that were abandoned, each with the reason. They are no longer registered.
    """

    completed: frozenset[TopicPartition]
    failed: dict[TopicPartition, RestoreError]


class ChangelogRestorer:
    """Reader of changelogs, as the stream thread of Kafka Streams uses it; ``run`` plays the part of that thread.

    Not for several coroutines at once: one call of ``restore``, ``run``, ``unregister`` at a time. ``register`` may be
    called at any time.
    """

    def __init__(
        self,
        source: ChangelogSource,
        *,
        clock: Clock,
        settings: RestorerSettings | None = None,
        listener: RestoreListener | None = None,
        progress: ProgressReporter | None = None,
    ) -> None:
        self._clock = clock
        self._settings = settings or RestorerSettings()
        self._listener = listener or RestoreListener()
        self._progress = progress or ProgressReporter(clock=clock)
        self._progress.watch(lambda: list(self._changelogs.values()))
        self._steps = ChangelogSteps(source, clock=clock, settings=self._settings, progress=self._progress)
        self._parallel = ParallelRestore(self._steps, clock=clock, settings=self._settings)
        self._stepwise = StepwiseRestore(self._steps, self._parallel, clock=clock, settings=self._settings)
        self._changelogs: dict[TopicPartition, RestoredChangelog] = {}
        self._failed: dict[TopicPartition, RestoreError] = {}
        self._state = ReaderState.ACTIVE_RESTORING
        self._present: frozenset[str] | None = None  # tasks of the last restore; None: all

    @property
    def state(self) -> ReaderState:
        """Return the state of the reader."""
        return self._state

    def register(
        self,
        partition: TopicPartition,
        task: RestoreTask,
        *,
        limit_group: str | None = None,
        listener: RestoreListener | None = None,
    ) -> None:
        """Register the changelog of a store of ``task``; the store is open.

        Args:
            partition: the changelog.
            task: has the store.
            limit_group: consumer group of the application, if the changelog is one of its source topics: nothing
                above the group's committed offset is applied.
            listener: instead of that of the reader.

        Raises:
            IllegalRestoreError: the task has no store for the changelog, or the changelog is registered.
        """
        store = task.stores.get(partition)
        if store is None:
            raise IllegalRestoreError(f"task {task.task_id} has no store for changelog {partition}")
        if partition in self._changelogs:
            raise IllegalRestoreError(f"changelog {partition} is registered already")
        if isinstance(store, RestoreListener):
            log.warning("store_is_no_listener", partition=str(partition), store=store.name)
        self._failed.pop(partition, None)
        self._changelogs[partition] = RestoredChangelog(
            partition, task, store, limit_group=limit_group, listener=listener or self._listener
        )
        log.debug("changelog_registered", partition=str(partition), task=task.task_id)

    async def unregister(
        self, partitions: Collection[TopicPartition], *, reason: SuspendReason = SuspendReason.MIGRATED
    ) -> None:
        """Forget changelogs. A RESTORING one is checkpointed, and its listener is told that it ends early.

        All of them are forgotten, also when one of them fails. The stores stay open.

        Args:
            partitions: the changelogs; unknown ones are ignored.
            reason: for the listeners of standbys.

        Raises:
            RestoreCallbackError: a store or a listener failed; the first failure.
            CheckpointFileError: a checkpoint cannot be written; the first failure.
        """
        failures: list[RestoreError] = []
        for partition in partitions:
            changelog = self._changelogs.pop(partition, None)
            if changelog is None:
                log.debug("changelog_unknown", partition=str(partition))
                continue
            self._progress.forget(partition)
            try:
                if changelog.state is ChangelogState.RESTORING:
                    await self._steps.suspend(changelog, reason)
            except RestoreError as error:
                failures.append(error)
        self._settle_when_empty()
        if failures:
            raise failures[0]

    def clear(self) -> None:
        """Forget all changelogs at once; no checkpoint is written and no listener is told."""
        for partition in self._changelogs:
            self._progress.forget(partition)
        self._changelogs.clear()
        self._failed.clear()
        self._settle_when_empty()

    def is_empty(self) -> bool:
        """Return True if no changelog is registered."""
        return not self._changelogs

    def completed(self) -> set[TopicPartition]:
        """Return the active changelogs whose stores are complete."""
        return {each.partition for each in self._changelogs.values() if each.state is ChangelogState.COMPLETED}

    def offsets(self) -> dict[TopicPartition, int]:
        """Return the next offset that each store needs: last applied plus 1, or 0 (Kafka: changelogOffsets)."""
        return {
            partition: 0 if changelog.store_offset is None else changelog.store_offset + 1
            for partition, changelog in self._changelogs.items()
        }

    def paused(self) -> set[TopicPartition]:
        """Return the changelogs that have begun and are not read now: completed, of the other kind, or absent."""
        begun = (each for each in self._changelogs.values() if each.state is not ChangelogState.REGISTERED)
        return {each.partition for each in begun if not self._is_current(each)}

    def progress(self) -> list[ChangelogProgress]:
        """Return the progress of every changelog; those with most left come first."""
        return self._progress.progress()

    def enforce_restore_active(self) -> None:
        """Read active changelogs from now on, and no standby; a second time changes nothing."""
        if self._state is not ReaderState.ACTIVE_RESTORING:
            log.debug("reader_restores_active")
            self._state = ReaderState.ACTIVE_RESTORING
        self._progress.reset_timer()

    def transit_to_update_standby(self) -> None:
        """Read the changelogs of standbys from now on.

        Raises:
            IllegalTransitionError: the reader does so already.
        """
        if self._state is not ReaderState.ACTIVE_RESTORING:
            raise IllegalTransitionError("the reader", self._state.name, ReaderState.STANDBY_UPDATING.name)
        log.debug("reader_updates_standbys")
        self._state = ReaderState.STANDBY_UPDATING

    async def restore(self, tasks: Collection[str] | None = None, *, max_records: int | None = None) -> int:
        """Make one step for every changelog: look it up, read once, apply; return the number of records applied.

        All changelogs make their step before an error is raised. A cancellation takes effect between batches.

        Args:
            tasks: ids of the tasks that are not paused; None for all.
            max_records: bound of the records that are applied; None for no bound.

        Raises:
            IllegalRestoreError: an active changelog is not complete while standbys are updated, or a committed offset
                went down.
            TaskCorruptedError: offsets are out of range: wipe the stores of the tasks, and register them anew.
            RestoreTimeoutError: a changelog made no progress until its deadline.
            RestoreCallbackError: a store or a listener failed.
            CheckpointFileError: a checkpoint cannot be read or written.
            CorruptSourceError: a changelog is damaged.
        """
        self._present = None if tasks is None else frozenset(tasks)
        applied, failures = await self._step(max_records)
        for error in failures.values():
            if not isinstance(error, LostPositionError | RestoreTimeoutError):
                raise error
        timeouts = [error for error in failures.values() if isinstance(error, RestoreTimeoutError)]
        if timeouts:
            partitions = frozenset[TopicPartition]().union(*(error.partitions for error in timeouts))
            cause = "; ".join(sorted({error.reason for error in timeouts}))
            raise RestoreTimeoutError(partitions, timeout_s=self._settings.task_timeout_s, reason=cause)
        corrupted: dict[str, dict[TopicPartition, LostPositionError]] = {}
        for partition, error in failures.items():
            if isinstance(error, LostPositionError):
                corrupted.setdefault(self._changelogs[partition].task.task_id, {})[partition] = error
        if corrupted:
            raise TaskCorruptedError(corrupted)
        return applied

    async def run_until_completed(self) -> StoreRestoreOutcome:
        """Restore all active changelogs to their end, several at a time; those that are registered meanwhile too.

        A changelog that is out of range begins anew, its store wiped, a few times. A failure ends one changelog; the
        others go on. A cancellation leaves every store between two batches; ``unregister`` then writes checkpoints.
        """
        self._present = None
        self.enforce_restore_active()
        while pending := self._unfinished():
            failures = await self._parallel.restore_all(pending, after_batches=self._after_batches, renew=self._renew)
            for partition, error in failures.items():
                await self._give_up(partition, error)
        return StoreRestoreOutcome(completed=frozenset(self.completed()), failed=dict(self._failed))

    async def run_until_cancelled(self) -> None:
        """Restore all active changelogs, then keep the stores of standbys up to date, until cancelled."""
        while True:
            if self._unfinished():
                await self.run_until_completed()
            if self._state is ReaderState.ACTIVE_RESTORING:
                self.transit_to_update_standby()
            applied, failures = await self._step(None)
            for partition, error in failures.items():
                await self._repair(partition, error)
            if not applied:
                await self._clock.sleep(self._settings.poll_s)

    def _unfinished(self) -> list[RestoredChangelog]:
        changelogs = self._changelogs.values()
        return [each for each in changelogs if each.is_active and each.state is not ChangelogState.COMPLETED]

    def _settle_when_empty(self) -> None:
        if not self._changelogs:
            self._state = ReaderState.ACTIVE_RESTORING

    def _is_present(self, changelog: RestoredChangelog) -> bool:
        return self._present is None or changelog.task.task_id in self._present

    def _is_current(self, changelog: RestoredChangelog) -> bool:
        """Return True if the changelog is read in the present state of the reader."""
        is_kind = changelog.is_active == (self._state is ReaderState.ACTIVE_RESTORING)
        return is_kind and self._is_present(changelog) and changelog.state is ChangelogState.RESTORING

    async def _step(self, max_records: int | None) -> tuple[int, dict[TopicPartition, RestoreError]]:
        """Make one step for every changelog; return the records applied, and the failures."""
        if self._state is ReaderState.STANDBY_UPDATING and self._unfinished():
            names = ", ".join(str(each.partition) for each in self._unfinished())
            raise IllegalRestoreError(f"standbys are updated while active changelogs are not complete: {names}")
        step = StepOutcome(max_records)
        present = [each for each in self._changelogs.values() if self._is_present(each)]
        if any(each.state is not ChangelogState.COMPLETED for each in present):
            is_standby = self._state is ReaderState.STANDBY_UPDATING
            await self._stepwise.restore(
                present, step, is_current=self._is_current, is_standby=is_standby, after_batches=self._after_batches
            )
            self._progress.report()
            if not step.has_moved and not is_standby and self._unfinished():
                await self._clock.sleep(self._settings.poll_s)
        return step.applied, step.failures

    async def _after_batches(self, changelog: RestoredChangelog) -> None:
        if self._steps.is_checkpoint_time(changelog.task):
            registered = (self._changelogs.get(partition) for partition in changelog.task.stores)
            of_task = [each for each in registered if each is not None and each.task is changelog.task]
            await self._steps.checkpoint_if_moved(of_task)
        self._progress.report()

    def _renew(self, changelog: RestoredChangelog) -> RestoredChangelog:
        """Register a changelog anew, whose store was wiped."""
        renewed = RestoredChangelog(
            changelog.partition,
            changelog.task,
            changelog.store,
            limit_group=changelog.limit_group,
            listener=changelog.listener,
        )
        self._changelogs[changelog.partition] = renewed
        return renewed

    async def _repair(self, partition: TopicPartition, error: RestoreError) -> None:
        """Let a standby that is out of range begin anew; abandon any other that failed."""
        if isinstance(error, LostPositionError):
            changelog = self._changelogs[partition]
            try:
                await self._parallel.begin_anew(changelog, error)
            except RestoreError as failure:
                error = failure
            else:
                self._renew(changelog)
                return
        await self._give_up(partition, error)

    async def _give_up(self, partition: TopicPartition, error: RestoreError) -> None:
        """Forget a changelog that failed; its listener is told."""
        log.error("restore_failed", partition=str(partition), error=str(error), remedy=error.remedy)
        self._progress.failed()
        try:
            await self.unregister([partition])
        except RestoreError as failure:
            log.warning("restore_not_suspended", partition=str(partition), error=str(failure))
        self._failed[partition] = error
