"""Inventory of the tier: sums over rows in every state, and over manifests."""

from dataclasses import replace
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from tests.fakes.remote_segments import DELETE_STARTED, FINISHED, PARTITION, STARTED, segment
from tierd.model import RemoteLogSegmentMetadata, RemoteLogSegmentState, SoftDelete
from tierd.tiering import ManifestFacts, TierContents, partition_inventory, sum_contents


def row(
    start: int,
    end: int,
    *,
    state: RemoteLogSegmentState = FINISHED,
    newest_ms: int = -1,
    soft_delete: SoftDelete | None = None,
    number: int = 0,
) -> RemoteLogSegmentMetadata:
    """Return a row of 100 bytes."""
    made = segment(start, end, size_bytes=100, segment_id=UUID(int=number + 1))
    return replace(made, state=state, max_timestamp_ms=newest_ms, soft_delete=soft_delete)


def test_rows_of_each_state_are_counted_where_they_belong() -> None:
    expired, replaced = SoftDelete("retention_time", 9), SoftDelete.replaced(delete_after_ms=9)
    rows = [
        row(0, 9, state=DELETE_STARTED, soft_delete=expired),
        row(0, 9, state=DELETE_STARTED, soft_delete=replaced),
        row(10, 19, newest_ms=7_000),
        row(20, 29, newest_ms=5_000),
        row(30, 39),
        row(40, 49, state=STARTED),
    ]
    found = partition_inventory(PARTITION, rows)
    assert (found.start_offset, found.end_offset) == (10, 40)
    assert found.contents == TierContents(
        partitions=1,
        segments=3,
        size_bytes=300,
        offsets=30,
        oldest_ms=5_000,
        newest_ms=7_000,
        unfinished_segments=1,
        expired_segments=1,
        expired_bytes=100,
    )


def test_partition_without_a_finished_segment_has_no_range_and_no_time() -> None:
    found = partition_inventory(PARTITION, [row(0, 9, state=STARTED)])
    assert (found.start_offset, found.end_offset) == (None, None)
    assert found.contents == TierContents(partitions=1, unfinished_segments=1)


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(0, 20)), max_size=8))
def test_offset_in_several_segments_counts_once(ranges: list[tuple[int, int]]) -> None:
    rows = [row(start, start + length, number=number) for number, (start, length) in enumerate(ranges)]
    covered = {offset for each in rows for offset in range(each.start_offset, each.end_offset + 1)}
    assert partition_inventory(PARTITION, rows).contents.offsets == len(covered)


def test_manifests_are_summed_as_far_as_they_were_read() -> None:
    rows = [row(0, 9, number=0), row(10, 19, number=1), row(20, 29, number=2)]
    facts = ManifestFacts(record_count=8, stored_bytes=40, log_bytes=100)
    found = partition_inventory(PARTITION, rows, {UUID(int=1): facts, UUID(int=3): facts})
    assert found.contents.segments == 3
    assert found.contents.facts == ManifestFacts(manifests=2, record_count=16, stored_bytes=80, log_bytes=200)


def test_contents_of_several_partitions_are_added_and_their_times_compared() -> None:
    some = partition_inventory(PARTITION, [row(0, 9, newest_ms=5), row(10, 19, newest_ms=9)]).contents
    none = partition_inventory(PARTITION, []).contents
    facts = ManifestFacts(record_count=1, stored_bytes=2, log_bytes=3)
    both = sum_contents([replace(some, facts=facts), none, some])
    assert (both.partitions, both.segments, both.offsets, both.oldest_ms, both.newest_ms) == (3, 4, 40, 5, 9)
    assert both.facts == facts
    assert sum_contents([]) == TierContents()
