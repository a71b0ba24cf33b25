"""LegacyReader: the reader of Kafka Streams 2.3 to 2.5, with its methods and numbers (changelog-restore 1).

The five registries::

    register ──► needs_initializing ──bounds known──► needs_restoring ──end reached──► completed
                        │                                    ▲
                        └── at the end already, or empty ────┼─────────────────────────► completed
                        ▲                                    │
                        └── invalid offset, or no checkpoint with exactly-once: the store is wiped

What was completed stays completed until ``reset``; every other method may meet it again.
"""

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from typing import Protocol

import structlog

from tierd.clock import Clock
from tierd.model import TopicPartition
from tierd.restore.changelog.changelog_errors import IllegalRestoreError, InvalidOffsetsError, SourceUnavailableError
from tierd.restore.changelog.changelog_source import ChangelogRecords
from tierd.restore.changelog.legacy.restore_consumer import RestoreConsumer
from tierd.restore.changelog.legacy.state_restorer import NO_CHECKPOINT, NO_OFFSET_LIMIT, StateRestorer
from tierd.restore.changelog.restore_listener import RestoreListener

_LOG_INTERVAL_S = 10.0

log = structlog.get_logger()


class RestoringTask(Protocol):
    """Active task of which stores are restored."""

    @property
    def task_id(self) -> str:
        """Return the id of the task."""

    @property
    def exactly_once(self) -> bool:
        """Return True if data without a checkpoint may not be kept."""

    async def reinitialize_state_stores(self, partitions: Iterable[TopicPartition]) -> None:
        """Wipe the stores of these changelogs, no others, and register them again."""


