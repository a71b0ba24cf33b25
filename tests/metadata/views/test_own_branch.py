from collections.abc import Sequence

import pytest

from tests.fakes.remote_segments import DELETE_STARTED, FINISHED, PARTITION, segment, step
from tierd.metadata import OwnBranch, PartitionView, effective_lineage
from tierd.model import Lineage, RemoteLogSegmentMetadata


def tier(*segments: RemoteLogSegmentMetadata) -> PartitionView:
    view = PartitionView(PARTITION)
    for metadata in segments:
        view = view.with_added(metadata).view.with_updated(step(metadata, FINISHED)).view
    return view


THREE = tier(segment(0, 99, {0: 0, 1: 50}), segment(100, 199, 1), segment(200, 299, {1: 200, 2: 250}))


@pytest.mark.parametrize(
    ("local", "expected"),
    [
        pytest.param([], [(0, 0), (1, 50), (2, 250)], id="no local log"),
        pytest.param([(2, 280), (4, 300)], [(0, 0), (1, 50), (2, 250), (4, 300)], id="local begins within an epoch"),
        pytest.param([(1, 120), (2, 250)], [(0, 0), (1, 50), (2, 250)], id="both overlap and agree"),
        pytest.param([(3, 300)], [(0, 0), (1, 50), (2, 250), (3, 300)], id="local begins after the tier"),
        pytest.param([(0, 0), (1, 50), (5, 150)], [(0, 0), (1, 50), (5, 150)], id="an abandoned branch in the tier"),
        pytest.param([(1, 120)], [(0, 0), (1, 50)], id="an epoch above the local latest was truncated"),
        pytest.param([(7, 20)], [(0, 0), (7, 20)], id="local overrides what begins after its start"),
        pytest.param([(0, 0)], [(0, 0)], id="local knows everything"),
    ],
)
def test_effective_lineage_is_the_local_one_from_its_first_entry_on(
    local: Sequence[tuple[int, int]], expected: Sequence[tuple[int, int]]
) -> None:
    assert effective_lineage(THREE, Lineage.of(local)) == Lineage.of(expected)


def test_effective_lineage_without_remote_segments_is_the_local_one() -> None:
    local = Lineage.of([(3, 10), (5, 20)])
    assert effective_lineage(PartitionView(PARTITION), local) == local


def test_effective_lineage_uses_only_readable_segments() -> None:
    first, second = segment(0, 9, 0), segment(10, 19, 1)
    view = tier(first, second).with_updated(step(first, DELETE_STARTED)).view.with_added(segment(5, 9, 0)).view
    assert effective_lineage(view, Lineage.of([(2, 30)])) == Lineage.of([(1, 10), (2, 30)])


def test_effective_lineage_drops_an_older_branch_of_the_tier() -> None:
    view = tier(segment(0, 99, 0), segment(100, 199, 1), segment(50, 149, 2))
    assert effective_lineage(view, Lineage()) == Lineage.of([(0, 0), (2, 50)])


@pytest.mark.parametrize(
    ("local", "holes"),
    [
        pytest.param(None, {0: 100, 99: 100, 100: 100, 150: None, 299: None}, id="no local log"),
        pytest.param((100, 150), {0: None, 150: None}, id="local log with the hole"),
        pytest.param((110, 400), {0: 100, 100: 100, 200: None}, id="local log from within the hole on"),
        pytest.param((50, 100), {0: 100, 150: None}, id="local log that ends at the hole"),
        pytest.param((350, 400), {0: 100, 200: 300, 300: 300, 301: None, 350: None}, id="local log behind the tier"),
        pytest.param((300, 400), {0: 100, 200: None, 350: None}, id="local log at the end of the tier"),
    ],
)
def test_hole_is_in_no_segment_and_not_in_the_local_log(
    local: tuple[int, int] | None, holes: dict[int, int | None]
) -> None:
    view = tier(segment(0, 99, 0), segment(150, 299, 0))
    branch = OwnBranch(view, Lineage.of([(0, 0)]))
    start, end = local or (None, 0)
    found = {offset: branch.hole_from(offset, local_start=start, local_end=end) for offset in holes}
    assert found == holes


def test_tier_without_segments_has_no_hole() -> None:
    branch = OwnBranch(PartitionView(PARTITION), Lineage.of([(0, 10)]))
    assert branch.hole_from(0, local_start=None, local_end=0) is None
