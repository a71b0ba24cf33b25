"""An estimate for whole log dirs: find the partitions, sample them, price them."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from tierd.cost.cost_estimate import Plan, TopicEstimate, estimate
from tierd.cost.local_segments import Partition, Segment, find_partitions
from tierd.cost.prices import PriceList
from tierd.cost.sampling import sampled_ratio


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
