"""Driver of the planning of a run: due partitions, groups of segments, and the work of one run.

::

    policy [of=orders] compact | delete [ratio=0.5] [min-lag=0s] [max-lag=1d] [segment=1GiB] [merge-below=1MiB]
           [retention=7d] [delete-retention=1d]
    tier 0-99 [of=orders] [size=1MiB] [age=1h] [epochs=0@0,1@50]     a segment; age of its newest record
    compacted-to 200 [of=orders]      the partition is clean below that offset
    log-start 150 [of=orders]
    erase alice [of=orders]           a person asked to erase the key
    plan [stable=150] [budget=1GiB]   stable: end of the decided records; budget: bytes that the run may rewrite
    wait 1h
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from uuid import UUID

from tests.transcripts.drivers.tier import Tier
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
from tierd.log.producers.producer_state import encode_producer_snapshot
from tierd.model import Lineage, TopicIdPartition
from tierd.pipeline.planning import (
    Candidate,
    CleaningPolicy,
    PartitionWork,
    Proposal,
    RunBudget,
    Skipped,
    TierEvidence,
    by_urgency,
    plan_partition,
)


@dataclass
class _Partition:
    tier: Tier
    policy: CleaningPolicy = field(default_factory=CleaningPolicy)
    erased_keys: frozenset[bytes] = frozenset()


class Planning:
    """Partitions that a run may compact or merge: partition 0 of each topic."""

    def __init__(self) -> None:
        """Begin without a partition."""
        self._partitions: dict[str, _Partition] = {}
        self._now_ms = NOW_MS

    def run(self, command: Command) -> Iterator[str]:
        """Carry out a command; ``plan`` yields the decisions."""
        match command.name:
            case "wait":
                self._now_ms += parse_duration(command.word())
            case "plan":
                yield from self._plan(command)
            case _:
                self._change(self._named(command.option("of", "orders")), command)

    def _change(self, partition: _Partition, command: Command) -> None:
        match command.name:
            case "policy":
                partition.policy = _policy(command)
            case "tier":
                begun = partition.tier.begin(
                    parse_offsets(command.word()),
                    parse_epochs(command.option("epochs", "")),
                    size_bytes=parse_size(command.option("size", "1MiB")),
                    newest_ms=self._now_ms - parse_duration(command.option("age", "1h")),
                    now_ms=self._now_ms,
                )
                partition.tier.finish(begun, now_ms=self._now_ms)
            case "compacted-to":
                partition.tier.note_compacted(int(command.word()))
            case "log-start":
                partition.tier.move_log_start(int(command.word()))
            case "erase":
                partition.erased_keys |= {command.word().encode()}
            case _:
                raise command.unknown()

    def _plan(self, command: Command) -> Iterator[str]:
        stable = command.option("stable", UNLIMITED)
        last_stable_offset = None if stable == UNLIMITED else int(stable)
        limit = command.option("budget", UNLIMITED)
        budget = RunBudget(None if limit == UNLIMITED else parse_size(limit))
        proposals: list[Proposal] = []
        for partition in self._partitions.values():
            candidate = Candidate(
                view=partition.tier.view,
                lineage=Lineage(),
                policy=partition.policy,
                erased_keys=partition.erased_keys,
            )
            plan = plan_partition(candidate, now_ms=self._now_ms, last_stable_offset=last_stable_offset)
            match plan:
                case Skipped():
                    yield f"{plan.partition} skipped: {plan.reason}"
                case Proposal():
                    proposals.append(plan)
        for place, proposal in enumerate(by_urgency(proposals)):
            taken = budget.take(proposal)
            if taken is None:
                yield f"{proposal.partition} waits for another run: {proposal.kind}, dirty ratio {proposal.ratio:.2f}"
            else:
                evidence = TierEvidence(
                    producer_snapshot=encode_producer_snapshot(()),
                    last_stable_offset=last_stable_offset or taken.chain.end_offset,
                )
                work = taken.with_evidence(place, evidence, now_ms=self._now_ms)
                yield from self._shown(taken, work)

    def _shown(self, proposal: Proposal, work: PartitionWork) -> Iterator[str]:
        dirty = f", dirty from {work.first_dirty_offset}, ratio {proposal.ratio:.2f}" if work.compacts else ""
        yield f"{work.partition} {work.kind}: below {work.round_end_offset}{dirty}"
        for first, last in work.groups:
            members = work.inputs[first : last + 1]
            count = f"{len(members)} segments" if len(members) > 1 else "1 segment"
            yield f"{work.partition} group {members[0].start_offset}-{members[-1].end_offset}: {count}"
        if work.expire_before_ms is not None:
            yield f"{work.partition} records older than {show_duration(self._now_ms - work.expire_before_ms)} go"
        if work.erased_keys:
            yield f"{work.partition} keys to erase: {len(work.erased_keys)}"

    def _named(self, topic: str) -> _Partition:
        number = len(self._partitions) + 1
        return self._partitions.setdefault(topic, _Partition(Tier(TopicIdPartition(UUID(int=number), topic, 0))))


def _policy(command: Command) -> CleaningPolicy:
    words = command.words()

    def duration(name: str) -> int | None:
        text = command.option(name, UNLIMITED)
        return None if text == UNLIMITED else parse_duration(text)

    below = command.option("merge-below", UNLIMITED)
    return CleaningPolicy(
        compacts="compact" in words,
        retention_ms=duration("retention"),
        delete_retention_ms=parse_duration(command.option("delete-retention", "1d")),
        min_cleanable_dirty_ratio=float(command.option("ratio", "0.5")),
        min_compaction_lag_ms=parse_duration(command.option("min-lag", "0s")),
        max_compaction_lag_ms=duration("max-lag"),
        merge_below_bytes=None if below == UNLIMITED else parse_size(below),
        segment_bytes=parse_size(command.option("segment", "1GiB")),
    )
