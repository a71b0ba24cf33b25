from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tierd.model import EpochEntry, Lineage, segment_epochs_problem
from tierd.model.lineage import UNDEFINED_END

assignments = st.lists(st.tuples(st.integers(0, 12), st.integers(0, 60)), max_size=12)


def lineage(text: str) -> Lineage:
    """Parse ``0:10 2:13`` to these entries, as from a checkpoint: none is assigned, none dropped."""
    pairs = (item.split(":") for item in text.split())
    return Lineage(tuple(EpochEntry(int(epoch), int(start)) for epoch, start in pairs))


@pytest.mark.spec("log-format EPO-01")
def test_empty_lineage_has_no_epochs_and_no_ends() -> None:
    empty = Lineage()
    assert not empty
    assert (empty.earliest, empty.latest, empty.epoch_for(5)) == (None, None, None)
    assert [empty.end_offset_for(e, log_end_offset=9) for e in (-1, 0, 7)] == [UNDEFINED_END] * 3
    assert empty.truncated_from_end(0) == empty.truncated_from_start(9) == empty.with_data() == empty
    assert empty.entries_in(0, 10) == empty


@pytest.mark.spec("log-format EPO-02")
def test_the_latest_epoch_ends_at_the_log_end() -> None:
    found = Lineage.of([(2, 10)])
    assert found.latest == (2, 10)
    assert found.end_offset_for(2, log_end_offset=11) == (2, 11)


@pytest.mark.spec("log-format EPO-03")
def test_second_assignment_of_an_epoch_keeps_its_first_start() -> None:
    found = Lineage.of([(2, 11), (2, 12)])
    assert found == lineage("2:11")
    assert found.end_offset_for(2, log_end_offset=14) == (2, 14)


@pytest.mark.spec("log-format EPO-04")
@pytest.mark.spec("log-format EPO-05")
@pytest.mark.spec("log-format EPO-06")
@pytest.mark.parametrize(
    ("assigned", "expected"),
    [
        ([(2, 9), (3, 9)], "3:9"),
        ([(2, 6), (3, 5)], "3:5"),
        ([(1, 5), (2, 6), (1, 7)], "1:7"),
        ([(0, 0), (1, 0)], "1:0"),
        ([(5, 11), (6, 12), (7, 13), (7, 12)], "5:11 7:12"),
    ],
)
def test_assignment_drops_the_entries_that_it_contradicts(assigned: list[tuple[int, int]], expected: str) -> None:
    assert Lineage.of(assigned) == lineage(expected)


@pytest.mark.spec("log-format EPO-06")
def test_dropped_epoch_has_no_end_offset() -> None:
    assert Lineage.of([(1, 5), (2, 6), (1, 7)]).end_offset_for(2, log_end_offset=9) == UNDEFINED_END


@pytest.mark.spec("log-format EPO-07")
def test_end_offset_is_returned_with_the_epoch_at_or_below_the_asked_one() -> None:
    before = Lineage.of([(5, 11), (6, 12), (7, 13)])
    assert before.end_offset_for(4, log_end_offset=14) == (4, 11)
    after = before.assign(epoch=7, start_offset=12)
    assert [after.end_offset_for(e, log_end_offset=14) for e in (5, 6)] == [(5, 12), (5, 12)]


@pytest.mark.spec("log-format EPO-08")
def test_epoch_without_an_entry_ends_where_the_next_entry_begins() -> None:
    found = lineage("0:10 2:13 4:17")
    assert [found.end_offset_for(e, log_end_offset=20) for e in (1, 2, 3)] == [(0, 13), (2, 17), (2, 17)]


@pytest.mark.spec("log-format EPO-09")
def test_epoch_above_the_latest_has_no_end_offset() -> None:
    assert [lineage("2:100").end_offset_for(e, log_end_offset=200) for e in (3, -1)] == [UNDEFINED_END] * 2


@pytest.mark.spec("log-format EPO-10")
def test_an_epoch_dropped_at_the_same_start_ends_there() -> None:
    found = Lineage.of([(0, 0), (1, 0)])
    assert found.latest == (1, 0)
    assert found.end_offset_for(0, log_end_offset=5) == (0, 0)


@pytest.mark.spec("remote-tiering 116")
def test_a_missing_epoch_ends_where_the_next_begins() -> None:
    assert lineage("0:0 1:85 3:90 4:98").end_offset_for(2, log_end_offset=120) == (1, 90)


@pytest.mark.spec("remote-tiering 117")
def test_an_epoch_below_the_first_ends_where_the_first_begins() -> None:
    assert lineage("2:10").end_offset_for(1, log_end_offset=20) == (1, 10)
    assert lineage("2:10").end_offset_for(3, log_end_offset=20) == UNDEFINED_END


@pytest.mark.spec("log-format EPO-11")
@pytest.mark.parametrize(("offset", "expected"), [(8, "2:6"), (9, "2:6 3:8"), (-1, "2:6 3:8 4:11"), (6, "")])
def test_truncation_of_the_end_drops_entries_that_start_at_or_above_it(offset: int, expected: str) -> None:
    assert lineage("2:6 3:8 4:11").truncated_from_end(offset) == lineage(expected)


