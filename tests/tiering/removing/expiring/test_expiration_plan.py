"""Expiration plans, oldest segment first: the vectors of remote-tiering 12, and invariants over any tier."""

from collections.abc import Collection, Sequence
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tiering.removing.rows import NOW_MS, SIZE, lister, row
from tierd.model import Lineage, RemoteLogSegmentMetadata, RemoteLogSegmentState, SoftDelete
from tierd.tiering.removing.expiring.expiration_plan import ExpirationPlan, SizeRule, TimeRule, plan_expiration
from tierd.tiering.removing.ledger import DeleteReason

STARTED = RemoteLogSegmentState.COPY_SEGMENT_STARTED
FINISHED = RemoteLogSegmentState.COPY_SEGMENT_FINISHED
DELETING = RemoteLogSegmentState.DELETE_SEGMENT_STARTED
DELETED = RemoteLogSegmentState.DELETE_SEGMENT_FINISHED
ONE_EPOCH = Lineage.of([(0, 0)])


def planned(
    rows: Sequence[RemoteLogSegmentMetadata],
    *,
    lineage: Lineage = ONE_EPOCH,
    log_start: int = 0,
    log_end: int = 1_000_000,
    only_local: int = 0,
    retention_ms: int = -1,
    retention_bytes: int = -1,
    being_copied: Collection[UUID] = (),
    now_ms: int = NOW_MS,
) -> ExpirationPlan:
    return plan_expiration(
        rows,
        lister(rows),
        lineage=lineage,
        log_start_offset=log_start,
        log_end_offset=log_end,
        only_local_bytes=only_local,
        retention_ms=retention_ms,
        retention_bytes=retention_bytes,
        being_copied=being_copied,
        now_ms=now_ms,
    )


def ranges(plan: ExpirationPlan) -> list[tuple[int, int]]:
    return [(p.metadata.start_offset, p.metadata.end_offset) for p in plan.deletions]


def reasons(plan: ExpirationPlan) -> list[DeleteReason]:
    return [p.reason for p in plan.deletions]


@pytest.mark.spec("remote-tiering 163")
@pytest.mark.parametrize(("retention_ms", "retention_bytes"), [(-1, 0), (0, -1)])
def test_retention_of_zero_deletes_all_segments(retention_ms: int, retention_bytes: int) -> None:
    plan = planned([row(0, 99), row(100, 199)], retention_ms=retention_ms, retention_bytes=retention_bytes)
    assert ranges(plan) == [(0, 99), (100, 199)]
    assert plan.new_log_start_offset == 200


@pytest.mark.spec("remote-tiering 164")
def test_log_start_after_overlapping_segments_is_behind_the_longest() -> None:
    plan = planned([row(0, 104), row(0, 99)], retention_ms=0)
    assert ranges(plan) == [(0, 104), (0, 99)]
    assert plan.new_log_start_offset == 105


@pytest.mark.spec("remote-tiering 166")
def test_scan_ends_at_a_segment_that_is_being_copied() -> None:
    first, second = row(0, 99, state=STARTED), row(100, 199)
    plan = planned([first, second], retention_ms=0, being_copied={first.segment.id})
    assert plan == ExpirationPlan(blocked_by=first.segment.id)


@pytest.mark.spec("remote-tiering 167")
def test_a_dangling_copy_uses_up_the_budget_although_it_was_not_counted() -> None:
    dangling, deleting = row(0, 99, state=STARTED), row(0, 99, state=DELETING)
    copied = row(200, 299, state=STARTED)
    later = [row(start, start + 99) for start in range(300, 1400, 100)]
    rows = [dangling, deleting, copied, *later]
    first = planned(rows, retention_bytes=10 * SIZE, being_copied={copied.segment.id})
    assert {p.metadata.segment.id for p in first.deletions} == {dangling.segment.id, deleting.segment.id}
    assert sorted(reasons(first)) == [DeleteReason.DANGLING, DeleteReason.DELETE_RETRY]
    finished = row(200, 299)
    second = planned([finished, *later], retention_bytes=10 * SIZE)
    assert ranges(second) == [(200, 299), (300, 399)]
    assert second.new_log_start_offset == 400


@pytest.mark.spec("remote-tiering 168")
@pytest.mark.parametrize("count", [0, 1, 23, 50])
def test_size_limit_deletes_the_oldest_segments_until_the_rest_fits(count: int) -> None:
    rows = [row(number * 100, number * 100 + 99) for number in range(50)]
    plan = planned(rows, only_local=512, retention_bytes=(50 - count) * SIZE + 512)
    assert ranges(plan) == [(number * 100, number * 100 + 99) for number in range(count)]
    assert plan.new_log_start_offset == (count * 100 or None)


