"""First log start, frontier and holes of a tier, decided over views and scans."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from tests.fakes.remote_segments import FINISHED, PARTITION, segment
from tierd.log import DirectoryKind, PartitionDirectory, PartitionScan, SegmentFiles
from tierd.metadata import BucketLogStart, BucketSegment, PartitionView, rebuild_partition
from tierd.metadata.rows.newest_epochs import CopiedEpochs
from tierd.model import Lineage, SoftDelete
from tierd.tiering.copy_plan import NOTHING_COPIED, rolled_after
from tierd.tiering.copying.frontier import first_log_start, frontier, holes
from tierd.tiering.local.broker_state import BrokerOffsets

LENGTH = 10
"""Offsets of each segment."""


@st.composite
def worlds(draw: st.DrawFn) -> tuple[list[int], list[int], int, int | None, BucketLogStart | None]:
    """Draw the epoch of each segment, the segments in the bucket, the first local one, checkpoint and record."""
    count = draw(st.integers(1, 7))
    epochs = sorted(draw(st.lists(st.integers(0, 3), min_size=count, max_size=count)))
    copied = draw(st.lists(st.integers(0, count - 1), unique=True))
    first_local = draw(st.integers(0, count))
    checkpoint = draw(st.none() | st.integers(first_local * LENGTH, count * LENGTH))
    offset = draw(st.none() | st.integers(0, count * LENGTH))
    record = None if offset is None else BucketLogStart(log_start_offset=offset, leader_epoch=4, broker_id=1)
    return epochs, sorted(copied), first_local, checkpoint, record


def lineage_of(epochs: Sequence[int]) -> Lineage:
    return Lineage.of([(epoch, number * LENGTH) for number, epoch in enumerate(epochs)])


def rebuilt_view(epochs: Sequence[int], copied: Sequence[int], record: BucketLogStart | None) -> PartitionView:
    """Return the metadata that a rebuild makes of the segments in the bucket."""
    found = [
        BucketSegment(
            metadata=segment(
                number * LENGTH, number * LENGTH + LENGTH - 1, epochs[number], segment_id=UUID(int=number + 1)
            )
        )
        for number in copied
    ]
    replaced = SoftDelete.replaced(delete_after_ms=0)
    return rebuild_partition(PARTITION, found, session_id=UUID(int=9), replaced=replaced, log_start=record).view


def scan_of(epochs: Sequence[int], first_local: int, checkpoint: int | None) -> PartitionScan:
    """Return the scan of rolled segments and an active one, whose broker has forgotten epochs below its log start."""
    path = Path("/kafka/orders-0")
    bases = [number * LENGTH for number in range(first_local, len(epochs) + 1)]
    ends = [*bases[1:], None]
    start = max(bases[0], checkpoint or 0)
    return PartitionScan(
        directory=PartitionDirectory(path, PARTITION.topic_partition, PARTITION.topic_id, DirectoryKind.CURRENT, 1),
        segments=tuple(SegmentFiles(path, base, end) for base, end in zip(bases, ends, strict=True)),
        deleted_segments=(),
        lineage=lineage_of(epochs).truncated_from_start(start),
        mtime_ns=1,
    )


def is_readable(view: PartitionView, epochs: Sequence[int], offset: int) -> bool:
    return view.segment_for(epochs[offset // LENGTH], offset) is not None


@given(st.data())
def test_frontier_from_the_newest_epochs_equals_that_from_all_epochs_or_is_unknown(data: st.DataObject) -> None:
    count = data.draw(st.integers(1, 12))
    epochs = sorted(data.draw(st.lists(st.integers(0, 9), min_size=count, max_size=count)))
    copied = sorted(data.draw(st.lists(st.integers(0, count - 1), unique=True)))
    local = sorted(data.draw(st.lists(st.integers(0, 9), min_size=count, max_size=count)))  # perhaps another branch
    view = rebuilt_view(epochs, copied, None)
    scan = scan_of(local, data.draw(st.integers(0, count)), None)
    newest = view.newest_epochs(1)
    tier = CopiedEpochs({each.epoch: each for each in newest.epochs}, newest.is_complete, view.log_start_offset)
    for log_end_offset in (None, 1 << 62):
        found = frontier(tier, scan, log_end_offset=log_end_offset)
        if newest.is_complete or found != NOTHING_COPIED:
            assert found == frontier(view, scan, log_end_offset=log_end_offset)


@given(worlds())
def test_log_start_of_a_rebuilt_tier_is_the_recorded_one_or_the_lower_of_both_tiers(
    world: tuple[list[int], list[int], int, int | None, BucketLogStart | None],
) -> None:
    epochs, copied, first_local, checkpoint, record = world
    view, scan = rebuilt_view(epochs, copied, record), scan_of(epochs, first_local, checkpoint)
    if record is not None:
        assert view.log_start_offset == record.log_start_offset
        assert view.claim is not None
        assert view.claim.leader_epoch >= record.leader_epoch
        return
    assert view.log_start_offset is None
    local_start = max(first_local * LENGTH, checkpoint or 0)
    start = first_log_start(view, scan, BrokerOffsets(len(epochs) * LENGTH, checkpoint))
    assert start == min([local_start, *(number * LENGTH for number in copied)])


@given(worlds())
def test_every_readable_local_record_is_in_the_tier_or_due_and_no_copied_segment_is_due(
    world: tuple[list[int], list[int], int, int | None, BucketLogStart | None],
) -> None:
    epochs, copied, first_local, checkpoint, record = world
    view, scan = rebuilt_view(epochs, copied, record), scan_of(epochs, first_local, checkpoint)
    offsets = BrokerOffsets(len(epochs) * LENGTH, checkpoint)
    log_start = view.log_start_offset
    start = first_log_start(view, scan, offsets) if log_start is None else log_start
    copied_through = frontier(view, scan).offset
    missing = holes(view, scan, offsets, log_start_offset=start, copied_through=copied_through)
    due = rolled_after(scan.segments, copied_through=copied_through, log_start_offset=start, holes=missing)
    wanted_from = max(start, first_local * LENGTH, checkpoint or 0)
    for each in scan.segments[:-1]:
        lacking = [o for o in range(each.base_offset, each.end_offset + 1) if not is_readable(view, epochs, o)]
        if any(offset >= wanted_from for offset in lacking):
            assert each in due
        if each in due:
            assert any(offset >= start for offset in lacking), "it is in the tier already"


def test_hole_in_a_segment_that_begins_below_the_leader_epochs_of_the_log_is_none() -> None:
    """The log start lay inside the segment when it was copied: another copy would have the same bounds."""
    row = replace(segment(0, 9, {0: 4}), state=FINISHED)
    found = BucketSegment(metadata=segment(0, 9, {0: 4}, segment_id=row.segment.id))
    view = rebuild_partition(
        PARTITION, [found], session_id=UUID(int=9), replaced=SoftDelete.replaced(delete_after_ms=0)
    ).view
    scan = scan_of([0, 0], 0, 4)
    assert holes(view, scan, BrokerOffsets(20, None), log_start_offset=0, copied_through=9) == ()


def test_log_without_segments_or_leader_epochs_has_no_hole() -> None:
    view, scan = rebuilt_view([0, 0], [1], None), scan_of([0, 0], 0, None)
    offsets = BrokerOffsets(20, None)
    assert holes(view, scan, offsets, log_start_offset=0, copied_through=19) != ()
    for empty in (replace(scan, segments=()), replace(scan, lineage=Lineage())):
        assert holes(view, empty, offsets, log_start_offset=0, copied_through=19) == ()
