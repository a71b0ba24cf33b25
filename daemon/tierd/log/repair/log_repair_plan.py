"""Plan for the repair of a damaged partition directory: pure, from facts to steps (DESIGN 7: ``tierd repair``).

::

    fault                                    decision
    torn tail of the active segment          cut into a side file
    garbage behind the last batch that       cut into a side file: no record is lost by it
      a rolled segment can have
    anything else in the middle              reported, with choices; with ``cut_damaged`` the log ends there, and
                                             the bytes behind it are moved to side files
    an index, a snapshot, leader epochs      made anew from the batches; the old file is kept

The steps are in an order in which each of them leaves a log that a broker can load: derived files shrink before the log
does, and segments go from the last one down.
"""

from dataclasses import dataclass

from tierd.log.files.checkpoints import LEADER_EPOCH_CHECKPOINT, PARTITION_METADATA, encode_lineage
from tierd.log.files.partition_scan import file_name, parse_file_name
from tierd.log.repair.facts import Artefact, Fault, FaultKind, PartitionFacts, SegmentFacts

_INDEXES = (".index", ".timeindex", ".txnindex")
_UNKNOWN_PRODUCERS = "the producers at this offset are not known: a segment before it is damaged"


@dataclass(frozen=True, slots=True)
class CutTail:
    """Copy the bytes from ``position`` on to a side file, then cut them off."""

    name: str
    position: int
    size_bytes: int
    why: str


@dataclass(frozen=True, slots=True)
class MoveAside:
    """Rename a file to a side file."""

    name: str
    why: str


@dataclass(frozen=True, slots=True)
class WriteAnew:
    """Copy an existing file to a side file, then write the new content."""

    name: str
    content: bytes
    why: str
    exists: bool


@dataclass(frozen=True, slots=True)
class LowerCheckpoint:
    """Lower the partition's offset in a checkpoint of the log dir, because the log ends below that offset."""

    name: str
    before: int
    offset: int

    @property
    def why(self) -> str:
        """Return the reason in words, for people."""
        return f"it says {self.before}, the log ends at {self.offset}"


LogRepairStep = CutTail | MoveAside | WriteAnew | LowerCheckpoint


@dataclass(frozen=True, slots=True)
class RemainingDamage:
    """Damage that the plan leaves, and the actions that a person can take.

    Attributes:
        name: name of the file.
        position: position of the first damaged byte; None when the damage concerns the whole file.
        choices: actions that a person can take, the best one first.
    """

    name: str
    position: int | None
    problem: str
    choices: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RepairPlan:
    """Steps of a repair, in their order, and the damage that remains.

    Attributes:
        log_end_offset: log end after the repair.
        lost_from: the first offset whose record will be in side files only; None if no record is removed.
    """

    steps: tuple[LogRepairStep, ...]
    remaining: tuple[RemainingDamage, ...]
    notes: tuple[str, ...]
    log_end_offset: int
    lost_from: int | None = None


def plan_repair(facts: PartitionFacts, *, cut_damaged: bool = False) -> RepairPlan:
    """Decide about every fault.

    Args:
        facts: of the survey.
        cut_damaged: let the log end before the first damage, even if something sound follows.
    """
    unfinished = [name for name in facts.names if name.endswith(".log.swap")]
    if unfinished:
        return _unfinished_replacement(facts, unfinished)
    cut_at = _cut_segment(facts, cut_damaged=cut_damaged)
    kept = facts.segments if cut_at is None else facts.segments[: cut_at + 1]
    steps: list[LogRepairStep] = []
    if cut_at is not None:
        steps += _after_cut(facts, kept[-1])
    steps += _snapshot_steps(facts, kept, is_cut=cut_at is not None)
    end_offset = kept[-1].end_offset if kept else 0
    is_open = cut_at is None and bool(kept) and kept[-1].fault is not None
    steps += _epoch_steps(facts, end_offset, is_cut=cut_at is not None, is_open=is_open)
    for at, segment in enumerate(kept):
        if segment.fault is None or at == cut_at or _is_garbage(segment):
            steps += [_artefact_step(artefact, facts) for artefact in segment.artefacts]
        if segment.fault is not None and (at == cut_at or _is_garbage(segment)):
            steps.append(_cut_step(segment, segment.fault))
    steps += _orphan_steps(facts)
    if cut_at is not None:
        steps += _checkpoint_steps(facts, end_offset)
    return RepairPlan(
        tuple(steps),
        (
            *_remaining(facts, kept, cut_at),
            *_unknown_snapshots(facts, kept),
            *_disorder(facts, kept),
            *_topic_id(facts),
        ),
        tuple(_notes(facts)),
        end_offset,
        _lost_from(kept, cut_at),
    )