def test_offsets_that_several_leaders_have_copied_count_once_towards_the_size_limit() -> None:
    grown = Lineage.of([(0, 0), (1, 100), (2, 150)])
    rows = [row(0, 99), row(50, 149, {0: 50, 1: 100}), row(100, 199, {1: 100, 2: 150}), row(150, 249, 2)]
    assert not planned(rows, lineage=grown, retention_bytes=3 * SIZE).deletions, "the log has 2.5 segments"
    assert not planned(rows, lineage=grown, retention_bytes=SIZE * 3 // 2 + 1).deletions
    plan = planned(rows, lineage=grown, retention_bytes=SIZE * 3 // 2)
    assert (ranges(plan), plan.new_log_start_offset) == ([(0, 99)], 100)
    later = planned(rows[1:], lineage=grown.truncated_from_start(100), log_start=100, retention_bytes=SIZE * 3 // 2)
    assert not later.deletions


@pytest.mark.spec("remote-tiering 169")
@pytest.mark.parametrize("count", [0, 1, 23, 50])
def test_time_limit_deletes_the_segments_that_are_older(count: int) -> None:
    ages = [1000 if number < count else 10 for number in range(50)]
    rows = [row(n * 100, n * 100 + 99, max_timestamp_ms=NOW_MS - age) for n, age in enumerate(ages)]
    plan = planned(rows, retention_ms=1000)
    assert ranges(plan) == [(number * 100, number * 100 + 99) for number in range(count)]
    assert plan.new_log_start_offset == (count * 100 or None)
    assert plan.next_due_ms == (None if count == 50 else NOW_MS + 990)


@pytest.mark.spec("remote-tiering 171")
def test_greatest_possible_retention_time_deletes_no_segment() -> None:
    assert not planned([row(0, 99, max_timestamp_ms=0)], retention_ms=2**63 - 1).deletions


@pytest.mark.spec("remote-tiering 173")
def test_deleted_segments_are_not_planned_again() -> None:
    plan = planned([row(0, 99, state=DELETED), row(100, 199, state=DELETED)], retention_ms=0, retention_bytes=0)
    assert plan == ExpirationPlan()


@pytest.mark.spec("remote-tiering 174")
@pytest.mark.parametrize("values", [(10, 0), (10, -1), (-1, 10), (-1, -1), (-1, 0)])
def test_size_rule_without_a_limit_and_an_excess_is_refused(values: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="no breach"):
        SizeRule(*values)


@pytest.mark.spec("remote-tiering 174")
@pytest.mark.parametrize("values", [(-1, 10), (10, -1)])
def test_time_rule_without_a_limit_and_a_cutoff_is_refused(values: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="no rule"):
        TimeRule(*values)


@pytest.mark.spec("remote-tiering 177")
def test_deletion_of_a_segment_over_two_epochs_is_continued_once() -> None:
    plan = planned([row(0, 99, {0: 0, 1: 50}, state=DELETING)], lineage=Lineage.of([(0, 0), (1, 50)]))
    assert reasons(plan) == [DeleteReason.DELETE_RETRY]


@pytest.mark.spec("remote-tiering 178")
def test_a_segment_that_spans_two_old_epochs_is_deleted_once() -> None:
    plan = planned([row(0, 99, {0: 0, 1: 50})], lineage=Lineage.of([(2, 0)]))
    assert reasons(plan) == [DeleteReason.UNREFERENCED_EPOCH]


@pytest.mark.spec("remote-tiering 180")
def test_segments_wholly_of_older_epochs_are_deleted_after_an_unclean_election() -> None:
    rows = [row(0, 99, 0), row(100, 199, {0: 100, 1: 150}), row(200, 299, {1: 200, 2: 250}), row(300, 399, 2)]
    plan = planned(rows, lineage=Lineage.of([(2, 250)]))
    assert ranges(plan) == [(0, 99), (100, 199)]
    assert plan.new_log_start_offset is None


@pytest.mark.spec("remote-tiering 181")
def test_only_segments_wholly_below_a_moved_log_start_are_deleted() -> None:
    plan = planned([row(0, 100), row(101, 200), row(201, 300)], lineage=Lineage.of([(0, 300)]), log_start=300)
    assert ranges(plan) == [(0, 100), (101, 200)]
    assert reasons(plan) == [DeleteReason.START_OFFSET] * 2
    assert plan.new_log_start_offset is None


@pytest.mark.spec("remote-tiering 182")
def test_size_limit_keeps_a_segment_whose_deletion_would_go_below_the_limit() -> None:
    rows = [row(0, 99, size_bytes=5000), row(100, 199, size_bytes=10)]
    assert not planned(rows, retention_bytes=1000).deletions


@pytest.mark.spec("remote-tiering 183")
def test_segment_of_another_branch_is_skipped() -> None:
    lineage = Lineage.of([(0, 0), (2, 100)])
    foreign, expiring = row(50, 150, {0: 50, 1: 100}), row(60, 99, 0)
    plan = planned([foreign, expiring], lineage=lineage, retention_ms=0)
    assert ranges(plan) == [(60, 99)]


@pytest.mark.spec("remote-tiering 184")
def test_old_segment_behind_a_young_one_is_kept() -> None:
    plan = planned([row(0, 99), row(100, 199, max_timestamp_ms=0)], retention_ms=1000)
    assert not plan.deletions
    assert plan.next_due_ms == NOW_MS + 1000


def test_segment_in_its_grace_waits_with_the_end_of_its_grace_as_due_time() -> None:
    soft = SoftDelete("retention_time", NOW_MS + 500)
    plan = planned([row(0, 99, state=DELETING, soft_delete=soft)])
    assert plan == ExpirationPlan(next_due_ms=NOW_MS + 500)
    due = planned([row(0, 99, state=DELETING, soft_delete=soft)], now_ms=NOW_MS + 500)
    assert reasons(due) == [DeleteReason.DELETE_RETRY]


def test_unfinished_copy_moves_no_log_start() -> None:
    plan = planned([row(0, 199, state=STARTED, max_timestamp_ms=0), row(200, 299)], retention_ms=1000)
    assert reasons(plan) == [DeleteReason.DANGLING]
    assert plan.new_log_start_offset is None


def test_deletion_of_a_copy_that_still_runs_is_left_to_the_copy() -> None:
    failing = row(0, 99, state=DELETING)
    assert not planned([failing], being_copied={failing.segment.id}).deletions


_ages = st.integers(0, 2000)
_tiers = st.lists(st.tuples(st.integers(1, 5000), _ages, st.sampled_from([STARTED, FINISHED, DELETING])), max_size=12)


@given(
    tier=_tiers,
    retention_ms=st.integers(-1, 2000),
    retention_bytes=st.integers(-1, 30_000),
    only_local=st.integers(0, 5000),
    log_start=st.integers(0, 1300),
)
def test_plan_of_any_tier_keeps_its_invariants(
    tier: list[tuple[int, int, RemoteLogSegmentState]],
    retention_ms: int,
    retention_bytes: int,
    only_local: int,
    log_start: int,
) -> None:
    rows = [
        row(n * 100, n * 100 + 99, state=state, size_bytes=size, max_timestamp_ms=NOW_MS - age)
        for n, (size, age, state) in enumerate(tier)
    ]
    plan = planned(
        rows,
        lineage=ONE_EPOCH.truncated_from_start(log_start),
        log_start=log_start,
        only_local=only_local,
        retention_ms=retention_ms,
        retention_bytes=retention_bytes,
    )
    ids = [p.metadata.segment.id for p in plan.deletions]
    assert len(ids) == len(set(ids)), "each segment once"
    starts = [start for start, _ in ranges(plan)]
    assert starts == sorted(starts), "oldest first"
    gone = set(ids)
    live = [m for m in rows if m.state is not DELETING]
    assert [m.segment.id in gone for m in live] == sorted((m.segment.id in gone for m in live), reverse=True), (
        "the oldest are deleted, and none behind the first that is kept"
    )
    by_size = [p for p in plan.deletions if p.reason is DeleteReason.RETENTION_BYTES]
    if by_size:
        chosen = {p.metadata.segment.id for p in by_size}  # deletions by time may go below the size limit
        kept = sum(m.size_bytes for m in rows if m.state is FINISHED and m.segment.id not in chosen)
        assert kept + only_local >= retention_bytes, "deletions by size stay above the limit"
    expired = [
        p.metadata
        for p in plan.deletions
        if p.metadata.state is FINISHED and p.reason in (DeleteReason.RETENTION_BYTES, DeleteReason.RETENTION_TIME)
    ]
    assert plan.new_log_start_offset == max((m.end_offset + 1 for m in expired), default=None)
    assert plan.next_due_ms is None or plan.next_due_ms > NOW_MS


def test_records_without_timestamps_are_not_older_than_their_segment() -> None:
    timeless = row(0, 99, max_timestamp_ms=-1)  # in the tier since NOW_MS
    assert not planned([timeless], retention_ms=1000).deletions
    assert planned([timeless], retention_ms=1000).next_due_ms == NOW_MS + 1000


def test_empty_compacted_segment_does_not_hold_back_the_segments_behind() -> None:
    old, young = row(100, 199, max_timestamp_ms=NOW_MS - 2000), row(300, 399)
    empty = [row(0, 99, size_bytes=0, max_timestamp_ms=-1), row(200, 299, size_bytes=0, max_timestamp_ms=-1)]
    plan = planned([empty[0], old, empty[1], young], retention_ms=1000)
    assert ranges(plan) == [(0, 99), (100, 199), (200, 299)]
    assert plan.new_log_start_offset == 300
    assert plan.deletions[0].detail == "compaction left no record in it"


def test_empty_segment_is_deleted_by_time_or_with_the_segment_behind_it() -> None:
    empty = row(0, 99, size_bytes=0, max_timestamp_ms=-1)
    assert not planned([empty, row(100, 199)]).deletions
    assert not planned([empty, row(100, 199)], retention_bytes=SIZE).deletions
    assert ranges(planned([empty, row(100, 199), row(200, 299)], retention_bytes=SIZE)) == [(0, 99), (100, 199)]


def test_unfinished_copy_without_bytes_waits_like_any_other() -> None:
    assert not planned([row(0, 99, state=STARTED, size_bytes=0)], retention_ms=1000).deletions


def test_compacted_segment_with_the_log_start_inside_is_kept() -> None:
    assert not planned([row(0, 199), row(200, 299)], log_start=150).deletions
    assert ranges(planned([row(0, 199), row(200, 299)], log_start=200)) == [(0, 199)]
