"""Batches that the target has already, matched with those of the tier."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.restore.live_cluster.test_delivery_window import NAME, numbered
from tierd.errors import RefusedError
from tierd.log import MAX_SEQUENCE
from tierd.restore.live_cluster.batch_transform import OutgoingBatch
from tierd.restore.live_cluster.sent_batches import OwnBatch, SentBatches, ahead_of


def of_size(sequence: int, count: int) -> OutgoingBatch:
    return replace(numbered(sequence & MAX_SEQUENCE), record_count=count)


def own(base_offset: int, batch: OutgoingBatch) -> OwnBatch:
    return OwnBatch(base_offset, batch.base_sequence, batch.record_count, batch.record_count, batch.max_timestamp_ms)


@given(
    st.lists(st.tuples(st.integers(1, 4), st.integers(0, 3), st.booleans()), min_size=1, max_size=12),
    st.sampled_from([0, MAX_SEQUENCE - 5]),
)
def test_batches_are_found_at_their_offsets_whatever_compaction_removed(
    log: list[tuple[int, int, bool]], sequence: int
) -> None:
    batches, found, expected, offset = list[OutgoingBatch](), list[OwnBatch](), list[int](), 50
    for count, others, is_removed in log:
        batch = of_size(sequence, count)
        offset += others
        batches.append(batch)
        expected.append(-1 if is_removed else offset)
        if not is_removed:
            found.append(own(offset, batch))
        sequence, offset = sequence + count, offset + count
    sent = SentBatches(NAME, found, end_offset=50)

    matched = [sent.match(batch) for batch in batches if sent]

    assert matched == expected[: len(matched)]
    assert len(matched) == max((n for n, each in enumerate(expected, start=1) if each >= 0), default=0)
    sent.require_all_matched()


@given(st.lists(st.integers(1, 4), min_size=2, max_size=8), st.data())
def test_batch_that_was_never_taken_is_not_found(counts: list[int], data: st.DataObject) -> None:
    lacking = data.draw(st.integers(0, len(counts) - 2))
    batches, found, sequence, offset = list[OutgoingBatch](), list[OwnBatch](), 0, 50
    for number, count in enumerate(counts):
        batches.append(of_size(sequence, count))
        sequence += count
        if number != lacking:
            found.append(own(offset, batches[-1]))
            offset += count
    sent = SentBatches(NAME, found, end_offset=50)

    assert [sent.match(batch) for batch in batches[:lacking]] == [each.base_offset for each in found[:lacking]]
    with pytest.raises(RefusedError, match=f"without the {counts[lacking]} before them"):
        sent.match(batches[lacking])


def test_other_batch_of_the_same_sequence_is_refused() -> None:
    sent = SentBatches(NAME, [OwnBatch(50, 0, 2, 2, 0)], end_offset=50)

    with pytest.raises(RefusedError, match="the tier has changed"):
        sent.match(of_size(0, 3))


def test_batch_that_the_tier_does_not_give_any_more_is_an_error() -> None:
    sent = SentBatches(NAME, [OwnBatch(50, 0, 2, 2, 0)], end_offset=50)

    with pytest.raises(RefusedError, match="has a batch at 50 that the tier does not give"):
        sent.require_all_matched()


@pytest.mark.parametrize(
    ("sequence", "other", "ahead"), [(5, 3, 2), (3, 5, -2), (7, 7, 0), (1, MAX_SEQUENCE, 2), (MAX_SEQUENCE, 1, -2)]
)
def test_sequence_numbers_begin_again_behind_the_largest(sequence: int, other: int, ahead: int) -> None:
    assert ahead_of(sequence, other) == ahead
