from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fakes.remote_segments import DELETE_STARTED, FINISHED, PARTITION, SESSION, segment, step
from tierd.metadata import Claim, PartitionRow, PartitionView
from tierd.model import Lineage, RemoteLogSegmentMetadata, SoftDelete
from tierd.restore.plan.known_ends import KnownEnd
from tierd.restore.plan.log_branches import restored_lineage
from tierd.restore.plan.partition_plan import MissingRange, PartitionPlan, PlanSeverity, RestoreMode
from tierd.restore.plan.partition_planner import ExpiredSegments, PlanRequest, RestoreFacts, plan_partition
from tierd.restore.plan.topic_retention import TopicRetention

DAY_MS = 86_400_000
NOW_MS = 1_700_000_000_000
FOREVER = TopicRetention()


def tier(*segments: RemoteLogSegmentMetadata, log_start: int | None = None) -> PartitionView:
    view = PartitionView(PARTITION)
    for metadata in segments:
        view = view.with_added(metadata).view.with_updated(step(metadata, FINISHED)).view
    row = PartitionRow(topic=PARTITION.topic, revision=1, claim=Claim(5, 1, SESSION), log_start_offset=log_start)
    return replace(view, row=row)


def aged(metadata: RemoteLogSegmentMetadata, days: float) -> RemoteLogSegmentMetadata:
    return replace(metadata, max_timestamp_ms=NOW_MS - round(days * DAY_MS))


def planned(
    view: PartitionView,
    *,
    mode: RestoreMode = RestoreMode.LAST_COPY,
    newest: Lineage | None = None,
    local: Lineage | None = None,
    is_compacted: bool | None = False,
    retention: TopicRetention | None = FOREVER,
    target_offset: int | None = None,
    known_end: KnownEnd | None = None,
    committed_end: int = 0,
    replicas: tuple[int, ...] = (),
    expired: ExpiredSegments = ExpiredSegments.REFUSE,
    accepts_holes: bool = False,
    are_others_down: bool = False,
    for_broker: int | None = None,
    controller_epoch: int | None = None,
) -> PartitionPlan:
    facts = RestoreFacts(
        lineage=restored_lineage(view, newest=newest or Lineage(), local=local or Lineage()),
        is_compacted=is_compacted,
        retention=retention,
        target_offset=target_offset,
        known_end=known_end,
        committed_end=committed_end,
        replicas=replicas,
        controller_epoch=controller_epoch,
    )
    request = PlanRequest(
        mode=mode,
        expired=expired,
        accepts_holes=accepts_holes,
        are_others_down=are_others_down,
        for_broker=for_broker,
        now_ms=NOW_MS,
    )
    return plan_partition(view, facts, request)


def ranges(plan: PartitionPlan) -> list[tuple[int, int]]:
    return [(part.start_offset, part.end_offset) for part in plan.parts]


def severities(plan: PartitionPlan) -> list[PlanSeverity]:
    return [finding.severity for finding in plan.findings]


THREE = (segment(0, 99), segment(100, 199), segment(200, 299))


def test_plan_takes_all_that_the_tier_has() -> None:
    plan = planned(tier(*(aged(each, 1 - number / 10) for number, each in enumerate(THREE)), log_start=0))
    assert ranges(plan) == [(0, 100), (100, 200), (200, 300)]
    assert all(part.is_whole for part in plan.parts)
    assert (plan.log_start_offset, plan.end_offset, plan.missing, plan.findings) == (0, 300, (), ())
    assert plan.newest_timestamp_ms == NOW_MS - round(0.8 * DAY_MS)
    assert (plan.fetch_bytes, plan.fetch_requests, plan.known_end_offset) == (3 * 1024, 9, 300)
    assert plan.lineage == Lineage.of([(0, 0)])


def test_log_start_inside_a_segment_takes_the_whole_segment() -> None:
    plan = planned(tier(*THREE, log_start=150))
    assert (plan.log_start_offset, ranges(plan)) == (150, [(100, 200), (200, 300)])
    assert plan.lineage == Lineage.of([(0, 150)])
    assert plan.parts[0].is_whole
    assert not plan.missing


def test_log_start_that_was_never_recorded_is_the_first_readable_offset() -> None:
    plan = planned(tier(*THREE[1:]))
    assert (plan.log_start_offset, plan.end_offset, plan.missing) == (100, 300, ())


def test_records_between_log_start_and_the_first_segment_are_named_and_do_not_refuse_the_plan() -> None:
    plan = planned(tier(*THREE[1:], log_start=40))
    assert plan.log_start_offset == 100
    assert plan.missing == (MissingRange(40, 100, "no segment of the tier has them"),)
    assert not plan.is_refused


