"""TieredLog and explain: the place of an offset, decided over values alone."""

from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tierd.errors import OffsetOutOfRangeError
from tierd.log import DirectoryKind, PartitionDirectory, PartitionScan, SegmentFiles
from tierd.metadata import Claim, OwnBranch, PartitionRow, PartitionView
from tierd.model import (
    EpochEntry,
    Lineage,
    OffsetRange,
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
    TopicIdPartition,
)
from tierd.tiering import OffsetPlace, Tier, TieredLog, explain
from tierd.tiering.auditing.tier_findings import missing_offsets, offset_findings

PARTITION = TopicIdPartition(UUID(int=7), "orders", 0)


def _view(
    *segments: tuple[int, int, list[tuple[int, int]]], txn_index_of: frozenset[int] = frozenset()
) -> PartitionView:
    view = PartitionView(PARTITION)
    for number, (start, end, epochs) in enumerate(segments, start=1):
        metadata = RemoteLogSegmentMetadata(
            segment=RemoteLogSegmentId(PARTITION, UUID(int=number)),
            start_offset=start,
            end_offset=end,
            max_timestamp_ms=0,
            broker_id=1,
            event_timestamp_ms=0,
            size_bytes=10,
            segment_leader_epochs=tuple(EpochEntry(*entry) for entry in epochs),
            leader_epoch=0,
            session_id=UUID(int=99),
            txn_index_empty=number not in txn_index_of,
        )
        view = view.with_added(metadata).view
        finish = metadata.advance(RemoteLogSegmentState.COPY_SEGMENT_FINISHED, event_timestamp_ms=0, broker_id=1)
        view = view.with_updated(finish).view
    return view


def _scan(*bases: int, lineage: list[tuple[int, int]]) -> PartitionScan:
    path = Path("/kafka/orders-0")
    directory = PartitionDirectory(path, PARTITION.topic_partition, PARTITION.topic_id, DirectoryKind.CURRENT, 1)
    ends: list[int | None] = [*bases[1:], None]
    segments = tuple(SegmentFiles(path, base, end) for base, end in zip(bases, ends, strict=True))
    return PartitionScan(directory, segments, (), Lineage.of(lineage), 0)


def _log(view: PartitionView, scan: PartitionScan | None, high_watermark: int | None = None) -> TieredLog:
    return TieredLog(PARTITION, view, scan, high_watermark)


