"""PartitionRestore: one partition from the tier into a live cluster, exactly once, across crashes of both sides."""

import asyncio
import contextlib
import random
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final
from uuid import UUID

import structlog

from tierd.backoff import Backoff
from tierd.clock import Clock
from tierd.control import LogBound, ProducerIdentity, init_producer_id
from tierd.errors import KafkaError, RefusedError, TierError
from tierd.log import MAX_SEQUENCE
from tierd.model import TopicPartition
from tierd.one_ahead import one_ahead
from tierd.restore.live_cluster.batch_transform import BatchTransform, OutgoingBatch
from tierd.restore.live_cluster.committed_source import CommittedSource
from tierd.restore.live_cluster.delivery_window import Acknowledged, DeliveryWindow
from tierd.restore.live_cluster.leader_delivery import LeaderDelivery
from tierd.restore.live_cluster.offset_map import RangeJoiner
from tierd.restore.live_cluster.restore_progress import PartitionProgress, RestoreProgress
from tierd.restore.live_cluster.target_cluster import TargetCluster
from tierd.restore.live_cluster.target_errors import LogOfTargetDiffersError, refused_batch
from tierd.restore.live_cluster.target_log import OwnBatch, listed_offset, own_batches
from tierd.restore.plan import longest_pause_ms

log = structlog.get_logger()

_WINDOW_BYTES: Final = 4 << 20
_STEP_BYTES: Final = 64 << 20
"""Acknowledged bytes after which the journal gets a line; a resumed run reads at most as many again."""
_STEP_S: Final = 10.0
_RECONCILIATIONS: Final = 3  # in a row, without a step in between
_BACKOFF: Final = Backoff(base_s=0.5, cap_s=15.0)
_EXPIRATION_MARGIN_MS: Final = 60_000
_ANEW: Final = "restore into a new topic with --rename and another --journal, and delete the half-restored one"


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
        found: Sequence[OwnBatch] = ()
        if state is None:
            state = await self._begin()
        elif state.is_done:
            return
        else:
            self._require_remembered(state)
            self._require_same_deletions(state)
            found = await own_batches(self._parts.target, self._task.target, state)
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
                found = await own_batches(self._parts.target, self._task.target, state)
            else:
                break
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
                remedy=_ANEW,
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
                remedy=_ANEW,
            )

    def _progress(self) -> PartitionProgress:
        state = self._parts.progress.partition(self._task.name)
        assert state is not None, "begun above"
        return state

    async def _deliver(self, state: PartitionProgress, found: Sequence[OwnBatch]) -> None:
        window = self._parts.delivery.open_window(self._task.target, max_bytes=_WINDOW_BYTES)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._fill(window, state, found), name=f"read {self._task.name}")
                await self._drain(window, state)
        except* TierError as errors:
            raise _first(errors) from None
        finally:
            self._parts.delivery.close_window(window)

    # ---------------------------------------------------------------- from the tier

    async def _fill(self, window: DeliveryWindow, state: PartitionProgress, sent: Sequence[OwnBatch]) -> None:
        """Queue all batches; those that the target has count as acknowledged. A failing store is asked again."""
        known = deque(sent)
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
                            if known:
                                self._match(window, batch, known)
                            else:
                                await window.put(batch)
                        next_offset, sequence = batches[-1].end_offset, batches[-1].next_sequence
                        store.answered()
                break
            except TierError as error:
                await store.wait_after(error)
        if known:
            raise self._differs(
                f"the target has a batch at {known[0].base_offset} that the tier does not give any more"
            )
        window.finish()

    def _match(self, window: DeliveryWindow, batch: OutgoingBatch, known: "deque[OwnBatch]") -> None:
        """Count ``batch`` as acknowledged if it is the next that the target has, or was before that."""
        own = known[0]
        ahead = (own.base_sequence - batch.base_sequence) & MAX_SEQUENCE
        if ahead >= batch.record_count and ahead <= MAX_SEQUENCE // 2:
            window.found(batch, -1)  # compaction of the target has removed it since
            return
        is_same = not ahead and own.span == batch.record_count
        is_whole = own.record_count == own.span
        if not is_same or (is_whole and own.max_timestamp_ms != batch.max_timestamp_ms):
            raise self._differs(
                f"the target has {own.span} records of sequence {own.base_sequence} at {own.base_offset}, "
                f"the tier gives {batch.record_count} records of sequence {batch.base_sequence}"
            )
        known.popleft()
        window.found(batch, own.base_offset)

    def _differs(self, text: str) -> RefusedError:
        return RefusedError(
            f"{self._task.name}: the tier has changed since the last run: {text}",
            remedy=_ANEW,
        )

    # ---------------------------------------------------------------- to the journal

    async def _drain(self, window: DeliveryWindow, state: PartitionProgress) -> None:
        """Write the journal as batches are acknowledged; return when all were."""
        joiner = RangeJoiner()
        step_bytes, step_s = 0, self._parts.clock.monotonic_s()
        last: Acknowledged | None = None
        target_offset = state.target_offset
        while acknowledged := await window.acknowledged():
            record_count = size_bytes = 0
            is_late = self._parts.clock.monotonic_s() - step_s >= _STEP_S
            for last in acknowledged:
                batch, base_offset = last
                joiner.add(last)
                record_count += batch.record_count
                size_bytes += batch.size_bytes
                step_bytes += batch.size_bytes
                target_offset = base_offset if base_offset >= 0 else target_offset
                if (is_late or step_bytes >= _STEP_BYTES) and batch.ends_source_batch:
                    await self._step(_after(state, last, target_offset), joiner)
                    step_bytes, step_s, is_late = 0, self._parts.clock.monotonic_s(), False
            self._parts.on_acknowledged(record_count, size_bytes)
        state = state if last is None else _after(state, last, target_offset)
        await self._step(replace(state, next_offset=state.end_offset), joiner)

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


def _first(errors: BaseExceptionGroup[TierError]) -> TierError:
    """Return the first error of a group."""
    found: BaseException = errors
    while isinstance(found, BaseExceptionGroup):
        found = found.exceptions[0]
    assert isinstance(found, TierError), "the clause's kind"
    return found
