"""Planner of one partition's restore: the parts that the tier has, the offsets that it lacks, and all objections.

Decisions only.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import StrEnum
from itertools import pairwise
from typing import Final

from tierd.metadata import OwnBranch, PartitionView
from tierd.model import Lineage, RemoteLogSegmentMetadata, RemoteLogSegmentState, is_topic_name
from tierd.restore.plan.known_ends import MOST_AHEAD, KnownEnd
from tierd.restore.plan.partition_plan import (
    MissingRange,
    PartitionPlan,
    PlanFinding,
    PlanSeverity,
    RestoreMode,
    SegmentPart,
)
from tierd.restore.plan.topic_retention import KAFKA_DEFAULT, TopicRetention, expired_first

_STATE = RemoteLogSegmentState
_PIECE_BYTES: Final = 8 << 20  # of one ranged read
_SMALL_READS: Final = 2  # manifest and indexes of a segment
_MOST_NOT_COPIED: Final = 1 << 40  # offsets between the tier's end and the last known log end
_CLUSTER_METADATA: Final = "__cluster_metadata"  # comes back as a snapshot of the catalogue, or not at all
_SKIPPED: Final = "the topic's retention is over for them, and they are skipped as asked"


class ExpiredSegments(StrEnum):
    """Treatment of segments that a broker would delete at once, because the topic's retention is over (trap 6)."""

    REFUSE = "refuse"
    HOLD = "hold"  # a person holds the topic's retention before the broker starts
    SKIP = "skip"  # the restored log begins behind them


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRequest:
    """Request that holds for all partitions of a restore.

    Attributes:
        mode: use of the result.
        expired: treatment of segments that retention would delete at once.
        accepts_holes: restore a partition although offsets in its middle are missing.
        are_others_down: the other brokers with a replica are stopped, and stay so until the restored one leads.
        for_broker: node id of the broker that gets the result; None where it does not matter.
        now_ms: wall clock.
    """

    mode: RestoreMode
    expired: ExpiredSegments = ExpiredSegments.REFUSE
    accepts_holes: bool = False
    are_others_down: bool = False
    for_broker: int | None = None
    now_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreFacts:
    """Facts about one partition that its metadata does not say.

    Attributes:
        lineage: which epoch wrote which offset, from ``restored_lineage``.
        is_compacted: None where the topic's cleanup policy is not known.
        retention: of the topic in Kafka; None where it is not known.
        target_offset: exclusive end that is asked for; None for the newest.
        known_end: log end as the catalogue has seen it.
        committed_end: largest committed offset of any group.
        replicas: brokers with a replica; empty where they are not known.
        controller_epoch: leader epoch of the partition in the metadata of the cluster; None where it is not known.
        findings: of the steps before this one, such as the search for a time.
        has_sources: standbys have the partition; ``join_sources`` comes after the plan.
    """

    lineage: Lineage
    is_compacted: bool | None
    retention: TopicRetention | None
    target_offset: int | None = None
    known_end: KnownEnd | None = None
    committed_end: int = 0
    replicas: tuple[int, ...] = ()
    controller_epoch: int | None = None
    findings: tuple[PlanFinding, ...] = ()
    has_sources: bool = False


