from uuid import UUID

import pytest

from tests.fakes.remote_segments import DELETE_FINISHED, DELETE_STARTED, FINISHED, PARTITION, segment, step
from tierd.errors import MetadataDecodeError
from tierd.metadata import Claim, Delete, MetadataKeyFactory, PartitionRow, PartitionView, Put, serde
from tierd.metadata.views.partition_view import ViewChange
from tierd.metadata.views.view_rows import load_partition, writes_of
from tierd.model import RemoteLogSegmentMetadata, RemoteLogSegmentState

KEYS = MetadataKeyFactory("cluster")
ROW = PartitionRow(topic="orders", revision=1, claim=Claim(5, 1, UUID(int=9)))


class Table:
    """A store's rows of one partition, and the view that they were written from."""

    def __init__(self) -> None:
        self.view = PartitionView(PARTITION, ROW)
        self.rows: dict[str, bytes] = {KEYS.row(PARTITION): serde.encode_row(ROW)}

    def bring(self, metadata: RemoteLogSegmentMetadata, *states: RemoteLogSegmentState) -> RemoteLogSegmentMetadata:
        self._take(self.view.with_added(metadata))
        for state in states:
            self._take(self.view.with_updated(step(metadata, state)))
        return metadata

    def _take(self, change: ViewChange) -> None:
        self.write(*writes_of(change, KEYS))
        self.view = change.view

    def write(self, *writes: Put | Delete) -> None:
        for write in writes:
            if isinstance(write, Put):
                self.rows[write.key] = write.value
            else:
                del self.rows[write.key]

    def pairs(self) -> list[tuple[str, bytes]]:
        return sorted(self.rows.items())


@pytest.fixture
def table() -> Table:
    return Table()


def test_loaded_view_equals_the_written_one(table: Table) -> None:
    table.bring(segment(0, 99, {0: 0, 1: 40}), FINISHED)
    table.bring(segment(100, 199, {1: 100, 2: 150}), FINISHED)
    table.bring(segment(100, 150, 1), FINISHED)
    table.bring(segment(200, 299, 2))
    table.bring(segment(200, 299, 2), DELETE_STARTED)
    table.bring(segment(300, 399, 3), FINISHED, DELETE_STARTED, DELETE_FINISHED)
    loaded = load_partition(PARTITION, table.pairs(), KEYS)
    assert loaded.view == table.view
    assert loaded.repairs == ()


def test_ids_and_offsets_are_shared_between_loaded_objects(table: Table) -> None:
    big = 10**12
    table.bring(segment(big, big + 9), FINISHED)
    view = load_partition(PARTITION, table.pairs(), KEYS).view
    (metadata,) = view.list()
    state = view.epochs[0]
    assert state.ids[0] is metadata.segment.id
    assert state.first_offsets[0] is metadata.start_offset is metadata.segment_leader_epochs[0].start_offset
    assert metadata.segment.topic_id_partition is PARTITION


def repaired(table: Table) -> PartitionView:
    """Return the view after a load that repairs rows; the stored repair loads to the same view."""
    loaded = load_partition(PARTITION, table.pairs(), KEYS)
    assert loaded.repairs
    table.write(*(repair.write for repair in loaded.repairs))
    again = load_partition(PARTITION, table.pairs(), KEYS)
    assert again.repairs == ()
    assert again.view == loaded.view
    return loaded.view


@pytest.mark.spec("remote-tiering 96")
def test_references_to_segments_without_a_row_are_dropped(table: Table) -> None:
    table.bring(segment(0, 9), FINISHED)
    table.write(
        Put(KEYS.epoch_reference(PARTITION, 0, 50), serde.encode_reference(UUID(int=5))),
        Put(KEYS.epoch_unreferenced(PARTITION, 3, UUID(int=5)), serde.encode_mark()),
    )
    assert repaired(table) == table.view


def test_segment_without_a_reference_in_an_epoch_becomes_unreferenced(table: Table) -> None:
    metadata = table.bring(segment(0, 9, {0: 0, 1: 5}), FINISHED)
    table.write(Delete(KEYS.epoch_reference(PARTITION, 0, 0)))
    view = repaired(table)
    assert view.segment_for(0, 3) is None
    assert [listed.segment for listed in view.list_epoch(0)] == [metadata.segment]
    assert view.segment_for(1, 7) is not None


@pytest.mark.parametrize("states", [(), (FINISHED, DELETE_STARTED)])
def test_a_reference_to_a_segment_that_is_not_finished_is_dropped(
    table: Table, states: tuple[RemoteLogSegmentState, ...]
) -> None:
    metadata = table.bring(segment(0, 9), *states)
    table.write(Put(KEYS.epoch_reference(PARTITION, 0, 0), serde.encode_reference(metadata.segment.id)))
    assert repaired(table) == table.view


def test_a_reference_at_an_offset_where_the_segment_does_not_begin_is_dropped(table: Table) -> None:
    metadata = table.bring(segment(0, 9), FINISHED)
    table.write(Put(KEYS.epoch_reference(PARTITION, 0, 4), serde.encode_reference(metadata.segment.id)))
    assert repaired(table) == table.view


@pytest.mark.parametrize(
    "suffix",
    [
        *("seg/short", "seg/", "more", "ep/x/highest", "ep/0000000000/lowest", "ep/0000000000/at/x"),
        *("ep/0000000000/at", "ep//un/AAAAAAAAAAAAAAAAAAAAAQ", "row/", ""),
    ],
)
def test_a_row_of_an_unknown_kind_is_an_error_that_names_it(table: Table, suffix: str) -> None:
    key = KEYS.partition_prefix(PARTITION) + suffix
    table.write(Put(key, b'\x01{"id":"AAAAAAAAAAAAAAAAAAAAAQ"}'))
    with pytest.raises(MetadataDecodeError, match=key):
        load_partition(PARTITION, table.pairs(), KEYS)
