"""Plan of a repair: an action for each finding of an audit, with its reason. Decisions only."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import Final

from tierd.model import OffsetRange, RemoteLogSegmentMetadata, RemoteLogSegmentState, TopicIdPartition
from tierd.tiering.auditing.log_start_check import DISAGREES, STRAY
from tierd.tiering.auditing.orphans import OrphanUse
from tierd.tiering.auditing.recopy import LocalSource, RecopySource, RemoteSource
from tierd.tiering.auditing.side_by_side import AuditReport
from tierd.tiering.auditing.stored_segments import MANIFEST, TOMBSTONE
from tierd.tiering.auditing.tier_findings import Finding
from tierd.tiering.rebuilding.bucket import UNAUTHENTICATED

_FINISHED: Final = RemoteLogSegmentState.COPY_SEGMENT_FINISHED
_DELETING: Final = RemoteLogSegmentState.DELETE_SEGMENT_STARTED
_NEEDS_A_PERSON: Final = frozenset({"missing-key", "unknown-format"})
_HARMLESS: Final = frozenset({"overlap", "retained"})


class RepairKind(StrEnum):
    """Kind of an action, in a word; for programs."""

    COPY_AGAIN = "copy-again"
    REMOVE_DAMAGED = "remove-damaged"
    ADOPT = "adopt"
    REMOVE_ORPHAN = "remove-orphan"
    REMOVE_TOMBSTONE = "remove-tombstone"
    WRITE_TOMBSTONE = "write-tombstone"
    END_DELETION = "end-deletion"
    ABORT_UPLOAD = "abort-upload"
    WRITE_IDENTITY = "write-identity"
    REMOVE_LOG_START = "remove-log-start"
    WRITE_LOG_START = "write-log-start"
    NOTHING = "nothing"


class Standing(Enum):
    """Standing of this broker to a partition."""

    LED = "led by this broker"
    NOT_LED = "not led by this broker"
    UNKNOWN = "unknown to the metadata"
    DELETED = "deleted, as the metadata says"


@dataclass(frozen=True, slots=True)
class RepairAction:
    """Action of a repair; of the kind NOTHING where no action helps.

    Attributes:
        kind: what the action does.
        where: partition, segment or object key.
        why: the reason in one sentence.
        is_dangerous: the action takes away what was readable once; it is done only on request.
        remedy: the next step for a person, where nothing can be done; empty otherwise.
        partition: the partition whose claim the action needs; None for an object that belongs to no partition.
        report: the findings that the action ends; None where the kind says everything.
        source: the source of the bytes that are copied again.
        orphan: the segment that is adopted.
        offsets: the offsets that no action can bring back.
    """

    kind: RepairKind
    where: str
    why: str
    is_dangerous: bool = False
    remedy: str = ""
    partition: TopicIdPartition | None = None
    report: AuditReport | None = None
    source: RecopySource | None = None
    orphan: RemoteLogSegmentMetadata | None = None
    offsets: OffsetRange | None = None


@dataclass(frozen=True, slots=True)
class OrphanFacts:
    """Facts about a segment without a row.

    Attributes:
        age_s: the age of the youngest object; None where the store does not know it.
        metadata: the segment as its manifest describes it; None without a manifest that can be believed.
        problem: why it is not sound; empty when it is.
        use: gain from its adoption; None where it is unknown.
        tombstone_doubt: why its tombstone is no reason to remove it; empty where it is one.
    """

    age_s: float | None
    metadata: RemoteLogSegmentMetadata | None = None
    problem: str = ""
    use: OrphanUse | None = None
    tombstone_doubt: str = ""


def needs_source(report: AuditReport) -> bool:
    """Return True if the segment's bytes are wanted from elsewhere."""
    return report.row is not None and report.row.state is _FINISHED and bool(_damage(report.findings))


