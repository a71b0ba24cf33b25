"""UnprotectedWatch: what a loss of this host now would cost: records that neither the tier nor a standby has.

::

    log     |<─────────── in the tier ──────────>|<──── not in the tier ────>|
            |<──────────────── on a standby ─────────────────>|<─ not there ─>|
                                                              |<─ the cost ──>|

The part that is not in the tier is measured at intervals, in a thread. The part that no standby has is known always.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from tierd.clock import Clock
from tierd.control import Role
from tierd.errors import LogError
from tierd.log import PartitionScan, SegmentFiles, open_source, segments_from
from tierd.model import TopicIdPartition
from tierd.telemetry import UnprotectedUse
from tierd.tiering import Replica, ReplicaTable

INTERVAL_S: Final = 30.0
_BLOCK_BYTES: Final = 512
_MAGIC_AT: Final = 16
_BASE_TIMESTAMP: Final = slice(27, 35)
_HEADER_BYTES: Final = 61


class RecordsAtRisk(NamedTuple):
    """Records that one place lacks; ``seconds`` is the age of the oldest of them."""

    seconds: float
    size_bytes: int


@dataclass(frozen=True, slots=True)
class _NotInTier:
    """Records of a local log that are not in the tier; ``oldest_ms`` is 0 without one."""

    size_bytes: int
    oldest_ms: int


class UnprotectedWatch:
    """Measurements of all led partitions of this host. For one event loop; ``run`` is its task."""

    def __init__(
        self,
        replicas: ReplicaTable,
        on_standbys: Callable[[], Mapping[TopicIdPartition, RecordsAtRisk]],
        *,
        clock: Clock,
    ) -> None:
        """Measure nothing yet.

        Args:
            replicas: of this host, as far as they are tiered.
            on_standbys: returns what the best standby of each pushed partition lacks.
            clock: time.
        """
        self._replicas = replicas
        self._on_standbys = on_standbys
        self._clock = clock
        self._not_in_tier: dict[TopicIdPartition, _NotInTier] = {}
        self._first_ms: dict[tuple[TopicIdPartition, int], int] = {}  # by base offset

    async def run(self) -> None:
        """Measure until cancelled."""
        while True:
            await self.measure()
            await self._clock.sleep(INTERVAL_S)

    async def measure(self) -> None:
        """Measure once the led partitions that are not on a standby already.

        A partition whose frontier in the tier is not known yet keeps its former measure.
        """
        protected = {each for each, risk in self._on_standbys().items() if not risk.size_bytes}
        led = [each for each in self._replicas.all() if _is_led(each) and each.local.partition not in protected]
        wanted = {each.local.partition: (each.local.scan, _frontier(each)) for each in led}
        known = {partition: (scan, through) for partition, (scan, through) in wanted.items() if through is not None}
        found, first_ms = await asyncio.to_thread(_measure_all, known, dict(self._first_ms))
        self._first_ms = first_ms
        kept = {each: measure for each, measure in self._not_in_tier.items() if each in wanted}
        self._not_in_tier = kept | found

    def use(self) -> list[UnprotectedUse]:
        """Return the cost of a loss of this host now, by partition."""
        now_ms, on_standbys = self._clock.now_ms(), self._on_standbys()
        risks = {partition: _at_risk(measure, now_ms) for partition, measure in self._not_in_tier.items()}
        for partition, lacking in on_standbys.items():
            risks[partition] = _smaller(lacking, risks.get(partition, lacking))
        return [
            UnprotectedUse(
                topic=partition.topic,
                partition=partition.partition,
                seconds=risk.seconds,
                size_bytes=risk.size_bytes,
            )
            for partition, risk in risks.items()
        ]


def worst_of(use: Sequence[UnprotectedUse]) -> dict[str, float | int | str]:
    """Return the sum of the bytes, the age of the oldest record, and its partition, for the status."""
    worst = max(use, key=lambda each: (each.seconds, each.size_bytes), default=None)
    return {
        "bytes": sum(each.size_bytes for each in use),
        "seconds": 0.0 if worst is None else round(worst.seconds, 3),
        "partition": "" if worst is None or not worst.size_bytes else f"{worst.topic}-{worst.partition}",
    }


def _is_led(replica: Replica) -> bool:
    return replica.leadership is not None and replica.leadership.role is Role.LEADER


def _frontier(replica: Replica) -> int | None:
    """Return the last offset in the tier: -1 for a topic that is not copied, None while it is not known."""
    copying = replica.tasks.copy
    if copying is None:
        return -1
    through = copying.state.copied_through
    return None if through is None else through.offset


def _at_risk(measure: _NotInTier, now_ms: int) -> RecordsAtRisk:
    if not measure.size_bytes:
        return RecordsAtRisk(0.0, 0)
    return RecordsAtRisk(max(now_ms - measure.oldest_ms, 0) / 1000, measure.size_bytes)


def _smaller(one: RecordsAtRisk, other: RecordsAtRisk) -> RecordsAtRisk:
    """Return what both places lack: the end of the log from the later end of the two on."""
    size_bytes = min(one.size_bytes, other.size_bytes)
    return RecordsAtRisk(min(one.seconds, other.seconds) if size_bytes else 0.0, size_bytes)


def _measure_all(
    scans: Mapping[TopicIdPartition, tuple[PartitionScan, int]], known: Mapping[tuple[TopicIdPartition, int], int]
) -> tuple[dict[TopicIdPartition, _NotInTier], dict[tuple[TopicIdPartition, int], int]]:
    """Measure partitions, each with its frontier; return the times of first records for the next call. Blocking."""
    found: dict[TopicIdPartition, _NotInTier] = {}
    first_ms: dict[tuple[TopicIdPartition, int], int] = {}
    for partition, (scan, through) in scans.items():
        behind = segments_from(scan.segments, through + 1)
        sizes = [_size(each) for each in behind]
        oldest = next((each for each, size in zip(behind, sizes, strict=True) if size), None)
        oldest_ms = 0
        if oldest is not None:
            key = (partition, oldest.base_offset)
            oldest_ms = first_ms[key] = known.get(key) or _first_record_ms(oldest)
        found[partition] = _NotInTier(sum(sizes), oldest_ms)
    return found, first_ms


def _size(segment: SegmentFiles) -> int:
    """Return the size of the written part of a log file; a preallocated file has a hole behind that part."""
    try:
        status = segment.log.stat()
    except OSError:
        return 0
    return min(status.st_size, status.st_blocks * _BLOCK_BYTES)


def _first_record_ms(segment: SegmentFiles) -> int:
    """Return the time of the first record, or that of the file's last change if the record's is impossible."""
    try:
        changed_ms = segment.log.stat().st_mtime_ns // 1_000_000
        with open_source(segment.log) as source:
            header = source.read(0, _HEADER_BYTES)
    except (LogError, OSError):
        return 0
    time_ms = int.from_bytes(header[_BASE_TIMESTAMP], "big", signed=True)
    is_possible = len(header) == _HEADER_BYTES and header[_MAGIC_AT] == 2 and 0 < time_ms <= changed_ms
    return time_ms if is_possible else changed_ms
