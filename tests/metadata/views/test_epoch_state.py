from bisect import bisect_right
from dataclasses import dataclass, field
from itertools import pairwise
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fakes.remote_segments import segment
from tierd.errors import RemoteResourceNotFoundError
from tierd.metadata.views.epoch_state import (
    EpochChange,
    EpochRange,
    RemoteLogLeaderEpochState,
    delete_finished,
    delete_started,
    finished,
    ranges_of,
    started,
)
from tierd.model import RemoteLogSegmentMetadata


@dataclass
class Epoch:
    """One epoch state with its segments; each change is compared with the lists that the change itself reports."""

    strict: bool = False
    state: RemoteLogLeaderEpochState = field(default_factory=RemoteLogLeaderEpochState)
    segments: dict[UUID, RemoteLogSegmentMetadata] = field(default_factory=dict)

    def start(self, metadata: RemoteLogSegmentMetadata) -> UUID:
        id_ = metadata.segment.id
        self.segments[id_] = metadata
        self._apply(started(self.state, span_of(metadata).epoch, id_))
        return id_

    def finish(self, metadata: RemoteLogSegmentMetadata) -> UUID:
        id_ = self.start(metadata)
        self.refinish(id_)
        return id_

    def refinish(self, id_: UUID) -> None:
        self._apply(
            finished(
                self.state,
                id_,
                span_of(self.segments[id_]),
                range_of=lambda other: span_of(self.segments[other]),
                strict_kafka_compat=self.strict,
            )
        )

    def begin_delete(self, id_: UUID) -> None:
        self._apply(delete_started(self.state, id_, span_of(self.segments[id_])))

    def end_delete(self, id_: UUID) -> None:
        self._apply(delete_finished(self.state, id_, span_of(self.segments.pop(id_))))

    def find(self, offset: int) -> UUID | None:
        id_ = self.state.floor(offset)
        return id_ if id_ is not None and offset <= span_of(self.segments[id_]).last else None

    def listed(self) -> list[UUID]:
        return [metadata.segment.id for metadata in self.state.listed(self.segments.get)]

    def _apply(self, change: EpochChange) -> None:
        references = dict(zip(self.state.first_offsets, self.state.ids, strict=True))
        for offset in change.dereferenced:
            del references[offset]
        references.update(change.referenced)
        assert references == dict(zip(change.state.first_offsets, change.state.ids, strict=True))
        assert list(change.state.first_offsets) == sorted(set(change.state.first_offsets))
        assert not self.state.unreferenced & set(change.unreferenced)
        assert self.state.unreferenced >= set(change.forgotten)
        hidden = (self.state.unreferenced | set(change.unreferenced)) - set(change.forgotten)
        assert hidden == change.state.unreferenced
        assert change.state.highest == (self.state.highest if change.highest is None else change.highest)
        assert change.is_empty() == (change.state == self.state)
        self.state = change.state


def span_of(metadata: RemoteLogSegmentMetadata) -> EpochRange:
    (span,) = ranges_of(metadata)
    return span


@pytest.fixture(params=[False, True], ids=["default", "strict Kafka"])
def epoch(request: pytest.FixtureRequest) -> Epoch:
    return Epoch(strict=bool(request.param))


@pytest.mark.spec("remote-tiering 21")
def test_list_of_an_empty_state_is_empty(epoch: Epoch) -> None:
    assert epoch.listed() == []
    assert epoch.state.is_blank()


@pytest.mark.spec("remote-tiering 22")
def test_list_with_an_id_without_metadata_is_an_error(epoch: Epoch) -> None:
    id_ = epoch.finish(segment(0, 9))
    del epoch.segments[id_]
    with pytest.raises(RemoteResourceNotFoundError, match="no metadata"):
        epoch.listed()


