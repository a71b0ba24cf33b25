"""FollowerTask: finds how far the tier has a followed log, so that the follower releases the holds below."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Final

import structlog

from tierd.errors import RemoteStorageNotReadyError
from tierd.lazy_event import LazyEvent
from tierd.metadata import RemoteLogMetadataManager
from tierd.model import OffsetRange
from tierd.tiering.copy_plan import NOTHING_COPIED
from tierd.tiering.copying.copy_state import CopyPhase, CopyState
from tierd.tiering.copying.frontier import find_frontier, held_holes
from tierd.tiering.local.log_offsets import LogOffsets
from tierd.tiering.local.partition_log import PartitionLog

log = structlog.get_logger()

_HOLD_SHARE = 0.5  # of hold.max_bytes: what this broker leads itself goes before what it might lead one day


class FollowerTask:
    """Task of one followed partition, which computes the frontier again and again (remote-tiering 17.2).

    What has rolled and is not in the tier is held here too: the leader's host may be lost before it was copied, and
    the broker's retention goes by no tier. What the leader had lost before it was copied stays held, below the frontier
    too, until this broker leads. A partition that was never led, or whose topic is not copied, is not held,
    because it would be held for ever.

    Attributes:
        name: ``follow <partition> <topic id>``.
        wake: the event that is set when the directory changed, or on request.
    """

    def __init__(
        self,
        local: PartitionLog,
        *,
        metadata: RemoteLogMetadataManager,
        log_offsets: LogOffsets,
        slots: asyncio.Semaphore,
        interval_s: float,
        idle_interval_s: float,
        is_copied: Callable[[], bool] = lambda: True,
        is_compacted: Callable[[], bool] = lambda: False,
    ) -> None:
        """Begin nothing yet.

        Args:
            local: the log.
            metadata: the rows that the leader wrote.
            log_offsets: is told what the tier has.
            slots: bounds the followers that ask the metadata store at once.
            interval_s: the wait between two passes while a segment is held.
            idle_interval_s: the wait between two passes of a partition that was never led yet.
            is_copied: returns True if the topic is copied at this moment; segments of other topics are not held.
            is_compacted: returns True if the topic's cleanup policy has compaction at this moment.
        """
        self._local = local
        self._partition = local.partition
        self.name: Final = f"follow {local.partition} {local.partition.topic_id}"  # asked for often
        self._metadata = metadata
        self._log_offsets = log_offsets
        self._slots = slots
        self._interval_s = interval_s
        self._idle_interval_s = idle_interval_s
        self._is_copied = is_copied
        self._is_compacted = is_compacted
        self.wake: Final = LazyEvent()
        self._state = CopyState()
        self._holes: tuple[OffsetRange, ...] = ()
        self._searched_through: int | None = None  # frontier of ``_holes``

    @property
    def state(self) -> CopyState:
        """Return the present state."""
        return self._state

    async def run_once(self) -> float | None:
        """Read the metadata once; return seconds until the next read, None when only a new segment calls for one.

        Raises:
            TierError: the metadata cannot be read; what is held stays held.
        """
        async with self._slots:
            tier = await self._metadata.read_epochs(self._partition)
        scan, is_compacted = self._local.scan, self._is_compacted()
        copied = await find_frontier(tier, scan, is_compacted=is_compacted)
        if copied == NOTHING_COPIED and not tier.is_complete:  # the log may be of an epoch that the row tells no more
            async with self._slots:
                tier = await self._metadata.read_view(self._partition)
            copied = await find_frontier(tier, scan, is_compacted=is_compacted)
        log_start = tier.log_start_offset
        if log_start is None and self._state.log_start_offset is not None:
            raise RemoteStorageNotReadyError(
                f"{self._partition}: its row is gone from the metadata store",
                remedy="restore the store from a backup or by tierd rebuild-metadata; what is held stays held",
            )
        is_held = log_start is not None and self._is_copied()
        if log_start is not None and is_held:
            holes = await self._find_holes(copied.offset, log_start)
            through = max(copied.offset, log_start - 1)
            await self._local.protect(copied_through=through, holes=holes, share=_HOLD_SHARE)
        else:
            await self._local.release()
        await self._log_offsets.copied_through(self._local.log_dir, self._partition, copied)
        self._state = replace(self._state, phase=CopyPhase.IDLE, copied_through=copied, log_start_offset=log_start)
        if not is_held:
            return self._idle_interval_s
        return self._interval_s if self._local.pending else None

    async def _find_holes(self, copied_through: int, log_start_offset: int) -> tuple[OffsetRange, ...]:
        """Return the offsets below the frontier that are in a hold and not in the tier.

        A leader whose local log has lost segments before they were copied goes on behind them. All rows are read only
        where the broker of this host has deleted a segment that would be released, once for each frontier: elsewhere
        the leader was in time.
        """
        segments = self._local.scan.segments
        first = segments[0].base_offset if segments else 0
        below = [each for each in self._local.held if log_start_offset < each.next_base_offset <= copied_through + 1]
        if not any(each.next_base_offset <= first for each in below):
            return ()
        if self._searched_through != copied_through:
            async with self._slots:
                view = await self._metadata.read_view(self._partition)
            self._holes = held_holes(
                view, self._local.scan, below, log_start_offset=log_start_offset, below=copied_through + 1
            )
            self._searched_through = copied_through
            for hole in self._holes:
                log.warning(
                    "held_although_leader_went_on",
                    partition=str(self._partition),
                    first_offset=hole.start,
                    last_offset=hole.end,
                    remedy="let the broker of this host lead the partition for a while: the leader then copies them",
                )
        return self._holes
