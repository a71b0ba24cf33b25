"""Use of an orphan for its partition, decided over plain values."""

from pathlib import Path

import pytest

from tests.fakes.remote_segments import FINISHED, PARTITION, segment, step
from tierd.log import DirectoryKind, PartitionDirectory, PartitionScan, SegmentFiles
from tierd.metadata import Claim, PartitionRow, PartitionView
from tierd.model import Lineage, OffsetRange, RemoteLogSegmentMetadata
from tierd.tiering import TieredLog
from tierd.tiering.auditing.orphans import OrphanUse, is_of_lineage, lineage_behind_tier, uncovered, use_of


def view_of(*segments: RemoteLogSegmentMetadata, log_start_offset: int | None = 0) -> PartitionView:
    row = PartitionRow(
        topic="orders", revision=1, claim=Claim(5, 1, segment(0, 1).session_id), log_start_offset=log_start_offset
    )
    view = PartitionView(PARTITION, row)
    for each in segments:
        view = view.with_added(each).view
        view = view.with_updated(step(each, FINISHED)).view
    return view


def use(
    orphan: RemoteLogSegmentMetadata,
    *segments: RemoteLogSegmentMetadata,
    log_start_offset: int | None = 0,
    lineage: Lineage | None = None,
) -> OrphanUse:
    log = TieredLog(PARTITION, view_of(*segments, log_start_offset=log_start_offset), None, None)
    return use_of(orphan, log, lineage or log.lineage)


def test_orphan_whose_offsets_are_in_the_tier_has_no_use() -> None:
    assert use(segment(10, 19), segment(0, 29)) is OrphanUse.NOTHING
    assert use(segment(10, 19), segment(0, 14), segment(15, 29)) is OrphanUse.NOTHING


@pytest.mark.parametrize(("start", "end"), [(0, 9), (10, 19), (5, 15), (20, 29)])
def test_orphan_fills_a_gap_at_the_start_in_the_middle_or_at_the_end(start: int, end: int) -> None:
    others = [each for each in (segment(0, 9), segment(10, 19), segment(20, 29)) if not _meets(each, start, end)]
    assert use(segment(start, end), *others) is OrphanUse.FILLS_GAP


def _meets(each: RemoteLogSegmentMetadata, start: int, end: int) -> bool:
    return each.start_offset <= end and start <= each.end_offset


def test_orphan_below_the_log_start_has_no_use() -> None:
    assert use(segment(0, 9), segment(10, 19), log_start_offset=10) is OrphanUse.NOTHING
    assert use(segment(0, 9), segment(10, 19), log_start_offset=9) is OrphanUse.FILLS_GAP


def test_orphan_of_another_branch_is_recognised() -> None:
    known = Lineage.of([(0, 0), (2, 10)])
    orphan = segment(10, 19, {1: 10})
    assert use(orphan, segment(0, 9), segment(20, 29, {2: 20}), lineage=known) is OrphanUse.OTHER_BRANCH
    mine = segment(10, 19, {2: 10})
    assert use(mine, segment(0, 9), segment(20, 29, {2: 20}), lineage=known) is OrphanUse.FILLS_GAP


def test_segment_below_a_lineage_fits_unless_its_epoch_is_later() -> None:
    lineage = Lineage.of([(4, 100)])
    assert is_of_lineage(segment(0, 99, 4), lineage, 0)
    assert is_of_lineage(segment(0, 99, 3), lineage, 0)
    assert not is_of_lineage(segment(0, 99, 5), lineage, 0)
    assert not is_of_lineage(segment(90, 109, 3), lineage, 90)


def test_covered_offsets_are_subtracted_from_gaps() -> None:
    gaps = [OffsetRange(0, 9), OffsetRange(20, 29)]
    assert uncovered(gaps, []) == gaps
    assert uncovered(gaps, [OffsetRange(0, 29)]) == []
    assert uncovered(gaps, [OffsetRange(5, 22), OffsetRange(25, 25)]) == [
        OffsetRange(0, 4),
        OffsetRange(23, 24),
        OffsetRange(26, 29),
    ]


def test_orphan_copied_with_the_log_start_inside_fills_a_gap_from_the_log_start_on() -> None:
    orphan = segment(10, 19, {0: 15})
    assert use(orphan, segment(20, 29), log_start_offset=None) is OrphanUse.FILLS_GAP
    assert use(orphan, segment(15, 29), log_start_offset=None) is OrphanUse.NOTHING


def test_orphan_between_the_tier_and_the_remembered_epochs_may_have_a_forgotten_epoch() -> None:
    scan = PartitionScan(
        PartitionDirectory(Path("orders-0"), PARTITION.topic_partition, PARTITION.topic_id, DirectoryKind.CURRENT, 1),
        (SegmentFiles(Path("orders-0"), 30, None),),
        (),
        Lineage.of([(4, 30)]),
        0,
    )
    log = TieredLog(PARTITION, view_of(segment(0, 9)), scan, 40)
    orphan = segment(10, 29, {2: 10})
    assert use_of(orphan, log, log.lineage) is OrphanUse.OTHER_BRANCH
    assert use_of(orphan, log, lineage_behind_tier(orphan, log)) is OrphanUse.FILLS_GAP
    later = segment(10, 29, {5: 10})
    assert use_of(later, log, lineage_behind_tier(later, log)) is OrphanUse.OTHER_BRANCH