class TestBounds:
    def test_bounds_without_a_replica_are_those_of_the_tier(self) -> None:
        log = _log(_view((100, 199, [(0, 100)]), (200, 299, [(0, 200)])), None)
        assert (log.log_start_offset, log.end_offset) == (100, 300)

    def test_stale_high_watermark_does_not_hide_copied_offsets(self) -> None:
        log = _log(_view((0, 99, [(0, 0)])), _scan(0, 100, lineage=[(0, 0)]), high_watermark=50)
        assert log.end_offset == 100
        assert (log.tier_of(49), log.tier_of(50)) == (Tier.LOCAL, Tier.REMOTE)

    def test_last_whole_segment_is_none_that_continues_another_branch(self) -> None:
        view = _view((0, 9, [(0, 0)]), (10, 29, [(0, 10), (1, 20)]))
        abandoned = _log(view, _scan(15, lineage=[(0, 0), (2, 15)]))
        assert [m.start_offset for m in (abandoned.last_whole_segment,) if m] == [0]
        kept = _log(view, _scan(30, lineage=[(0, 0), (1, 20), (2, 30)]))
        assert [m.start_offset for m in (kept.last_whole_segment,) if m] == [10]
        assert _log(_view(), None).last_whole_segment is None

    def test_last_whole_segment_is_the_covering_one_and_no_shorter_copy(self) -> None:
        """The cleaner of the broker merges copied segments with a segment that was not copied yet."""
        log = _log(_view((0, 99, [(0, 0)]), (100, 199, [(0, 100)]), (0, 299, [(0, 0)])), None)
        last = log.last_whole_segment
        assert last is not None
        assert (last.start_offset, last.end_offset) == (0, 299)

    def test_tier_whose_segments_have_all_expired_ends_at_the_log_start(self) -> None:
        view = _view((0, 99, [(0, 0)]))
        row = PartitionRow(topic="orders", revision=1, claim=Claim(0, 2, UUID(int=99)), log_start_offset=100)
        log = _log(replace(view, row=row, segments={}, epochs={}), None)
        assert (log.log_start_offset, log.end_offset) == (100, 100)
        place = explain(log, 50, last_stable_offset=0, log_end_offset=log.remote_end_offset, remote_key=None).place
        assert place is OffsetPlace.EXPIRED

    def test_log_start_of_a_follower_does_not_hide_records_that_the_leader_keeps(self) -> None:
        """A follower takes over the log start of a leader whose retention put it at a base of its own segments."""
        view = _view((0, 99, [(0, 0)]), (100, 199, [(0, 100)]))
        row = PartitionRow(topic="orders", revision=1, claim=Claim(0, 2, UUID(int=99)), log_start_offset=0)
        log = TieredLog(PARTITION, replace(view, row=row), _scan(100, 200, lineage=[(0, 100)]), 300, 150)
        assert log.log_start_offset == 0

    @pytest.mark.parametrize(("entry", "start"), [(None, 0), (100, 0), (200, 0), (300, 0), (150, 150), (250, 250)])
    def test_only_a_deletion_request_hides_remote_history(self, entry: int | None, start: int) -> None:
        view = _view((0, 99, [(0, 0)]), (100, 199, [(0, 100)]))
        log = TieredLog(PARTITION, view, _scan(100, 200, lineage=[(0, 100)]), 300, entry)
        assert log.log_start_offset == start
        place = explain(log, 50, last_stable_offset=300, log_end_offset=300, remote_key="key").place
        assert place is (OffsetPlace.EXPIRED if start else OffsetPlace.REMOTE)

    def test_log_start_before_the_first_copy_is_that_of_the_broker(self) -> None:
        log = TieredLog(PARTITION, _view(), _scan(100, 200, lineage=[(0, 100)]), 300, 200)
        assert log.log_start_offset == 200

    @pytest.mark.parametrize(
        ("held", "checkpointed", "start"),
        [
            ([(0, 99), (100, 199)], None, 0),
            ([(100, 199), (0, 99)], None, 0),
            ([(0, 99), (100, 199)], 30, 30),
            ([(0, 98), (100, 199)], None, 100),
            ([(0, 99)], None, 200),
            ([], None, 200),
        ],
    )
    def test_log_without_a_copy_begins_with_the_held_segments_right_below_the_local_ones(
        self, held: list[tuple[int, int]], checkpointed: int | None, start: int
    ) -> None:
        scan = _scan(200, lineage=[(0, 0)])
        ranges = tuple(OffsetRange(*each) for each in held)
        log = TieredLog(PARTITION, PartitionView(PARTITION), scan, 300, checkpointed, ranges)
        assert log.log_start_offset == start
        with pytest.raises(OffsetOutOfRangeError):
            log.require_readable(start - 1)
        log.require_readable(start)

    def test_offsets_below_the_log_start_are_out_of_range(self) -> None:
        log = _log(_view((100, 199, [(0, 100)])), None)
        with pytest.raises(OffsetOutOfRangeError):
            log.require_readable(99)
        log.require_readable(200)  # the end is a place to wait at
        with pytest.raises(OffsetOutOfRangeError):
            log.require_readable(201)

    def test_log_ends_where_an_abandoned_branch_begins(self) -> None:
        log = _log(_view((0, 199, [(0, 0)])), _scan(0, 150, lineage=[(0, 0), (1, 150)]), high_watermark=160)
        assert log.remote_end_offset == 150

    def test_segment_is_readable_up_to_the_end_of_our_branch_in_it(self) -> None:
        log = _log(_view((0, 199, [(0, 0)])), _scan(0, 150, lineage=[(0, 0), (1, 150)]), high_watermark=160)
        segment = log.remote_segment(10)
        assert segment is not None
        assert log.readable_end(segment, 10) == 150

    def test_a_segment_of_several_epochs_is_read_to_its_end(self) -> None:
        log = _log(_view((0, 199, [(0, 0), (1, 150)])), None)
        segment = log.remote_segment(10)
        assert segment is not None
        assert log.readable_end(segment, 10) == 200


