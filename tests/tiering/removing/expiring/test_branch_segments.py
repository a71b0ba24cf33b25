"""Segments of our branch of the log: the vectors of remote-tiering 12.3 and 17.3."""

from collections.abc import Iterable

import pytest

from tests.tiering.removing.rows import lister, row
from tierd.model import EpochEntry, Lineage, RemoteLogSegmentState
from tierd.tiering.removing.expiring.branch_segments import LocalSegment, counted_bytes, in_lineage, only_local_bytes

GROWN = Lineage.of([(0, 0), (1, 10), (2, 20), (3, 30), (4, 40), (5, 50), (7, 70)])
MOVED = Lineage.of([(7, 51), (9, 100)])
Epochs = dict[int, int]


@pytest.mark.spec("remote-tiering 112")
def test_epochs_without_records_are_left_out() -> None:
    written = [(0, 0), (1, 0), (2, 0), (3, 30), (4, 40), (5, 60), (6, 60), (7, 70), (8, 70)]
    assert _lineage(written).with_data() == _lineage([(2, 0), (3, 30), (4, 40), (6, 60), (8, 70)])
    assert _lineage([(0, 0), (1, 0), (2, 0)]).with_data() == _lineage([(2, 0)])


def _lineage(pairs: Iterable[tuple[int, int]]) -> Lineage:
    """Return the lineage entry by entry: ``Lineage.of`` would leave no two entries at the same offset."""
    return Lineage(tuple(EpochEntry(*pair) for pair in pairs))


@pytest.mark.spec("remote-tiering 113")
@pytest.mark.parametrize(
    ("epochs", "start", "end"),
    [
        ({1: 15, 2: 20, 3: 30}, 15, 35),
        ({1: 15}, 15, 19),
        ({0: 0}, 0, 5),
        ({7: 70}, 70, 75),
        ({1: 15, 2: 20}, 15, 29),
    ],
)
def test_a_segment_whose_epochs_are_those_of_the_log_is_in_lineage(epochs: Epochs, start: int, end: int) -> None:
    assert in_lineage(row(start, end, epochs), 90, GROWN)


@pytest.mark.spec("remote-tiering 113")
@pytest.mark.parametrize(
    ("epochs", "start", "end"),
    [
        ({5: 55, 6: 60, 7: 70}, 55, 85),
        ({1: 15, 2: 20, 4: 40}, 15, 45),
        ({7: 70}, 70, 90),
        ({7: 70}, 70, 95),
        ({1: 5, 2: 20}, 5, 25),
        ({1: 15, 2: 20}, 15, 35),
    ],
)
def test_a_segment_of_another_branch_is_not_in_lineage(epochs: Epochs, start: int, end: int) -> None:
    assert not in_lineage(row(start, end, epochs), 90, GROWN)


@pytest.mark.spec("remote-tiering 114")
def test_epochs_below_the_first_one_of_the_log_are_ignored() -> None:
    assert in_lineage(row(14, 150, {5: 14, 7: 15, 9: 100}), 210, MOVED)


@pytest.mark.spec("remote-tiering 114")
@pytest.mark.parametrize(
    ("epochs", "start", "end"),
    [
        ({2: 5, 3: 6}, 2, 7),
        ({7: 15, 9: 100, 10: 200}, 15, 250),
        ({8: 75}, 75, 100),
        ({7: 15, 9: 101}, 15, 150),
        ({9: 99}, 99, 150),
    ],
)
def test_segment_of_another_branch_is_not_in_lineage_after_the_log_start_moved(
    epochs: Epochs, start: int, end: int
) -> None:
    assert not in_lineage(row(start, end, epochs), 210, MOVED)


def test_no_segment_is_in_an_empty_lineage() -> None:
    assert not in_lineage(row(0, 9), 100, Lineage())


def test_bytes_of_a_readable_segment_of_our_branch_count_once() -> None:
    rows = [
        row(0, 25, {0: 0, 1: 10, 2: 20}),
        row(26, 29, 2, state=RemoteLogSegmentState.COPY_SEGMENT_STARTED),
        row(26, 29, 2, state=RemoteLogSegmentState.DELETE_SEGMENT_STARTED),
        row(26, 99, 2),
        row(26, 29, 2),
    ]
    counted = counted_bytes(lister(rows), lineage=GROWN, log_end_offset=90)
    assert counted == {rows[0].segment.id: 1024, rows[4].segment.id: 1024}


def test_later_of_two_segments_counts_without_the_offsets_of_the_earlier_one() -> None:
    rows = [row(20, 25, 2), row(24, 27, 2), row(26, 27, 2), row(27, 28, 2), row(29, 29, 2)]
    counted = counted_bytes(lister(rows), lineage=GROWN, log_end_offset=90)
    assert [counted[each.segment.id] for each in rows] == [1024, 512, 0, 512, 1024]


def test_segment_that_the_tier_has_in_part_counts_with_the_other_part() -> None:
    segments = [
        LocalSegment(0, 100, 1),
        LocalSegment(100, 101, 2),
        LocalSegment(101, 200, 99),
        LocalSegment(200, None, 10),
    ]

    def only_local(highest_remote_offset: int) -> int:
        return only_local_bytes(segments, highest_remote_offset=highest_remote_offset, log_end_offset=210)

    assert only_local(-1) == 112
    assert only_local(100) == 109
    assert only_local(150) == 59
    assert only_local(199) == 10
    assert only_local(203) == 6
    assert only_local(209) == 0
    assert only_local(220) == 0


def test_strict_rule_of_kafka_counts_a_segment_that_begins_at_the_copied_offset() -> None:
    segments = [LocalSegment(0, 100, 1), LocalSegment(100, 101, 2), LocalSegment(101, None, 4)]
    assert only_local_bytes(segments, highest_remote_offset=100, log_end_offset=102, strict_kafka_compat=True) == 6
