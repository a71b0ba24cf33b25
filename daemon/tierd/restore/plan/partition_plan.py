"""The plan of one partition's restore, as values: which offsets of which segments, and what is missing (DESIGN 13).

A plan says everything that a restore needs to know before the first byte is fetched. The planner makes it from
metadata alone; ``log_dir`` and ``live_cluster`` carry it out, ``--dry-run`` prints it.
"""

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

from tierd.model import Lineage, RemoteLogSegmentMetadata, TopicIdPartition


class RestoreMode(StrEnum):
    """Use of the restored directory (changelog-restore 4.3)."""

    REPLICA = "replica"  # other replicas live: epochs and topic id are kept, the leader supplies the rest
    LAST_COPY = "last-copy"  # no other replica is left: epochs and topic id are kept, the end is the last stable offset
    IMPORT = "import"  # a new topic or cluster: epochs become 0, producer ids -1, aborted data goes


class SegmentPart(NamedTuple):
    """The offsets ``[start_offset, end_offset)`` of one remote segment that a restore takes."""

    metadata: RemoteLogSegmentMetadata
    start_offset: int
    end_offset: int

    @property
    def is_whole(self) -> bool:
        """Return True if the restore takes every offset of the segment."""
        return self.start_offset <= self.metadata.first_readable_offset and self.end_offset > self.metadata.end_offset


class MissingRange(NamedTuple):
    """Offsets ``[start_offset, end_offset)`` that the restored log will lack, and why."""

    start_offset: int
    end_offset: int
    reason: str


class PlannedJoin(NamedTuple):
    """Offsets ``[start_offset, end_offset)`` that a partition directory is expected to contribute."""

    directory: Path
    start_offset: int
    end_offset: int


class PlanSeverity(StrEnum):
    """Weight of a finding of the planner."""

    REFUSED = "refused"  # the restore does not begin
    LEFT_OUT = "left-out"  # a restore of this partition alone does not begin; one of many goes on without it
    WARNING = "warning"  # the restore begins; a person reads this first


class PlanFinding(NamedTuple):
    """One sentence of the planner about a partition, and what to do about it."""

    severity: PlanSeverity
    text: str
    remedy: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionPlan:
    """Plan of one partition's restore.

    Attributes:
        partition: as the tier has it; in mode ``import`` the new topic may have another name and id.
        log_start_offset: of the restored log, inclusive. It may lie inside the first part.
        end_offset: exclusive end of the offsets that are taken. The restored log may end lower: at a batch boundary,
            and except in mode ``replica`` at the last stable offset of the restored batches.
        target_offset: the exclusive end that was asked for; None for the newest.
        parts: ascending, without overlap. Holes between them are in ``missing`` unless the topic is compacted.
        lineage: the leader epochs of ``[log_start_offset, end_offset)``.
        is_compacted: holes are normal then.
        missing: what the tier does not have below ``target_offset``, or below the known log end.
        newest_timestamp_ms: the largest record timestamp of the parts; None without records.
        findings: warnings and refusals.
        fetch_bytes: log bytes that are fetched.
        fetch_requests: requests to the store, about.
        known_end_offset: largest log end and largest committed offset that anything knows of the partition, exclusive.
            Except in mode ``replica`` no offset below it is issued again.
        joins: what directories contribute beyond ``end_offset``, ascending: the existing one, and those of standbys.
        needs_hold: a broker would delete the first segments soon after its start, unless the retention of the topic is
            held, as was asked.
    """

    partition: TopicIdPartition
    mode: RestoreMode
    log_start_offset: int
    end_offset: int
    target_offset: int | None
    parts: tuple[SegmentPart, ...]
    lineage: Lineage
    is_compacted: bool
    missing: tuple[MissingRange, ...]
    newest_timestamp_ms: int | None
    findings: tuple[PlanFinding, ...]
    fetch_bytes: int
    fetch_requests: int
    known_end_offset: int = 0
    joins: tuple[PlannedJoin, ...] = ()
    needs_hold: bool = False

    @property
    def is_refused(self) -> bool:
        """Return True if a finding forbids the restore."""
        return any(finding.severity is not PlanSeverity.WARNING for finding in self.findings)

    @property
    def is_left_out(self) -> bool:
        """Return True if a restore of many partitions goes on without this one."""
        return any(finding.severity is PlanSeverity.LEFT_OUT for finding in self.findings)
