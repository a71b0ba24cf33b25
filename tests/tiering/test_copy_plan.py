"""Decisions of tiering/copy_plan.py by themselves."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tierd.model import (
    EpochEntry,
    Lineage,
    OffsetRange,
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
    TopicIdPartition,
)
from tierd.tiering.copy_plan import (
    Age,
    CopyDelay,
    copy_candidates,
    dangling_segments,
    deleted_records_before,
    gaps,
    highest_copied,
    initial_log_start_offset,
    ripe_segments,
)

PARTITION = TopicIdPartition(UUID(int=7), "orders", 0)
FINISHED = RemoteLogSegmentState.COPY_SEGMENT_FINISHED
STARTED = RemoteLogSegmentState.COPY_SEGMENT_STARTED
DELETING = RemoteLogSegmentState.DELETE_SEGMENT_STARTED


@dataclass(frozen=True)
class Span:
    base_offset: int
    next_base_offset: int | None


def _spans(*bases: int) -> list[Span]:
    """Return neighbouring segments, the last one active."""
    return [*(Span(a, b) for a, b in pairwise(bases)), Span(bases[-1], None)]


def _chosen(
    bases: Sequence[int], *, copied_through: int = -1, log_start: int = 0, lso: int = 1 << 40
) -> list[tuple[int, int]]:
    candidates = copy_candidates(
        _spans(*bases), copied_through=copied_through, log_start_offset=log_start, last_stable_offset=lso
    )
    return [(candidate.segment.base_offset, candidate.end_offset) for candidate in candidates]


def _metadata(
    number: int,
    start: int,
    end: int,
    *,
    state: RemoteLogSegmentState = FINISHED,
    event_ms: int = 0,
) -> RemoteLogSegmentMetadata:
    return RemoteLogSegmentMetadata(
        segment=RemoteLogSegmentId(PARTITION, UUID(int=number)),
        start_offset=start,
        end_offset=end,
        max_timestamp_ms=0,
        broker_id=1,
        event_timestamp_ms=event_ms,
        size_bytes=10,
        segment_leader_epochs=(EpochEntry(0, start),),
        leader_epoch=0,
        session_id=UUID(int=99),
        state=state,
    )


class TestCandidates:
    @pytest.mark.spec("remote-tiering 130")
    def test_every_rolled_segment_below_the_stable_offset_is_due(self) -> None:
        assert _chosen([5, 10, 15], lso=20) == [(5, 9), (10, 14)]

    @pytest.mark.spec("remote-tiering 131")
    def test_segment_that_ends_at_the_stable_offset_is_the_last_due_one(self) -> None:
        assert _chosen([5, 10, 15, 20], lso=15) == [(5, 9), (10, 14)]

    @pytest.mark.spec("remote-tiering 129")
    def test_log_of_one_active_segment_has_no_segment_due(self) -> None:
        assert _chosen([100], log_start=100, lso=100) == []

    @pytest.mark.spec("remote-tiering 148")
    def test_a_segment_of_which_only_the_beginning_is_copied_is_due_whole(self) -> None:
        assert _chosen([0, 100, 200], copied_through=149) == [(100, 199)]

    @pytest.mark.spec("remote-tiering 149")
    def test_copying_begins_at_the_segment_that_contains_the_log_start(self) -> None:
        assert _chosen([0, 100, 200, 300], log_start=150) == [(100, 199), (200, 299)]

    def test_a_segment_that_ends_at_the_frontier_is_not_due_again(self) -> None:
        assert _chosen([0, 100, 200], copied_through=99) == [(100, 199)]

    @given(
        st.lists(st.integers(0, 60), min_size=1, unique=True).map(sorted),
        st.integers(-1, 60),
        st.integers(0, 60),
        st.integers(0, 60),
    )
    def test_candidates_are_the_oldest_due_segments_below_the_stable_offset(
        self, bases: list[int], copied: int, log_start: int, lso: int
    ) -> None:
        chosen = _chosen(bases, copied_through=copied, log_start=log_start, lso=lso)
        rolled = [(a, b - 1) for a, b in pairwise(bases)]
        due = [span for span in rolled if span[1] >= max(copied + 1, log_start)]
        assert chosen == due[: len(chosen)], "oldest first, without a gap"
        assert all(end < lso for _, end in chosen)  # remote-tiering 10.8, I4
        assert all(end >= lso for _, end in due[len(chosen) :][:1]), "and no stable one is left"


class TestFrontier:
    @staticmethod
    def _search(lineage: Lineage, highest: Mapping[int, int], leo: int = 1000) -> tuple[int, int]:
        offset, epoch = highest_copied(lineage, highest.get, log_end_offset=leo)
        return offset, epoch

    @pytest.mark.spec("remote-tiering 121")
    def test_frontier_of_an_empty_tier_is_before_the_first_offset(self) -> None:
        assert self._search(Lineage.of([(0, 0), (1, 500)]), {}) == (-1, -1)

    @pytest.mark.spec("remote-tiering 122")
    def test_frontier_is_the_highest_copied_offset_of_the_latest_copied_epoch(self) -> None:
        assert self._search(Lineage.of([(0, 0), (1, 500)]), {0: 200}) == (200, 0)

    @pytest.mark.spec("remote-tiering 123")
    def test_frontier_ignores_offsets_of_an_abandoned_branch(self) -> None:
        assert self._search(Lineage.of([(0, 0), (1, 150), (2, 300)]), {0: 200}) == (149, 0)

    def test_frontier_ignores_offsets_beyond_the_end_of_our_log(self) -> None:
        assert self._search(Lineage.of([(0, 0)]), {0: 200}, leo=150) == (149, 0)

    @given(
        st.lists(st.tuples(st.integers(0, 9), st.integers(0, 99))),
        st.dictionaries(st.integers(0, 9), st.integers(0, 99)),
    )
    def test_frontier_is_an_offset_that_the_lineage_gives_to_its_epoch(
        self, entries: list[tuple[int, int]], highest: dict[int, int]
    ) -> None:
        lineage = Lineage.of(entries)
        offset, epoch = self._search(lineage, highest, leo=100)
        if epoch >= 0 and lineage.epoch_for(offset) is not None and offset >= (lineage.start_offset_of(epoch) or 0):
            assert lineage.epoch_for(offset) == epoch


class TestGaps:
    def test_offsets_deleted_before_the_first_segment_are_a_gap(self) -> None:
        assert gaps(_spans(200, 300), due_from=100) == [OffsetRange(100, 199)]

    def test_a_hole_between_segments_is_a_gap(self) -> None:
        spans = [Span(0, 100), Span(150, 200), Span(200, None)]
        assert gaps(spans, due_from=0) == [OffsetRange(100, 149)]

    def test_adjacent_segments_leave_no_gap(self) -> None:
        assert gaps(_spans(100, 200, 300), due_from=150) == []

    def test_offsets_below_a_far_active_segment_are_a_gap(self) -> None:
        assert gaps([Span(300, None)], due_from=100) == [OffsetRange(100, 299)]


class TestLogStart:
    @pytest.mark.spec("remote-tiering 124")
    def test_log_start_is_the_first_segment_of_the_earliest_copied_epoch(self) -> None:
        listed = {1: [_metadata(1, 500, 539), _metadata(2, 540, 700)]}
        start = initial_log_start_offset(
            Lineage.of([(0, 0), (1, 250), (2, 550)]), lambda e: listed.get(e, ()), local_log_start_offset=600
        )
        assert start == 500

    def test_log_start_below_the_first_remote_segment_counts_where_the_local_log_has_it(self) -> None:
        start = initial_log_start_offset(
            Lineage.of([(0, 0)]), lambda _: [_metadata(0, 500, 539)], local_log_start_offset=100
        )
        assert start == 100

    def test_log_start_without_a_local_segment_is_that_of_the_tier(self) -> None:
        start = initial_log_start_offset(
            Lineage.of([(0, 0)]), lambda _: [_metadata(0, 500, 539)], local_log_start_offset=None
        )
        assert start == 500

    @pytest.mark.spec("remote-tiering 125")
    def test_log_start_without_remote_data_is_the_local_one(self) -> None:
        start = initial_log_start_offset(Lineage.of([(0, 0)]), lambda _: (), local_log_start_offset=250)
        assert start == 250

    def test_log_start_ignores_an_unfinished_copy(self) -> None:
        start = initial_log_start_offset(
            Lineage.of([(0, 0)]), lambda _: [_metadata(1, 500, 539, state=STARTED)], local_log_start_offset=100
        )
        assert start == 100

    @pytest.mark.parametrize("inside", [1, 99, 101, 199, 201, 249])
    def test_a_start_inside_a_segment_is_a_deletion_request(self, inside: int) -> None:
        assert _deleted(inside) == inside

    @pytest.mark.parametrize("base", [0, 100, 200])
    def test_start_at_a_segment_base_is_the_retention_of_the_broker(self, base: int) -> None:
        assert _deleted(base) is None

    @pytest.mark.parametrize("unknown", [250, 251])
    def test_start_above_the_known_end_of_the_log_is_ignored(self, unknown: int) -> None:
        assert _deleted(unknown) is None

    def test_start_below_the_local_log_is_no_deletion_request(self) -> None:
        assert deleted_records_before(checkpointed=50, segments=_spans(100, 200), high_watermark=250) is None

    def test_start_inside_the_active_segment_is_ignored_without_a_high_watermark(self) -> None:
        assert deleted_records_before(checkpointed=201, segments=_spans(100, 200), high_watermark=None) is None
        assert deleted_records_before(checkpointed=101, segments=_spans(100, 200), high_watermark=None) == 101

    def test_missing_checkpoint_entry_is_no_deletion_request(self) -> None:
        assert _deleted(None) is None


def _deleted(checkpointed: int | None) -> int | None:
    return deleted_records_before(checkpointed=checkpointed, segments=_spans(0, 100, 200), high_watermark=250)


class TestDangling:
    @staticmethod
    def _swept(rows: list[RemoteLogSegmentMetadata], *, copying: set[UUID] | None = None, limit: int = 9) -> list[int]:
        found = dangling_segments(rows, being_copied=copying or set(), now_ms=1000, grace_ms=100, limit=limit)
        return [m.segment.id.int for m in found.due]

    def test_a_copy_older_than_the_grace_is_due(self) -> None:
        assert self._swept([_metadata(1, 0, 9, state=STARTED, event_ms=900)]) == [1]

    def test_young_copy_waits_with_the_end_of_its_grace_as_due_time(self) -> None:
        rows = [_metadata(1, 0, 9, state=STARTED, event_ms=950)]
        found = dangling_segments(rows, being_copied=(), now_ms=1000, grace_ms=100, limit=9)
        assert found == ([], 1050)

    def test_copy_with_a_start_time_far_in_the_future_is_due_at_once(self) -> None:
        assert self._swept([_metadata(1, 0, 9, state=STARTED, event_ms=1_000_000)]) == [1]

    def test_copy_of_this_process_is_not_swept(self) -> None:
        assert self._swept([_metadata(1, 0, 9, state=STARTED)], copying={UUID(int=1)}) == []

    @pytest.mark.spec("remote-tiering 135")
    def test_a_deletion_that_was_begun_is_due_at_once(self) -> None:
        assert self._swept([_metadata(1, 0, 9, state=DELETING, event_ms=1000)]) == [1]

    def test_finished_segments_are_not_swept(self) -> None:
        assert self._swept([_metadata(1, 0, 9, event_ms=0)]) == []

    def test_sweep_takes_the_oldest_copies_within_the_limit(self) -> None:
        rows = [_metadata(n, 0, 9, state=STARTED, event_ms=ms) for n, ms in ((1, 300), (2, 100), (3, 200))]
        assert self._swept(rows, limit=2) == [2, 3]


HOUR_MS = 3_600_000
NOW_MS = 1_700_000_000_000


def _aged(*ages_h: float, bytes_after: int = 0) -> list[Age]:
    return [Age(NOW_MS - round(age_h * HOUR_MS), bytes_after) for age_h in ages_h]


class TestCopyDelay:
    @pytest.mark.spec("remote-tiering 153")
    def test_the_first_segment_that_is_too_young_ends_the_scan(self) -> None:
        delay = CopyDelay(lag_ms=HOUR_MS, lag_bytes=-1)
        ripe = ripe_segments(_aged(2, 0.5, 3), delay, now_ms=NOW_MS)
        assert (ripe.segments, ripe.next_due_ms) == (1, NOW_MS + HOUR_MS // 2)

    @pytest.mark.spec("remote-tiering 154")
    def test_enough_bytes_behind_a_segment_make_it_ripe_regardless_of_age(self) -> None:
        delay = CopyDelay(lag_ms=HOUR_MS, lag_bytes=100)
        assert ripe_segments(_aged(0, bytes_after=100), delay, now_ms=NOW_MS).segments == 1
        assert ripe_segments(_aged(0, bytes_after=99), delay, now_ms=NOW_MS).segments == 0

    @pytest.mark.spec("remote-tiering 154")
    def test_segment_with_a_future_or_missing_timestamp_is_ripe(self) -> None:
        delay = CopyDelay(lag_ms=HOUR_MS, lag_bytes=1 << 40)
        ages = [Age(NOW_MS + 1, 0), Age(None, 0)]
        assert ripe_segments(ages, delay, now_ms=NOW_MS).segments == 2

    @pytest.mark.parametrize("delay", [CopyDelay(0, 100), CopyDelay(HOUR_MS, 0), CopyDelay(0, 0), CopyDelay(0, -1)])
    def test_copy_lag_of_zero_delays_no_segment(self, delay: CopyDelay) -> None:
        assert ripe_segments(_aged(0, 0), delay, now_ms=NOW_MS).segments == 2

    def test_no_segment_is_ripe_without_a_limit(self) -> None:
        delay = CopyDelay.resolve(lag_ms=-1, lag_bytes=-1, local_retention_ms=-1, local_retention_bytes=-1)
        assert ripe_segments(_aged(9, bytes_after=1 << 60), delay, now_ms=NOW_MS) == (0, None)

    def test_copy_lag_of_minus_one_is_the_local_retention(self) -> None:
        resolved = CopyDelay.resolve(lag_ms=-1, lag_bytes=5, local_retention_ms=7, local_retention_bytes=8)
        assert resolved == CopyDelay(lag_ms=7, lag_bytes=5)

    @given(
        ages=st.lists(st.builds(Age, st.none() | st.integers(0, 100), st.integers(0, 100)), max_size=8),
        delay=st.builds(CopyDelay, st.integers(-1, 50), st.integers(-1, 50)),
        now_ms=st.integers(0, 100),
    )
    def test_segment_is_ripe_at_the_due_time_that_was_returned(
        self, ages: list[Age], delay: CopyDelay, now_ms: int
    ) -> None:
        count, due_ms = ripe_segments(ages, delay, now_ms=now_ms)
        assert 0 <= count <= len(ages)
        if due_ms is not None:
            assert due_ms > now_ms
            assert ripe_segments(ages[count:], delay, now_ms=due_ms).segments > 0, (
                "the segments before are copied by then"
            )
