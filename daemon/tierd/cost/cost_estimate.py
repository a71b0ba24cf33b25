"""Estimated costs of a tier, before anything is switched on (``tierd estimate``). Only log dirs are read."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tierd.cost.billed_requests import RequestClass, puts_of
from tierd.cost.local_segments import Partition, Segment, find_partitions
from tierd.cost.prices import GIB, PriceList
from tierd.cost.report import Cost
from tierd.files import open_to_read
from tierd.remote import compress

DAYS_PER_MONTH = 365 / 12
_SMALL_OBJECTS = 2  # indexes and manifest
_DELETES = 4  # the tombstone is put, then four objects go
_SEGMENTS = 8
_PIECE_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Assumptions of an estimate.

    Attributes:
        retention_days: how long the tier would keep records; None for ever, then the twelfth month is priced.
        replication_factor: replicas of a partition; only the leader copies.
        part_size_bytes: of multipart uploads.
        compression_level: of zstd, tried on samples; None without compression.
    """

    retention_days: float | None
    replication_factor: int
    part_size_bytes: int
    compression_level: int | None


@dataclass(frozen=True, slots=True)
class Bound:
    """One end of the range of an estimate: bytes appended per day, bytes in the tier then, and costs of a month."""

    bytes_per_day: float
    stored_bytes: float
    month: Cost


@dataclass(frozen=True, slots=True)
class TopicEstimate:
    """Estimate of one topic; sizes are the share of this log dir: its bytes, divided by the replication factor.

    ``bytes_per_day``, ``stored_bytes`` and ``month`` assume the pace that the files show.

    Attributes:
        due_bytes: rolled already, and so copied when tiering begins.
        bytes_per_day: appended; 0 when no file shows a pace.
        segments_per_day: rolled.
        stored_bytes: in the tier once retention has filled it, or after a year.
        unknown_partitions: partitions whose pace the files do not show; the pace of these counts as 0.
        month: costs of a month with ``stored_bytes`` in the tier.
        low: the lower end of the range, as in ``Pace``.
        high: the upper end.
        base_days: time that the files cover, in days; of several partitions the shortest; None without a pace.
    """

    topic: str
    partitions: int
    due_bytes: float
    bytes_per_day: float
    segments_per_day: float
    ratio: float
    stored_bytes: float
    unknown_partitions: int
    month: Cost
    low: Bound
    high: Bound
    base_days: float | None

    @property
    def is_base_short(self) -> bool:
        """Return True where the files cover less than a day, so that the pace of a day is a guess."""
        return self.base_days is not None and self.base_days < 1


def estimate(
    partitions: Iterable[Partition], prices: PriceList, plan: Plan, *, ratio_of: Callable[[Iterable[Segment]], float]
) -> tuple[TopicEstimate, ...]:
    """Price every topic, the dearest first; ``ratio_of`` returns the bytes stored per byte of some segments."""
    by_topic: dict[str, list[Partition]] = defaultdict(list)
    for partition in partitions:
        by_topic[partition.topic].append(partition)
    estimates = [_estimate_topic(topic, found, prices, plan, ratio_of) for topic, found in by_topic.items()]
    return tuple(sorted(estimates, key=lambda e: (-e.month.total, e.topic)))


def reading_cost(prices: PriceList, *, requests: int, size_bytes: int) -> Cost:
    """Price a read of ``size_bytes`` in ``requests`` requests."""
    return Cost(
        requests=prices.of_requests(RequestClass.GET, requests), traffic=size_bytes / GIB * prices.per_gib.download
    )


