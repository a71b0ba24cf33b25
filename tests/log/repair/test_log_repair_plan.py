"""Decisions of the repair from facts alone."""

from dataclasses import replace
from pathlib import Path

import pytest

from tierd.log.files.partition_scan import file_name
from tierd.log.repair.facts import Artefact, Disorder, Fault, FaultKind, PartitionFacts, SegmentFacts
from tierd.log.repair.log_repair_plan import CutTail, LogRepairStep, LowerCheckpoint, MoveAside, WriteAnew, plan_repair
from tierd.model import Lineage, TopicPartition

TORN = Fault(100, "torn")
HOLE = Fault(100, "wrong checksum", resumes_at=300)


def segment(base: int, following: int | None, *, fault: Fault | None = None, end: int | None = None) -> SegmentFacts:
    end = end if end is not None else (base + 5 if fault or following is None else following)
    cut = (Artefact(file_name(base, ".index"), "cut", b"index"),) if fault else ()
    return SegmentFacts(
        base_offset=base,
        next_base_offset=following,
        size_bytes=1000,
        end_offset=end,
        fault=fault,
        artefacts=cut,
        snapshot_at_end=b"producers" if fault else None,
    )


def partition(*segments: SegmentFacts, extra: tuple[str, ...] = ()) -> PartitionFacts:
    names = [file_name(each.base_offset, suffix) for each in segments for suffix in (".log", ".index", ".timeindex")]
    names += [file_name(each.base_offset, ".snapshot") for each in segments[1:]]
    return PartitionFacts(
        directory=Path("/data/orders-0"),
        partition=TopicPartition("orders", 0),
        names=tuple(sorted((*names, "leader-epoch-checkpoint", "partition.metadata", *extra))),
        segments=segments,
        lineage=Lineage.of([(0, 0)]),
        checkpoints={"replication-offset-checkpoint": 25, "recovery-point-offset-checkpoint": 10},
    )


def steps_of(facts: PartitionFacts, *, cut_damaged: bool = False) -> list[tuple[type[LogRepairStep], str]]:
    return [(type(step), step.name) for step in plan_repair(facts, cut_damaged=cut_damaged).steps]


def test_plan_for_a_sound_partition_has_no_steps() -> None:
    plan = plan_repair(partition(segment(0, 10), segment(10, None)))
    assert (plan.steps, plan.remaining, plan.notes) == ((), (), ())
    assert plan.log_end_offset == 15


def test_torn_tail_is_cut_after_derived_files_are_written() -> None:
    facts = partition(segment(0, 10), segment(10, None, fault=TORN))
    plan = plan_repair(facts)
    assert [(type(step), step.name) for step in plan.steps] == [
        (WriteAnew, file_name(15, ".snapshot")),
        (WriteAnew, file_name(10, ".index")),
        (CutTail, file_name(10, ".log")),
        (LowerCheckpoint, "replication-offset-checkpoint"),
    ]
    assert CutTail(file_name(10, ".log"), 100, 900, "torn") in plan.steps
    assert not plan.remaining
    assert plan.lost_from is None


@pytest.mark.parametrize("cut_damaged", [False, True])
def test_hole_is_cut_only_with_cut_damaged(cut_damaged: bool) -> None:
    facts = partition(segment(0, 10, fault=HOLE), segment(10, 20), segment(20, None))
    plan = plan_repair(facts, cut_damaged=cut_damaged)
    assert bool(plan.steps) is cut_damaged
    assert bool(plan.remaining) is not cut_damaged
    assert plan.lost_from == (5 if cut_damaged else None)


def test_segments_behind_a_cut_are_moved_aside_beginning_with_the_last() -> None:
    facts = partition(segment(0, 10, fault=HOLE), segment(10, 20), segment(20, None))
    moved = [name for kind, name in steps_of(facts, cut_damaged=True) if kind is MoveAside]
    assert moved == [
        *(file_name(20, suffix) for suffix in (".log", ".index", ".timeindex")),
        *(file_name(10, suffix) for suffix in (".log", ".index", ".timeindex")),
        file_name(20, ".snapshot"),
        file_name(10, ".snapshot"),
    ]