def test_target_offset_cuts_the_last_part() -> None:
    plan = planned(tier(*THREE, log_start=0), target_offset=150)
    assert (ranges(plan), plan.end_offset, plan.missing) == ([(0, 100), (100, 150)], 150, ())
    assert not plan.parts[1].is_whole


def test_target_beyond_the_tier_is_named_as_missing() -> None:
    plan = planned(tier(*THREE, log_start=0), target_offset=320)
    assert (plan.end_offset, plan.target_offset) == (300, 320)
    assert plan.missing == (MissingRange(300, 320, "they were not copied to the tier"),)
    assert not plan.is_refused


@pytest.mark.parametrize("target_offset", [40, 50])
def test_target_at_or_below_the_log_start_leaves_the_partition_out(target_offset: int) -> None:
    plan = planned(tier(*THREE, log_start=50), target_offset=target_offset)
    assert (plan.parts, plan.is_left_out, plan.is_refused) == ((), True, True)
    assert plan.findings[0].text == f"offset {target_offset} is not above the log start, 50"


def test_partition_without_records_is_left_out() -> None:
    plan = planned(tier(log_start=70))
    assert plan.is_left_out
    assert plan.findings[0].text == "the tier has no records of it"
    assert (plan.log_start_offset, plan.end_offset) == (70, 70)


def test_log_end_that_the_catalogue_saw_is_named_with_its_time() -> None:
    plan = planned(tier(*THREE, log_start=0), known_end=KnownEnd(345, NOW_MS), committed_end=340)
    (missing,) = plan.missing
    assert (missing.start_offset, missing.end_offset) == (300, 345)
    assert missing.reason == "they were not copied to the tier; the log ended at 345 on 2023-11-14 22:13:20 UTC"
    assert plan.known_end_offset == 345


def test_committed_offset_above_every_log_end_is_the_known_end() -> None:
    assert planned(tier(*THREE), known_end=KnownEnd(345, NOW_MS), committed_end=400).known_end_offset == 400


def test_committed_offset_that_no_log_can_have_reached_is_named_and_not_heeded() -> None:
    """A client may commit any offset; brokers do not compare it with the log."""
    plan = planned(tier(*THREE), known_end=KnownEnd(345, NOW_MS), committed_end=2**63 - 1)
    assert plan.known_end_offset == 345
    (finding,) = plan.findings
    assert finding.severity is PlanSeverity.WARNING
    assert "9223372036854775807" in finding.text
    assert "tierd restore groups" in finding.remedy


def test_log_end_that_no_log_can_have_reached_is_named_and_not_heeded() -> None:
    plan = planned(tier(*THREE, log_start=0), known_end=KnownEnd(2**62, NOW_MS))
    assert plan.known_end_offset == 300
    assert plan.missing == ()
    (finding,) = plan.findings
    assert finding.severity is PlanSeverity.WARNING
    assert str(2**62) in finding.text


@pytest.mark.parametrize("topic", ["a b", "a\n0\n", "..", "../../evil", "__cluster_metadata"])
def test_partition_whose_name_a_log_dir_cannot_have_is_left_out(topic: str) -> None:
    """A broker would not start with its line in a checkpoint, or would take it for the metadata of its cluster."""
    view = tier(*THREE)
    plan = planned(replace(view, partition=replace(view.partition, topic=topic)))
    assert plan.is_left_out
    assert plan.findings[0].text == "no topic that a broker serves has its name"


def test_copied_record_at_offset_zero_is_below_the_known_end() -> None:
    only = segment(0, 0)
    gone = tier(only, log_start=0).with_updated(step(only, DELETE_STARTED)).view
    assert planned(gone).known_end_offset == 1


def test_segments_of_two_leaders_are_cut_by_the_lineage() -> None:
    view = tier(segment(0, 99, 1), segment(100, 149, 1), segment(90, 199, 2), log_start=0)
    plan = planned(view, newest=Lineage.of([(1, 0), (2, 90)]))
    assert ranges(plan) == [(0, 90), (90, 200)]
    assert [part.metadata.start_offset for part in plan.parts] == [0, 90]
    assert plan.lineage == Lineage.of([(1, 0), (2, 90)])


def test_abandoned_branch_does_not_fill_the_place_of_segments_that_were_never_copied() -> None:
    view = tier(segment(0, 149, 5), segment(200, 299, 7), log_start=0)
    plan = planned(view, newest=Lineage.of([(5, 0), (6, 120), (7, 200)]))
    assert ranges(plan) == [(0, 120), (200, 300)]
    assert plan.missing == (
        MissingRange(120, 200, "the segments that have these offsets are of an abandoned branch of the log"),
    )
    assert severities(plan) == [PlanSeverity.REFUSED]


