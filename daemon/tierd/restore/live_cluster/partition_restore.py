"""PartitionRestore: one partition from the tier into a live cluster, exactly once, across crashes of both sides."""

import asyncio
import contextlib
import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final
from uuid import UUID

import structlog

from tierd.backoff import Backoff
from tierd.clock import Clock
from tierd.control import LogBound, ProducerIdentity, init_producer_id
from tierd.errors import KafkaError, RefusedError, TierError
from tierd.model import TopicPartition
from tierd.restore.live_cluster.batch_transform import BatchTransform, OutgoingBatch
from tierd.restore.live_cluster.committed_source import CommittedSource
from tierd.restore.live_cluster.delivery_window import Acknowledged, DeliveryWindow
from tierd.restore.live_cluster.leader_delivery import LeaderDelivery
from tierd.restore.live_cluster.offset_map import RangeJoiner
from tierd.restore.live_cluster.restore_progress import PartitionProgress, RestoreProgress
from tierd.restore.live_cluster.sent_batches import RESTORE_ANEW, SentBatches
from tierd.restore.live_cluster.target_cluster import TargetCluster
from tierd.restore.live_cluster.target_errors import LogOfTargetDiffersError, refused_batch
from tierd.restore.live_cluster.target_log import listed_offset, lost_records, require_same_topic, sent_batches
from tierd.restore.plan.tombstone_age import longest_pause_ms
from tierd.tasks import first_error, one_ahead, raise_if_cancelled

log = structlog.get_logger()

_WINDOW_BYTES: Final = 4 << 20
_STEP_BYTES: Final = 64 << 20
"""Acknowledged bytes after which the journal gets a line; a resumed run reads at most as many again."""
_STEP_S: Final = 10.0
_RECONCILIATIONS: Final = 3  # in a row, without a step in between
_BACKOFF: Final = Backoff(base_s=0.5, cap_s=15.0)
_EXPIRATION_MARGIN_MS: Final = 60_000


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionTransfer:
    """The restore of one partition.

    Attributes:
        name: in the source.
        target: in the target.
        topic_id: of the topic in the target; None where its brokers do not tell it.
        start_offset: first offset that is wanted.
        end_offset: exclusive end of the wanted offsets.
        max_batch_bytes: what the target topic takes.
        delete_retention_ms: of the source, if it is compacted; None for a topic that is not compacted.
    """

    name: TopicPartition
    target: TopicPartition
    topic_id: UUID | None
    start_offset: int
    end_offset: int
    max_batch_bytes: int
    delete_retention_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreParts:
    """Parts that the restores of all partitions share.

    Attributes:
        producer_expiration_ms: after which the target's brokers forget an idle producer.
        on_acknowledged: is called with counts of records and bytes.
    """

    target: TargetCluster
    delivery: LeaderDelivery
    progress: RestoreProgress
    clock: Clock
    producer_expiration_ms: int
    on_acknowledged: Callable[[int, int], None]


class StorePatience:
    """Patience with a store that fails: the waits between attempts, up to a longest time without an answer."""

    def __init__(self, partition: TopicPartition, *, clock: Clock, patience_s: float) -> None:
        """Begin to count.

        Args:
            partition: for the log.
            clock: time.
            patience_s: longest time without an answer.
        """
        self._partition = partition
        self._clock = clock
        self._patience_s = patience_s
        self._failures = 0
        self._failing_since_s = 0.0

    def answered(self) -> None:
        """Begin to count anew: the store gave what was asked."""
        self._failures = 0

    async def wait_after(self, error: TierError) -> None:
        """Return when the next attempt is due; raise ``error`` if it does not pass, or for too long."""
        if not error.retriable or isinstance(error, KafkaError):
            raise error
        now_s = self._clock.monotonic_s()
        if not self._failures:
            self._failing_since_s = now_s
            log.warning("tier_waits", partition=str(self._partition), problem=str(error), remedy=error.remedy)
        self._failures += 1
        if now_s - self._failing_since_s > self._patience_s:
            raise error
        await self._clock.sleep(_BACKOFF.delay_s(self._failures, random=random.random))