@pytest.mark.spec("remote-tiering 23")
def test_a_list_is_sorted_by_start_offset_once_something_is_unreferenced(epoch: Epoch) -> None:
    s1 = epoch.start(segment(0, 4))
    s2, s3, s4 = (epoch.finish(segment(*span)) for span in [(5, 10), (11, 100), (9, 150)])
    assert epoch.listed() == [s1, s2, s4, s3]


@pytest.mark.spec("remote-tiering 24")
def test_a_started_segment_is_unreferenced(epoch: Epoch) -> None:
    id_ = epoch.start(segment(0, 9))
    assert epoch.state.unreferenced == {id_}
    assert epoch.state.ids == ()
    assert epoch.state.highest is None


@pytest.mark.spec("remote-tiering 25")
def test_neighbouring_segments_are_each_found_by_their_offsets(epoch: Epoch) -> None:
    first, second = epoch.finish(segment(10, 100)), epoch.finish(segment(101, 200))
    assert (epoch.find(9), epoch.find(90), epoch.find(150), epoch.find(201)) == (None, first, second, None)
    assert epoch.state.unreferenced == frozenset()
    assert epoch.state.highest == 200


@pytest.mark.spec("remote-tiering 26")
def test_finished_superset_replaces_the_segments_that_it_contains(epoch: Epoch) -> None:
    first, second = epoch.finish(segment(10, 100)), epoch.finish(segment(5, 150))
    assert epoch.state.ids == (second,)
    assert epoch.state.unreferenced == {first}
    assert epoch.find(11) == second
    assert epoch.state.highest == 150


@pytest.mark.spec("remote-tiering 27")
def test_finished_superset_of_all_segments_leaves_one_reference(epoch: Epoch) -> None:
    earlier = {epoch.finish(segment(*span)) for span in [(10, 100), (5, 150), (148, 155)]}
    last = epoch.finish(segment(4, 200))
    assert epoch.state.ids == (last,)
    assert epoch.state.unreferenced == earlier
    assert epoch.state.highest == 200


@pytest.mark.spec("remote-tiering 28")
def test_later_of_two_equal_segments_is_found(epoch: Epoch) -> None:
    first, second = epoch.finish(segment(10, 100)), epoch.finish(segment(10, 100))
    assert epoch.state.ids == (second,)
    assert epoch.state.unreferenced == {first}
    assert epoch.state.highest == 100


@pytest.mark.spec("remote-tiering 29")
def test_a_longer_segment_with_the_same_start_is_found(epoch: Epoch) -> None:
    first, second = epoch.finish(segment(10, 100)), epoch.finish(segment(10, 150))
    assert (epoch.find(11), epoch.find(111)) == (second, second)
    assert epoch.state.unreferenced == {first}
    assert epoch.state.highest == 150


@pytest.mark.spec("remote-tiering 30")
def test_segment_under_deletion_is_not_found_and_the_highest_offset_stays(epoch: Epoch) -> None:
    ids = [epoch.finish(segment(10, 100)), epoch.finish(segment(101, 200))]
    for id_ in ids:
        epoch.begin_delete(id_)
    assert epoch.state.ids == ()
    assert epoch.state.unreferenced == set(ids)
    assert epoch.state.highest == 200


@pytest.mark.spec("remote-tiering 31")
def test_a_finished_delete_leaves_nothing_but_the_highest_offset(epoch: Epoch) -> None:
    id_ = epoch.finish(segment(10, 100))
    epoch.begin_delete(id_)
    epoch.end_delete(id_)
    assert (epoch.state.ids, epoch.state.unreferenced, epoch.state.highest) == ((), frozenset(), 100)
    assert not epoch.state.is_blank()


@pytest.mark.spec("remote-tiering 32")
def test_newer_of_two_overlapping_segments_is_found_from_its_start_on(epoch: Epoch) -> None:
    first, second = epoch.finish(segment(5, 150)), epoch.finish(segment(148, 155))
    assert (epoch.find(147), epoch.find(149)) == (first, second)


