import pytest

from tests.fakes.remote_segments import FINISHED, PARTITION, segment, step
from tierd.metadata import PartitionView
from tierd.model import Lineage, RemoteLogSegmentMetadata
from tierd.restore.plan.log_branches import newest_segment, restored_lineage


def tier(*segments: RemoteLogSegmentMetadata) -> PartitionView:
    view = PartitionView(PARTITION)
    for metadata in segments:
        view = view.with_added(metadata).view.with_updated(step(metadata, FINISHED)).view
    return view


GAP = tier(segment(0, 149, 5), segment(200, 299, 7))
STORED = [(5, 0), (6, 120), (7, 200)]


def test_newest_segment_is_the_one_of_the_highest_epoch_that_ends_last() -> None:
    newest = segment(100, 199, 2)
    assert newest_segment(tier(segment(0, 99, 1), segment(100, 299, 1), newest)) == newest_of(newest)


def newest_of(metadata: RemoteLogSegmentMetadata) -> RemoteLogSegmentMetadata:
    return metadata.updated(step(metadata, FINISHED))


@pytest.mark.parametrize("view", [tier(), tier(segment(0, 99, 3), segment(100, 199, 3))])
def test_tier_of_at_most_one_epoch_has_nothing_to_decide(view: PartitionView) -> None:
    assert newest_segment(view) is None


@pytest.mark.parametrize(
    ("local", "expected"),
    [
        pytest.param([], STORED, id="no remains"),
        pytest.param([(6, 120)], STORED, id="remains of a replica that was behind"),
        pytest.param([(5, 0), (6, 110), (8, 180)], [(5, 0), (6, 110), (8, 180)], id="remains that go further"),
        pytest.param([(7, 310)], [(5, 0), (6, 120), (7, 200)], id="remains of the end only"),
        pytest.param([(9, 400)], [(5, 0), (6, 120), (7, 200), (9, 400)], id="remains behind the tier"),
        pytest.param([(8, 250)], [(5, 0), (6, 120), (7, 200), (8, 250)], id="remains that cut the tier"),
    ],
)
def test_remains_are_the_authority_where_they_reach_as_far_as_the_tier(
    local: list[tuple[int, int]], expected: list[tuple[int, int]]
) -> None:
    found = restored_lineage(GAP, newest=Lineage.of(STORED), local=Lineage.of(local))
    assert found == Lineage.of(expected)


def test_tier_without_stored_epochs_has_those_of_its_segments() -> None:
    assert restored_lineage(GAP, newest=Lineage(), local=Lineage()) == Lineage.of([(5, 0), (7, 200)])


@pytest.mark.parametrize("stored", [[], [(5, 0), (6, 120)]])
def test_epoch_that_a_log_start_cut_in_the_directory_begins_as_in_the_tier(
    stored: list[tuple[int, int]],
) -> None:
    """DeleteRecords moved the log start of a standby to 310, inside epoch 7, of which the tier has offset 200 on."""
    found = restored_lineage(GAP, newest=Lineage.of(stored), local=Lineage.of([(7, 310), (9, 400)]))
    assert found.start_offset_of(7) == 200
    assert found.start_offset_of(9) == 400
