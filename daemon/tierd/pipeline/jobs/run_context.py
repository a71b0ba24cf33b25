"""RunContext: what every task of a run knows; Spark brings it to each worker once."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tierd.pipeline.access import TierAccess
from tierd.pipeline.jobs.layout import BucketRange, GroupPlace, InputPlace
from tierd.pipeline.planning import PartitionWork, WorkOrder
from tierd.pipeline.rewriting import RewriteRules


@dataclass(frozen=True, slots=True, kw_only=True)
class RunContext:
    """The order, how it was cut up, and the way to the tier.

    Attributes:
        buckets: of each partition whose keys are shuffled, by its index.
    """

    access: TierAccess
    order: WorkOrder
    buckets: Mapping[int, BucketRange]

    def work(self, place: GroupPlace | InputPlace) -> PartitionWork:
        """The partition's part of the order."""
        return self.order.partitions[place.index]

    def rules(self, place: GroupPlace | InputPlace) -> RewriteRules:
        """Return the rules for the partition's records.

        Raises:
            CorruptIndexError: the snapshot of its producers cannot be understood.
        """
        work = self.work(place)
        return RewriteRules(
            now_ms=self.order.now_ms,
            delete_retention_ms=work.delete_retention_ms,
            compacts=work.compacts,
            aborted=work.aborted,
            producers=work.live_producers(),
            round_end_offset=work.round_end_offset,
            expire_before_ms=work.expire_before_ms,
            erased_keys=work.erased_keys,
            removes_unread=work.removes_unread,
        )


def scratch_directory(spark_local_dirs: str) -> Path:
    """Return the directory for a task's temporary files: the first of Spark's own, which goes with the session."""
    return Path(spark_local_dirs.partition(",")[0])
