from dataclasses import replace
from uuid import UUID

from tests.fakes.remote_segments import DELETE_STARTED, FINISHED, PARTITION, segment, step
from tierd.metadata import Claim, PartitionRow, PartitionView, copied_last_ms

COPIED_MS = 1_000


def view_of(*, copied_ms: int, deleted_ms: int | None = None) -> PartitionView:
    metadata = replace(segment(0, 9), event_timestamp_ms=copied_ms)
    view = PartitionView(PARTITION, PartitionRow(topic="orders", revision=1, claim=Claim(5, 1, UUID(int=9))))
    view = view.with_added(metadata).view
    view = view.with_updated(replace(step(metadata, FINISHED), event_timestamp_ms=copied_ms)).view
    if deleted_ms is not None:
        view = view.with_updated(replace(step(metadata, DELETE_STARTED), event_timestamp_ms=deleted_ms)).view
    return view


def test_incarnation_that_was_copied_later_comes_last() -> None:
    assert copied_last_ms(view_of(copied_ms=COPIED_MS)) < copied_last_ms(view_of(copied_ms=COPIED_MS + 1))


def test_deletions_of_an_older_incarnation_do_not_make_it_the_last_one() -> None:
    older = view_of(copied_ms=COPIED_MS, deleted_ms=COPIED_MS + 1_000)
    assert copied_last_ms(older) < copied_last_ms(view_of(copied_ms=COPIED_MS + 1))
    assert copied_last_ms(older) < copied_last_ms(view_of(copied_ms=COPIED_MS - 1))


def test_partition_without_segments_comes_first() -> None:
    assert copied_last_ms(PartitionView(PARTITION)) < copied_last_ms(view_of(copied_ms=0, deleted_ms=0))
