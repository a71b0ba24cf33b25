"""Reader of snapshots of the cluster metadata."""

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.restore.catalogue.metadata_snapshots import (
    NAME,
    broker,
    cluster_snapshot,
    metadata_record,
    partition,
    snapshot_of,
    topic,
)
from tierd.errors import CorruptRecordError
from tierd.model import TopicIdPartition
from tierd.restore.catalogue.cluster_snapshot import RegisteredPartition, parse_cluster_snapshot

ORDERS = TopicIdPartition(UUID(int=7), "orders", 0)


def test_snapshot_names_topics_partitions_nodes_and_the_next_producer_id() -> None:
    content = cluster_snapshot(
        {ORDERS: (1, 2)}, controllers=(1,), brokers=(1, 2), leader_epoch=4, next_producer_id=3000
    )
    found = parse_cluster_snapshot(NAME, content)
    assert (found.name, found.end_offset, found.epoch) == (NAME, 420, 7)
    assert (found.controllers, found.brokers) == ({1}, {1, 2})
    assert found.topics == {UUID(int=7): "orders"}
    assert found.partitions == {(UUID(int=7), 0): RegisteredPartition((1, 2), 4)}
    assert found.next_producer_id == 3000


def test_voters_are_the_controllers_where_the_snapshot_names_them() -> None:
    found = parse_cluster_snapshot(NAME, cluster_snapshot({}, controllers=(1, 2, 9), voters=(1, 2)))
    assert found.controllers == {1, 2}


@pytest.mark.parametrize("version", [0, 1])
def test_partition_of_any_version_is_read(version: int) -> None:
    records = [topic("orders", UUID(int=7)), partition(3, UUID(int=7), replicas=(2,), leader_epoch=1, version=version)]
    found = parse_cluster_snapshot(NAME, snapshot_of(records))
    assert found.partitions == {(UUID(int=7), 3): RegisteredPartition((2,), 1)}


def test_records_of_other_kinds_are_passed_over() -> None:
    found = parse_cluster_snapshot(NAME, snapshot_of([metadata_record(12, b"\x01\x02"), broker(3)]))
    assert found.brokers == {3}


@pytest.mark.parametrize(
    "content",
    [
        snapshot_of([broker(1)])[:-1],
        snapshot_of([broker(1)], has_footer=False),
        snapshot_of([metadata_record(0, b"\x00")]),
        snapshot_of([metadata_record(0, bytes(8), frame=9)]),
        b"",
    ],
    ids=["cut", "no footer", "short record", "unknown frame", "empty"],
)
def test_damaged_snapshot_is_refused(content: bytes) -> None:
    with pytest.raises(CorruptRecordError):
        parse_cluster_snapshot(NAME, content)


def test_file_that_is_not_named_as_a_snapshot_is_refused() -> None:
    with pytest.raises(CorruptRecordError, match="the name is not that of a snapshot"):
        parse_cluster_snapshot("bootstrap.checkpoint", snapshot_of([broker(1)]))


@given(st.lists(st.binary(max_size=60), min_size=1, max_size=4))
def test_any_metadata_record_is_read_or_refused(values: list[bytes]) -> None:
    content = snapshot_of(values)
    try:
        parse_cluster_snapshot(NAME, content)
    except CorruptRecordError:
        return
