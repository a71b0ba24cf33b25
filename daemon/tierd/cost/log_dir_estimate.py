"""An estimate for whole log dirs: find the partitions, sample them, price them."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from tierd.cost.cost_estimate import Plan, TopicEstimate, estimate
from tierd.cost.local_segments import Partition, Segment, find_partitions
from tierd.cost.prices import PriceList
from tierd.files import open_to_read
from tierd.remote import compress

_SEGMENTS = 8
_PIECE_BYTES = 1 << 20


def estimate_log_dirs(
    log_dirs: Sequence[Path], prices: PriceList, plan: Plan, *, report_progress: Callable[[str], None]
) -> tuple[TopicEstimate, ...]:
    """Price the partitions in ``log_dirs``, Kafka's own topics left out. Blocking; writes nothing.

    Raises:
        LogDirOfflineError: a log dir cannot be listed.
    """
    partitions: list[Partition] = []
    for log_dir in log_dirs:
        report_progress(str(log_dir))
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
