"""ParallelRestore: restores of active changelogs to their end, several stores at a time (changelog-restore 3.6, 3.7).

Inside a changelog the order is strict: one read runs ahead while the batches before it are applied one after the other.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence

import structlog

from tierd.clock import Clock
from tierd.model import TopicPartition
from tierd.restore.changelog.changelog_errors import (
    LostPositionError,
    OutdatedPositionError,
    RestoreError,
    RestoreTimeoutError,
    SourceUnavailableError,
)
from tierd.restore.changelog.changelog_source import ReadResult
from tierd.restore.changelog.reader.changelog_steps import ChangelogSteps
from tierd.restore.changelog.reader.restore_limits import ByteBudget, RestartLimit, RestorerSettings
from tierd.restore.changelog.reader.restored_changelog import ChangelogState, RestoredChangelog
from tierd.restore.changelog.reader.start_decision import WipeReason
from tierd.restore.changelog.restore_listener import SuspendReason

AfterBatches = Callable[[RestoredChangelog], Awaitable[None]]
"""Called between batches: checkpoints and progress, for which the caller knows all changelogs of a task."""
Renew = Callable[[RestoredChangelog], RestoredChangelog]
"""Registers a changelog anew and returns its new object."""

NOTHING_TO_READ = "the changelog has nothing to read below its end; a transaction may be open"

log = structlog.get_logger()


class ParallelRestore:
    """Restores many changelogs. A failure ends one changelog; the others go on."""

    def __init__(self, steps: ChangelogSteps, *, clock: Clock, settings: RestorerSettings) -> None:
        self._steps = steps
        self._clock = clock
        self._settings = settings
        self._budget = ByteBudget(settings.budget_bytes)
        self._limits: dict[TopicPartition, RestartLimit] = {}
        self._outdated_limits: dict[TopicPartition, RestartLimit] = {}

    async def restore_all(
        self, changelogs: Sequence[RestoredChangelog], *, after_batches: AfterBatches, renew: Renew
    ) -> dict[TopicPartition, RestoreError]:
        """Restore active changelogs to their end, and return the failures. Those with most left come first.

        Changelogs of one store follow each other. A cancellation leaves every store between two batches.
        """
        failures: dict[TopicPartition, RestoreError] = {}
        slots = asyncio.Semaphore(self._settings.parallelism)
        async with asyncio.TaskGroup() as group:
            for changelog in changelogs:
                work = self._try_to_initialise(changelog, slots, failures)
                group.create_task(work, name=f"look up {changelog.partition}")
        queue = deque(by_store(each for each in changelogs if each.partition not in failures))

        async def restore_queued() -> None:
            while queue:
                for changelog in queue.popleft():
                    failure = await self._restore(changelog, after_batches, renew)
                    if failure is not None:
                        failures[changelog.partition] = failure

        async with asyncio.TaskGroup() as group:
            for number in range(min(self._settings.parallelism, len(queue))):
                group.create_task(restore_queued(), name=f"restore stores {number}")
        return failures

    async def begin_anew(self, changelog: RestoredChangelog, error: LostPositionError) -> None:
        """Wipe the store of a changelog that is out of range, so that it can be registered anew.

        Raises:
            LostPositionError: it began anew too often.
            RestoreError: the store, the checkpoint or a listener failed.
        """
        if not self._limit(changelog, error).admit(self._clock.monotonic_s()):
            raise error
        log.warning("changelog_out_of_range", partition=str(changelog.partition), error=str(error))
        self._steps.announce_suspension(changelog, SuspendReason.MIGRATED)
        is_outdated = isinstance(error, OutdatedPositionError)
        await self._steps.wipe(changelog, WipeReason.TOO_OLD if is_outdated else WipeReason.OUT_OF_RANGE)

    def _limit(self, changelog: RestoredChangelog, error: LostPositionError) -> RestartLimit:
        """Return the limit for a kind of error; a restore that is outdated comes that far once in a long time only."""
        restarts, window_s = self._settings.restarts, self._settings.restart_window_s
        retention_ms = changelog.identity.delete_retention_ms
        if isinstance(error, OutdatedPositionError) and retention_ms is not None:
            longest = RestartLimit(restarts, window_s + 2 * restarts * retention_ms / 1000)
            return self._outdated_limits.setdefault(changelog.partition, longest)
        return self._limits.setdefault(changelog.partition, RestartLimit(restarts, window_s))

    def require_in_time(self, changelog: RestoredChangelog, reason: str) -> None:
        """Note that a changelog made no progress.

        Raises:
            RestoreTimeoutError: its deadline has passed.
        """
        timeout_s = self._settings.task_timeout_s
        if changelog.note_failure(self._clock.monotonic_s(), timeout_s=timeout_s):
            raise RestoreTimeoutError([changelog.partition], timeout_s=timeout_s, reason=reason)

    async def _try_to_initialise(
        self, changelog: RestoredChangelog, slots: asyncio.Semaphore, failures: dict[TopicPartition, RestoreError]
    ) -> None:
        """Look up the bounds of one changelog, so that the order can be chosen; a source that fails is asked again."""
        async with slots:
            try:
                await self._initialise(changelog)
            except RestoreError as error:
                failures[changelog.partition] = error

    async def _initialise(self, changelog: RestoredChangelog) -> None:
        """Make one attempt to initialise a changelog that is REGISTERED."""
        if changelog.state is ChangelogState.REGISTERED:
            try:
                await self._steps.initialise(changelog)
            except SourceUnavailableError as error:
                self.require_in_time(changelog, str(error))

    async def _restore(
        self, changelog: RestoredChangelog, after_batches: AfterBatches, renew: Renew
    ) -> RestoreError | None:
        """Restore one changelog to its end, beginning anew where that helps; return the reason why it was abandoned."""
        while True:
            try:
                await self._restore_once(changelog, after_batches)
            except LostPositionError as error:
                try:
                    await self.begin_anew(changelog, error)
                except RestoreError as failure:
                    return failure
                changelog = renew(changelog)
            except RestoreError as error:
                return error
            else:
                return None

    async def _restore_once(self, changelog: RestoredChangelog, after_batches: AfterBatches) -> None:
        await self._initialise(changelog)
        while changelog.state is ChangelogState.REGISTERED:
            await self._clock.sleep(self._settings.retry_s)
            await self._initialise(changelog)
        if changelog.state is ChangelogState.COMPLETED:
            return
        failure: RestoreError | None = None
        async with asyncio.TaskGroup() as group:
            try:
                await self._pump(changelog, group, after_batches)
            except RestoreError as error:  # raised below: out of here it would be an exception group
                failure = error
        if failure is not None:
            raise failure
        await self._steps.complete(changelog)

    async def _pump(self, changelog: RestoredChangelog, group: asyncio.TaskGroup, after_batches: AfterBatches) -> None:
        """Read and apply until the changelog is complete."""
        ahead: asyncio.Task[ReadResult | RestoreError] | None = None
        try:
            while not changelog.is_complete():
                ahead = ahead or self._read_ahead(changelog, group)
                read = await ahead
                ahead = None
                if isinstance(read, SourceUnavailableError):
                    self.require_in_time(changelog, str(read))
                    await self._clock.sleep(self._settings.retry_s)
                    continue
                if isinstance(read, RestoreError):
                    raise read
                charged_bytes = self._charge(read)
                try:
                    is_moved = self._steps.take(changelog, read)
                    if changelog.wants_more:
                        ahead = self._read_ahead(changelog, group)
                    applied = await self._steps.apply(changelog)
                finally:
                    self._budget.release(charged_bytes)
                await after_batches(changelog)
                if not is_moved and not applied and not changelog.is_complete():
                    self.require_in_time(changelog, NOTHING_TO_READ)
                    await self._clock.sleep(self._settings.poll_s)
        finally:
            if ahead is not None:
                self._give_up(ahead)

    def _read_ahead(
        self, changelog: RestoredChangelog, group: asyncio.TaskGroup
    ) -> asyncio.Task[ReadResult | RestoreError]:
        return group.create_task(self._read(changelog), name=f"read {changelog.partition}")

    async def _read(self, changelog: RestoredChangelog) -> ReadResult | RestoreError:
        """Read on, within the budget; the bytes stay reserved only if there is a result."""
        await self._budget.reserve(self._settings.fetch_bytes)
        try:
            return await self._steps.read(changelog)
        except RestoreError as error:
            self._budget.release(self._settings.fetch_bytes)
            return error
        except BaseException:
            self._budget.release(self._settings.fetch_bytes)
            raise

    def _give_up(self, ahead: asyncio.Task[ReadResult | RestoreError]) -> None:
        """Cancel a read that runs ahead, or release the bytes of its result."""
        if not ahead.done():
            ahead.cancel()
        elif not ahead.cancelled() and ahead.exception() is None and isinstance(ahead.result(), ReadResult):
            self._budget.release(self._settings.fetch_bytes)

    def _charge(self, read: ReadResult) -> int:
        """Replace the reservation of a read by the bytes that it brought, and return them."""
        actual_bytes = max(read.size_bytes, read.records.payload_bytes)
        self._budget.exchange(self._settings.fetch_bytes, actual_bytes)
        return actual_bytes


def by_store(changelogs: Iterable[RestoredChangelog]) -> list[list[RestoredChangelog]]:
    """Return the changelogs grouped by store; most left comes first, among the groups and inside them."""
    groups: dict[int, list[RestoredChangelog]] = {}
    for changelog in sorted(changelogs, key=lambda each: (-each.remaining, each.partition)):
        groups.setdefault(id(changelog.store), []).append(changelog)
    return sorted(groups.values(), key=lambda group: -sum(each.remaining for each in group))
