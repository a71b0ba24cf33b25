"""Plan of the expiration of one partition, from its metadata, its local log and its topic's policy as they are."""

from collections.abc import Collection
from dataclasses import dataclass
from uuid import UUID

from tierd.metadata import OwnBranch, PartitionView, covered_copies, effective_lineage
from tierd.model import Lineage
from tierd.tiering.copy_plan import highest_copied
from tierd.tiering.removing.expiring.branch_segments import LocalSegment, only_local_bytes
from tierd.tiering.removing.expiring.expiration_plan import ExpirationPlan, plan_expiration
from tierd.tiering.topic_policy import TopicPolicy


@dataclass(frozen=True, slots=True)
class LocalFacts:
    """Facts about the local log at one moment.

    Attributes:
        lineage: the lineage in the log's checkpoint.
        log_end_offset: exclusive; an offset that the log surely reaches.
        high_watermark: exclusive; None while it is unknown.
        segments: ascending, the active one last; the last one alone, with a size of 0, where sizes are not needed.
    """

    lineage: Lineage
    log_end_offset: int
    high_watermark: int | None
    segments: tuple[LocalSegment, ...] = ()

    @classmethod
    def without_log(cls, view: PartitionView) -> "LocalFacts":
        """Return the facts that stand for a log that this host does not have: it ends where the tier does."""
        ends = [metadata.end_offset + 1 for metadata in view.list()]
        return cls(Lineage(), max(ends, default=0), max(ends, default=0))


def partition_expiration(
    view: PartitionView,
    local: LocalFacts,
    policy: TopicPolicy,
    *,
    being_copied: Collection[UUID],
    now_ms: int,
    strict_kafka_compat: bool = False,
) -> ExpirationPlan:
    """Return the plan of the partition: the deletions that are due now, and when more are due."""
    log_start = view.log_start_offset or 0
    whole = effective_lineage(view, local.lineage)
    copied = highest_copied(whole, view.copied_offset_for_epoch, log_end_offset=local.log_end_offset)
    return plan_expiration(
        view.list(),
        view.list_epoch,
        # A broker forgets the epochs below its local log start; what the tier knows of them reaches to the log start.
        lineage=whole.truncated_from_start(log_start),
        log_start_offset=log_start,
        log_end_offset=local.log_end_offset,
        only_local_bytes=only_local_bytes(
            local.segments,
            highest_remote_offset=copied.offset,
            log_end_offset=local.log_end_offset,
            strict_kafka_compat=strict_kafka_compat,
        ),
        retention_ms=policy.expires_ms,
        retention_bytes=policy.expires_bytes,
        being_copied=being_copied,
        now_ms=now_ms,
        covered=() if strict_kafka_compat else covered_copies(OwnBranch(view, whole)),
    )