def plan_partition(view: PartitionView, facts: RestoreFacts, request: PlanRequest) -> PartitionPlan:
    """Plan the restore of one partition. A plan that is refused has all its reasons in ``findings``."""
    facts = _plausible(view, facts)
    branch = OwnBranch(view, facts.lineage)
    newest = branch.end_offset
    end = newest if facts.target_offset is None else min(facts.target_offset, newest)
    parts = _parts(branch, view.log_start_offset or 0, end)
    log_start = max(view.log_start_offset or 0, parts[0].start_offset if parts else 0)
    holes = [] if facts.is_compacted else _holes(view, parts)
    findings = [*_name_findings(view.partition.topic), *facts.findings, *_hole_findings(holes, request)]
    missing = [*_missing_start(view, parts), *holes]
    expired = 0 if request.mode is RestoreMode.REPLICA else _expired(parts, facts, request)
    if expired:
        findings.append(_expired_finding(parts[:expired], facts, request))
    if expired and request.expired is ExpiredSegments.SKIP and facts.retention is not None:
        begin = parts[expired - 1].end_offset
        missing = [MissingRange(log_start, begin, _SKIPPED), *(each for each in missing if each.start_offset >= begin)]
        log_start, parts = begin, parts[expired:]
    reached = parts[-1].end_offset if parts else log_start
    missing += _missing_end(view, reached, newest, facts)
    findings += _policy_findings(facts, request)
    findings += _replica_findings(facts, request)
    lineage = facts.lineage.entries_in(log_start, reached)
    findings += _epoch_findings(lineage, facts, request)
    if not parts and not facts.has_sources:
        findings.append(_nothing(newest, log_start, facts))
    timestamps = [part.metadata.max_timestamp_ms for part in parts if part.metadata.max_timestamp_ms >= 0]
    return PartitionPlan(
        partition=view.partition,
        mode=request.mode,
        log_start_offset=log_start,
        end_offset=reached,
        target_offset=facts.target_offset,
        parts=tuple(parts),
        lineage=lineage,
        is_compacted=bool(facts.is_compacted),
        missing=tuple(missing),
        newest_timestamp_ms=max(timestamps, default=None),
        findings=tuple(findings),
        fetch_bytes=sum(metadata.size_bytes for metadata in _segments(parts)),
        fetch_requests=sum(_requests(metadata) for metadata in _segments(parts)),
        known_end_offset=_known_end_offset(view, facts),
        needs_hold=bool(expired) and request.expired is ExpiredSegments.HOLD,
    )


def _parts(branch: OwnBranch, log_start: int, end: int) -> list[SegmentPart]:
    """Return the readable parts. The first one begins where its segment does, since files are cut between batches."""
    parts: list[SegmentPart] = []
    for metadata, start, stop in branch.readable_ranges(log_start, end):
        if parts and parts[-1].metadata.segment == metadata.segment and parts[-1].end_offset == start:
            parts[-1] = parts[-1]._replace(end_offset=stop)
        else:
            parts.append(SegmentPart(metadata, start, stop))
    if parts and parts[0].start_offset == log_start:
        first = parts[0].metadata.first_readable_offset
        if first < log_start < branch.readable_end(parts[0].metadata, first):
            parts[0] = parts[0]._replace(start_offset=first)
    return parts


def _holes(view: PartitionView, parts: Sequence[SegmentPart]) -> list[MissingRange]:
    """Return the offsets between the first and the last part that no part has."""
    return [
        MissingRange(
            part.end_offset, following.start_offset, _why_missing(view, part.end_offset, following.start_offset)
        )
        for part, following in pairwise(parts)
        if part.end_offset < following.start_offset
    ]


def _missing_start(view: PartitionView, parts: Sequence[SegmentPart]) -> list[MissingRange]:
    """Return the offsets between the log start and the first part."""
    start = view.log_start_offset
    if start is None or not parts or parts[0].start_offset <= start:
        return []
    return [MissingRange(start, parts[0].start_offset, _why_missing(view, start, parts[0].start_offset))]


def _why_missing(view: PartitionView, start: int, end: int) -> str:
    overlapping = [m for m in view.list() if m.start_offset < end and m.end_offset >= start]
    going = [m for m in overlapping if m.state is _STATE.DELETE_SEGMENT_STARTED]
    taken_back = [m.soft_delete for m in going if m.soft_delete is not None and not m.soft_delete.is_replaced]
    if taken_back:
        until = utc_text(min(each.delete_after_ms for each in taken_back))
        return (
            f"a segment with them is being deleted ({taken_back[0].reason}); tierd undelete takes it back until {until}"
        )
    if any(m.state is _STATE.COPY_SEGMENT_STARTED for m in overlapping):
        return "a copy of them began and did not end"
    if any(m.state is _STATE.COPY_SEGMENT_FINISHED for m in overlapping):
        return "the segments that have these offsets are of an abandoned branch of the log"
    return "no segment of the tier has them"