class TestTransactionIndexes:
    @pytest.mark.spec("remote-tiering 201")
    def test_next_indexed_segment_is_found_along_the_lineage(self) -> None:
        view = _view((0, 99, [(0, 0)]), (100, 199, [(1, 100)]), (200, 299, [(2, 200)]), txn_index_of=frozenset({3}))
        found = _log(view, None).next_indexed_segment(10)
        assert found is not None
        assert (found.metadata.start_offset, found.end_offset) == (200, 300)

    def test_indexed_segment_of_an_abandoned_branch_in_our_epoch_is_skipped(self) -> None:
        abandoned, ours = (200, 299, [(0, 200)]), (150, 299, [(1, 150)])
        view = _view((0, 99, [(0, 0)]), (100, 199, [(0, 100)]), abandoned, ours, txn_index_of=frozenset({3, 4}))
        log = _log(view, _scan(300, lineage=[(0, 0), (1, 150)]))
        found = log.next_indexed_segment(10)
        assert found is not None
        assert found.metadata.segment.id == UUID(int=4)

    def test_transaction_index_applies_up_to_the_end_of_our_branch_in_its_segment(self) -> None:
        view = _view((0, 199, [(0, 0)]), (150, 299, [(1, 150)]), txn_index_of=frozenset({1, 2}))
        log = _log(view, _scan(300, lineage=[(0, 0), (1, 150)]))
        first = log.next_indexed_segment(10)
        assert first is not None
        assert (first.metadata.segment.id, first.end_offset) == (UUID(int=1), 150)
        second = log.next_indexed_segment(first.end_offset)
        assert second is not None
        assert second.metadata.segment.id == UUID(int=2)

    @pytest.mark.parametrize("asked", [10, 120])
    def test_indexed_segment_behind_a_hole_is_found(self, asked: int) -> None:
        view = _view((0, 99, [(0, 0)]), (200, 299, [(0, 200)]), txn_index_of=frozenset({2}))
        found = _log(view, None).next_indexed_segment(asked)
        assert found is not None
        assert (found.start_offset, found.end_offset) == (200, 300)

    def test_next_indexed_segment_is_none_without_transaction_indexes(self) -> None:
        assert _log(_view((0, 99, [(0, 0)])), None).next_indexed_segment(10) is None

    def test_segments_behind_the_last_transaction_index_are_not_walked(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Each read of committed records asks, and a tier may have ten thousand segments."""
        segments = [(at, at + 99, [(0, at)]) for at in range(0, 1000, 100)]
        log = _log(_view(*segments, txn_index_of=frozenset({3})), None)
        walked, real = list[int](), OwnBranch.readable_end

        def count(branch: OwnBranch, metadata: RemoteLogSegmentMetadata, offset: int) -> int:
            walked.append(offset)
            return real(branch, metadata, offset)

        monkeypatch.setattr(OwnBranch, "readable_end", count)
        found = log.next_indexed_segment(110)
        assert found is not None
        assert (found.start_offset, found.end_offset, walked) == (200, 300, [110, 200])
        assert log.next_indexed_segment(300) is None
        assert walked == [110, 200]

    @given(data=st.data())
    def test_next_indexed_segment_is_that_of_a_walk_to_the_end(self, data: st.DataObject) -> None:
        segments = list[tuple[int, int, list[tuple[int, int]]]]()
        for _ in range(data.draw(st.integers(1, 5))):
            start, epoch = data.draw(st.integers(0, 20)), data.draw(st.integers(0, 2))
            end = start + data.draw(st.integers(1, 8))
            goes_on = data.draw(st.booleans())
            segments.append((start, end, [(epoch, start), (epoch + 1, end)] if goes_on else [(epoch, start)]))
        indexed = data.draw(st.frozensets(st.integers(1, len(segments))))
        starts = sorted(data.draw(st.lists(st.integers(0, 25), min_size=1, max_size=3, unique=True)))
        scan = data.draw(st.sampled_from([None, _scan(25, lineage=list(enumerate(starts)))]))
        log = _log(_view(*segments, txn_index_of=indexed), scan)
        for offset in range(30):
            walk = log.branch.readable_ranges(offset, log.remote_end_offset)
            expected = next((part for part in walk if not part.metadata.txn_index_empty), None)
            assert log.next_indexed_segment(offset) == expected


class TestGaps:
    def test_a_hole_between_remote_segments_is_found(self) -> None:
        log = _log(_view((0, 99, [(0, 0)]), (150, 199, [(0, 150)])), None)
        assert [str(gap) for gap in missing_offsets(log)] == ["[100-149]"]

    def test_a_hole_between_the_tiers_is_found(self) -> None:
        log = _log(_view((0, 99, [(0, 0)])), _scan(150, 200, lineage=[(0, 0)]), high_watermark=250)
        assert [str(gap) for gap in missing_offsets(log)] == ["[100-149]"]

    def test_offsets_that_local_files_have_are_no_hole(self) -> None:
        log = _log(_view((0, 99, [(0, 0)])), _scan(0, 100, 200, lineage=[(0, 0)]), high_watermark=250)
        assert list(missing_offsets(log)) == []

    def test_overlapping_segments_that_both_serve_reads_are_found(self) -> None:
        log = _log(_view((5, 150, [(0, 5)]), (148, 155, [(0, 148)])), None)
        assert [finding.kind for finding in offset_findings(log)] == ["overlap"]

    def test_second_copy_of_a_segment_whose_first_copy_is_of_an_abandoned_branch_is_no_finding(self) -> None:
        abandoned = [(0, 119, [(0, 0)]), (120, 179, [(0, 120)]), (180, 239, [(0, 180)])]
        log = _log(_view(*abandoned, (120, 199, [(0, 120), (2, 140)])), None)
        assert list(offset_findings(log)) == []
        assert log.remote_end_offset == 200

    def test_a_log_start_inside_the_first_segment_is_no_hole(self) -> None:
        log = _log(_view((10, 19, [(0, 15)]), (20, 29, [(0, 20)])), None)
        assert list(offset_findings(log)) == []
        assert (log.log_start_offset, log.remote_end_offset) == (15, 30)
        assert [(s.start_offset, s.end_offset) for s in log.branch.readable_ranges(0, 30)] == [(15, 20), (20, 30)]

    def test_log_start_inside_a_later_segment_leaves_its_other_offsets_readable(self) -> None:
        log = _log(_view((0, 9, [(0, 0)]), (10, 19, [(0, 15)])), None)
        assert [str(gap) for gap in missing_offsets(log)] == ["[10-14]"]
        assert log.next_available(10) == 15
        assert [(s.start_offset, s.end_offset) for s in log.branch.readable_ranges(0, 20)] == [(0, 10), (15, 20)]
        assert log.last_whole_segment is not None
        assert log.last_whole_segment.start_offset == 10

    def test_hole_ends_at_a_later_epoch_of_a_segment_that_serves_reads(self) -> None:
        """A longer copy hides another copy in some epochs, and is then deleted."""
        view = _view((37, 52, [(1, 37), (3, 51), (4, 52)]), (45, 59, [(1, 45), (3, 51), (4, 52)]), (5, 9, [(1, 5)]))
        longer = view.segments[UUID(int=1)]
        gone = longer.advance(RemoteLogSegmentState.DELETE_SEGMENT_STARTED, event_timestamp_ms=1, broker_id=1)
        log = _log(view.with_updated(gone).view, None)
        assert [(s.start_offset, s.end_offset) for s in log.branch.readable_ranges(0, 60)] == [(5, 10), (51, 60)]
        assert [str(gap) for gap in missing_offsets(log)] == ["[10-50]"]
        assert log.next_available(10) == 51

    def test_overlapping_copies_of_two_leaders_are_no_finding(self) -> None:
        view = _view((5, 150, [(0, 5)]), (148, 155, [(0, 148)]))
        later = view.segments[UUID(int=2)]
        segments = {**view.segments, UUID(int=2): replace(later, leader_epoch=1)}
        assert list(offset_findings(_log(replace(view, segments=segments), None))) == []

    def test_a_shadowed_segment_is_no_finding(self) -> None:
        log = _log(_view((10, 100, [(0, 10)]), (5, 150, [(0, 5)])), None)
        assert list(offset_findings(log)) == []


class TestCutBack:
    """The local log ends at 130, its high watermark is 330."""

    @staticmethod
    def _cut(view: PartitionView, *, lineage: list[tuple[int, int]]) -> TieredLog:
        return replace(_log(view, _scan(100, lineage=lineage), high_watermark=330), cut_at=130)

    def test_local_log_is_read_up_to_its_end_and_the_tier_behind_it(self) -> None:
        log = self._cut(_view((0, 99, [(0, 0)]), (100, 199, [(0, 100)])), lineage=[(0, 0)])
        assert [log.tier_of(offset) for offset in (99, 100, 129, 130)] == [
            Tier.REMOTE,
            Tier.LOCAL,
            Tier.LOCAL,
            Tier.REMOTE,
        ]
        assert (log.local_end_offset, log.end_offset) == (130, 330)

    def test_first_offset_that_neither_log_has_is_awaited(self) -> None:
        log = self._cut(_view((0, 99, [(0, 0)]), (120, 199, [(0, 120)]), (250, 299, [(0, 250)])), lineage=[(0, 0)])
        assert [log.awaited(offset) for offset in (0, 150, 199, 250, 300, 330)] == [200, 200, 200, 300, 300, None]
        asked = (99, 129, 199, 200, 249, 250, 300, 330)
        assert [offset for offset in asked if log.is_awaited(offset)] == [200, 249, 300]

    def test_nothing_is_awaited_where_the_tier_has_all_that_was_lost(self) -> None:
        log = self._cut(_view((0, 199, [(0, 0)]), (200, 399, [(0, 200)])), lineage=[(0, 0)])
        assert log.awaited(0) is None

    def test_offsets_of_a_later_epoch_are_awaited_although_the_tier_has_those_of_an_earlier_one(self) -> None:
        log = self._cut(_view((0, 99, [(0, 0)]), (100, 399, [(0, 100)])), lineage=[(0, 0), (1, 120)])
        assert [log.awaited(offset) for offset in (0, 119, 140)] == [130, 130, 140]

    def test_error_of_a_lost_offset_names_the_end_of_the_files(self) -> None:
        log = self._cut(_view((0, 199, [(0, 0)])), lineage=[(0, 0)])
        assert "offset 200 is not in the tier, and the files of the local log end at 130" in str(log.missing(200))
        assert "is in neither tier" in str(replace(log, cut_at=None).missing(200))

    def test_explain_says_that_the_files_end(self) -> None:
        log = self._cut(_view((0, 199, [(0, 0)])), lineage=[(0, 0)])
        places = {
            offset: explain(log, offset, last_stable_offset=130, log_end_offset=130, remote_key="key")
            for offset in (120, 150, 200, 330)
        }
        assert {offset: each.place for offset, each in places.items()} == {
            120: OffsetPlace.BOTH,
            150: OffsetPlace.REMOTE,
            200: OffsetPlace.LOST,
            330: OffsetPlace.NOT_WRITTEN,
        }
        assert "the broker's files end at 130, below the high watermark 330" in places[150].why
        assert "the broker's files end at 130, below the high watermark 330" in places[200].why


class TestExplain:
    @staticmethod
    def _place(log: TieredLog, offset: int, *, lso: int = 1000, leo: int = 350) -> OffsetPlace:
        return explain(log, offset, last_stable_offset=lso, log_end_offset=leo, remote_key="key").place

    @pytest.fixture
    def log(self) -> TieredLog:
        view = _view((50, 99, [(0, 50)]), (100, 199, [(0, 100)]))
        return _log(view, _scan(100, 200, 300, lineage=[(0, 0)]), high_watermark=330)

    def test_explain_names_the_place_of_an_offset(self, log: TieredLog) -> None:
        places = {offset: self._place(log, offset) for offset in (10, 60, 120, 220, 310, 340, 350)}
        assert places == {
            10: OffsetPlace.EXPIRED,
            60: OffsetPlace.REMOTE,
            120: OffsetPlace.BOTH,
            220: OffsetPlace.QUEUED,
            310: OffsetPlace.LOCAL,
            340: OffsetPlace.UNCOMMITTED,
            350: OffsetPlace.NOT_WRITTEN,
        }

    def test_an_open_transaction_is_named_as_the_reason(self, log: TieredLog) -> None:
        found = explain(log, 220, last_stable_offset=250, log_end_offset=350, remote_key=None)
        assert found.place is OffsetPlace.LOCAL
        assert "last stable offset is 250" in found.why

    def test_explain_of_an_offset_in_a_compaction_gap_names_the_next_record(self, log: TieredLog) -> None:
        found = explain(log, 60, last_stable_offset=330, log_end_offset=350, remote_key="key", next_record=71)
        assert (found.place, found.next_record) == (OffsetPlace.REMOTE, 71)
        assert "readers go on at 71" in found.why
        there = explain(log, 60, last_stable_offset=330, log_end_offset=350, remote_key="key", next_record=60)
        assert "compaction" not in there.why

    def test_explain_of_a_lost_offset_names_it_lost(self) -> None:
        log = _log(_view((0, 99, [(0, 0)])), _scan(150, 200, lineage=[(0, 0)]), high_watermark=250)
        assert self._place(log, 120, leo=250) is OffsetPlace.LOST

    def test_explain_names_file_key_and_epoch(self, log: TieredLog) -> None:
        found = explain(log, 120, last_stable_offset=330, log_end_offset=350, remote_key="key")
        assert (found.leader_epoch, found.remote_key) == (0, "key")
        assert found.local_file == f"/kafka/orders-0/{100:020d}.log"


def test_segment_that_left_our_branch_within_our_epoch_is_readable_up_to_its_later_epoch() -> None:
    # Its broker wrote epoch 6 from 10 on; ours kept 10 and 11 of epoch 5, and was elected again as 7.
    view = _view((0, 19, [(5, 0), (6, 10)]))
    log = _log(view, _scan(12, lineage=[(5, 0), (7, 12)]), 20)
    (metadata,) = log.finished
    assert log.readable_end(metadata, 0) == 10
