"""AbandonedCopies: removes objects of copies whose end this process could not record, once they have no row."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Final

import structlog

from tierd.clock import Clock
from tierd.errors import TierError
from tierd.metadata import PartitionView
from tierd.model import RemoteLogSegmentMetadata, RemoteLogSegmentState, TopicIdPartition
from tierd.tiering.removing.deletion import SegmentDeletion

log = structlog.get_logger()

REMEMBERED: Final = 10_000
_SHORTEST_WAIT_S: Final = 1.0  # so that a grace of nothing is no busy loop


class AbandonedCopies:
    """Cleanup after copies that ended fenced, cancelled or in doubt. A ``PartitionTask``.

    The next leader sweeps the row of such a copy, and the objects that are there by then. A leader that slept longer
    than any grace writes objects after that, and no other process knows of these objects. So each copy is looked up
    again after a grace. While the copy has a row, the leader sweeps it. Once the row is gone, objects of the copy's id
    belong to no segment, for an id is never used twice.

    Attributes:
        name: the name; there is one such task.
        wake: the event that is set when a copy is added.
    """

    name: Final = "remove abandoned copies"

    def __init__(
        self,
        *,
        read: Callable[[TopicIdPartition], Awaitable[PartitionView]],
        deletion: SegmentDeletion,
        clock: Clock,
        grace_s: float,
    ) -> None:
        """Remove nothing yet; ``read`` reads a partition's rows, ``grace_s`` passes before each check of a copy."""
        self._read = read
        self._deletion = deletion
        self._clock = clock
        self._grace_s = max(grace_s, _SHORTEST_WAIT_S)
        self._waiting: deque[tuple[float, RemoteLogSegmentMetadata]] = deque()  # and when to check, ascending
        self.wake: Final = asyncio.Event()

    def add(self, started: RemoteLogSegmentMetadata) -> None:
        """Take over a copy that this process began and works on no more. Beyond 10,000 the oldest is forgotten."""
        if len(self._waiting) >= REMEMBERED:
            _, forgotten = self._waiting.popleft()
            log.warning(
                "abandoned_copy_forgotten",
                segment=str(forgotten.segment),
                remedy="tierd verify shows whether it left objects behind",
            )
        self._waiting.append((self._clock.monotonic_s() + self._grace_s, started))
        self.wake.set()

    async def run_once(self) -> float | None:
        """Check every copy that is due; return seconds until the next one is, None when there is none.

        A copy that cannot be looked up or removed now is logged and tried again. A cancellation forgets nothing.
        """
        for due_s, started in [entry for entry in self._waiting if entry[0] <= self._clock.monotonic_s()]:
            is_settled = await self._settle(started)
            self._waiting.remove((due_s, started))
            if not is_settled:
                self._waiting.append((self._clock.monotonic_s() + self._grace_s, started))
        if not self._waiting:
            return None
        return max(0.0, self._waiting[0][0] - self._clock.monotonic_s())

    async def _settle(self, started: RemoteLogSegmentMetadata) -> bool:
        """Remove the objects where no row is left; return whether there is nothing more to do."""
        try:
            view = await self._read(started.segment.topic_id_partition)
            row = view.segments.get(started.segment.id)
            if row is not None:
                return row.state is RemoteLogSegmentState.COPY_SEGMENT_FINISHED
            await self._deletion.delete_objects(started)
        except TierError as error:
            log.warning(
                "abandoned_copy_not_removed", segment=str(started.segment), problem=str(error), remedy=error.remedy
            )
            return False
        log.info("abandoned_copy_removed", segment=str(started.segment))
        return True