def plan_damaged(report: AuditReport, source: RecopySource | None, problem: str, *, is_replaced: bool) -> RepairAction:
    """Decide about a readable segment whose objects are missing or damaged.

    Args:
        report: of it.
        source: where its bytes can be had.
        problem: why there is no source.
        is_replaced: other segments hold every offset of it, and readers use those.
    """
    row = _row_of(report)
    where, damage = str(row.segment), "; ".join(finding.what for finding in _damage(report.findings))
    if is_replaced:
        why = f"{damage}; readers use other segments with the same offsets"
        return RepairAction(RepairKind.REMOVE_DAMAGED, where, why, True, partition=report.partition, report=report)
    if source is None:
        return _cannot(report, where, f"{damage}; {problem}", "run it on every broker that has, or had, a replica")
    match source:
        case LocalSource(segments) as local:
            bases = ", ".join(f"{held.base_offset:020d}" for held in segments)
            how = f"uploaded again from {bases} of this host, then this copy is deleted"
            if not local.is_same_size(row):
                how += "; compaction has left other records there: of keys that were deleted or erased some may be back"
        case RemoteSource():
            how = "its stored log is whole: a fresh copy is made of it, then this one is deleted"
    return RepairAction(
        RepairKind.COPY_AGAIN, where, f"{damage}; {how}", True, partition=report.partition, report=report, source=source
    )


def plan_orphan(report: AuditReport, facts: OrphanFacts, standing: Standing, *, min_age_s: float) -> RepairAction:
    """Decide about a segment that has objects and no row."""
    where = next(iter(report.objects.values())).key if report.objects else str(report.place)
    if facts.age_s is None or facts.age_s < min_age_s:
        age = "of unknown age" if facts.age_s is None else f"{round(facts.age_s)} s old"
        remedy = f"run it again when it is older than {round(min_age_s)} s"
        return _cannot(report, where, f"no row knows it, and it is {age}: it may still be written", remedy)
    is_whole = facts.metadata is not None and not facts.problem
    if facts.tombstone_doubt:
        remedy = "find out who wrote the tombstone; delete it with the store's own tools if it is none of tierd's"
        return _cannot(report, where, f"no row knows it; {facts.tombstone_doubt}", remedy)
    if TOMBSTONE in report.objects:
        return _remove(report, where, "no row knows it, and its tombstone says that it was abandoned")
    if MANIFEST not in report.objects:
        return _remove(report, where, "no row knows it, and it has no manifest: a copy that was never finished")
    if standing is Standing.DELETED:
        return _remove(report, where, "its partition was deleted", is_dangerous=True)
    if standing is Standing.UNKNOWN:
        remedy = "if its topic is really gone, delete it with the store's own tools; else tierd rebuild-metadata"
        return _cannot(report, where, "the metadata knows nothing of its partition, and it may be complete", remedy)
    if facts.use is OrphanUse.FILLS_GAP and is_whole:
        why = f"no row knows it; it is complete and sound, and {facts.use.value}"
        return RepairAction(
            RepairKind.ADOPT, where, why, partition=report.partition, report=report, orphan=facts.metadata
        )
    if facts.use is OrphanUse.NOTHING:
        return _remove(report, where, f"no row knows it, and {facts.use.value}", is_dangerous=True)
    why = facts.problem or (facts.use.value if facts.use else "its use is not known")
    return _cannot(report, where, f"no row knows it; {why}", "keep it until a person has examined it")


def plan_row(report: AuditReport) -> RepairAction | None:
    """Decide about a segment whose row and objects are at odds, but not damaged; None where nothing is to be done."""
    row = _row_of(report)
    kinds = {finding.kind for finding in report.findings}
    where, why = str(row.segment), "; ".join(finding.what for finding in report.findings)
    if person := [finding for finding in report.findings if finding.kind in _NEEDS_A_PERSON]:
        return _cannot(report, where, person[0].what, person[0].remedy)
    kind: RepairKind | None = None
    if "unfinished" in kinds:
        kind = RepairKind.END_DELETION
    elif "stray-tombstone" in kinds:
        kind = RepairKind.REMOVE_TOMBSTONE
    elif kinds & {"missing-tombstone", UNAUTHENTICATED}:
        kind = RepairKind.WRITE_TOMBSTONE
    elif kinds <= _HARMLESS:
        return None
    if kind is None:
        return _cannot(report, where, why, report.findings[0].remedy)
    return RepairAction(kind, where, why, partition=report.partition, report=report)