def test_hole_refuses_the_plan_of_a_topic_that_is_not_compacted() -> None:
    plan = planned(tier(THREE[0], THREE[2], log_start=0))
    assert plan.missing == (MissingRange(100, 200, "no segment of the tier has them"),)
    assert plan.is_refused
    assert not plan.is_left_out
    assert "offsets 100 to 199 are missing in the middle" in plan.findings[0].text


def test_hole_that_is_accepted_is_a_warning() -> None:
    plan = planned(tier(THREE[0], THREE[2], log_start=0), accepts_holes=True)
    assert (ranges(plan), severities(plan)) == ([(0, 100), (200, 300)], [PlanSeverity.WARNING])


def test_hole_in_a_compacted_topic_is_normal() -> None:
    plan = planned(tier(THREE[0], THREE[2], log_start=0), is_compacted=True)
    assert (ranges(plan), plan.missing, plan.findings) == ([(0, 100), (200, 300)], (), ())
    assert plan.is_compacted


def test_hole_of_a_segment_in_its_grace_names_undelete() -> None:
    view = tier(*THREE, log_start=0)
    going = replace(step(THREE[1], DELETE_STARTED), soft_delete=SoftDelete("retention", NOW_MS + DAY_MS))
    plan = planned(view.with_updated(going).view)
    assert plan.missing[0].reason == (
        "a segment with them is being deleted (retention); tierd undelete takes it back until 2023-11-15 22:13:20 UTC"
    )


def test_hole_of_a_copy_without_end_says_so() -> None:
    view = tier(THREE[0], THREE[2], log_start=0).with_added(segment(100, 199)).view
    assert planned(view).missing[0].reason == "a copy of them began and did not end"


def test_compacted_topic_is_left_out_of_replica_mode() -> None:
    plan = planned(tier(*THREE), mode=RestoreMode.REPLICA, is_compacted=True)
    assert plan.is_left_out
    assert plan.findings[0].remedy == "nothing to do: the broker fetches the whole partition from its leader"


def test_replica_mode_refuses_a_topic_whose_cleanup_policy_is_not_known() -> None:
    plan = planned(tier(*THREE), mode=RestoreMode.REPLICA, is_compacted=None)
    assert plan.is_refused
    assert not plan.is_left_out


@pytest.mark.parametrize("mode", [RestoreMode.LAST_COPY, RestoreMode.IMPORT])
@pytest.mark.parametrize("is_compacted", [True, None])
def test_other_modes_take_compacted_topics(mode: RestoreMode, is_compacted: bool | None) -> None:
    assert not planned(tier(*THREE), mode=mode, is_compacted=is_compacted).is_refused


OLD = (aged(segment(0, 99), 9), aged(segment(100, 199), 8), aged(segment(200, 299), 1))
WEEK = TopicRetention(7 * DAY_MS)


def test_segments_past_retention_refuse_the_plan() -> None:
    plan = planned(tier(*OLD, log_start=0), retention=WEEK)
    assert plan.is_refused
    assert plan.findings[0].text == (
        "the topic's retention is over: a broker deletes offsets 0 to 199 soon after its start"
    )
    assert "--hold-retention" in plan.findings[0].remedy


def test_held_retention_restores_expired_segments_with_a_warning() -> None:
    plan = planned(tier(*OLD, log_start=0), retention=WEEK, expired=ExpiredSegments.HOLD)
    assert plan.needs_hold
    assert not planned(tier(*OLD, log_start=0), retention=FOREVER, expired=ExpiredSegments.HOLD).needs_hold
    assert (ranges(plan)[0], severities(plan)) == ((0, 100), [PlanSeverity.WARNING])


def test_skipped_expired_segments_raise_the_log_start() -> None:
    plan = planned(tier(*OLD, log_start=0), retention=WEEK, expired=ExpiredSegments.SKIP)
    assert (plan.log_start_offset, ranges(plan)) == (200, [(200, 300)])
    assert [(each.start_offset, each.end_offset) for each in plan.missing] == [(0, 200)]
    assert plan.fetch_bytes == 1024


def test_skipping_all_segments_leaves_the_partition_out() -> None:
    plan = planned(tier(*OLD[:2], log_start=0), retention=WEEK, expired=ExpiredSegments.SKIP)
    assert plan.is_left_out
    assert (plan.log_start_offset, plan.end_offset) == (200, 200)


@pytest.mark.parametrize("expired", [ExpiredSegments.REFUSE, ExpiredSegments.SKIP])
def test_retention_that_is_not_known_counts_as_seven_days_and_nothing_is_skipped(expired: ExpiredSegments) -> None:
    plan = planned(tier(*OLD, log_start=0), retention=None, expired=expired)
    assert plan.is_refused
    assert ranges(plan)[0] == (0, 100)
    assert "--retention" in plan.findings[0].remedy