class LegacyReader:
    """Reader of changelogs of active tasks, in one assignment of one consumer."""

    def __init__(
        self,
        consumer: RestoreConsumer,
        *,
        clock: Clock,
        poll_s: float = 0.1,
        listener: RestoreListener | None = None,
    ) -> None:
        self._consumer = consumer
        self._clock = clock
        self._poll_s = poll_s
        self._listener = listener or RestoreListener()
        self._state_restorers: dict[TopicPartition, StateRestorer] = {}
        self._needs_initializing: set[TopicPartition] = set()
        self._needs_restoring: set[TopicPartition] = set()
        self._completed: set[TopicPartition] = set()
        self._end_offsets: dict[TopicPartition, int] = {}
        self._partition_info: dict[str, frozenset[TopicPartition]] = {}
        self._logged_s = clock.monotonic_s()

    @property
    def needs_initializing(self) -> frozenset[TopicPartition]:
        """Return the changelogs that were registered and whose bounds are not known."""
        return frozenset(self._needs_initializing)

    @property
    def needs_restoring(self) -> frozenset[TopicPartition]:
        """Return the changelogs that records are outstanding of."""
        return frozenset(self._needs_restoring)

    def register(self, restorer: StateRestorer) -> None:
        """Register a store; a second time keeps the first restorer, and lets it begin anew."""
        partition = restorer.partition
        if partition in self._state_restorers:
            log.debug("restorer_kept", partition=str(partition))
        else:
            restorer.set_user_listener(self._listener)
            self._state_restorers[partition] = restorer
            log.debug("restorer_added", partition=str(partition))
        self._needs_initializing.add(partition)
        # Kafka keeps it among the completed ones, so that a wiped store would not be restored to its end.
        self._completed.discard(partition)

    async def restore(self, active: Mapping[TopicPartition, RestoringTask]) -> set[TopicPartition]:
        """Make one step, and return all changelogs that were completed since the last ``reset``.

        Args:
            active: the active task of each changelog.

        Raises:
            IllegalRestoreError: the consumer has a subscription.
            CorruptSourceError: a changelog is damaged.
        """
        if self._needs_initializing:
            await self._initialize(active)
        if not self._needs_restoring:
            self._consumer.unsubscribe()
            return self._completed
        try:
            await self._poll()
        except InvalidOffsetsError as error:
            await self._begin_anew(error, active)
        self._needs_restoring -= self._completed
        if not self._needs_restoring:
            log.info("restore_completed")
            self._consumer.unsubscribe()
        return self._completed

    def restored_offsets(self) -> dict[TopicPartition, int]:
        """Return the next offset that each persistent store needs; 0 before its restore has begun."""
        restorers = self._state_restorers.items()
        return {partition: each.restored_offset for partition, each in restorers if each.store.persistent}

    def reset(self) -> None:
        """Empty all registries; the consumer stays as it is."""
        self.clear()
        self._partition_info.clear()

    def clear(self) -> None:
        """Empty the registries but for the known partitions of topics."""
        self._state_restorers.clear()
        self._needs_initializing.clear()
        self._needs_restoring.clear()
        self._completed.clear()
        self._end_offsets.clear()

    def remove(self, partitions: Iterable[TopicPartition]) -> None:
        """Forget changelogs, and the known partitions of their topics."""
        for partition in partitions:
            self._partition_info.pop(partition.topic, None)
            self._state_restorers.pop(partition, None)
            self._needs_initializing.discard(partition)
            self._needs_restoring.discard(partition)
            self._completed.discard(partition)
            self._end_offsets.pop(partition, None)

    def is_empty(self) -> bool:
        """Return True if no changelog is in any registry."""
        registries = (self._state_restorers, self._needs_initializing, self._needs_restoring, self._completed)
        return not any((*registries, self._end_offsets))

    async def _initialize(self, active: Mapping[TopicPartition, RestoringTask]) -> None:
        """Look up the bounds of what is not initialised, complete what has nothing to restore, start the rest."""
        if self._consumer.subscription:
            topics = ", ".join(sorted(self._consumer.subscription))
            raise IllegalRestoreError(
                f"the restore consumer has a subscription ({topics}); partitions are assigned to it"
            )
        try:
            self._partition_info = await self._consumer.list_topics()
        except SourceUnavailableError as error:
            log.debug("partitions_not_listed", error=str(error))
        known = {each for each in self._needs_initializing if each in self._partition_info.get(each.topic, ())}
        try:
            ends = await self._consumer.end_offsets(known)
        except SourceUnavailableError as error:
            log.debug("end_offsets_not_told", partitions=_names(known), error=str(error))
            return
        initialized = []
        for partition in sorted(known):
            restorer = self._state_restorers[partition]
            if partition not in ends:
                log.info("end_offset_unknown", partition=str(partition))
                continue
            target = min(ends[partition], restorer.offset_limit)
            if restorer.checkpoint >= target or target == 0:
                restorer.restored_offset = max(restorer.checkpoint, 0)
                self._completed.add(partition)
            else:
                restorer.ending_offset = target
                self._end_offsets[partition] = target
                initialized.append(restorer)
            self._needs_initializing.discard(partition)
        if initialized:
            await self._start_restoration(initialized, active)

    async def _start_restoration(
        self, initialized: list[StateRestorer], active: Mapping[TopicPartition, RestoringTask]
    ) -> None:
        log.debug("restoration_starts", partitions=_names(restorer.partition for restorer in initialized))
        self._consumer.assign(self._consumer.assignment | {restorer.partition for restorer in initialized})
        without_checkpoint = []
        for restorer in initialized:
            partition = restorer.partition
            store = restorer.store.name
            if restorer.checkpoint == NO_CHECKPOINT:
                log.debug("checkpoint_missing", partition=str(partition), store=store)
                self._consumer.seek_to_beginning([partition])
                without_checkpoint.append(restorer)
            else:
                log.debug("checkpoint_found", partition=str(partition), store=store, offset=restorer.checkpoint)
                self._consumer.seek(partition, restorer.checkpoint)
                await self._start(restorer)
        for restorer in without_checkpoint:
            await self._start_without_checkpoint(restorer, active[restorer.partition])

    async def _start_without_checkpoint(self, restorer: StateRestorer, task: RestoringTask) -> None:
        """Start from the beginning; with exactly-once wipe the store first, which registers it again."""
        partition = restorer.partition
        log.info(
            "store_without_checkpoint",
            task=task.task_id,
            store=restorer.store.name,
            partition=str(partition),
            wiped=task.exactly_once,
        )
        if not task.exactly_once:
            await self._start(restorer)
            return
        try:
            position = await self._consumer.position(partition)
        except SourceUnavailableError as error:
            log.debug("changelog_start_unknown", partition=str(partition), error=str(error))
            self._needs_initializing.add(partition)
            return
        restorer.checkpoint = position  # known from now on: the next run takes the way of a checkpoint
        await task.reinitialize_state_stores([partition])

    async def _start(self, restorer: StateRestorer) -> None:
        """Announce the start, unless the beginning cannot be looked up now: then the next run starts it."""
        partition = restorer.partition
        try:
            restorer.starting_offset = await self._consumer.position(partition)
        except SourceUnavailableError as error:
            log.debug("changelog_start_unknown", partition=str(partition), error=str(error))
            self._needs_initializing.add(partition)
            return
        end = self._end_offsets[partition]
        log.debug("range_decided", partition=str(partition), start=restorer.starting_offset, end=end)
        self._needs_restoring.add(partition)
        restorer.restore_started()

    async def _poll(self) -> None:
        records = await self._consumer.poll(self._poll_s)
        for partition in sorted(self._needs_restoring):
            restorer = self._state_restorers[partition]
            end = self._end_offsets[partition]
            if partition not in records:  # its source does not answer now
                continue
            position = await self._process_next(records[partition], restorer, end)
            restorer.restored_offset = position
            if restorer.has_completed(position, end):
                restorer.restore_done()
                del self._end_offsets[partition]
                self._completed.add(partition)
        self._log_progress()

    async def _process_next(self, records: ChangelogRecords, restorer: StateRestorer, end_offset: int) -> int:
        """Apply the records below the end, and return the position that the store has reached.

        The consumer's position counts where it can: it lies beyond transaction markers and gaps of compaction.
        """
        partition = restorer.partition
        count = bisect_left(records.offsets, min(end_offset, restorer.offset_limit)) if end_offset else 0
        is_cut = count < len(records)
        if is_cut and restorer.offset_limit != NO_OFFSET_LIMIT:
            position = records.offsets[count]
        else:
            position = await self._consumer.position(partition)
        batch = records.part(0, count).with_keys()
        if batch:
            await restorer.restore(batch)
            last = records.offsets[count - 1]
            restorer.restore_batch_completed(batch_end_offset=last, polled=len(records))
            log.debug(
                "batch_restored",
                partition=str(partition),
                store=restorer.store.name,
                records=len(batch),
                last_offset=last,
                end_offset=end_offset,
                next_offset=position,
            )
        return position

    async def _begin_anew(self, error: InvalidOffsetsError, active: Mapping[TopicPartition, RestoringTask]) -> None:
        """Wipe the stores of changelogs whose position is out of range, and seek to the beginnings."""
        log.warning("invalid_offsets", partitions=_names(error.partitions), error=str(error))
        by_task: dict[str, list[TopicPartition]] = {}
        for partition in sorted(error.partitions):
            if partition in active:
                by_task.setdefault(active[partition].task_id, []).append(partition)
        for task_id, partitions in by_task.items():
            log.info("stores_begin_anew", task=task_id, partitions=_names(partitions))
            for partition in partitions:
                self._needs_initializing.discard(partition)
                self._needs_restoring.discard(partition)
                self._state_restorers[partition].checkpoint = NO_CHECKPOINT
            await active[partitions[0]].reinitialize_state_stores(partitions)
        self._consumer.seek_to_beginning(error.partitions)

    def _log_progress(self) -> None:
        now_s = self._clock.monotonic_s()
        if now_s - self._logged_s < _LOG_INTERVAL_S or not self._end_offsets:
            return
        self._logged_s = now_s
        for partition, end in sorted(self._end_offsets.items()):
            restorer = self._state_restorers[partition]
            log.info(
                "store_restoring",
                partition=str(partition),
                next_offset=restorer.restored_offset,
                end_offset=end,
                total=restorer.restored_num_records,
            )


def _names(partitions: Iterable[TopicPartition]) -> str:
    return ", ".join(map(str, sorted(partitions)))