def _hole_findings(holes: Sequence[MissingRange], request: PlanRequest) -> list[PlanFinding]:
    severity = PlanSeverity.WARNING if request.accepts_holes else PlanSeverity.REFUSED
    return [
        PlanFinding(
            severity,
            f"offsets {hole.start_offset} to {hole.end_offset - 1} are missing in the middle: {hole.reason}",
            "" if request.accepts_holes else "look at tierd verify; --accept-holes restores the log without them",
        )
        for hole in holes
    ]


def _expired(parts: Sequence[SegmentPart], facts: RestoreFacts, request: PlanRequest) -> int:
    retention = KAFKA_DEFAULT if facts.retention is None else facts.retention
    return expired_first([part.metadata for part in parts], retention, now_ms=request.now_ms)


def _expired_finding(expired: Sequence[SegmentPart], facts: RestoreFacts, request: PlanRequest) -> PlanFinding:
    first, last = expired[0].start_offset, expired[-1].end_offset - 1
    if facts.retention is None:
        text = "the topic's retention is not known; with Kafka's default, 7 days, a broker"
    else:
        text = "the topic's retention is over: a broker"
    text = f"{text} deletes offsets {first} to {last} soon after its start"
    match request.expired:
        case ExpiredSegments.REFUSE:
            remedy = "--hold-retention restores them and holds the topic's retention; --skip-expired leaves them out"
            return PlanFinding(
                PlanSeverity.REFUSED, text, remedy if facts.retention else f"{remedy}; --retention names it"
            )
        case ExpiredSegments.HOLD:
            return PlanFinding(PlanSeverity.WARNING, text, "the plan says below how the topic's retention is held")
        case ExpiredSegments.SKIP if facts.retention is None:
            return PlanFinding(PlanSeverity.REFUSED, text, "name the topic's retention with --retention")
        case _:
            return PlanFinding(PlanSeverity.WARNING, text, "nothing to do: they are left out")


def _missing_end(view: PartitionView, reached: int, newest: int, facts: RestoreFacts) -> list[MissingRange]:
    """Return the offsets between the last part and the end that is asked for, or that the catalogue has seen."""
    known, target = facts.known_end, facts.target_offset
    wanted = target if target is not None else max(newest, known.end_offset if known else 0)
    missing = []
    if reached < min(newest, wanted):
        missing.append(MissingRange(reached, min(newest, wanted), _why_missing(view, reached, min(newest, wanted))))
    if max(reached, newest) < wanted:
        seen = f"; the log ended at {known.end_offset} on {utc_text(known.taken_ms)}" if known else ""
        missing.append(MissingRange(max(reached, newest), wanted, f"they were not copied to the tier{seen}"))
    return missing


def _name_findings(topic: str) -> list[PlanFinding]:
    """Return the objection to a topic whose directories no log dir of a broker has, or that is not for restores."""
    if is_topic_name(topic) and topic != _CLUSTER_METADATA:
        return []
    remedy = "nothing to do: tierd copies no such topic; look who can write to the bucket"
    return [PlanFinding(PlanSeverity.LEFT_OUT, "no topic that a broker serves has its name", remedy)]


def _policy_findings(facts: RestoreFacts, request: PlanRequest) -> list[PlanFinding]:
    if request.mode is not RestoreMode.REPLICA or facts.is_compacted is False:
        return []
    if facts.is_compacted:
        return [
            PlanFinding(
                PlanSeverity.LEFT_OUT,
                "the topic is compacted: the leader may have removed tombstones that this replica would lack, so that "
                "deleted keys came back",
                "nothing to do: the broker fetches the whole partition from its leader",
            )
        ]
    return [
        PlanFinding(
            PlanSeverity.REFUSED,
            "it is not known whether the topic is compacted: no broker answered, and the catalogue does not say",
            "set cleanup_policy of the topic in the configuration, or let a broker of leadership.kafka answer",
        )
    ]


