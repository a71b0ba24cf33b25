"""Places of a partition's records, as ranges of offsets."""

from hypothesis import given
from hypothesis import strategies as st

from tests.serve.page.page_values import DELETING, NOW_MS, STARTED, facts_of, row, status_of
from tierd.serve import CopyOnNode, LocalPiece
from tierd.serve.page.log_layout import RangePlace, log_ranges


def shown(**changes: object) -> list[tuple[str, int, int]]:
    return [
        (each.place.value, each.start_offset, each.end_offset) for each in log_ranges(facts_of("orders-0", **changes))
    ]


def test_partition_with_everything_has_a_range_for_each_place() -> None:
    assert shown() == [
        ("local", 200, 349),
        ("active", 350, 419),
        ("tier", 200, 299),
        ("compacted", 50, 99),
        ("compacted", 150, 199),
        ("copying", 300, 349),
        ("waiting", 300, 349),
        ("expired", 0, 49),
        ("replaced", 150, 180),
        ("standby", 50, 399),
        ("gap", 100, 149),
    ]


def test_neighbours_are_one_range_with_the_sum_of_their_sizes_and_the_span_of_their_times() -> None:
    rows = tuple(row(100 * n, 100 * n + 99, time_ms=NOW_MS - 10_000 + n) for n in range(3))
    (tier,) = log_ranges(facts_of(rows=rows, local=(), standbys=(), compacted_to=None, log_start_offset=0))
    assert (tier.start_offset, tier.end_offset, tier.segments, tier.size_bytes) == (0, 299, 3, 300_000)
    assert (tier.start_ms, tier.end_ms) == (NOW_MS - 10_000 + 99, NOW_MS - 10_000 + 2 + 299)


def test_records_of_a_held_segment_are_no_gap_although_the_log_has_lost_them() -> None:
    held = LocalPiece(base_offset=100, next_base_offset=150, size_bytes=1, modified_ms=NOW_MS, waits=True)
    local = (held, *facts_of().local)
    assert [each for each in shown(local=local) if each[0] == "gap"] == []


def test_copy_under_way_and_segment_in_its_grace_fill_no_gap() -> None:
    rows = (row(0, 99), row(100, 149, STARTED), row(100, 149, DELETING, reason="retention_time"), row(150, 199))
    found = shown(rows=rows, local=(), standbys=(), compacted_to=None, log_start_offset=0)
    assert ("gap", 100, 149) in found


def test_nothing_is_called_a_gap_while_the_rows_of_the_tier_are_not_known() -> None:
    assert [each for each in shown(rows=(), tier_problem="the store is down") if each[0] == "gap"] == []


def test_offsets_below_the_log_start_are_no_gap() -> None:
    assert ("gap", 100, 149) not in shown(log_start_offset=150)


def test_lost_beginning_is_a_gap() -> None:
    found = shown(rows=(row(60, 99),), local=(), standbys=(), compacted_to=None, log_start_offset=50)
    assert ("gap", 50, 59) in found


def test_standbys_are_apart_and_a_standby_without_a_known_end_has_no_range() -> None:
    standbys = (
        CopyOnNode(node_id=2, start_offset=0, end_offset=10),
        CopyOnNode(node_id=3, start_offset=0, end_offset=9),
        CopyOnNode(node_id=4, start_offset=0, end_offset=-1),
    )
    found = log_ranges(facts_of(standbys=standbys))
    assert [(each.node_id, each.end_offset) for each in found if each.place is RangePlace.STANDBY] == [(2, 9), (3, 8)]


def test_active_segment_without_a_high_watermark_is_its_first_offset() -> None:
    status = status_of("orders-0", high_watermark=None)
    assert ("active", 350, 350) in shown(status=status)


@given(st.lists(st.tuples(st.integers(0, 500), st.integers(1, 60)), max_size=12), st.integers(0, 300))
def test_gaps_and_readable_ranges_cover_each_offset_of_the_log_once(
    segments: list[tuple[int, int]], log_start: int
) -> None:
    rows = tuple({(start, start + size): row(start, start + size - 1) for start, size in segments}.values())
    found = log_ranges(facts_of(rows=rows, local=(), standbys=(), compacted_to=None, log_start_offset=log_start))
    in_tier = {offset for start, size in segments for offset in range(start, start + size)}
    missing = [
        offset
        for each in found
        if each.place is RangePlace.GAP
        for offset in range(each.start_offset, each.end_offset + 1)
    ]
    last = max(in_tier, default=-1)
    assert missing == [offset for offset in range(log_start, last + 1) if offset not in in_tier]