@pytest.mark.spec("remote-tiering 33")
def test_strict_kafka_state_has_a_hole_after_a_short_late_finish_until_a_longer_one() -> None:
    epoch = Epoch(strict=True)
    long = epoch.finish(segment(150, 229))
    short = epoch.finish(segment(180, 190))
    assert (epoch.find(185), epoch.find(199)) == (short, None)
    epoch.refinish(long)
    assert (epoch.find(185), epoch.find(199)) == (long, long)


@pytest.mark.spec("remote-tiering 34")
def test_default_state_has_no_hole_after_a_short_late_finish() -> None:
    epoch = Epoch()
    long, short = epoch.finish(segment(150, 229)), epoch.finish(segment(180, 190))
    assert epoch.state.unreferenced == {short}
    assert (epoch.find(185), epoch.find(199)) == (long, long)


@pytest.mark.spec("remote-tiering 35")
def test_shorter_segment_with_the_same_start_hides_a_longer_one_only_in_strict_kafka_state() -> None:
    ours, kafka = Epoch(), Epoch(strict=True)
    for epoch in (ours, kafka):
        epoch.finish(segment(10, 200))
        epoch.finish(segment(10, 100))
    assert [segment.end_offset for segment in ours.state.listed(ours.segments.get)] == [200, 100]
    assert [segment.end_offset for segment in kafka.state.listed(kafka.segments.get)] == [100]
    assert ours.find(150) is not None
    assert kafka.find(150) is None


def test_default_state_has_no_hole_when_a_segment_covers_a_shorter_one() -> None:
    epoch = Epoch()
    short, far = epoch.finish(segment(50, 60)), epoch.finish(segment(70, 200))
    long = epoch.finish(segment(40, 100))
    assert (epoch.find(55), epoch.find(65), epoch.find(70)) == (long, long, far)
    assert epoch.state.unreferenced == {short}


@pytest.mark.spec("remote-tiering 36")
def test_shadowed_segment_is_not_found_when_the_other_is_deleted(epoch: Epoch) -> None:
    first, second = epoch.finish(segment(10, 100)), epoch.finish(segment(10, 150))
    epoch.begin_delete(second)
    assert epoch.find(50) is None
    assert epoch.state.unreferenced == {first, second}


@pytest.mark.spec("remote-tiering 37")
def test_deletion_of_a_shadowed_segment_leaves_the_other_referenced(epoch: Epoch) -> None:
    first, second = epoch.finish(segment(10, 100)), epoch.finish(segment(10, 150))
    epoch.begin_delete(first)
    assert epoch.find(50) == second


@pytest.mark.spec("remote-tiering 38")
def test_second_finish_of_a_segment_leaves_one_reference(epoch: Epoch) -> None:
    id_ = epoch.finish(segment(10, 100))
    epoch.refinish(id_)
    assert epoch.state == RemoteLogLeaderEpochState((10,), (id_,), frozenset(), 100)


def test_epoch_without_offsets_in_a_segment_finds_no_offset(epoch: Epoch) -> None:
    id_ = UUID(int=1)
    metadata = segment(100, 200, {1: 100, 2: 100}, segment_id=id_)
    empty, full = ranges_of(metadata)
    assert (empty, full) == (EpochRange(1, 100, 99), EpochRange(2, 100, 200))
    change = finished(epoch.state, id_, empty, range_of=lambda _: empty, strict_kafka_compat=epoch.strict)
    assert change.state.floor(100) == id_
    assert change.state.highest == 99


# ── Models of the rules alone ──────────────────────────────────────────────────────────────────────────────────────


@dataclass
class KafkaEpoch:
    """RemoteLogLeaderEpochState as in Kafka: a tree map and a set (remote-tiering 6)."""

    by_offset: dict[int, UUID] = field(default_factory=dict)
    unreferenced: set[UUID] = field(default_factory=set)
    highest: int | None = None

    def finish(self, id_: UUID, first: int, last: int) -> None:
        while self.by_offset and max(self.by_offset) >= first and (self.highest is None or self.highest <= last):
            self.unreferenced.add(self.by_offset.pop(max(self.by_offset)))
        self.by_offset[first] = id_
        self.unreferenced.discard(id_)
        self.highest = last if self.highest is None else max(last, self.highest)

    def begin_delete(self, id_: UUID, first: int) -> None:
        if self.by_offset.get(first) == id_:
            del self.by_offset[first]
        self.unreferenced.add(id_)