def _estimate_topic(
    topic: str,
    partitions: list[Partition],
    prices: PriceList,
    plan: Plan,
    ratio_of: Callable[[Iterable[Segment]], float],
) -> TopicEstimate:
    share = 1 / plan.replication_factor
    paces = [pace for partition in partitions if (pace := partition.pace()) is not None]
    rolled = [segment for partition in partitions for segment in partition.rolled]
    segment_bytes = _mean_size(rolled or [s for partition in partitions for s in partition.segments])
    ratio = ratio_of(rolled)

    def bound(bytes_per_day: float) -> Bound:
        stored_bytes = bytes_per_day * (365 if plan.retention_days is None else plan.retention_days) * ratio
        segments_per_day = bytes_per_day / segment_bytes if segment_bytes else 0.0
        flow = _Flow(stored_bytes, bytes_per_day * ratio, segments_per_day, round(segment_bytes * ratio))
        return Bound(bytes_per_day, stored_bytes, _month(flow, prices, plan))

    seen = bound(sum(pace.bytes_per_day for pace in paces) * share)
    return TopicEstimate(
        topic=topic,
        partitions=len(partitions),
        due_bytes=sum(segment.size_bytes for segment in rolled) * share,
        bytes_per_day=seen.bytes_per_day,
        segments_per_day=seen.bytes_per_day / segment_bytes if segment_bytes else 0.0,
        ratio=ratio,
        stored_bytes=seen.stored_bytes,
        unknown_partitions=len(partitions) - len(paces),
        month=seen.month,
        low=bound(sum(pace.low for pace in paces) * share),
        high=bound(sum(pace.high for pace in paces) * share),
        base_days=min((pace.base_days for pace in paces), default=None),
    )


@dataclass(frozen=True, slots=True)
class _Flow:
    stored_bytes: float
    sent_bytes_per_day: float
    segments_per_day: float
    object_bytes: int


def _month(flow: _Flow, prices: PriceList, plan: Plan) -> Cost:
    segments = flow.segments_per_day * DAYS_PER_MONTH
    puts = puts_of(flow.object_bytes, part_size_bytes=plan.part_size_bytes) + _SMALL_OBJECTS
    requests = prices.of_requests(RequestClass.PUT, segments * puts)
    if plan.retention_days is not None:  # as much is deleted as is copied
        requests += prices.of_requests(RequestClass.PUT, segments)
        requests += prices.of_requests(RequestClass.DELETE, segments * _DELETES)
    return Cost(
        storage=flow.stored_bytes / GIB * prices.storage_per_gib_month,
        requests=requests,
        traffic=flow.sent_bytes_per_day * DAYS_PER_MONTH / GIB * prices.per_gib.upload,
    )


def _mean_size(segments: list[Segment]) -> float:
    return sum(segment.size_bytes for segment in segments) / len(segments) if segments else 0.0


def estimate_log_dirs(
    log_dirs: Sequence[Path], prices: PriceList, plan: Plan, *, on_progress: Callable[[str], None]
) -> tuple[TopicEstimate, ...]:
    """Price the partitions in ``log_dirs``, Kafka's own topics left out. Blocking; writes nothing.

    Raises:
        LogDirOfflineError: a log dir cannot be listed.
    """
    partitions: list[Partition] = []
    for log_dir in log_dirs:
        on_progress(str(log_dir))
        partitions += find_partitions(log_dir, lambda topic: not topic.startswith("__"))

    def ratio_of(segments: Iterable[Segment]) -> float:
        return 1.0 if plan.compression_level is None else sampled_ratio(segments, level=plan.compression_level)

    return estimate(partitions, prices, plan, ratio_of=ratio_of)


def sampled_ratio(segments: Iterable[Segment], *, level: int) -> float:
    """Return the stored bytes per original byte under zstd at ``level``; 1.0 where nothing can be read. Blocking.

    Reads a MiB from the middle of up to eight segments, the newest ones.
    """
    before = after = 0
    for segment in sorted(segments, key=lambda segment: segment.modified_ms)[-_SEGMENTS:]:
        piece = _read_middle(segment)
        before += len(piece)
        after += len(compress(piece, level) or piece)
    return after / before if before else 1.0


def _read_middle(segment: Segment) -> bytes:
    try:
        with open_to_read(segment.path) as file:
            file.seek(max(0, (segment.size_bytes - _PIECE_BYTES) // 2))
            return file.read(_PIECE_BYTES)
    except OSError:
        return b""  # deleted since it was listed, or not ours to read