def _cut_segment(facts: PartitionFacts, *, cut_damaged: bool) -> int | None:
    """Return the index of the segment that is cut and becomes the last one; None when none is cut."""
    for at, segment in enumerate(facts.segments):
        if segment.fault is not None and segment.fault.kind is FaultKind.REQUESTED:
            return at
    for at, segment in enumerate(facts.segments):
        fault = segment.fault
        if fault is None or _is_garbage(segment):
            continue
        is_tail = at + 1 == len(facts.segments) and fault.kind is FaultKind.TORN and fault.resumes_at is None
        is_wanted = cut_damaged and fault.kind is not FaultKind.OVERFLOW
        return at if is_tail or is_wanted else None
    return None


def _is_garbage(segment: SegmentFacts) -> bool:
    """Return True if the bytes behind the segment's last sound batch hold no record: the next segment follows."""
    fault = segment.fault
    return (
        fault is not None
        and fault.kind is FaultKind.TORN
        and fault.resumes_at is None
        and segment.end_offset == segment.next_base_offset
    )


def _lost_from(kept: tuple[SegmentFacts, ...], cut_at: int | None) -> int | None:
    if cut_at is None:
        return None
    segment = kept[cut_at]
    fault = segment.fault
    is_torn_tail = fault is not None and fault.kind is FaultKind.TORN and fault.resumes_at is None
    return None if is_torn_tail and segment.next_base_offset is None else segment.end_offset


def _cut_step(segment: SegmentFacts, fault: Fault) -> CutTail:
    size_bytes = segment.size_bytes - fault.position
    return CutTail(file_name(segment.base_offset, ".log"), fault.position, size_bytes, fault.problem)


def _after_cut(facts: PartitionFacts, last: SegmentFacts) -> list[LogRepairStep]:
    """Move away the files behind the segment that becomes the last one, from the last one down."""
    steps: list[LogRepairStep] = []
    behind = sorted({base for base, suffix in _parsed(facts) if suffix == ".log" and base > last.base_offset})
    why = f"the log ends at offset {last.end_offset} now"
    for base in reversed(behind):
        names = (file_name(base, suffix) for suffix in (".log", *_INDEXES))
        steps += [MoveAside(name, why) for name in names if name in facts.names]
    return steps


def _snapshot_steps(facts: PartitionFacts, kept: tuple[SegmentFacts, ...], *, is_cut: bool) -> list[LogRepairStep]:
    end_offset = kept[-1].end_offset if kept else 0
    limit = end_offset if is_cut else None
    steps: list[LogRepairStep] = []
    if is_cut:
        above = sorted(base for base, suffix in _parsed(facts) if suffix == ".snapshot" and base > end_offset)
        why = f"the log ends at offset {end_offset} now"
        steps += [MoveAside(file_name(base, ".snapshot"), why) for base in reversed(above)]
        steps += _end_snapshot(facts, kept[-1])
    bases = {segment.base_offset for segment in kept}
    for snapshot in facts.snapshots:
        offset = int(snapshot.name[:20])
        if limit is not None and offset >= limit and offset not in bases:
            continue
        if snapshot.content is not None or offset not in bases:
            steps.append(_artefact_step(snapshot, facts))
    return steps


def _end_snapshot(facts: PartitionFacts, last: SegmentFacts) -> list[LogRepairStep]:
    """Return the step that writes the producer snapshot at the log end, which a broker loads after a clean stop."""
    name = file_name(last.end_offset, ".snapshot")
    if last.snapshot_at_end is None or last.end_offset == last.base_offset:
        return []
    return [WriteAnew(name, last.snapshot_at_end, "the producers at the log end", name in facts.names)]


def _epoch_steps(facts: PartitionFacts, end_offset: int, *, is_cut: bool, is_open: bool) -> list[LogRepairStep]:
    lineage, why = facts.lineage, facts.lineage_problem
    latest = lineage.latest
    if latest is not None and facts.segments and not is_open:
        if is_cut and latest.start_offset >= end_offset:
            lineage = lineage.truncated_from_end(end_offset)
            why = why or f"the log ends at offset {end_offset} now"
        elif latest.start_offset > end_offset:
            lineage = lineage.truncated_from_end(end_offset)
            why = why or f"epoch {latest.epoch} begins at {latest.start_offset}, the log ends at {end_offset}"
    if why is None:
        return []
    exists = LEADER_EPOCH_CHECKPOINT in facts.names
    return [WriteAnew(LEADER_EPOCH_CHECKPOINT, encode_lineage(lineage), why, exists)]


def _artefact_step(artefact: Artefact, facts: PartitionFacts) -> LogRepairStep:
    why = artefact.problem or ""
    if artefact.content is None:
        return MoveAside(artefact.name, why)
    return WriteAnew(artefact.name, artefact.content, why, artefact.name in facts.names)