spans = st.tuples(st.integers(0, 12), st.integers(0, 12)).map(sorted)
events = st.lists(st.tuples(st.sampled_from(["finish", "finish", "refinish", "delete", "end"]), spans), max_size=14)


def replay(epoch: Epoch, model: KafkaEpoch, happenings: list[tuple[str, list[int]]]) -> None:
    finished_ids: list[UUID] = []
    deleting: list[UUID] = []
    for number, (kind, (first, last)) in enumerate(happenings):
        if kind == "finish":
            id_ = epoch.finish(segment(first, last, segment_id=UUID(int=number + 1)))
            model.finish(id_, first, last)
            finished_ids.append(id_)
        elif kind == "refinish" and finished_ids:
            id_ = finished_ids[first % len(finished_ids)]
            epoch.refinish(id_)
            model.finish(id_, span_of(epoch.segments[id_]).first, span_of(epoch.segments[id_]).last)
        elif kind == "delete" and finished_ids:
            id_ = finished_ids.pop(first % len(finished_ids))
            epoch.begin_delete(id_)
            model.begin_delete(id_, span_of(epoch.segments[id_]).first)
            deleting.append(id_)
        elif kind == "end" and deleting:
            id_ = deleting.pop()
            epoch.end_delete(id_)
            model.unreferenced.discard(id_)


@given(happenings=events)
def test_strict_kafka_state_equals_the_model_of_kafka(happenings: list[tuple[str, list[int]]]) -> None:
    epoch, model = Epoch(strict=True), KafkaEpoch()
    replay(epoch, model, happenings)
    assert dict(zip(epoch.state.first_offsets, epoch.state.ids, strict=True)) == model.by_offset
    assert epoch.state.unreferenced == model.unreferenced
    assert epoch.state.highest == model.highest


@given(happenings=events)
def test_default_state_lists_all_segments_with_ascending_ranges(
    happenings: list[tuple[str, list[int]]],
) -> None:
    epoch = Epoch()
    replay(epoch, KafkaEpoch(), happenings)
    assert set(epoch.listed()) == set(epoch.segments)
    ranges = [span_of(epoch.segments[id_]) for id_ in epoch.state.ids]
    assert all(one.last < other.last for one, other in pairwise(ranges))


@given(finishers=st.lists(spans, max_size=12))
def test_default_state_finds_an_offset_exactly_when_a_finished_segment_has_it(finishers: list[list[int]]) -> None:
    epoch = Epoch()
    for first, last in finishers:
        epoch.finish(segment(first, last))
    for offset in range(-1, 14):
        found = epoch.find(offset)
        assert (found is not None) == any(first <= offset <= last for first, last in finishers)
        if found is not None:
            assert epoch.segments[found].start_offset <= offset <= epoch.segments[found].end_offset


@given(bases=st.lists(st.integers(1, 50), min_size=1, max_size=10, unique=True).map(sorted), again=st.booleans())
def test_segments_copied_in_order_give_the_same_default_and_strict_kafka_state(bases: list[int], again: bool) -> None:
    ours, kafka = Epoch(), Epoch(strict=True)
    for epoch in (ours, kafka):
        for number, (base, successor) in enumerate(pairwise([0, *bases])):
            epoch.finish(segment(base, successor - 1, segment_id=UUID(int=number)))
            if again:
                epoch.refinish(UUID(int=number))
    assert ours.state == kafka.state
    for offset in range(bases[-1]):
        assert ours.find(offset) == UUID(int=bisect_right([0, *bases], offset) - 1)
