"""ChangelogSteps: what is done with one changelog: looked up, read, applied, checkpointed, wiped, ended (2.2, 3.6).

``RestoredChangelog`` and ``decide_start`` decide. The steps touch the source, the store, the checkpoint, the listener.
A cancellation takes effect between two batches, never inside one.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

import structlog

from tierd.clock import Clock
from tierd.model import IsolationLevel, TopicPartition
from tierd.restore.changelog.changelog_errors import (
    OutdatedPositionError,
    RestoreCallbackError,
    SourceUnavailableError,
)
from tierd.restore.changelog.changelog_source import ChangelogRecords, ChangelogSource, ReadResult, converted
from tierd.restore.changelog.checkpoints.checkpoint_meta import CheckpointMeta
from tierd.restore.changelog.checkpoints.task_checkpoint import CheckpointedOffset
from tierd.restore.changelog.reader.restore_limits import RestorerSettings
from tierd.restore.changelog.reader.restore_progress import ProgressReporter
from tierd.restore.changelog.reader.restore_task import RestoreTask
from tierd.restore.changelog.reader.restored_changelog import ChangelogState, RestoredChangelog
from tierd.restore.changelog.reader.start_decision import (
    ChangelogFacts,
    StartDecision,
    StoreFacts,
    WipeReason,
    decide_start,
    known_offset,
)
from tierd.restore.changelog.restore_listener import SuspendReason
from tierd.restore.plan.tombstone_age import longest_read_ms
from tierd.tasks import run_to_end

_NO_LIMIT: Final = 2**63 - 1

log = structlog.get_logger()


@dataclass(slots=True)
class RecordAllowance:
    """Records that may still be applied, over all changelogs."""

    left: int = _NO_LIMIT


class ChangelogSteps:
    """Steps of a restore, each for one changelog. One step at a time for one changelog."""

    def __init__(
        self, source: ChangelogSource, *, clock: Clock, settings: RestorerSettings, progress: ProgressReporter
    ) -> None:
        self._source = source
        self._clock = clock
        self._settings = settings
        self._progress = progress
        self._checkpointed_s: dict[str, float] = {}

    async def initialise(self, changelog: RestoredChangelog) -> None:
        """Look up the bounds of a REGISTERED changelog, decide where to begin, and announce the start.

        Raises:
            SourceUnavailableError: nothing was changed; the call may be repeated.
            RestoreCallbackError: the store or a listener failed.
            CheckpointFileError: the checkpoint of the task cannot be read or written.
        """
        partition = changelog.partition
        changelog.looked_up_ms = self._clock.now_ms()
        # Never the last stable offset: an open transaction would put the end below data of the store (KAFKA-10167).
        log_end = await self._source.end_offset(partition, IsolationLevel.READ_UNCOMMITTED)
        committed = await self.committed_offset(changelog)
        changelog.identity = await self._source.identity(partition)
        decision = await self._decide(changelog, log_end)
        starting_offset = await self._start_after(changelog, decision)
        if changelog.store.transactional and changelog.store.persistent:
            await self._write_start(changelog, decision, log_end)
        changelog.begin_after(decision.offset, position=starting_offset, log_end_offset=log_end)
        if changelog.is_active:
            changelog.limit_once(log_end if committed is None else min(log_end, committed))
        elif committed is not None:
            changelog.raise_limit(committed)
        changelog.transit(ChangelogState.RESTORING)
        self._checkpointed_s.setdefault(changelog.task.task_id, self._clock.monotonic_s())
        self._progress.started(changelog)
        self._announce_start(changelog)

    async def committed_offset(self, changelog: RestoredChangelog) -> int | None:
        """Return the committed offset that limits a changelog, 0 if there is none yet.

        None for a changelog that is no source topic.

        Raises:
            SourceUnavailableError: the offset cannot be told now.
        """
        if changelog.limit_group is None:
            return None
        return await self._source.committed_offset(changelog.limit_group, changelog.partition) or 0

    async def read(self, changelog: RestoredChangelog) -> ReadResult:
        """Read on from the position of a changelog; ``take`` moves it.

        Raises:
            OutdatedPositionError: the restore takes so long that deletions may be missed.
            RestoreError: as ``ChangelogSource.read``.
        """
        asked_ms = self._clock.now_ms()
        position = changelog.position
        if position is None:
            position = changelog.position = await self._source.earliest_offset(changelog.partition)
        isolation = IsolationLevel.READ_COMMITTED if changelog.task.exactly_once else IsolationLevel.READ_UNCOMMITTED
        read = await self._source.read(
            changelog.partition, position, max_bytes=self._settings.fetch_bytes, isolation=isolation
        )
        self._require_recent(changelog, position)
        changelog.asked_ms = asked_ms
        return read

    def _require_recent(self, changelog: RestoredChangelog, position: int) -> None:
        """Raise if the log may have lost tombstones of keys that were read before."""
        retention_ms = changelog.identity.delete_retention_ms
        age_ms = self._clock.now_ms() - changelog.read_since_ms
        if retention_ms is not None and age_ms > longest_read_ms(retention_ms):
            raise OutdatedPositionError(
                changelog.partition, offset=position, age_ms=age_ms, delete_retention_ms=retention_ms
            )

    def take(self, changelog: RestoredChangelog, read: ReadResult) -> bool:
        """Put the records of a read into the buffer; return True if the position moved."""
        is_moved = read.next_offset != changelog.position
        without_key = changelog.buffer(read)
        if without_key:
            log.warning("records_without_key_skipped", partition=str(changelog.partition), records=without_key)
        if is_moved:
            changelog.note_progress()
        self._progress.read(size_bytes=read.size_bytes, remote_bytes=read.remote_bytes)
        return is_moved

    async def apply(self, changelog: RestoredChangelog, allowance: RecordAllowance | None = None) -> int:
        """Apply the batches of a RESTORING changelog that are due, and return the number of records.

        Raises:
            RestoreCallbackError: the store or a listener failed.
        """
        allowance = allowance or RecordAllowance()
        records, batch_bytes = self._settings.batch_records, self._settings.batch_bytes
        applied = 0
        while allowance.left > 0 and changelog.is_batch_due(batch_records=records, batch_bytes=batch_bytes):
            batch = changelog.next_batch(batch_records=min(records, allowance.left), batch_bytes=batch_bytes)
            allowance.left -= len(batch)
            await run_to_end(self._apply(changelog, batch), name=f"apply {changelog.partition}")
            applied += len(batch)
        return applied

    async def complete(self, changelog: RestoredChangelog) -> None:
        """End the restore of an active changelog that has all records: checkpoint, then the listener.

        Raises:
            RestoreCallbackError: the store or a listener failed.
            CheckpointFileError: the checkpoint cannot be written; the changelog stays RESTORING.
        """
        changelog.completed()
        await self.checkpoint([changelog])
        changelog.transit(ChangelogState.COMPLETED)
        changelog.note_progress()
        store, total = changelog.store.name, changelog.total_restored
        log.info("store_restored", partition=str(changelog.partition), store=store, records=total)
        with _phase(changelog, "on_restore_end"):
            changelog.listener.on_restore_end(changelog.partition, store, total_restored=total)

    async def suspend(self, changelog: RestoredChangelog, reason: SuspendReason) -> None:
        """End a RESTORING changelog early: checkpoint, then the listener, which is told in any case.

        A changelog whose end was announced is left alone: its store may be wiped in part.

        Raises:
            RestoreCallbackError: the store or a listener failed.
            CheckpointFileError: the checkpoint cannot be written.
        """
        if changelog.has_ended:
            return
        try:
            await self.checkpoint([changelog])
        finally:
            self.announce_suspension(changelog, reason)

    def announce_suspension(self, changelog: RestoredChangelog, reason: SuspendReason) -> None:
        """Tell the listener that a RESTORING changelog ends early.

        Raises:
            RestoreCallbackError: the listener failed.
        """
        changelog.has_ended = True
        listener, partition, store = changelog.listener, changelog.partition, changelog.store.name
        if changelog.is_active:
            with _phase(changelog, "on_restore_suspended"):
                listener.on_restore_suspended(partition, store, total_restored=changelog.total_restored)
            return
        with _phase(changelog, "on_update_suspended"):
            listener.on_update_suspended(
                partition,
                store,
                store_offset=-1 if changelog.store_offset is None else changelog.store_offset,
                current_end_offset=-1 if changelog.end_offset is None else changelog.end_offset,
                reason=reason,
            )

    async def wipe(self, changelog: RestoredChangelog, reason: WipeReason) -> None:
        """Empty the store and drop the offset of its changelog.

        The store goes first: its new id then makes a checkpoint that a crash leaves behind worthless.

        Raises:
            RestoreCallbackError: the store failed.
            CheckpointFileError: the checkpoint cannot be written.
        """
        await run_to_end(self._wipe(changelog, reason), name=f"wipe {changelog.partition}")

    async def checkpoint(self, changelogs: Sequence[RestoredChangelog]) -> None:
        """Make the offsets of changelogs of one task durable: stores are flushed, then the checkpoint is written.

        Changelogs whose offset is in the checkpoint already, and stores that are not persistent, are left out.

        Raises:
            RestoreCallbackError: a store failed.
            CheckpointFileError: the checkpoint cannot be written; the old one counts.
        """
        moved = [changelog for changelog in changelogs if changelog.has_moved and changelog.store.persistent]
        if moved:
            await run_to_end(self._checkpoint(moved), name=f"checkpoint of task {moved[0].task.task_id}")

    def is_checkpoint_time(self, task: RestoreTask) -> bool:
        """Return True if the interval since the task's last checkpoint is over."""
        since_s = self._clock.monotonic_s() - self._checkpointed_s.get(task.task_id, math.inf)
        return since_s >= self._settings.checkpoint_interval_s

    async def checkpoint_if_moved(self, changelogs: Iterable[RestoredChangelog]) -> None:
        """Write a checkpoint of the changelogs of one task, if its stores moved far enough since the last one.

        Raises:
            RestoreCallbackError: a store failed.
            CheckpointFileError: the checkpoint cannot be written; the old one counts.
        """
        restoring = [changelog for changelog in changelogs if changelog.state is ChangelogState.RESTORING]
        if sum(each.offsets_to_checkpoint for each in restoring) > self._settings.checkpoint_offsets:
            await self.checkpoint(restoring)

    async def _decide(self, changelog: RestoredChangelog, log_end: int) -> StartDecision:
        """Decide where to begin, and carry out what comes before."""
        task, partition = changelog.task, changelog.partition
        checkpointed = await task.checkpointed(partition)
        store = await _store_facts(changelog)
        offset = known_offset(store, checkpointed)
        # Without an offset the log start is looked up later, where a failure does not matter.
        earliest = 0 if offset is None else await self._source.earliest_offset(partition)
        known = checkpointed.last_applied
        if store.transactional and known is not None and known != store.stored_offset:
            log.warning(
                "checkpoint_differs_from_store",
                partition=str(partition),
                store=changelog.store.name,
                checkpoint_offset=known,
                store_offset=store.stored_offset,
            )
        decision = decide_start(
            store,
            checkpointed,
            ChangelogFacts(identity=changelog.identity, earliest_offset=earliest, end_offset=log_end),
            exactly_once=task.exactly_once,
            now_ms=self._clock.now_ms(),
        )
        meta, is_behind = checkpointed.meta, decision.offset is not None and decision.offset + 1 < log_end
        changelog.read_since_ms = meta.read_since_ms if meta is not None and is_behind else changelog.looked_up_ms
        if decision.wipe is not None:
            await self.wipe(changelog, decision.wipe)
        elif decision.offset is None and (known is not None or checkpointed.meta is not None):
            await run_to_end(task.write_checkpoint({partition: None}), name=f"forget the offset of {partition}")
        return decision

    async def _start_after(self, changelog: RestoredChangelog, decision: StartDecision) -> int | None:
        """Return the position at which the restore begins; None if it cannot be told now."""
        if decision.offset is not None:
            return decision.offset + 1
        try:
            return await self._source.earliest_offset(changelog.partition)
        except SourceUnavailableError as error:  # looked up again before the first read
            log.debug("changelog_start_unknown", partition=str(changelog.partition), error=str(error))
            return None

    async def _apply(self, changelog: RestoredChangelog, batch: ChangelogRecords) -> None:
        store, listener, partition = changelog.store, changelog.listener, changelog.partition
        last_offset = batch.offsets[-1]
        with _phase(changelog, "restore_batch"):
            await store.restore_batch(converted(batch, timestamped=store.timestamped), last_offset)
        changelog.applied(batch)
        self._progress.applied(changelog, len(batch))
        if changelog.is_active:
            with _phase(changelog, "on_batch_restored"):
                listener.on_batch_restored(partition, store.name, batch_end_offset=last_offset, num_restored=len(batch))
            return
        with _phase(changelog, "on_batch_loaded"):
            listener.on_batch_loaded(
                partition,
                store.name,
                batch_end_offset=last_offset,
                batch_size=len(batch),
                current_end_offset=changelog.log_end_offset,
            )

    async def _wipe(self, changelog: RestoredChangelog, reason: WipeReason) -> None:
        partition, store, task = changelog.partition, changelog.store, changelog.task
        log.warning("store_wiped", partition=str(partition), store=store.name, reason=reason.value)
        async with task.exclusive:
            with _phase(changelog, "wipe"):
                await store.wipe()
            changelog.begin_after(None, position=None, log_end_offset=0)
            await task.write_checkpoint({partition: None})
        self._progress.wiped(reason)

    async def _checkpoint(self, changelogs: Sequence[RestoredChangelog]) -> None:
        task = changelogs[0].task
        begun_s = self._clock.monotonic_s()
        async with task.exclusive:
            # Taken before the flushes: what is applied during a flush may not be durable after it.
            applied = [(changelog, changelog.store_offset, changelog.leader_epoch) for changelog in changelogs]
            entries: dict[TopicPartition, CheckpointedOffset | None] = {}
            for changelog, offset, leader_epoch in applied:
                meta = None
                if offset is not None:
                    meta = await self._meta(changelog, offset, leader_epoch, changelog.known_end_offset)
                if not changelog.store.transactional:
                    with _phase(changelog, "flush"):
                        await changelog.store.flush()
                entries[changelog.partition] = CheckpointedOffset(has_entry=True, last_applied=offset, meta=meta)
            await task.write_checkpoint(entries)
            for changelog, offset, _ in applied:
                changelog.checkpointed(offset)
        now_s = self._clock.monotonic_s()
        self._checkpointed_s[task.task_id] = now_s
        self._progress.checkpoint_written(now_s - begun_s)

    async def _write_start(self, changelog: RestoredChangelog, decision: StartDecision, log_end: int) -> None:
        """Write the facts before the first batch: from then on the store has an offset that needs them."""
        offset = -1 if decision.offset is None else decision.offset
        epoch = changelog.identity.lineage.epoch_for(offset)
        meta = await self._meta(changelog, offset, -1 if epoch is None else epoch, log_end)
        entry = CheckpointedOffset(has_entry=True, last_applied=decision.offset, meta=meta)
        await changelog.task.write_checkpoint({changelog.partition: entry})

    async def _meta(
        self, changelog: RestoredChangelog, offset: int, leader_epoch: int, known_end_offset: int
    ) -> CheckpointMeta:
        with _phase(changelog, "store_id"):
            store_id = await changelog.store.store_id()
        return CheckpointMeta(
            offset=offset,
            semantics=changelog.task.semantics,
            topic_id=changelog.identity.topic_id,
            leader_epoch=leader_epoch,
            read_since_ms=changelog.read_since_ms,
            store_id=store_id,
            lineage=changelog.identity.lineage,
            known_end_offset=known_end_offset,
        )

    def _announce_start(self, changelog: RestoredChangelog) -> None:
        listener, partition, store = changelog.listener, changelog.partition, changelog.store.name
        starting_offset = changelog.starting_offset
        if changelog.is_active:
            with _phase(changelog, "on_restore_start"):
                listener.on_restore_start(
                    partition, store, starting_offset=starting_offset, ending_offset=changelog.end_offset or 0
                )
            return
        with _phase(changelog, "on_update_start"):
            listener.on_update_start(partition, store, starting_offset=starting_offset)


async def _store_facts(changelog: RestoredChangelog) -> StoreFacts:
    store = changelog.store
    with _phase(changelog, "open"):
        return StoreFacts(
            persistent=store.persistent,
            transactional=store.transactional,
            stored_offset=await store.stored_offset(),
            store_id=await store.store_id(),
            is_empty=await store.is_empty(),
        )


@contextmanager
def _phase(changelog: RestoredChangelog, phase: str) -> Iterator[None]:
    """Wrap the failure of a store or a listener: fatal for the changelog, and it names the phase."""
    try:
        yield
    except Exception as error:
        raise RestoreCallbackError(changelog.partition, changelog.store.name, phase, error) from error
