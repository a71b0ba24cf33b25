"""Joins of directories to the end of the tier, as the plan expects them."""

from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tierd.model import Lineage, TopicIdPartition
from tierd.restore.plan.joined_sources import JoinSource, join_sources
from tierd.restore.plan.partition_plan import MissingRange, PartitionPlan, RestoreMode

TIER_END = 100
EPOCHS = Lineage.of([(0, 0), (1, 50)])


def plan(*, end: int = TIER_END, is_compacted: bool = False, has_parts: bool = True) -> PartitionPlan:
    return PartitionPlan(
        partition=TopicIdPartition(UUID(int=1), "orders", 0),
        mode=RestoreMode.LAST_COPY,
        log_start_offset=0,
        end_offset=end if has_parts else 0,
        target_offset=None,
        parts=(None,) if has_parts else (),  # type: ignore[arg-type]
        lineage=EPOCHS.entries_in(0, end) if has_parts else Lineage(),
        is_compacted=is_compacted,
        missing=(MissingRange(end, 200, "not copied"),),
        newest_timestamp_ms=None,
        findings=(),
        fetch_bytes=1,
        fetch_requests=1,
    )


def source(
    name: str, start: int, end: int, *, cleaned: int = 0, lineage: Lineage = EPOCHS, log_start: int | None = None
) -> JoinSource:
    return JoinSource(
        directory=Path(name),
        is_existing=name == "disk",
        log_start_offset=start if log_start is None else log_start,
        first_offset=start,
        end_offset=end,
        cleaned_offset=cleaned,
        lineage=lineage.entries_in(start, 1 << 62),
    )


def joined(plan: PartitionPlan, *sources: JoinSource) -> list[tuple[str, int, int]]:
    return [(str(each.directory), each.start_offset, each.end_offset) for each in join_sources(plan, sources).joins]


def test_directory_that_reaches_furthest_is_joined() -> None:
    assert joined(plan(), source("disk", 0, 120), source("standby", 80, 150)) == [("standby", 100, 150)]


@pytest.mark.parametrize(
    ("theirs", "is_same"),
    [
        pytest.param([(0, 0), (1, 60)], True, id="first batches of an epoch were cleaned"),
        pytest.param([(0, 20), (1, 50)], True, id="the log begins later"),
        pytest.param([(0, 0), (1, 100)], True, id="all of an epoch below the end was cleaned"),
        pytest.param([(0, 0), (1, 60), (2, 100)], True, id="another leader follows"),
        pytest.param([(0, 0), (1, 60), (2, 90)], False, id="another leader wrote over the end"),
        pytest.param([(0, 0), (1, 110)], False, id="an older leader goes on beyond the end"),
        pytest.param([(0, 0), (2, 60)], False, id="another leader instead"),
    ],
)
def test_copy_of_a_compacted_topic_is_joined_by_the_epoch_of_the_last_offset(
    theirs: list[tuple[int, int]], is_same: bool
) -> None:
    found = joined(plan(is_compacted=True), source("standby", 20, 150, lineage=Lineage.of(theirs)))
    assert found == ([("standby", 100, 150)] if is_same else [])


def test_directories_with_a_gap_before_them_are_joined_behind_others() -> None:
    assert joined(plan(), source("standby", 110, 150), source("disk", 0, 120)) == [
        ("disk", 100, 120),
        ("standby", 120, 150),
    ]


def test_first_of_two_that_reach_equally_far_is_joined() -> None:
    assert joined(plan(), source("disk", 0, 120), source("standby", 0, 120)) == [("disk", 100, 120)]


@pytest.mark.parametrize(
    "refused",
    [
        source("gap", 101, 150, log_start=50),
        source("behind", 0, 100),
        source("other branch", 0, 150, lineage=Lineage.of([(0, 0), (1, 60)])),
        source("no epochs", 0, 150, lineage=Lineage()),
    ],
    ids=lambda each: str(each.directory),
)
def test_directory_that_does_not_go_on_at_the_end_is_not_joined(refused: JoinSource) -> None:
    assert joined(plan(), refused) == []


def test_missing_offsets_that_a_directory_has_are_missing_no_longer() -> None:
    found = join_sources(plan(), [source("standby", 0, 150)])
    assert found.missing == (MissingRange(150, 200, "not copied"),)
    assert join_sources(plan(), [source("standby", 0, 200)]).missing == ()
    assert (found.joins[-1].end_offset, found.known_end_offset) == (150, 150)


def test_log_of_a_directory_is_restored_where_the_tier_has_nothing() -> None:
    begun = join_sources(plan(has_parts=False), [source("late", 40, 90), source("standby", 18, 90, log_start=20)])
    assert (begun.log_start_offset, begun.end_offset) == (20, 18)
    assert [tuple(each)[1:] for each in begun.joins] == [(18, 90)]
    assert not begun.is_refused


def test_existing_directory_alone_stays_as_it_is() -> None:
    empty = plan(has_parts=False)
    assert join_sources(empty, [source("disk", 0, 90)]) == empty


def test_partition_without_records_anywhere_is_left_out() -> None:
    assert join_sources(plan(has_parts=False), [source("empty", 5, 5)]).is_left_out