def _replica_findings(facts: RestoreFacts, request: PlanRequest) -> list[PlanFinding]:
    others = [node for node in facts.replicas if node != request.for_broker]
    if request.mode is not RestoreMode.LAST_COPY or not others or (request.for_broker is None and len(others) < 2):
        return []
    names = ", ".join(map(str, others))
    text = f"brokers {names} have replicas: one that comes up empty and leads has the restored one truncated"
    if request.are_others_down:
        remedy = "keep them down until the restored broker leads, or restore the same onto each of them first"
        return [PlanFinding(PlanSeverity.WARNING, text, remedy)]
    return [PlanFinding(PlanSeverity.REFUSED, text, "stop them, then say --others-down")]


def _epoch_findings(lineage: Lineage, facts: RestoreFacts, request: PlanRequest) -> list[PlanFinding]:
    """Return the objection to records of epochs that the controller has not issued yet; an import makes them 0."""
    latest, known = lineage.latest, facts.controller_epoch
    if request.mode is RestoreMode.IMPORT or latest is None or known is None or latest.epoch <= known:
        return []
    return [
        PlanFinding(
            PlanSeverity.REFUSED,
            f"its records are of leader epoch {latest.epoch}, and the controller of the cluster is at {known}: the "
            "metadata of the cluster is older than the records, and replicas would cut them off",
            "restore the cluster metadata that belongs to the records, or restore with --mode import",
        )
    ]


def _nothing(newest: int, log_start: int, facts: RestoreFacts) -> PlanFinding:
    if facts.target_offset is not None and facts.target_offset <= log_start and newest > log_start:
        text = f"offset {facts.target_offset} is not above the log start, {log_start}"
        return PlanFinding(
            PlanSeverity.LEFT_OUT, text, "name a later offset or time; expired segments: tierd deletions"
        )
    text = "the tier has no records of it" if newest <= log_start else "no records are left to restore"
    return PlanFinding(PlanSeverity.LEFT_OUT, text, "look at tierd segments; nothing can be restored")


def _known_end_offset(view: PartitionView, facts: RestoreFacts) -> int:
    known = 0 if facts.known_end is None else facts.known_end.end_offset
    return max(_copied_end(view), known, facts.committed_end)


def _copied_end(view: PartitionView) -> int:
    highest = [view.highest_offset_for_epoch(epoch) for epoch in view.epochs]
    return max((offset + 1 for offset in highest if offset is not None), default=0)


def _plausible(view: PartitionView, facts: RestoreFacts) -> RestoreFacts:
    """Return the facts without ends that no log can have, each with a warning: the restored log would end there.

    Brokers take any offset that a client commits. An end in the catalogue may be damaged, or forged where the tier has
    no key ring.
    """
    end, known = _copied_end(view), facts.known_end
    if known is not None and known.end_offset - end > _MOST_NOT_COPIED:
        text = f"the catalogue has log end {known.end_offset}, which is not heeded: the tier ends at {end}"
        finding = PlanFinding(PlanSeverity.WARNING, text, "look at tierd verify for damaged objects of the catalogue")
        facts, known = replace(facts, known_end=None, findings=(*facts.findings, finding)), None
    end = max(end, 0 if known is None else known.end_offset)
    if facts.committed_end - end > MOST_AHEAD:
        text = f"a group has committed offset {facts.committed_end}, which is not heeded: the log ended at {end}"
        finding = PlanFinding(PlanSeverity.WARNING, text, "tierd restore groups lowers it to the end of the partition")
        facts = replace(facts, committed_end=0, findings=(*facts.findings, finding))
    return facts


def _segments(parts: Sequence[SegmentPart]) -> list[RemoteLogSegmentMetadata]:
    return list({part.metadata.segment.id: part.metadata for part in parts}.values())


def _requests(metadata: RemoteLogSegmentMetadata) -> int:
    return _SMALL_READS + -(-metadata.size_bytes // _PIECE_BYTES)


def utc_text(timestamp_ms: int) -> str:
    """Return a time as plans show it, to the second."""
    return datetime.fromtimestamp(timestamp_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