def test_retention_does_not_concern_a_replica_whose_leader_decides() -> None:
    assert planned(tier(*OLD), retention=WEEK, mode=RestoreMode.REPLICA).findings == ()


def test_last_copy_with_other_replicas_names_the_brokers_that_must_be_down() -> None:
    plan = planned(tier(*THREE), replicas=(1, 2, 3), for_broker=2)
    assert plan.is_refused
    assert plan.findings[0].text.startswith("brokers 1, 3 have replicas")
    plan = planned(tier(*THREE), replicas=(1, 2, 3), for_broker=2, are_others_down=True)
    assert severities(plan) == [PlanSeverity.WARNING]


@pytest.mark.parametrize(
    ("mode", "replicas", "for_broker"),
    [
        (RestoreMode.LAST_COPY, (2,), 2),
        (RestoreMode.LAST_COPY, (2,), None),
        (RestoreMode.LAST_COPY, (), None),
        (RestoreMode.REPLICA, (1, 2, 3), 2),
    ],
)
def test_no_other_replica_is_no_finding(mode: RestoreMode, replicas: tuple[int, ...], for_broker: int | None) -> None:
    assert planned(tier(*THREE), mode=mode, replicas=replicas, for_broker=for_broker).findings == ()


def copies() -> st.SearchStrategy[list[RemoteLogSegmentMetadata]]:
    """Segments of leaders that follow one another, each of which may copy some offsets again or leave some out."""

    def built(steps: Sequence[tuple[int, int, bool]]) -> list[RemoteLogSegmentMetadata]:
        found, end, epoch = [], 0, 0
        for shift, length, is_new_leader in steps:
            epoch += is_new_leader
            start = max(0, end + shift)
            found.append(segment(start, start + length - 1, epoch))
            end = start + length
        return found

    return st.lists(st.tuples(st.integers(-8, 4), st.integers(1, 12), st.booleans()), max_size=10).map(built)


@given(copies(), st.none() | st.integers(0, 40), st.none() | st.integers(1, 80), st.booleans())
def test_parts_and_missing_ranges_cover_the_log_once(
    segments: list[RemoteLogSegmentMetadata], log_start: int | None, target: int | None, is_compacted: bool
) -> None:
    plan = planned(tier(*segments, log_start=log_start), target_offset=target, is_compacted=is_compacted)
    assert plan.end_offset >= plan.log_start_offset
    at = plan.parts[0].start_offset if plan.parts else plan.log_start_offset
    holes = {missing.start_offset: missing for missing in plan.missing}
    for metadata, start, end in plan.parts:
        if start > at:
            assert is_compacted or holes[at].end_offset == start
        else:
            assert start == at
        assert metadata.first_readable_offset <= start < end <= metadata.end_offset + 1
        epochs = {plan.lineage.epoch_for(offset) for offset in range(max(start, plan.log_start_offset), end)}
        assert epochs <= {entry.epoch for entry in metadata.segment_leader_epochs}
        at = end
    if plan.parts:
        assert at == plan.end_offset
        assert plan.parts[0].start_offset <= plan.log_start_offset < plan.parts[0].end_offset
    if target is not None and plan.parts:
        assert plan.end_offset <= target


@pytest.mark.parametrize("mode", [RestoreMode.LAST_COPY, RestoreMode.REPLICA])
def test_records_of_an_epoch_above_the_controller_are_refused(mode: RestoreMode) -> None:
    view = tier(segment(0, 99, epochs={0: 0, 3: 50}), log_start=0)
    above = planned(view, newest=Lineage.of([(0, 0), (3, 50)]), mode=mode, controller_epoch=2)
    assert severities(above) == [PlanSeverity.REFUSED]
    assert above.findings[0].text.startswith(
        "its records are of leader epoch 3, and the controller of the cluster is at 2"
    )
    assert not planned(view, newest=Lineage.of([(0, 0), (3, 50)]), mode=mode, controller_epoch=3).findings


def test_epochs_of_an_import_and_epochs_above_a_cut_do_not_matter() -> None:
    view, newest = tier(segment(0, 99, epochs={0: 0, 3: 50}), log_start=0), Lineage.of([(0, 0), (3, 50)])
    assert not planned(view, newest=newest, mode=RestoreMode.IMPORT, controller_epoch=0).findings
    assert not planned(view, newest=newest, target_offset=50, controller_epoch=0).findings
    assert planned(view, newest=newest, target_offset=51, controller_epoch=0).is_refused
