"""DeliveryWindow: the batches of one partition between the tier and its leader, in order; no I/O.

::

    put ─► queued ─► in flight (at most 5) ─► acknowledged, in order ─► taken
              ▲            │ a failure
              ├── returned ┤ once no other batch of the partition is in flight
              └─ not there ┴─► uncertain ── in the target's log ──► acknowledged

The leader keeps the last five batches of a producer, and answers one of them that comes again with the offset that it
has. So the batches of a failed flight are sent again as they were, and are in the log once. But a leader forgets a
producer whose newest record is older than ``producer.id.expiration.ms``, at its restart and every ten minutes. Where a
batch of a failed flight is that old, the target's log tells which of them it has.

A leader that does not know the producer takes any batch as its first. So one batch is in flight alone until the leader
has taken it, at first and after every failure: no later one can be in the log without it.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple
from uuid import UUID

from tierd.model import TopicPartition
from tierd.restore.live_cluster.batch_transform import OutgoingBatch
from tierd.restore.live_cluster.sent_batches import SentBatches

MAX_IN_FLIGHT: Final = 5
"""Batches that a leader recognizes when they come again (Kafka: ProducerStateEntry.NUM_BATCHES_TO_RETAIN)."""


class Acknowledged(NamedTuple):
    """A batch that the target has; ``base_offset`` is -1 where compaction of the target has removed its records."""

    batch: OutgoingBatch
    base_offset: int


class _Flight:
    """One batch in flight."""

    __slots__ = ("base_offset", "batch", "is_open")

    def __init__(self, batch: OutgoingBatch) -> None:
        self.batch = batch
        self.base_offset: int | None = None
        self.is_open = True


class DeliveryWindow:
    """Queue of one partition, for one task that fills it, one that sends, and one that takes acknowledgements.

    A fourth one looks for uncertain batches in the target's log.

    Attributes:
        name: the partition in the target.
        topic_id: of the topic that takes the batches, and no other one of its name; None is not compared.
        not_before_s: on the loop's clock; nothing is sent before.
        progress_s: on the loop's clock: the last acknowledgement, or the end of a time without batches.
        failures: in a row, without an acknowledgement in between.
        is_wait_told: the present lack of progress was reported.
        acknowledged_offset: in the target, the first one of the last batch that was acknowledged in order; -1 before.
    """

    def __init__(
        self,
        name: TopicPartition,
        *,
        max_bytes: int,
        wake: Callable[[], None],
        topic_id: UUID | None = None,
        is_remembered: Callable[[OutgoingBatch], bool] = lambda _: True,
    ) -> None:
        """Begin empty.

        Args:
            name: the partition in the target.
            max_bytes: of queued batches; one batch may be larger.
            wake: is called when there is something to send.
            topic_id: see the attribute.
            is_remembered: True if the leader recognizes a batch that comes again.
        """
        self.name = name
        self.topic_id = topic_id
        self.not_before_s = 0.0
        self.progress_s = asyncio.get_running_loop().time()
        self.failures = 0
        self.is_wait_told = False
        self.acknowledged_offset = -1
        self._max_bytes = max_bytes
        self._wake = wake
        self._is_remembered = is_remembered
        self._queued: deque[OutgoingBatch] = deque()
        self._queued_bytes = 0
        self._flights: deque[_Flight] = deque()
        self._is_known = False  # the leader has taken a batch since the last failure
        self._failure: str | None = None  # of the oldest failed batch of this flight
        self._uncertain: deque[OutgoingBatch] = deque()
        self._has_uncertain = asyncio.Event()
        self._done: deque[Acknowledged] = deque()
        self._changed = asyncio.Event()
        self._has_room = asyncio.Event()
        self._has_room.set()
        self._error: BaseException | None = None
        self._is_finished = False

    # ---------------------------------------------------------------- filling

    async def put(self, batch: OutgoingBatch) -> None:
        """Queue a batch, once there is room for it.

        Raises:
            BaseException: the error of ``fail``.
        """
        if not self._has_room.is_set():
            await self._has_room.wait()
        self._raise_error()
        if not self._queued:
            if not self.has_work:
                self._note_progress()
            self._wake()  # for later ones too: what keeps a queued batch from being sent wakes when it ends
        self._queued.append(batch)
        self._queued_bytes += batch.size_bytes
        if self._queued_bytes >= self._max_bytes:
            self._has_room.clear()

    def found(self, batch: OutgoingBatch, base_offset: int) -> None:
        """Take a batch that an earlier run has sent; the caller does so before the first ``put``."""
        assert not self.has_work, "batches are acknowledged in order"
        self._acknowledged(batch, base_offset)
        self._changed.set()

    def finish(self) -> None:
        """Take note that no further batch comes; ``acknowledged`` ends when all have been taken."""
        self._is_finished = True
        self._changed.set()

    # ---------------------------------------------------------------- sending

    @property
    def has_work(self) -> bool:
        """Return True if a batch waits for its acknowledgement, sent or not."""
        return self._error is None and bool(self._queued or self._flights or self._uncertain)

    @property
    def is_flying(self) -> bool:
        """Return True if the outcome of a batch is awaited."""
        return any(flight.is_open for flight in self._flights)

    def is_in_flight(self, batch: OutgoingBatch) -> bool:
        """Return True if the outcome of ``batch`` is awaited."""
        return any(flight.batch is batch and flight.is_open for flight in self._flights)

    def next_batch(self, now_s: float) -> OutgoingBatch | None:
        """Return the next batch to send, which is in flight from now on; None while none may be sent."""
        if self._failure is not None or now_s < self.not_before_s or self._error is not None:
            return None
        if not self._queued or self._uncertain or len(self._flights) >= (MAX_IN_FLIGHT if self._is_known else 1):
            return None
        batch = self._queued.popleft()
        self._queued_bytes -= batch.size_bytes
        if self._queued_bytes < self._max_bytes:
            self._has_room.set()
        self._flights.append(_Flight(batch))
        return batch

    def acknowledge(self, batch: OutgoingBatch, base_offset: int) -> None:
        """Take note that the leader has ``batch``, which is in flight; the caller sends on."""
        flight = self._flight(batch)
        flight.base_offset, flight.is_open = base_offset, False
        if flight is not self._flights[0]:
            return  # noted once those before it are acknowledged
        while self._flights and self._flights[0].base_offset is not None:
            first = self._flights.popleft()
            assert first.base_offset is not None, "the loop's condition"
            self._acknowledged(first.batch, first.base_offset)
            self.failures = 0
            self._is_known = True
        self._note_progress()
        self._changed.set()

    def refuse(self, batch: OutgoingBatch, error: str) -> str | None:
        """Take note that ``batch`` failed; return the first failure of the flight once nothing else is in flight.

        Then every batch that was not acknowledged in order is queued again, or uncertain.
        """
        self._flight(batch).is_open = False
        if self._failure is None or batch is self._flights[0].batch:
            self._failure = error
        return self.settle()

    def settle(self) -> str | None:
        """Take the batches of a failed flight back if nothing is in flight; return the failure, None without one."""
        if self._failure is None or self.is_flying:
            return None
        returned = [flight.batch for flight in self._flights]
        self._flights.clear()
        if all(map(self._is_remembered, returned)):
            self._queue_again(returned)
        else:
            self._uncertain.extend(returned)
            self._has_uncertain.set()
        failure, self._failure = self._failure, None
        self._is_known = False
        self.failures += 1
        return failure

    # ---------------------------------------------------------------- looking

    async def uncertain(self) -> OutgoingBatch:
        """Return the first of the batches that the target may have or not, once there are some.

        Nothing is sent until ``resolve``.
        """
        await self._has_uncertain.wait()
        return self._uncertain[0]

    def resolve(self, found: SentBatches) -> None:
        """Take the uncertain batches that the target has as acknowledged, and queue the others again.

        Raises:
            RefusedError: the target has a batch without one before it.
        """
        while found and self._uncertain:
            base_offset = found.match(self._uncertain[0])
            self._acknowledged(self._uncertain.popleft(), base_offset)
            self.failures = 0
            self._note_progress()
        found.require_all_matched()
        self._has_uncertain.clear()
        self._queue_again(self._uncertain)
        self._uncertain.clear()
        self._changed.set()
        self._wake()

    def _queue_again(self, batches: Sequence[OutgoingBatch]) -> None:
        for batch in reversed(batches):
            self._queued.appendleft(batch)
            self._queued_bytes += batch.size_bytes

    # ---------------------------------------------------------------- taking

    async def acknowledged(self) -> list[Acknowledged]:
        """Return the batches that were acknowledged since the last call, in order; wait for the first.

        An empty list is the end.

        Raises:
            BaseException: the error of ``fail``, once everything before it was taken.
        """
        while not self._done:
            self._raise_error()
            if self._is_finished and not self.has_work:
                return []
            self._changed.clear()
            await self._changed.wait()
        taken = list(self._done)
        self._done.clear()
        return taken

    def fail(self, error: BaseException) -> None:
        """End the delivery: ``put`` and ``acknowledged`` raise ``error``."""
        self._error = error
        self._has_room.set()
        self._changed.set()

    def _raise_error(self) -> None:
        if self._error is not None:
            raise self._error

    def _acknowledged(self, batch: OutgoingBatch, base_offset: int) -> None:
        self._done.append(Acknowledged(batch, base_offset))
        if base_offset >= 0:
            self.acknowledged_offset = base_offset

    def _note_progress(self) -> None:
        self.progress_s = asyncio.get_running_loop().time()
        self.is_wait_told = False

    def _flight(self, batch: OutgoingBatch) -> _Flight:
        return next(flight for flight in self._flights if flight.batch is batch)
