"""Replacement of inputs by an output in a view: lookups before and afterwards, and refusals."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from uuid import UUID

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.coded import coded
from tests.fakes.remote_segments import (
    DELETE_FINISHED,
    DELETE_STARTED,
    FINISHED,
    PARTITION,
    STARTED,
    segment,
    step,
)
from tierd.errors import (
    InvalidMetadataError,
    InvalidSegmentTransitionError,
    RefusedError,
    RemoteResourceNotFoundError,
    TierErrorCode,
)
from tierd.metadata import Claim, MetadataKeyFactory, PartitionRow, PartitionView, rows_of
from tierd.metadata.kv.key_value_store import Put
from tierd.metadata.views.partition_view import ViewChange
from tierd.metadata.views.view_rows import load_partition, writes_of
from tierd.model import EpochEntry, RemoteLogSegmentMetadata, SoftDelete, TopicIdPartition

KEYS = MetadataKeyFactory("cluster")
ROW = PartitionRow(topic="orders", revision=1, claim=Claim(5, 1, UUID(int=9)))
EMPTY = PartitionView(PARTITION, ROW)
GRACE = SoftDelete.replaced(delete_after_ms=1_700_000_999_000)
LATER_MS = 1_700_000_000_500


def finished(view: PartitionView, *segments: RemoteLogSegmentMetadata) -> PartitionView:
    for metadata in segments:
        view = view.with_updated(step(metadata, FINISHED)).view if metadata.segment.id in view.segments else view
        if metadata.segment.id not in view.segments:
            view = view.with_added(metadata).view
            view = view.with_updated(step(metadata, FINISHED)).view
    return view


def of(view: PartitionView, *segments: RemoteLogSegmentMetadata) -> list[RemoteLogSegmentMetadata]:
    return [view.segments[metadata.segment.id] for metadata in segments]


def begun(
    start: int, end: int, epochs: Mapping[int, int] | int = 0, *, number: int = 0xF00
) -> RemoteLogSegmentMetadata:
    return replace(segment(start, end, epochs, segment_id=UUID(int=number)), event_timestamp_ms=LATER_MS)


def done(output: RemoteLogSegmentMetadata, *, size_bytes: int = 77) -> RemoteLogSegmentMetadata:
    return replace(
        output,
        state=FINISHED,
        size_bytes=size_bytes,
        max_timestamp_ms=1_600_000_000_000,
        event_timestamp_ms=LATER_MS + 9,
        custom_metadata=b"key",
        txn_index_empty=True,
    )


def replacing(
    view: PartitionView,
    output: RemoteLogSegmentMetadata,
    inputs: Sequence[RemoteLogSegmentMetadata],
    compacted_to: int | None = None,
) -> ViewChange:
    return view.with_replaced(done(output), inputs, soft_delete=GRACE, compacted_to=compacted_to)


A, B, C = segment(0, 9), segment(10, 19, {0: 10, 1: 15}), segment(20, 29, 1)
OUTPUT = begun(0, 19, {0: 0, 1: 15})


@pytest.fixture(params=[False, True], ids=["default", "strict Kafka"])
def chain(request: pytest.FixtureRequest) -> PartitionView:
    """Return a view of three finished segments over two epochs, and an output for the first two that has begun."""
    empty = replace(EMPTY, strict_kafka_compat=request.param)
    return finished(empty, A, B, C).with_added(OUTPUT).view


def found(view: PartitionView, epoch: int, offset: int) -> UUID | None:
    metadata = view.segment_for(epoch, offset)
    return None if metadata is None else metadata.segment.id


def test_lookups_of_the_inputs_find_the_output_after_the_replacement(chain: PartitionView) -> None:
    assert [found(chain, 0, 9), found(chain, 0, 10), found(chain, 1, 15)] == [A.segment.id, B.segment.id, B.segment.id]
    after = replacing(chain, OUTPUT, of(chain, A, B)).view
    for epoch, offset in [(0, 0), (0, 9), (0, 10), (0, 14), (1, 15), (1, 19)]:
        assert found(after, epoch, offset) == OUTPUT.segment.id
    assert found(after, 0, 15) is None
    assert found(after, 1, 14) is None
    assert found(after, 1, 20) == C.segment.id


def test_rows_of_output_and_inputs_have_their_new_states(chain: PartitionView) -> None:
    inputs = of(chain, A, B)
    change = replacing(chain, OUTPUT, inputs)
    assert change.view.segments[OUTPUT.segment.id] == done(OUTPUT)
    for was, now in zip(inputs, of(change.view, A, B), strict=True):
        assert (now.state, now.soft_delete) == (DELETE_STARTED, GRACE)
        assert (now.event_timestamp_ms, now.custom_metadata) == (LATER_MS + 9, was.custom_metadata)
    assert {row.segment.id for row in change.segments} == {m.segment.id for m in (A, B, OUTPUT)}
    assert of(change.view, C) == of(chain, C)


def test_earlier_view_is_not_changed_by_a_replacement(chain: PartitionView) -> None:
    before = replace(chain)
    replacing(chain, OUTPUT, of(chain, A, B), compacted_to=20)
    assert chain == before


def test_inputs_stay_listed_until_they_are_deleted(chain: PartitionView) -> None:
    after = replacing(chain, OUTPUT, of(chain, A, B)).view
    assert {m.segment.id for m in after.list_epoch(0)} == {A.segment.id, B.segment.id, OUTPUT.segment.id}
    assert after.list_epoch(0)[0].segment.id == OUTPUT.segment.id
    for metadata in (A, B):
        after = after.with_updated(step(metadata, DELETE_FINISHED)).view
    assert [m.segment.id for m in after.list_epoch(0)] == [OUTPUT.segment.id]
    assert after.size_of_epoch(0) == 77


def test_highest_offsets_stay_after_a_replacement_and_deletion_of_its_inputs(chain: PartitionView) -> None:
    before = {epoch: chain.highest_offset_for_epoch(epoch) for epoch in (0, 1)}
    after = replacing(chain, OUTPUT, of(chain, A, B)).view
    assert {epoch: after.highest_offset_for_epoch(epoch) for epoch in (0, 1)} == before == {0: 14, 1: 29}
    for metadata in (A, B):
        after = after.with_updated(step(metadata, DELETE_FINISHED)).view
    after = after.with_updated(step(OUTPUT, DELETE_STARTED)).view.with_updated(step(OUTPUT, DELETE_FINISHED)).view
    assert {epoch: after.highest_offset_for_epoch(epoch) for epoch in (0, 1)} == before


def test_the_log_start_may_lie_inside_the_output(chain: PartitionView) -> None:
    chain = chain.with_log_start_offset(12).view
    after = replacing(chain, OUTPUT, of(chain, A, B), compacted_to=20).view
    assert (after.log_start_offset, after.compacted_to) == (12, 20)
    assert found(after, 0, 12) == OUTPUT.segment.id


def test_an_output_may_be_an_empty_log(chain: PartitionView) -> None:
    output = replace(done(OUTPUT, size_bytes=0), max_timestamp_ms=-1)
    after = chain.with_replaced(output, of(chain, A, B), soft_delete=GRACE, compacted_to=None).view
    assert found(after, 0, 3) == OUTPUT.segment.id


def test_the_last_segments_of_the_tier_may_be_replaced(chain: PartitionView) -> None:
    output = begun(10, 29, {0: 10, 1: 15}, number=0xF01)
    chain = chain.with_added(output).view
    after = replacing(chain, output, of(chain, B, C)).view
    assert [found(after, 0, 9), found(after, 0, 10), found(after, 1, 29)] == [
        A.segment.id,
        output.segment.id,
        output.segment.id,
    ]


def test_outputs_are_replaced_by_later_outputs(chain: PartitionView) -> None:
    view = replacing(chain, OUTPUT, of(chain, A, B)).view
    second = replace(begun(0, 29, {0: 0, 1: 15}, number=0xF02), event_timestamp_ms=LATER_MS + 100)
    view = view.with_added(second).view
    finish = replace(done(second), event_timestamp_ms=LATER_MS + 200)
    after = view.with_replaced(finish, of(view, OUTPUT, C), soft_delete=GRACE, compacted_to=30).view
    assert [found(after, 0, 0), found(after, 1, 29)] == [second.segment.id] * 2
    assert after.segments[OUTPUT.segment.id].state is DELETE_STARTED


def test_rows_written_by_a_replacement_load_to_its_view(chain: PartitionView) -> None:
    change = replacing(chain, OUTPUT, of(chain, A, B), compacted_to=20)
    rows = rows_of(chain, KEYS)
    for write in writes_of(change, KEYS):
        if isinstance(write, Put):
            rows[write.key] = write.value
        else:
            del rows[write.key]
    strict = chain.strict_kafka_compat
    loaded = load_partition(PARTITION, sorted(rows.items()), KEYS, strict_kafka_compat=strict)
    assert loaded.repairs == ()
    assert replace(loaded.view, row=change.view.row) == change.view


def test_repeated_replacement_changes_nothing(chain: PartitionView) -> None:
    inputs = of(chain, A, B)
    after = replacing(chain, OUTPUT, inputs, compacted_to=20).view
    assert replacing(after, OUTPUT, inputs, compacted_to=20).is_empty()
    later = replace(done(OUTPUT), event_timestamp_ms=LATER_MS + 999)
    assert after.with_replaced(later, inputs, soft_delete=GRACE, compacted_to=20).is_empty()
    for metadata in (A, B):
        after = after.with_updated(step(metadata, DELETE_FINISHED)).view
    after = after.without_tombstones([A.segment.id])
    assert replacing(after, OUTPUT, inputs, compacted_to=20).is_empty()


def test_replacement_by_an_output_that_an_update_finished_is_refused(chain: PartitionView) -> None:
    inputs = of(chain, A, B)
    after = chain.with_updated(step(OUTPUT, FINISHED)).view
    with pytest.raises(InvalidSegmentTransitionError, match="COPY_SEGMENT_FINISHED"):
        replacing(after, OUTPUT, inputs)


@pytest.mark.parametrize("state", [DELETE_STARTED, DELETE_FINISHED], ids=lambda state: state.name)
def test_replacement_by_an_abandoned_output_is_refused(chain: PartitionView, state: object) -> None:
    after = chain.with_updated(step(OUTPUT, DELETE_STARTED)).view
    if state is DELETE_FINISHED:
        after = after.with_updated(step(OUTPUT, DELETE_FINISHED)).view
    with pytest.raises(InvalidSegmentTransitionError):
        replacing(after, OUTPUT, of(after, A, B))


def test_replacement_by_an_output_that_was_not_begun_is_not_found(chain: PartitionView) -> None:
    with pytest.raises(RemoteResourceNotFoundError):
        replacing(chain, begun(0, 19, {0: 0, 1: 15}, number=0xF09), of(chain, A, B))


def test_replacement_is_refused_when_an_input_expired(chain: PartitionView) -> None:
    inputs = of(chain, A, B)
    gone = chain.with_updated(step(A, DELETE_STARTED)).view
    with pytest.raises(RefusedError, check=coded(TierErrorCode.INPUTS_CHANGED), match="DELETE_SEGMENT_STARTED"):
        replacing(gone, OUTPUT, inputs)
    gone = gone.with_updated(step(A, DELETE_FINISHED)).view
    with pytest.raises(RefusedError, check=coded(TierErrorCode.INPUTS_CHANGED), match="gone"):
        replacing(gone, OUTPUT, inputs)


def test_replacement_is_refused_when_the_row_of_an_input_changed(chain: PartitionView) -> None:
    inputs = of(chain, A, B)
    after = chain.with_updated(step(A, FINISHED, custom_metadata=b"elsewhere")).view
    with pytest.raises(RefusedError, check=coded(TierErrorCode.INPUTS_CHANGED), match="other metadata"):
        replacing(after, OUTPUT, inputs)


def test_replacement_is_refused_when_a_longer_copy_covers_an_input() -> None:
    view = finished(EMPTY, A, B, C).with_added(OUTPUT).view
    inputs = of(view, A, B)
    view = finished(view, segment(0, 12, leader_epoch=6))
    with pytest.raises(RefusedError, check=coded(TierErrorCode.INPUTS_CHANGED), match="no reader"):
        replacing(view, OUTPUT, inputs)


def test_replacement_is_refused_when_another_output_replaced_an_input(chain: PartitionView) -> None:
    inputs = of(chain, A, B)
    rival = begun(0, 9, number=0xF03)
    view = chain.with_added(rival).view
    view = replacing(view, rival, of(view, A)).view
    with pytest.raises(RefusedError, check=coded(TierErrorCode.INPUTS_CHANGED)):
        replacing(view, OUTPUT, inputs)


@pytest.mark.parametrize(
    "output",
    [
        replace(OUTPUT, end_offset=29),
        replace(OUTPUT, start_offset=5, segment_leader_epochs=(EpochEntry(0, 5), EpochEntry(1, 15))),
        replace(OUTPUT, segment_leader_epochs=(EpochEntry(0, 0),)),
        replace(OUTPUT, segment_leader_epochs=(EpochEntry(0, 0), EpochEntry(1, 16))),
    ],
    ids=["too long", "too short", "an epoch less", "an epoch later"],
)
def test_output_with_other_offsets_or_epochs_than_its_inputs_is_refused(output: RemoteLogSegmentMetadata) -> None:
    view = finished(EMPTY, A, B, C).with_added(output).view
    with pytest.raises(InvalidMetadataError, match=str(output.segment)):
        replacing(view, output, of(view, A, B))


def test_replacement_of_inputs_with_a_gap_is_refused() -> None:
    output = begun(0, 29, {0: 0, 1: 15})
    view = finished(EMPTY, A, B, C).with_added(output).view
    with pytest.raises(InvalidMetadataError, match="no input has offsets 10 to 19"):
        replacing(view, output, of(view, A, C))


def test_output_finished_with_other_metadata_than_begun_is_refused(chain: PartitionView) -> None:
    other = replace(done(OUTPUT), leader_epoch=4)
    with pytest.raises(InvalidMetadataError, match="begun with"):
        chain.with_replaced(other, of(chain, A, B), soft_delete=GRACE, compacted_to=None)


def test_output_that_began_before_its_inputs_is_refused() -> None:
    early = replace(OUTPUT, event_timestamp_ms=of(finished(EMPTY, A), A)[0].event_timestamp_ms)
    view = finished(EMPTY, A, B, C).with_added(early).view
    with pytest.raises(InvalidMetadataError, match="not after"):
        replacing(view, early, of(view, A, B))
    later = replace(early, leader_epoch=6, segment=begun(0, 19, number=0xF07).segment)
    view = view.with_added(later).view
    assert not replacing(view, later, of(view, A, B)).is_empty()


def test_replacement_with_contradictory_inputs_reason_or_state_is_refused(chain: PartitionView) -> None:
    a, b = of(chain, A, B)
    elsewhere = segment(0, 9, partition=TopicIdPartition(UUID(int=8), "others", 0))
    for inputs in ([], [a, a], [a, b, done(OUTPUT)], [a, elsewhere]):
        with pytest.raises(InvalidMetadataError):
            replacing(chain, OUTPUT, inputs)
    with pytest.raises(InvalidMetadataError, match="retention_time"):
        chain.with_replaced(done(OUTPUT), [a, b], soft_delete=SoftDelete("retention_time", 1), compacted_to=None)
    with pytest.raises(InvalidMetadataError, match="COPY_SEGMENT_STARTED"):
        chain.with_replaced(OUTPUT, [a, b], soft_delete=GRACE, compacted_to=None)


def test_compacted_to_offset_does_not_move_back() -> None:
    assert EMPTY.compacted_to is None
    view = EMPTY.with_compacted_to(20).view
    assert view.with_compacted_to(20).is_empty()
    assert view.with_compacted_to(19).is_empty()
    assert view.with_compacted_to(None).is_empty()
    assert view.with_compacted_to(21).view.compacted_to == 21
    assert EMPTY.with_compacted_to(0).view.compacted_to == 0


def test_undeletion_of_a_replaced_segment_is_refused(chain: PartitionView) -> None:
    after = replacing(chain, OUTPUT, of(chain, A, B)).view
    with pytest.raises(InvalidSegmentTransitionError, match="was replaced"):
        after.with_undeleted(step(A, FINISHED))


def test_several_outputs_begin_in_one_step() -> None:
    first, second = begun(0, 9, number=1), begun(10, 19, {0: 10, 1: 15}, number=2)
    change = EMPTY.with_added(first, second)
    assert change.view.segments == {first.segment.id: first, second.segment.id: second}
    assert [len(change.view.list_epoch(epoch)) for epoch in (0, 1)] == [2, 1]
    assert change.view.with_added(first, second).is_empty()
    third = begun(20, 29, 1, number=3)
    assert [row.segment.id.int for row in change.view.with_added(first, third).segments] == [3]


def test_outputs_beside_an_invalid_one_do_not_begin() -> None:
    first = begun(0, 9, number=1)
    for other in (replace(first, end_offset=8), replace(begun(10, 19, number=2), state=FINISHED)):
        with pytest.raises(InvalidMetadataError):
            EMPTY.with_added(first, other)


# Chains of copies with epochs, foreign copies in between, and a run of neighbours that is replaced.
lengths = st.lists(st.tuples(st.integers(1, 6), st.booleans()), min_size=1, max_size=8)
foreign = st.lists(st.tuples(st.integers(0, 30), st.integers(1, 8)), max_size=4)


@example(links=[(2, True)], others=[(0, 2)], run=(0, 1), strict=True, foreign_first=False)
@given(lengths, foreign, st.tuples(st.integers(0, 7), st.integers(1, 8)), st.booleans(), st.booleans())
def test_replacement_changes_lookups_only_from_an_input_to_the_output(
    links: list[tuple[int, bool]],
    others: list[tuple[int, int]],
    run: tuple[int, int],
    strict: bool,
    foreign_first: bool,
) -> None:
    view = replace(EMPTY, strict_kafka_compat=strict)
    copies = [
        segment(start, start + length - 1, segment_id=UUID(int=n + 500)) for n, (start, length) in enumerate(others)
    ]
    segments: list[RemoteLogSegmentMetadata] = []
    epoch, offset = 0, 0
    for length, rolls in links:
        epochs = {epoch: offset}
        if rolls and length > 1:
            epoch += 1
            epochs[epoch] = offset + 1
        segments.append(segment(offset, offset + length - 1, epochs, segment_id=UUID(int=len(segments) + 1)))
        offset += length
    view = finished(view, *([*copies, *segments] if foreign_first else [*segments, *copies]))
    chosen = segments[run[0] % len(segments) :][: run[1]]
    starts: dict[int, int] = {}
    for metadata in chosen:
        for entry in metadata.segment_leader_epochs:
            starts.setdefault(entry.epoch, entry.start_offset)
    output = begun(chosen[0].start_offset, chosen[-1].end_offset, starts)
    view = view.with_added(output).view
    inputs = of(view, *chosen)
    places = [(each, at) for each in range(epoch + 1) for at in range(-1, max(offset, 40) + 1)]
    before = {place: found(view, *place) for place in places}
    if not all(map(view.is_readable, inputs)):
        with pytest.raises(RefusedError, check=coded(TierErrorCode.INPUTS_CHANGED)):
            replacing(view, output, inputs)
        return
    try:
        after = replacing(view, output, inputs).view
    except RefusedError as error:
        if error.code is not TierErrorCode.INPUTS_CHANGED:
            raise
        # Kafka's algorithm alone leaves holes where another copy overlaps.
        assert strict
        assert any(copy.start_offset <= output.end_offset and copy.end_offset >= output.start_offset for copy in copies)
        return
    gone = {metadata.segment.id for metadata in chosen}
    for place, was in before.items():
        now = found(after, *place)
        if was in gone:
            assert now is not None
            assert now not in gone
        assert now in (was, output.segment.id)
    assert {each: view.highest_offset_for_epoch(each) for each in range(epoch + 1)} == {
        each: after.highest_offset_for_epoch(each) for each in range(epoch + 1)
    }
    assert STARTED not in {m.state for m in after.list()}
