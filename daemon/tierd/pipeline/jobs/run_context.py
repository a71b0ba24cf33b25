"""RunContext: the facts that every task of a run has; Spark brings them to each worker once."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tierd.pipeline.access import OpenTier, TierAccess
from tierd.pipeline.jobs.task_layout import BucketRange, GroupPlace, InputPlace
from tierd.pipeline.planning import PartitionWork, WorkOrder
from tierd.pipeline.rewriting import RewriteRules


@dataclass(frozen=True, slots=True, kw_only=True)
class RunContext:
    """Order of a run, buckets of its keys, and access to the tier.

    Attributes:
        buckets: of each partition whose keys are shuffled, by its index.
    """

    access: TierAccess
    order: WorkOrder
    buckets: Mapping[int, BucketRange]

    @contextmanager
    def opened_tier(self, note_fetched: Callable[[int], object]) -> Iterator[OpenTier]:
        """Open the tier for a task; at the end, also by an error, ``note_fetched`` gets the bytes that were fetched."""
        with self.access.open() as tier:
            try:
                yield tier
            finally:
                note_fetched(tier.fetched_bytes)

    def work(self, place: GroupPlace | InputPlace) -> PartitionWork:
        """Return the partition's part of the order."""
        return self.order.partitions[place.index]

    def rules(self, place: GroupPlace | InputPlace) -> RewriteRules:
        """Return the rules for the partition's records.

        Raises:
            CorruptIndexError: the producer snapshot of the partition cannot be understood.
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
    """Return the directory for a task's temporary files: the first of Spark's own, which end with the session."""
    return Path(spark_local_dirs.partition(",")[0])
