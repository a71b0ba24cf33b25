from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tierd.errors import InvalidMetadataError
from tierd.metadata import MetadataKeyFactory
from tierd.model import TopicIdPartition

KEYS = MetadataKeyFactory("SmB6Zc8mQ9q3eqkUB1Jx8A")
partitions = st.builds(TopicIdPartition, st.uuids(), st.text(max_size=9), st.integers(0, 2**31 - 1))


def all_keys(keys: MetadataKeyFactory, partition: TopicIdPartition, id_: UUID, epoch: int, offset: int) -> list[str]:
    return [
        keys.row(partition),
        keys.segment(partition, id_),
        keys.epoch_reference(partition, epoch, offset),
        keys.epoch_unreferenced(partition, epoch, id_),
        keys.epoch_highest(partition, epoch),
    ]


def test_keys_are_the_documented_ones() -> None:
    partition, id_ = TopicIdPartition(UUID(int=1), "orders", 10), UUID(int=2)
    base = "v1/SmB6Zc8mQ9q3eqkUB1Jx8A/AAAAAAAAAAAAAAAAAAAAAQ/0000000010/"
    assert all_keys(KEYS, partition, id_, 3, 40) == [
        f"{base}row",
        f"{base}seg/AAAAAAAAAAAAAAAAAAAAAg",
        f"{base}ep/0000000003/at/00000000000000000040",
        f"{base}ep/0000000003/un/AAAAAAAAAAAAAAAAAAAAAg",
        f"{base}ep/0000000003/highest",
    ]
    assert KEYS.store_key == "v1/SmB6Zc8mQ9q3eqkUB1Jx8A/store"
    assert KEYS.index(partition) == "v1/SmB6Zc8mQ9q3eqkUB1Jx8A/partitions/AAAAAAAAAAAAAAAAAAAAAQ/0000000010"


def test_keys_of_groups_have_hashes_of_ids_that_users_choose() -> None:
    base, of_group = "v1/SmB6Zc8mQ9q3eqkUB1Jx8A", "a92a60ad27b2dd4a3706736bddfbcc64"
    assert KEYS.group("readers") == f"{base}/groups/{of_group}"
    assert KEYS.group_offset("readers", UUID(int=1), 10) == (
        f"{base}/group-offsets/{of_group}/AAAAAAAAAAAAAAAAAAAAAQ/0000000010"
    )
    assert KEYS.group_static("readers", "one").startswith(f"{base}/group-static/{of_group}/")


@given(one=st.text(), other=st.text(), topic_id=st.uuids())
def test_the_prefixes_of_a_group_cover_its_own_keys_and_no_others(one: str, other: str, topic_id: UUID) -> None:
    assert KEYS.group_offset(one, topic_id, 0).startswith(KEYS.group_offsets_prefix(other)) is (one == other)
    assert KEYS.group_static(one, "id").startswith(KEYS.group_static_prefix(other)) is (one == other)
    assert KEYS.group(one).startswith(KEYS.groups_prefix)
    assert not KEYS.group_offset(one, topic_id, 0).startswith(KEYS.groups_prefix)


@pytest.mark.spec("remote-tiering 83")
@given(one=partitions, other=partitions, id_=st.uuids())
def test_the_prefix_of_a_partition_covers_its_own_keys_and_no_others(
    one: TopicIdPartition, other: TopicIdPartition, id_: UUID
) -> None:
    same = (one.topic_id, one.partition) == (other.topic_id, other.partition)
    for key in all_keys(KEYS, one, id_, 0, 0):
        assert key.startswith(KEYS.partition_prefix(one))
        assert key.startswith(KEYS.partition_prefix(other)) is same
        assert key.startswith(KEYS.all_prefix)
        assert not key.startswith(KEYS.index_prefix)


@given(offsets=st.lists(st.integers(0, 2**63 - 1)), epochs=st.lists(st.integers(0, 2**31 - 1)))
def test_the_byte_order_of_keys_is_the_order_of_their_numbers(offsets: list[int], epochs: list[int]) -> None:
    partition = TopicIdPartition(UUID(int=1), "orders", 0)
    assert sorted(KEYS.epoch_reference(partition, 1, offset) for offset in offsets) == [
        KEYS.epoch_reference(partition, 1, offset) for offset in sorted(offsets)
    ]
    assert sorted(KEYS.epoch_highest(partition, epoch) for epoch in epochs) == [
        KEYS.epoch_highest(partition, epoch) for epoch in sorted(epochs)
    ]


def test_longest_key_is_within_the_limit_of_a_store() -> None:
    partition = TopicIdPartition(UUID(int=2**128 - 1), "t" * 249, 2**31 - 1)
    keys = all_keys(MetadataKeyFactory("c" * 64), partition, UUID(int=2**128 - 1), 2**31 - 1, 2**63 - 1)
    of_clusters = MetadataKeyFactory("c" * 64, root="r" * 63 + "/")
    keys += [of_clusters.group("g" * 999), of_clusters.group_static("ü" * 999, "ü" * 999)]
    keys += [of_clusters.group_offset("g" * 999, UUID(int=2**128 - 1), 2**31 - 1)]
    assert max(map(len, keys)) <= 256
    assert all(key.isascii() for key in keys)


@pytest.mark.parametrize("cluster_id", ["", "a/b", "a b", "ü", "c" * 65, "a%"])
def test_a_cluster_id_that_cannot_be_part_of_a_key_is_refused(cluster_id: str) -> None:
    with pytest.raises(InvalidMetadataError, match="cluster id"):
        MetadataKeyFactory(cluster_id)