def test_hole_in_the_active_segment_is_reported_and_not_cut_as_a_torn_tail() -> None:
    plan = plan_repair(partition(segment(0, 10), segment(10, None, fault=HOLE)))
    assert not plan.steps
    (left,) = plan.remaining
    assert left.position == 100
    assert "300" in left.problem
    assert len(left.choices) == 3
    assert "--cut-damaged" in left.choices[-1]


def test_torn_end_of_a_rolled_segment_is_reported_as_a_hole() -> None:
    plan = plan_repair(partition(segment(0, 10, fault=TORN), segment(10, None)))
    assert not plan.steps
    assert "offsets 5 to 9" in plan.remaining[0].problem


def test_garbage_behind_the_last_offset_of_a_rolled_segment_is_cut() -> None:
    facts = partition(segment(0, 10, fault=TORN, end=10), segment(10, None))
    assert steps_of(facts) == [(WriteAnew, file_name(0, ".index")), (CutTail, file_name(0, ".log"))]


def test_offset_overflow_is_not_cut_even_with_cut_damaged() -> None:
    fault = Fault(100, "too far", kind=FaultKind.OVERFLOW)
    plan = plan_repair(partition(segment(0, None, fault=fault)), cut_damaged=True)
    assert not plan.steps
    assert "splits" in plan.remaining[0].choices[0]


def test_requested_end_is_cut_while_damage_before_it_remains() -> None:
    fault = Fault(0, "requested", kind=FaultKind.REQUESTED)
    facts = partition(segment(0, 10, fault=HOLE), segment(10, 20, fault=fault, end=10))
    plan = plan_repair(facts)
    assert (CutTail, file_name(10, ".log")) in [(type(step), step.name) for step in plan.steps]
    assert [left.name for left in plan.remaining] == [file_name(0, ".log")]


def test_epochs_that_begin_behind_the_end_are_dropped() -> None:
    facts = replace(partition(segment(0, None)), lineage=Lineage.of([(0, 0), (3, 999)]))
    (step,) = plan_repair(facts).steps
    assert isinstance(step, WriteAnew)
    assert step.content == b"0\n1\n0 0\n"


def test_epoch_without_records_at_the_log_end_is_kept() -> None:
    assert not plan_repair(replace(partition(segment(0, None)), lineage=Lineage.of([(0, 0), (1, 5)]))).steps


def test_unfinished_replacement_prevents_all_steps() -> None:
    facts = partition(segment(0, None, fault=TORN), extra=(file_name(10, ".log.swap"),))
    plan = plan_repair(facts)
    assert not plan.steps
    assert "recover" in plan.remaining[0].choices[0]


def test_orphaned_indexes_are_moved_aside() -> None:
    facts = partition(segment(0, None), extra=(file_name(7, ".txnindex"),))
    assert steps_of(facts) == [(MoveAside, file_name(7, ".txnindex"))]


def test_damaged_snapshot_behind_a_hole_remains_damage() -> None:
    snapshot = Artefact(file_name(10, ".snapshot"), "wrong checksum")
    facts = replace(partition(segment(0, 10, fault=HOLE), segment(10, None)), snapshots=(snapshot,))
    assert [left.name for left in plan_repair(facts).remaining] == [file_name(0, ".log"), snapshot.name]


def test_descending_epochs_are_reported_without_a_step() -> None:
    disorder = Disorder(file_name(0, ".log"), 70, "leader epoch 0 at offset 3, behind batches of epoch 4")
    plan = plan_repair(replace(partition(segment(0, None)), epoch_disorder=disorder))
    assert not plan.steps
    assert (plan.remaining[0].name, plan.remaining[0].position) == (disorder.name, 70)


def test_a_missing_topic_id_is_reported() -> None:
    facts = replace(partition(segment(0, None)), topic_id_problem="missing")
    assert plan_repair(facts).remaining[0].name == "partition.metadata"
