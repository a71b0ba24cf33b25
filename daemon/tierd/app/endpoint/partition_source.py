"""PartitionSource: the present state of one partition, from its replica on this host and from the tier."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial

import structlog

from tierd.app.endpoint.endpoint_log import SourceState
from tierd.app.endpoint.local_replica import CutEnd, LiveScan, LocalReplica
from tierd.app.endpoint.log_watermarks import LocalLogEnd, LogWatermarks
from tierd.app.endpoint.tier_views import TierViews
from tierd.log import PartitionScan, StableOffsetTracker
from tierd.metadata import PartitionView
from tierd.model import OffsetRange, RemoteLogSegmentState, TopicIdPartition
from tierd.tiering import TieredLog

_log = structlog.get_logger()

FindHeld = Callable[[TopicIdPartition], tuple[OffsetRange, ...]]
"""Returns the offsets of the segments of a partition that this process holds to copy them."""

FindReplica = Callable[[TopicIdPartition], LocalReplica | None]
"""Returns the replica of a partition on this host as it is now; None without one."""


@dataclass(frozen=True, slots=True)
class SourceParts:
    """Parts that all sources of one process share.

    Attributes:
        find_replica: of the log dirs of this host.
        watermarks: of those replicas.
        views: of the tier.
        find_held: of this process.
        is_tier_final: no other host writes to the cluster any more, so that the end of the tier is the end of a log.
    """

    find_replica: FindReplica
    watermarks: LogWatermarks
    views: TierViews
    find_held: FindHeld = lambda _: ()
    is_tier_final: bool = False


@dataclass(slots=True)
class PartitionSource:
    """Source of one partition. It keeps the last state, so that an unchanged log is the same object."""

    partition: TopicIdPartition
    parts: SourceParts
    _scan: LiveScan = field(default_factory=LiveScan)
    _stable: StableOffsetTracker = field(default_factory=StableOffsetTracker)
    _cut: CutEnd = field(default_factory=CutEnd)
    _last: TieredLog | None = None
    _was_cut: bool = False  # at the last look at the files

    async def state(self, *, is_doubted: bool = False) -> SourceState:
        """Return the present state. What only grows is read first: the end, then the segments, and the tier last.

        In another order a segment that the broker deletes meanwhile could be missed in both places.
        """
        replica = self.parts.find_replica(self.partition)
        if replica is None:
            view = await self.parts.views.current(self.partition, is_doubted=is_doubted)
            return SourceState(self._kept(TieredLog(self.partition, view, None, None)), self.parts.is_tier_final)
        end = await self.parts.watermarks.end(self.partition, replica)
        scan = await self._scan.current(replica.scan, is_doubted=is_doubted)
        view = await self._view(scan, is_doubted=is_doubted)
        log = TieredLog(
            self.partition,
            view,
            scan,
            end.high_watermark,
            end.log_start_checkpoint,
            () if _has_copies(view) else self.parts.find_held(self.partition),
            local_stable_offset=end.last_stable_offset,
        )
        log = await self._walked(log, end, is_doubted=is_doubted)
        # What a crash took may come back from another replica, or its offsets get other records.
        is_end_known = self.parts.is_tier_final or (replica.is_leader and end.is_current and log.cut_at is None)
        return SourceState(self._kept(log), is_end_known)

    def listen(self, on_change: Callable[[], None]) -> Callable[[], None]:
        """Call ``on_change`` whenever the state may have changed, until the returned function is called."""
        replica = self.parts.find_replica(self.partition)
        if replica is None:
            return self.parts.views.listen(self.partition, on_change)
        return self.parts.watermarks.listen(self.partition, replica, on_change)

    async def _view(self, scan: PartitionScan, *, is_doubted: bool) -> PartitionView:
        """Return the tier. A view without segments, which may be some seconds old, has to be newer than the scan.

        Otherwise the log would seem to begin with the local segments that are left, just after another host copied the
        first ones: clients would reset their positions.
        """
        view = await self.parts.views.current(self.partition, is_doubted=is_doubted)
        if is_doubted or view.log_start_offset is not None or view.list() or not self._may_have_lost_segments(scan):
            return view
        return await self.parts.views.current(self.partition, is_doubted=True)

    def _may_have_lost_segments(self, scan: PartitionScan) -> bool:
        """Return True if the log begins later in ``scan`` than in the last state, or if there is none."""
        last = self._last.scan if self._last is not None else None
        return last is None or _first_offset(scan) > _first_offset(last)

    async def _walked(self, log: TieredLog, end: LocalLogEnd, *, is_doubted: bool) -> TieredLog:
        """Return ``log`` with its last stable offset, and with the end of its files where it was cut back.

        The files are looked at where no broker tells a stable offset now and something has moved, where the state is
        doubted, and each time after the log was cut back, since it may have grown.
        """
        if log.high_watermark is None:
            return log
        must_walk = is_doubted or self._was_cut
        told = end.last_stable_offset if end.is_current and not self._was_cut else None
        known = self._known_stable_offset(log) if told is None else told
        if known is not None and not must_walk:
            return replace(log, local_stable_offset=known)
        stable, cut_at = await asyncio.to_thread(_walk, self._stable, self._cut, log, told=told, must_walk=must_walk)
        self._note_cut(log, cut_at)
        if cut_at is not None and self.parts.is_tier_final:
            # No broker brings anything back: the log ends with its files, as it does for a broker that starts.
            return replace(log, high_watermark=cut_at, local_stable_offset=stable)
        return replace(log, local_stable_offset=stable, cut_at=cut_at)

    def _known_stable_offset(self, log: TieredLog) -> int | None:
        last = self._last
        is_known = last is not None and _is_same(last, log) and last.high_watermark == log.high_watermark
        return last.local_stable_offset if is_known and last is not None else None

    def _note_cut(self, log: TieredLog, cut_at: int | None) -> None:
        if cut_at is not None and not self._was_cut:
            _log.warning(
                "local_log_cut_back",
                partition=str(self.partition),
                log_end_offset=cut_at,
                high_watermark=log.high_watermark,
                remedy="start the broker: it gets the records back from another replica, or cuts its log back for good",
            )
        self._was_cut = cut_at is not None

    def _kept(self, log: TieredLog) -> TieredLog:
        """Return ``log``, or the last one where it is the same, or the last one with other ends."""
        last = self._last
        if last is None or not _is_same(last, log):
            self._last = log
        elif _ends(last) != _ends(log):
            self._last = last.moved(
                high_watermark=log.high_watermark, local_stable_offset=log.local_stable_offset, cut_at=log.cut_at
            )
        return self._last or log


def _first_offset(scan: PartitionScan) -> int:
    return scan.segments[0].base_offset if scan.segments else 0


def _is_same(last: TieredLog, log: TieredLog) -> bool:
    """Return True if both have the same segments, local and remote."""
    is_same_start = (last.log_start_checkpoint, last.held) == (log.log_start_checkpoint, log.held)
    return last.view is log.view and last.scan is log.scan and is_same_start


def _ends(log: TieredLog) -> tuple[int | None, int | None, int | None]:
    return log.high_watermark, log.local_stable_offset, log.cut_at


def _has_copies(view: PartitionView) -> bool:
    """Return True if the tier tells where the log starts, so that held segments do not count."""
    return any(each.state is RemoteLogSegmentState.COPY_SEGMENT_FINISHED for each in view.segments.values())


def _walk(
    tracker: StableOffsetTracker, cut: CutEnd, log: TieredLog, *, told: int | None, must_walk: bool
) -> tuple[int, int | None]:
    """Return the last stable offset, which is ``told`` where a broker tells it, and what ``cut`` finds. Blocking.

    The tracker ends with the files. Where it ends at the high watermark, the files reach the watermark, unless they
    were cut back behind the tracker: then ``must_walk`` tells. Of a log that was cut back, no producer snapshot behind
    the cut counts: the markers that it knows of are gone.
    """
    assert log.scan is not None, "a log with a high watermark has a scan"
    assert log.high_watermark is not None, "the caller asks only with one"
    follow = partial(tracker.follow, log.scan, log_start_offset=log.log_start_offset)
    if told is None and not must_walk:
        stable, end_offset = follow(high_watermark=log.high_watermark)
        if end_offset == log.high_watermark:
            return stable, None
    cut_at = cut.find(log.scan, high_watermark=log.high_watermark)
    if told is not None and cut_at is None:
        return told, None
    # The files may have grown since they were followed.
    return follow(high_watermark=log.high_watermark if cut_at is None else cut_at).last_stable_offset, cut_at
