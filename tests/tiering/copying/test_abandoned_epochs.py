"""Copied segments of an epoch that the log has abandoned, between two epochs of the log."""

from pathlib import Path

import pytest

from tests.tiering.copying.cut_back_lab import CutBackLab
from tests.tiering.setups import BROKER_ID, delete_segment
from tierd.metadata import OwnBranch, effective_lineage, read_partition
from tierd.model import Lineage
from tierd.tiering import TopicPolicy
from tierd.tiering.copying.frontier import abandoned_epochs


@pytest.fixture
async def lab(tmp_path: Path, request: pytest.FixtureRequest) -> CutBackLab:
    """Let a broker crash, another one lead and copy, and the first one come back when that one is lost.

    The first broker leads again by an unclean election. It still has its records that were not committed when it died.
    """
    common: int = request.param
    first = CutBackLab(tmp_path / "first", epoch=3)
    first.segments(2)
    second = CutBackLab(tmp_path / "second", leader=first, broker_id=BROKER_ID + 1, epoch=3)
    second.segments(2)
    await first.run()
    second.produce(common)
    second.writer.begin_epoch(4)
    second.produce_others(6)
    second.writer.roll()
    second.segments(1)
    await second.run()
    first.produce(3)
    first.writer.begin_epoch(5)
    first.segments(3)
    first.start()
    return first


@pytest.mark.parametrize("lab", [0, 1], indirect=True, ids=["at-a-roll", "within-a-segment"])
async def test_readers_of_the_tier_see_the_log_without_an_epoch_that_it_has_abandoned(lab: CutBackLab) -> None:
    assert (await lab.run()).error is None
    assert await lab.read() == lab.values
    revision = lab.session.metadata.view(lab.partition).revision
    assert (await lab.run()).error is None
    assert lab.session.metadata.view(lab.partition).revision == revision
    for log in sorted(lab.path.glob("*.log"))[:-1]:
        delete_segment(lab.path, int(log.stem))
    lab.writer.forget_epochs_below(int(next(iter(lab.path.glob("*.log"))).stem))
    assert (await lab.run()).error is None
    assert await lab.read() == lab.values
    view = lab.session.metadata.view(lab.partition)
    assert view == await read_partition(lab.tier.rows, lab.session.metadata.keys, lab.partition)
    branch = OwnBranch(view, effective_lineage(view, Lineage()))
    ranges = [(each.start_offset, each.end_offset) for each in branch.readable_ranges(0, 1000)]
    assert view.abandoned_epochs == (4,)
    assert {each.metadata.leader_epoch for each in branch.readable_ranges(18, 1000)} == {5}
    assert (ranges[0][0], ranges[-1][1]) == (0, len(lab.values))


@pytest.mark.parametrize("lab", [0], indirect=True)
async def test_log_that_a_cleaner_compacts_proves_no_epoch_to_be_abandoned(lab: CutBackLab) -> None:
    lab.start(TopicPolicy(cleanup_policy=frozenset({"compact"})))
    assert (await lab.run()).error is None
    assert lab.session.metadata.view(lab.partition).abandoned_epochs == ()


@pytest.mark.parametrize("lab", [0], indirect=True)
async def test_only_epochs_between_those_of_the_log_are_proven_to_be_abandoned(lab: CutBackLab) -> None:
    await lab.session.metadata.become_leader(lab.partition, 5)
    view = lab.session.metadata.view(lab.partition)
    assert set(view.first_offsets()) == {3, 4}
    for local, found in (
        ([(3, 0), (5, 18)], (4,)),
        ([(3, 0), (4, 12), (5, 18)], ()),
        ([(3, 0)], ()),
        ([(5, 18)], ()),
        ([], ()),
        ([(2, 0), (5, 18)], (3, 4)),
    ):
        assert abandoned_epochs(view, Lineage.of(local)) == found