def plan_upload(report: AuditReport, standing: Standing, *, age_s: float, min_age_s: float) -> RepairAction:
    """Decide about an upload that was begun and never ended."""
    assert report.upload is not None, "asked only about uploads"
    where, why = report.upload.key, report.findings[0].what
    if report.place is None:
        return _cannot(report, where, f"{why}; its key is none of tierd's", "find out who began it")
    if standing is Standing.NOT_LED:
        return elsewhere(report)
    if standing is not Standing.LED and age_s < min_age_s:
        remedy = f"run it again when it is older than {round(min_age_s)} s"
        return _cannot(report, where, f"{why}; it may still be written", remedy)
    partition = report.partition if standing is Standing.LED else None
    return RepairAction(RepairKind.ABORT_UPLOAD, where, why, partition=partition, report=report)


def plan_identity(finding: Finding, *, is_ours: bool) -> RepairAction:
    """Decide about a ``tierd.json`` that is gone or is not ours."""
    if finding.kind == "missing-tier-identity" and is_ours:
        why = "it is gone, and the segments below the prefix are those of this metadata store"
        return RepairAction(RepairKind.WRITE_IDENTITY, finding.where, why)
    return RepairAction(RepairKind.NOTHING, finding.where, finding.what, remedy=finding.remedy)


def plan_log_start(report: AuditReport, standing: Standing) -> RepairAction:
    """Decide about a log start record that is left over, or is at odds with the row."""
    (finding,) = report.findings
    if finding.kind == STRAY and standing is Standing.DELETED:
        kind, why = RepairKind.REMOVE_LOG_START, finding.what
    elif finding.kind == DISAGREES and standing is Standing.LED:
        kind, why = RepairKind.WRITE_LOG_START, f"{finding.what}; the daemon writes it after its start"
    elif finding.kind == DISAGREES:
        return elsewhere(report)
    else:
        return unknown(report)
    return RepairAction(kind, finding.where, why, partition=report.partition, report=report)


def plan_gap(partition: TopicIdPartition, offsets: OffsetRange) -> RepairAction:
    """Return an action of the kind NOTHING for offsets that are neither in the local log nor in the tier."""
    why = f"offsets {offsets.start} to {offsets.end} are in neither tier, and no orphan has them"
    remedy = "run it on every broker that has a replica; one that still has them copies them as soon as it leads"
    return RepairAction(RepairKind.NOTHING, str(partition), why, remedy=remedy, partition=partition, offsets=offsets)


def elsewhere(report: AuditReport) -> RepairAction:
    """Return an action of the kind NOTHING: the broker that leads the partition has to repair it."""
    where = report.findings[0].where
    why = f"{report.findings[0].what}; this broker does not lead {report.partition}"
    return _cannot(report, where, why, "run it on the broker that leads the partition")


def unknown(report: AuditReport) -> RepairAction:
    """Return an action of the kind NOTHING for a finding that tierd cannot repair; the finding has the remedy."""
    finding = report.findings[0]
    return _cannot(report, finding.where, finding.what, finding.remedy)


def _remove(report: AuditReport, where: str, why: str, *, is_dangerous: bool = False) -> RepairAction:
    kind = RepairKind.REMOVE_ORPHAN
    return RepairAction(kind, where, why, is_dangerous, partition=report.partition, report=report)


def _cannot(report: AuditReport, where: str, why: str, remedy: str) -> RepairAction:
    return RepairAction(RepairKind.NOTHING, where, why, remedy=remedy, partition=report.partition, report=report)


def _damage(findings: Iterable[Finding]) -> list[Finding]:
    """Return the findings that call for storing an object again; none where a person has to act first."""
    found = list(findings)
    if any(finding.kind in _NEEDS_A_PERSON for finding in found):
        return []
    return [finding for finding in found if finding.artefact and finding.artefact != TOMBSTONE]


def _row_of(report: AuditReport) -> RemoteLogSegmentMetadata:
    assert report.row is not None, "asked only about segments with a row"
    return report.row