@pytest.mark.spec("log-format EPO-12")
@pytest.mark.parametrize(
    ("offset", "expected"),
    [
        (1, "2:6 3:8 4:11"),
        (6, "2:6 3:8 4:11"),
        (-1, "2:6 3:8 4:11"),
        (8, "3:8 4:11"),
        (9, "3:9 4:11"),
        (11, "4:11"),
        (15, "4:15"),
    ],
)
def test_truncation_of_the_start_moves_the_covering_entry_to_it(offset: int, expected: str) -> None:
    assert lineage("2:6 3:8 4:11").truncated_from_start(offset) == lineage(expected)


@pytest.mark.spec("remote-tiering 118")
def test_truncation_of_the_start_keeps_the_covering_entry() -> None:
    assert lineage("0:0 1:10 2:20").truncated_from_start(15) == lineage("1:15 2:20")
    assert lineage("0:0 1:10 2:20").truncated_from_start(20) == lineage("2:20")


@pytest.mark.spec("remote-tiering 119")
def test_truncation_of_the_end_drops_an_entry_that_starts_there() -> None:
    assert lineage("0:0 1:10 2:20").truncated_from_end(10) == lineage("0:0")


@pytest.mark.spec("log-format EPO-13")
def test_epoch_of_an_offset_is_the_last_that_started_at_or_below_it() -> None:
    found = lineage("0:10 1:20 5:30")
    assert [found.epoch_for(offset) for offset in (5, 20, 25, 30, 50)] == [None, 1, 1, 5, 5]


@pytest.mark.spec("remote-tiering 115")
def test_an_equal_start_drops_the_older_epoch() -> None:
    assert Lineage().assign(epoch=4, start_offset=99).assign(epoch=5, start_offset=99).epoch_for(99) == 5


@pytest.mark.spec("log-format EPO-14")
def test_next_and_previous_entries_of_an_epoch_are_found() -> None:
    found = lineage("2:6 4:8 7:11")
    assert [found.next_entry(e) for e in (1, 2, 5, 7)] == [(2, 6), (4, 8), (7, 11), None]
    assert [found.start_offset_of(e) for e in (4, 5)] == [8, None]


@pytest.mark.spec("remote-tiering 111")
def test_entries_in_the_offsets_of_a_segment_are_its_epochs() -> None:
    found = lineage("0:0 1:100 2:200")
    assert found.entries_in(0, 300) == found
    assert found.entries_in(100, 200) == lineage("1:100")


@pytest.mark.spec("remote-tiering 112")
@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("0:0 1:0 2:0 3:30 4:40 5:60 6:60 7:70 8:70", "2:0 3:30 4:40 6:60 8:70"),
        ("0:0 1:0 2:0", "2:0"),
        ("", ""),
    ],
)
def test_epochs_without_data_are_left_out(before: str, after: str) -> None:
    assert lineage(before).with_data() == lineage(after)


@pytest.mark.parametrize(("epoch", "start"), [(-1, 0), (0, -1)])
def test_negative_epoch_or_offset_is_refused(epoch: int, start: int) -> None:
    with pytest.raises(ValueError, match="negative"):
        Lineage().assign(epoch=epoch, start_offset=start)


@given(assignments)
def test_entries_always_increase_in_both_fields(assigned: list[tuple[int, int]]) -> None:
    entries = Lineage.of(assigned).entries
    assert all(a.epoch < b.epoch and a.start_offset < b.start_offset for a, b in pairwise(entries))
    assert not assigned or entries[-1].epoch == assigned[-1][0]


@given(assignments, st.integers(-2, 70))
def test_truncation_changes_no_epoch_of_the_remaining_offsets(assigned: list[tuple[int, int]], offset: int) -> None:
    found = Lineage.of(assigned)
    for kept in range(max(offset, 0), 80):
        assert found.truncated_from_start(offset).epoch_for(kept) == found.epoch_for(kept)
    for kept in range(offset):
        assert found.truncated_from_end(offset).epoch_for(kept) == found.epoch_for(kept)


@given(assignments, st.integers(-1, 14), st.integers(60, 90))
def test_end_offset_of_an_epoch_is_above_all_its_offsets(
    assigned: list[tuple[int, int]], epoch: int, log_end: int
) -> None:
    found = Lineage.of(assigned)
    answer = found.end_offset_for(epoch, log_end_offset=log_end)
    for offset in range(log_end):
        written_by = found.epoch_for(offset)
        if answer != UNDEFINED_END and written_by is not None:
            assert (written_by <= epoch) == (offset < answer.end_offset)


@given(assignments, st.integers(0, 60), st.integers(0, 60))
def test_entries_in_the_offsets_of_a_segment_are_valid_for_the_segment(
    entries: list[tuple[int, int]], one: int, other: int
) -> None:
    start, end = sorted((one, other))
    whole = Lineage.of(entries)
    for known in (whole, whole.truncated_from_start((start + end) // 2)):
        cut = known.entries_in(start, end + 1)
        if cut:
            assert segment_epochs_problem(cut.entries, start_offset=start, end_offset=end) is None
