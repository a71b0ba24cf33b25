from collections.abc import Mapping
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from tests.pipeline.planning.works import work_of
from tierd.pipeline.committing.round import GroupState, PartitionRound
from tierd.pipeline.planning import WorkKind

Record = tuple[str, bool]
"""Its key, and whether it is a tombstone, whose time is past."""


def round_of(groups: int, kind: WorkKind = WorkKind.COMPACT) -> PartitionRound:
    return PartitionRound(work_of(groups, kind))


def live_values(groups: list[dict[int, Record]]) -> dict[str, int]:
    """Return the state of a reader of the whole log: for every key that is not deleted, the offset of its value."""
    found: dict[str, int] = {}
    for group in groups:
        for offset, (key, is_tombstone) in sorted(group.items()):
            found.pop(key, None)
            if not is_tombstone:
                found[key] = offset
    return found


def rewritten(group: Mapping[int, Record], latest: Mapping[str, int]) -> tuple[dict[int, Record], dict[str, int]]:
    """Return the group as the log cleaner leaves it, and its counts."""
    kept = {offset: record for offset, record in group.items() if latest[record[0]] == offset}
    values = {offset: record for offset, record in kept.items() if not record[1]}
    return values, {"records_tombstone": len(kept) - len(values), "records_expired": 0}


@given(st.data())
def test_deleted_keys_stay_deleted_after_any_failures_and_order_of_groups(
    data: st.DataObject,
) -> None:
    records = data.draw(st.lists(st.tuples(st.sampled_from("abc"), st.booleans()), min_size=1, max_size=12))
    cuts = sorted(data.draw(st.sets(st.integers(1, max(1, len(records) - 1)), max_size=4)))
    bounds = [0, *(cut for cut in cuts if cut < len(records)), len(records)]
    groups = [{offset: records[offset] for offset in range(*span)} for span in pairwise(bounds)]
    latest = {key: offset for offset, (key, _) in enumerate(records)}
    before, found = live_values(groups), round_of(len(groups))
    for place in data.draw(st.permutations(range(len(groups)))):
        new, counts = rewritten(groups[place], latest)
        fails = data.draw(st.booleans())
        if fails or found.why_not_commit(place, counts) is not None:
            found.move(place, GroupState.LEFT)
            continue
        groups[place] = new
        found.move(place, GroupState.DONE)
        assert live_values(groups) == before
    assert live_values(groups) == before


@given(st.integers(1, 5))
def test_groups_in_order_may_all_be_committed(groups: int) -> None:
    found = round_of(groups)
    for place in range(groups):
        assert found.compacted_to_with(place) == (groups * 10 if place == groups - 1 else None)
        assert found.why_not_commit(place, {}) is None
        found.move(place, GroupState.DONE)


def test_lost_partition_refuses_further_begins_and_commits() -> None:
    found = round_of(2)
    found.lost = "broker 2 leads it"
    assert found.why_not_begin(0) == found.why_not_commit(0, {}) == "broker 2 leads it"
    assert found.why_not_settle(0) is None


def test_only_a_compaction_makes_a_partition_clean() -> None:
    for kind in (WorkKind.MERGE, WorkKind.ERASE):
        found = round_of(1, kind)
        assert found.compacted_to_with(0) is None
        assert found.why_not_commit(0, {}) is None
