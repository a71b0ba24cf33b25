"""Driver of the expiration plan, of undelete and of the sweep: segments that leave the tier, and those that return.

::

    tier 0-99 [age=8d] [size=1MiB] [epochs=0@0,1@50]     a segment in the tier; age of its newest record
    begin 0-99 [age= size= epochs=]                      the same, but its copy was begun and never finished
    local 200 300 [size=1MiB] [epochs=0@0] [end=350]     the local segments, each of that size; the last one is active
    retention [time=7d] [size=3MiB]
    log-start 150                                        first offset of both tiers
    plan                                                 show the decisions
    expire grace=1d                                      show the decisions, and begin every deletion
    undelete                                             segments in their grace that return
    sweep grace=6h                                       abandoned copies and deletions
    wait 2d
"""

from collections.abc import Iterator
from itertools import pairwise

from tests.transcripts.drivers.tier import Tier, shown
from tests.transcripts.transcript import Command
from tests.transcripts.units import (
    NOW_MS,
    UNLIMITED,
    parse_duration,
    parse_epochs,
    parse_offsets,
    parse_size,
    show_duration,
)
from tierd.model import Lineage, RemoteLogSegmentMetadata, RemoteLogSegmentState, SoftDelete
from tierd.tiering.copy_plan import dangling_segments
from tierd.tiering.removing.expiring.branch_segments import LocalSegment
from tierd.tiering.removing.expiring.expiration_plan import ExpirationPlan
from tierd.tiering.removing.expiring.partition_expiration import LocalFacts, partition_expiration
from tierd.tiering.removing.undelete_plan import plan_undelete, refuse
from tierd.tiering.topic_policy import TopicPolicy


class Expiration:
    """Tier, the local log above it and the retention of the topic."""

    def __init__(self) -> None:
        """Begin with an empty tier, an empty log and no limit."""
        self._tier = Tier()
        self._local = LocalFacts(Lineage(), 0, 0)
        self._policy = TopicPolicy()
        self._now_ms = NOW_MS

    def run(self, command: Command) -> Iterator[str]:
        """Carry out a command, and yield the decisions."""
        match command.name:
            case "tier":
                self._tier.finish(self._begun(command), now_ms=self._now_ms)
            case "begin":
                self._begun(command)
            case "local":
                self._local = _local(command)
            case "retention":
                age, size = command.option("time", UNLIMITED), command.option("size", UNLIMITED)
                self._policy = TopicPolicy(
                    retention_ms=-1 if age == UNLIMITED else parse_duration(age),
                    retention_bytes=-1 if size == UNLIMITED else parse_size(size),
                )
            case "log-start":
                self._tier.move_log_start(int(command.word()))
            case "plan":
                yield from self._shown(self._plan())
            case "expire":
                plan = self._plan()
                yield from self._shown(plan)
                self._expire(plan, grace_ms=parse_duration(command.option("grace")))
            case "undelete":
                yield from self._undelete()
            case "sweep":
                yield from self._sweep(grace_ms=parse_duration(command.option("grace")))
            case "wait":
                self._now_ms += parse_duration(command.word())
            case _:
                raise command.unknown()

    def _begun(self, command: Command) -> RemoteLogSegmentMetadata:
        return self._tier.begin(
            parse_offsets(command.word()),
            parse_epochs(command.option("epochs", "")),
            size_bytes=parse_size(command.option("size", "1MiB")),
            newest_ms=self._now_ms - parse_duration(command.option("age", "0s")),
            now_ms=self._now_ms,
        )

    def _plan(self) -> ExpirationPlan:
        ends = [metadata.end_offset + 1 for metadata in self._tier.view.list()]
        local = self._local if self._local.segments else LocalFacts(Lineage(), max(ends, default=0), None)
        return partition_expiration(self._tier.view, local, self._policy, being_copied=(), now_ms=self._now_ms)

    def _shown(self, plan: ExpirationPlan) -> Iterator[str]:
        for metadata, reason, detail in plan.deletions:
            yield f"delete {shown(metadata)}: {reason}, {detail}"
        if plan.new_log_start_offset is not None:
            yield f"log start {plan.new_log_start_offset}"
        if plan.next_due_ms is not None:
            yield f"next plan in {show_duration(plan.next_due_ms - self._now_ms)}"

    def _expire(self, plan: ExpirationPlan, *, grace_ms: int) -> None:
        if plan.new_log_start_offset is not None:
            self._tier.move_log_start(plan.new_log_start_offset)
        for metadata, reason, _ in plan.deletions:
            if metadata.state is RemoteLogSegmentState.COPY_SEGMENT_FINISHED:
                soft_delete = SoftDelete(reason, self._now_ms + grace_ms)
                self._tier.begin_deletion(metadata, soft_delete, now_ms=self._now_ms)
            else:
                self._tier.remove(metadata, now_ms=self._now_ms)

    def _undelete(self) -> Iterator[str]:
        taken = plan_undelete(self._tier.view, self._local, lambda _: self._policy, None, now_ms=self._now_ms)
        refuse(taken, force=False)
        for each in taken:
            start = "" if each.log_start_offset is None else f", log start {each.log_start_offset}"
            yield f"take back {shown(each.metadata)}{start}"
            self._tier.undelete(each.metadata, each.log_start_offset, now_ms=self._now_ms)

    def _sweep(self, *, grace_ms: int) -> Iterator[str]:
        rows = self._tier.view.list()
        found = dangling_segments(rows, being_copied=(), now_ms=self._now_ms, grace_ms=grace_ms, limit=10)
        yield from (f"sweep {shown(metadata)}" for metadata in found.due)
        if found.next_due_ms is not None:
            yield f"next sweep in {show_duration(found.next_due_ms - self._now_ms)}"


def _local(command: Command) -> LocalFacts:
    bases = [int(word) for word in command.words()]
    size_bytes = parse_size(command.option("size", "1MiB"))
    spans = [*pairwise(bases), (bases[-1], None)]
    end = int(command.option("end", str(bases[-1])))
    lineage = parse_epochs(command.option("epochs", f"0@{bases[0]}"))
    return LocalFacts(lineage, end, end, tuple(LocalSegment(*span, size_bytes) for span in spans))