class PartitionRestore:
    """Restore of one partition; ``run`` may be called again after a failure, by another process too."""

    def __init__(self, task: PartitionTransfer, source: CommittedSource, parts: RestoreParts) -> None:
        """Keep the task, its source, and what all partitions share."""
        self._task = task
        self._source = source
        self._parts = parts

    async def run(self) -> None:
        """Send everything, and return when the target's replicas have it.

        Raises:
            TierError: a store or the target failed for too long, data is damaged, or the run cannot be resumed.
        """
        state = self._parts.progress.partition(self._task.name)
        if state is None:
            state = await self._begin()
            found = SentBatches(self._task.name, (), end_offset=state.target_offset)
        elif state.is_done:
            await require_same_topic(self._parts.target, self._task.target, self._task.topic_id)
            return
        else:
            self._require_remembered(state)
            self._require_same_start(state)
            self._require_same_deletions(state)
            found = await sent_batches(self._parts.target, self._task.target, state)
        tries = 0
        while True:
            try:
                await self._deliver(state, found)
            except LogOfTargetDiffersError as error:
                latest = self._progress()
                tries = tries + 1 if latest.next_offset == state.next_offset else 1
                if tries > _RECONCILIATIONS:
                    raise
                log.warning("target_log_differs", partition=str(self._task.target), problem=str(error))
                state = latest
                found = await sent_batches(self._parts.target, self._task.target, state)
            else:
                break
        await require_same_topic(self._parts.target, self._task.target, self._task.topic_id)
        await self._parts.progress.done(self._task.name)

    async def _begin(self) -> PartitionProgress:
        """Get a producer, and note it before the first batch."""
        begun_ms = self._parts.clock.now_ms()
        end_offset = await self._stable_end_offset()
        target = self._parts.target

        async def ask() -> ProducerIdentity | str:
            return await target.ask(init_producer_id())

        def error_of(answer: ProducerIdentity | str) -> str:
            return answer if isinstance(answer, str) else ""

        producer = await target.patiently(ask, error_of)
        if isinstance(producer, str):
            raise refused_batch(self._task.target, producer, "no producer id")
        state = PartitionProgress(
            name=self._task.name,
            end_offset=end_offset,
            producer=producer,
            max_batch_bytes=self._task.max_batch_bytes,
            next_offset=self._task.start_offset,
            sequence=0,
            target_offset=await listed_offset(target, self._task.target, LogBound.LATEST),
            begun_ms=begun_ms,
            at_ms=begun_ms,
            topic_id=self._task.topic_id,
        )
        await self._parts.progress.begin(state)
        return state

    async def _stable_end_offset(self) -> int:
        store = self._patience()
        while True:
            try:
                return await self._source.stable_end_offset(self._task.end_offset)
            except TierError as error:
                await store.wait_after(error)

    def _patience(self) -> StorePatience:
        target = self._parts.target
        return StorePatience(self._task.name, clock=self._parts.clock, patience_s=target.patience_s)

    def _require_remembered(self, state: PartitionProgress) -> None:
        """Raise if the target's brokers may have forgotten the producer: they would take a batch a second time."""
        idle_ms = self._parts.clock.now_ms() - state.at_ms
        if idle_ms + _EXPIRATION_MARGIN_MS >= self._parts.producer_expiration_ms:
            raise RefusedError(
                f"{self._task.name}: the last run ended {idle_ms // 60_000} minutes ago, and the brokers forget a "
                f"producer after {self._parts.producer_expiration_ms // 60_000} minutes",
                remedy=RESTORE_ANEW,
            )

    def _require_same_start(self, state: PartitionProgress) -> None:
        """Raise if the plan does not have the next records any more: there would be a hole in the target."""
        start_offset = self._source.start_offset
        is_needed = state.has_sent and state.next_offset < state.end_offset and self._task.delete_retention_ms is None
        if is_needed and (start_offset is None or start_offset > state.next_offset):
            raise RefusedError(
                f"{self._task.name}: the restore goes on at offset {state.next_offset}, and nothing below "
                f"{state.end_offset if start_offset is None else start_offset} is planned any more",
                remedy="give --hold-retention in the place of --skip-expired; if the tier has deleted the records, "
                f"{RESTORE_ANEW}",
            )

    def _require_same_deletions(self, state: PartitionProgress) -> None:
        """Raise if a compaction since the first run may have removed tombstones of keys that were sent before."""
        retention_ms = self._task.delete_retention_ms
        changed_ms = self._source.changed_ms(state.next_offset, state.end_offset)
        age_ms = self._parts.clock.now_ms() - state.begun_ms
        if retention_ms is not None and changed_ms >= state.begun_ms and age_ms > longest_pause_ms(retention_ms):
            raise RefusedError(
                f"{self._task.name}: the restore began {age_ms // 60_000} minutes ago, and a compaction has "
                "replaced segments since: keys that were deleted could come back",
                remedy=RESTORE_ANEW,
            )

    def _progress(self) -> PartitionProgress:
        state = self._parts.progress.partition(self._task.name)
        assert state is not None, "begun above"
        return state

    async def _deliver(self, state: PartitionProgress, found: SentBatches) -> None:
        window = self._parts.delivery.open_window(
            self._task.target,
            max_bytes=_WINDOW_BYTES,
            topic_id=self._task.topic_id,
            is_remembered=self._is_remembered,
        )
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._fill(window, state, found), name=f"read {self._task.name}")
                matching = group.create_task(self._match_uncertain(window, state), name=f"match {self._task.name}")
                await self._drain(window, state)
                matching.cancel()
        except* TierError as errors:
            raise_if_cancelled()
            raise first_error(errors) from None
        finally:
            self._parts.delivery.close_window(window)

    def _is_remembered(self, batch: OutgoingBatch) -> bool:
        """Return True if a leader that has a batch recognizes it: it forgets a producer by the time of its records."""
        age_ms = self._parts.clock.now_ms() - batch.max_timestamp_ms
        return age_ms + _EXPIRATION_MARGIN_MS < self._parts.producer_expiration_ms

    async def _match_uncertain(self, window: DeliveryWindow, state: PartitionProgress) -> None:
        """Read the target's log whenever a failure leaves open which batches it has."""
        while True:
            first = await window.uncertain()
            # A request whose answer was lost may be under way still.
            await asyncio.sleep(max(0.0, window.not_before_s - asyncio.get_running_loop().time()))
            if not window.has_work:
                return  # another failure ends the delivery
            at = window.acknowledged_offset
            known = replace(
                state,
                sequence=first.base_sequence,
                target_offset=max(at, state.target_offset),
                has_sent=state.has_sent or at >= 0,
            )
            window.resolve(await sent_batches(self._parts.target, self._task.target, known))

    # ---------------------------------------------------------------- from the tier

    async def _fill(self, window: DeliveryWindow, state: PartitionProgress, sent: SentBatches) -> None:
        """Queue all batches; those that the target has count as acknowledged. A failing store is asked again."""
        next_offset, sequence = state.next_offset, state.sequence
        store = self._patience()
        while True:
            transform = BatchTransform(state.producer, next_sequence=sequence, max_batch_bytes=state.max_batch_bytes)
            found = self._source.batches(transform, start_offset=next_offset, end_offset=state.end_offset)
            try:
                # The store is asked for the next piece while the leader takes the batches of one.
                async with contextlib.aclosing(one_ahead(found, name=f"ahead of {self._task.name}")) as pieces:
                    async for batches in pieces:
                        for batch in batches:
                            if sent:
                                window.found(batch, sent.match(batch))
                            else:
                                await window.put(batch)
                        next_offset, sequence = batches[-1].end_offset, batches[-1].next_sequence
                        store.answered()
                break
            except TierError as error:
                await store.wait_after(error)
        sent.require_all_matched()
        window.finish()

    # ---------------------------------------------------------------- to the journal

    async def _drain(self, window: DeliveryWindow, state: PartitionProgress) -> None:
        """Write the journal as batches are acknowledged; return when all were."""
        joiner = RangeJoiner()
        step_bytes, step_s = 0, self._parts.clock.monotonic_s()
        last: Acknowledged | None = None
        target_offset = end_offset = state.target_offset
        while acknowledged := await window.acknowledged():
            record_count = size_bytes = 0
            is_late = self._parts.clock.monotonic_s() - step_s >= _STEP_S
            for last in acknowledged:
                batch, base_offset = last
                self._require_behind(base_offset, end_offset)
                joiner.add(last)
                record_count += batch.record_count
                size_bytes += batch.size_bytes
                step_bytes += batch.size_bytes
                if base_offset >= 0:
                    target_offset, end_offset = base_offset, base_offset + batch.record_count
                if (is_late or step_bytes >= _STEP_BYTES) and batch.ends_source_batch:
                    await self._step(_after(state, last, target_offset), joiner)
                    step_bytes, step_s, is_late = 0, self._parts.clock.monotonic_s(), False
            self._parts.on_acknowledged(record_count, size_bytes)
        state = state if last is None else _after(state, last, target_offset)
        await self._step(replace(state, next_offset=state.end_offset), joiner)

    def _require_behind(self, base_offset: int, end_offset: int) -> None:
        """Raise if a batch is not behind the one before it: the log that had that one is gone."""
        if 0 <= base_offset < end_offset:
            raise lost_records(
                self._task.target, f"it has taken a batch at {base_offset}, behind one that ended at {end_offset}"
            )

    async def _step(self, state: PartitionProgress, joiner: RangeJoiner) -> None:
        noted = replace(state, at_ms=self._parts.clock.now_ms())
        await self._parts.progress.sent(noted, self._task.target, joiner.take())


def _after(state: PartitionProgress, last: Acknowledged, target_offset: int) -> PartitionProgress:
    """Return the progress once ``last`` is acknowledged, which is at ``target_offset`` or behind it."""
    return replace(
        state,
        next_offset=last.batch.end_offset,
        sequence=last.batch.next_sequence,
        target_offset=target_offset,
        has_sent=True,
    )