def _orphan_steps(facts: PartitionFacts) -> list[LogRepairStep]:
    bases = {base for base, suffix in _parsed(facts) if suffix == ".log"}
    return [
        MoveAside(file_name(base, suffix), "an index without its .log; if that was lost, so are its records")
        for base, suffix in _parsed(facts)
        if suffix in _INDEXES and base not in bases
    ]


def _checkpoint_steps(facts: PartitionFacts, end_offset: int) -> list[LogRepairStep]:
    return [
        LowerCheckpoint(name, offset, end_offset)
        for name, offset in sorted(facts.checkpoints.items())
        if offset > end_offset
    ]


def _remaining(facts: PartitionFacts, kept: tuple[SegmentFacts, ...], cut_at: int | None) -> list[RemainingDamage]:
    found = []
    for at, segment in enumerate(kept):
        if segment.fault is None or at == cut_at or _is_garbage(segment):
            continue
        found.append(
            RemainingDamage(
                file_name(segment.base_offset, ".log"),
                segment.fault.position,
                segment.fault.problem + _what_follows(segment, segment.fault),
                _choices(facts, segment, segment.fault),
            )
        )
    return found


def _what_follows(segment: SegmentFacts, fault: Fault) -> str:
    if fault.kind is not FaultKind.TORN:
        return ""
    if fault.resumes_at is not None:
        return f"; sound batches follow from position {fault.resumes_at} on"
    return f"; the offsets {segment.end_offset} to {(segment.next_base_offset or 0) - 1} are not in the file"


def _choices(facts: PartitionFacts, segment: SegmentFacts, fault: Fault) -> tuple[str, ...]:
    if fault.kind is FaultKind.OVERFLOW:
        return ("tierd log recover of the log dir, or a start of the broker, splits the segment",)
    name, end = facts.directory.name, segment.end_offset
    from_replica = f"move {name} out of the log dir and start the broker: it fetches the partition anew"
    leave = f"leave it: consumers stop behind offset {end - 1}, and may go on behind the damage if they are told to"
    cut = f"the log ends at offset {end}, and everything from there on is moved to side files"
    return (
        f"if another replica has the records: {from_replica}",
        f"if none has them: {leave}",
        f"or tierd repair --cut-damaged: {cut}",
    )


def _unknown_snapshots(facts: PartitionFacts, kept: tuple[SegmentFacts, ...]) -> list[RemainingDamage]:
    bases = {segment.base_offset for segment in kept}
    return [
        RemainingDamage(each.name, None, f"{each.problem}; {_UNKNOWN_PRODUCERS}", ("mend that segment first",))
        for each in facts.snapshots
        if each.content is None and int(each.name[:20]) in bases
    ]


def _disorder(facts: PartitionFacts, kept: tuple[SegmentFacts, ...]) -> list[RemainingDamage]:
    disorder = facts.epoch_disorder
    if disorder is None or disorder.name not in {file_name(each.base_offset, ".log") for each in kept}:
        return []
    choices = (
        "if another replica has the records: fetch the partition anew from it",
        "otherwise leave it: consumers do not look at it; a follower may truncate to the wrong offset",
    )
    return [RemainingDamage(disorder.name, disorder.position, disorder.problem, choices)]


def _topic_id(facts: PartitionFacts) -> list[RemainingDamage]:
    if facts.topic_id_problem is None:
        return []
    choices = (
        "copy partition.metadata from another replica of the partition: all have the same",
        "kafka-topics.sh --describe names the topic id; write 'version: 0' and 'topic_id: <id>' into it",
    )
    problem = f"{facts.topic_id_problem}; a broker sets a partition without a topic id aside"
    return [RemainingDamage(PARTITION_METADATA, None, problem, choices)]


def _notes(facts: PartitionFacts) -> list[str]:
    temporary = [name for name in facts.names if name.endswith((".deleted", ".cleaned", ".swap"))]
    notes = [f"{name}: temporary; a broker removes it at its start" for name in temporary]
    if not facts.segments:
        notes.append("no segment: a broker begins the log at offset 0, or at its checkpointed start")
    return notes


def _unfinished_replacement(facts: PartitionFacts, names: list[str]) -> RepairPlan:
    choice = "tierd log recover of the log dir, or a start of the broker, finishes it; then repair again"
    remaining = [
        RemainingDamage(name, None, "a replacement of segments that is not finished", (choice,)) for name in names
    ]
    end_offset = facts.segments[-1].end_offset if facts.segments else 0
    return RepairPlan((), tuple(remaining), (), end_offset)


def _parsed(facts: PartitionFacts) -> list[tuple[int, str]]:
    return [found for name in facts.names if (found := parse_file_name(name))]