def test_compacted_log_that_was_cleaned_beyond_the_tier_is_taken_whole_or_not_at_all() -> None:
    compacted = plan(is_compacted=True)
    whole = join_sources(compacted, [source("standby", 0, 150, cleaned=120)])
    assert (whole.parts, whole.fetch_bytes, whole.end_offset) == ((), 0, 0)
    assert [tuple(each)[1:] for each in whole.joins] == [(0, 150)]
    late = join_sources(compacted, [source("standby", 10, 150, cleaned=120)])  # the leader's log began there, too
    assert (late.parts, late.log_start_offset) == ((), 10)
    assert [tuple(each)[1:] for each in late.joins] == [(10, 150)]
    assert "keys that were deleted would come back" in late.findings[0].text
    old_disk = join_sources(compacted, [source("disk", 10, 150, cleaned=120)])
    assert (old_disk.parts, old_disk.joins) == (compacted.parts, ())
    assert joined(compacted, source("standby", 10, 150, cleaned=100)) == [("standby", 100, 150)]


def test_compacted_log_whose_first_records_were_cleaned_away_is_taken_whole() -> None:
    for has_parts in (True, False):
        compacted = plan(is_compacted=True, has_parts=has_parts)
        cleaned = source("standby", 120, 150, cleaned=130, log_start=0)
        found = join_sources(compacted, [cleaned, source("other", 120, 140, cleaned=130, log_start=0)])
        assert (found.parts, found.log_start_offset, found.end_offset) == ((), 0, 0)
        assert [tuple(each) for each in found.joins] == [(Path("standby"), 0, 150)]
    assert join_sources(plan(has_parts=False), [replace(cleaned, cleaned_offset=0)]).is_left_out  # nothing may lack


def test_log_begins_with_a_standby_whose_log_start_is_beyond_what_the_tier_reaches() -> None:
    """The records between tier and standby were deleted at the leader before a copy: the standby's records are kept."""
    standby = source("standby", 110, 150, log_start=111)
    found = join_sources(plan(), [standby, source("other", 112, 150)])
    assert (found.parts, found.log_start_offset, found.end_offset) == ((), 111, 110)
    assert [tuple(each) for each in found.joins] == [(Path("standby"), 110, 150)]
    (finding,) = found.findings
    assert "offsets 100 to 110" in finding.text
    assert not found.is_refused
    bridged = join_sources(plan(), [standby, source("disk", 90, 130)])
    assert [tuple(each)[1:] for each in bridged.joins] == [(100, 130), (130, 150)]
    assert bridged.parts
    kept = join_sources(plan(), [replace(standby, log_start_offset=90)])  # it should have more: the tier goes first
    assert (kept.parts, kept.joins) == (plan().parts, ())


OLD_LEADER, NEW_LEADER = Lineage.of([(0, 0), (1, 50)]), Lineage.of([(0, 0), (1, 50), (2, 120)])


def test_records_that_a_newer_leader_has_replaced_are_joined_from_no_directory() -> None:
    """A standby that was away while another leader was elected, and reaches further than the copies of that one."""
    stale, fresh = source("stale", 0, 190, lineage=OLD_LEADER), source("fresh", 0, 150, lineage=NEW_LEADER)
    assert joined(plan(), stale, fresh) == joined(plan(), fresh, stale) == [("fresh", 100, 150)]
    (finding,) = join_sources(plan(), [stale, fresh]).findings
    assert finding.text.startswith("offsets 120 to 189 of stale are left out")
    assert join_sources(plan(), [stale, fresh]).known_end_offset == 190, "offsets that were issued are not issued again"
    late = source("fresh", 110, 150, lineage=NEW_LEADER)
    assert joined(plan(), stale, late) == [("stale", 100, 120), ("fresh", 120, 150)]
    disk = source("disk", 0, 150, lineage=NEW_LEADER)
    assert joined(plan(has_parts=False), stale, disk) == [("disk", 0, 150)]
    assert joined(plan(has_parts=False), stale, late) == [("stale", 0, 120), ("fresh", 120, 150)]


@pytest.mark.parametrize("is_compacted", [False, True])
def test_log_of_a_replaced_leader_is_never_restored_in_place_of_the_tier(is_compacted: bool) -> None:
    newer = replace(plan(end=140, is_compacted=is_compacted), lineage=NEW_LEADER)
    stale = source("stale", 0, 190, lineage=OLD_LEADER, cleaned=170)
    for log_start in (0, 150):  # retention goes on in a copy that follows no leader; its batches stay
        found = join_sources(newer, [replace(stale, log_start_offset=log_start)])
        assert (found.parts, found.joins) == (newer.parts, ())
        (finding,) = found.findings
        assert finding.text.startswith("offsets 120 to 189 of stale are left out: a newer leader replaced them")
        assert not found.is_refused


def test_without_the_tier_the_log_begins_where_it_reaches_the_newest_records() -> None:
    old, new = source("old", 0, 90), source("new", 95, 150)
    assert joined(plan(has_parts=False), old, new) == [("new", 95, 150)]
    assert joined(plan(has_parts=False), old, source("new", 80, 150)) == [("old", 0, 90), ("new", 90, 150)]


OFFSETS = st.integers(0, 200)


@given(st.lists(st.tuples(OFFSETS, OFFSETS, OFFSETS), max_size=6), st.booleans(), st.booleans())
def test_joins_follow_each_other_without_a_hole(
    ranges: list[tuple[int, int, int]], is_compacted: bool, has_parts: bool
) -> None:
    sources = [
        source(str(number), min(a, b), max(a, b), cleaned=cleaned) for number, (a, b, cleaned) in enumerate(ranges)
    ]
    before = replace(plan(is_compacted=is_compacted, has_parts=has_parts), missing=())
    found = join_sources(before, sources)
    at = found.end_offset
    for join in found.joins:
        assert join.start_offset == at < join.end_offset
        at = join.end_offset
    if not is_compacted:
        assert at >= max((s.end_offset for s in sources if s.first_offset <= found.end_offset), default=0) or not at
