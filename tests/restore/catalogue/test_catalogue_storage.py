"""CatalogueStorage: objects of the catalogue in a store, with and without a key ring, sound and damaged."""

import contextlib
import json
from dataclasses import replace
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fakes.memory_object_store import MemoryObjectStore
from tests.fakes.transforms import ring
from tierd.errors import (
    RemoteConflictError,
    RemoteFormatError,
    RemoteIntegrityError,
    RemoteKeyMissingError,
    RemoteUnauthenticatedError,
)
from tierd.model import TopicIdPartition, TopicPartition
from tierd.remote import (
    EMPTY_RING,
    CatalogueCodec,
    CatalogueNodeKey,
    CataloguePositionsKey,
    CatalogueTopicKey,
    KeyRing,
    ObjectKeyFactory,
)
from tierd.restore.catalogue.catalogue_json import parse_positions, positions_fields
from tierd.restore.catalogue.catalogue_objects import (
    CataloguedNode,
    CataloguedTopic,
    CommittedPosition,
    CoordinatedGroups,
    PartitionPositions,
    Positions,
)
from tierd.restore.catalogue.catalogue_reader import read_positions_at
from tierd.restore.catalogue.catalogue_storage import CatalogueStorage

KEYS = ObjectKeyFactory("tier", "cluster")
TOPIC_ID = UUID(int=7)
NOW_MS = 1_700_000_000_000
RINGS = {"plain": EMPTY_RING, "ring": ring("old"), "ring without an active key": ring(None)}


def positions(*, node_id: int = 1, taken_ms: int = NOW_MS, high_watermark: int = 9) -> Positions:
    partition = TopicIdPartition(TOPIC_ID, "orders", 2)
    commit = CommittedPosition(
        offset=4, leader_epoch=0, metadata="né\u0000", committed_ms=NOW_MS - 5, topic_id=TOPIC_ID
    )
    offsets = PartitionPositions(log_start_offset=1, log_end_offset=12, high_watermark=high_watermark, leader_epoch=3)
    groups = {"billing": {partition.topic_partition: commit}, "": {}}
    return Positions(
        node_id=node_id,
        taken_ms=taken_ms,
        partitions={partition: offsets},
        coordinated={49: CoordinatedGroups(leader_epoch=2, groups=groups)},
    )


def topic(*, partition_count: int = 3, observed_ms: int = NOW_MS) -> CataloguedTopic:
    return CataloguedTopic(
        name="orders",
        topic_id=TOPIC_ID,
        partition_count=partition_count,
        replication_factor=2,
        config={"retention.ms": "1000"},
        effective={"retention.ms": "1000", "cleanup.policy": "delete"},
        assignment={0: (1, 2), 1: (2, 1)},
        observed_ms=observed_ms,
    )


NODE = CataloguedNode(
    node_id=1,
    meta_properties={"/data": "cluster.id=cluster\nnode.id=1\n"},
    metadata_snapshot=b"verifier of a password",
    metadata_snapshot_name="00000000000000000042-0000000003.checkpoint",
    observed_ms=NOW_MS,
)


@pytest.fixture
def store() -> MemoryObjectStore:
    return MemoryObjectStore()


def storage(store: MemoryObjectStore, keys: KeyRing = EMPTY_RING) -> CatalogueStorage:
    return CatalogueStorage(store, KEYS, keys)


async def content_of(store: MemoryObjectStore) -> tuple[str, bytes]:
    """Return key and content of the one object in the store."""
    (info,) = await store.list_objects("")
    return info.key, await store.get(info.key)


@pytest.mark.parametrize("name", RINGS)
async def test_positions_are_read_as_they_were_written(store: MemoryObjectStore, name: str) -> None:
    await storage(store, RINGS[name]).write_positions(positions())
    (key,) = await storage(store).list_positions()
    assert key == CataloguePositionsKey(NOW_MS, 1)
    assert await storage(store, RINGS[name]).read_positions(key) == positions()
    assert [info.key for info in await store.list_objects("")] == [
        "tier/cluster/catalogue/positions/20231114T221320.000Z-1.json.zst"
    ]


@pytest.mark.parametrize("name", RINGS)
async def test_versions_of_a_topic_are_kept_the_newest_last(store: MemoryObjectStore, name: str) -> None:
    catalogue = storage(store, RINGS[name])
    earlier, later = topic(), topic(partition_count=4, observed_ms=NOW_MS + 1)
    await catalogue.write_topic([earlier], previous=None)
    stored = await catalogue.read_topic(CatalogueTopicKey("orders", TOPIC_ID))
    assert stored is not None
    await catalogue.write_topic([earlier, later], previous=stored.content)
    again = await catalogue.read_topic(CatalogueTopicKey("orders", TOPIC_ID))
    assert again is not None
    assert again.versions == (earlier, later)
    assert await catalogue.list_topics() == [CatalogueTopicKey("orders", TOPIC_ID)]
    with pytest.raises(RemoteConflictError):
        await catalogue.write_topic([topic(partition_count=5)], previous=stored.content)


async def test_topic_of_a_tierd_that_kept_no_effective_settings_is_read(store: MemoryObjectStore) -> None:
    await storage(store).write_topic([topic()], previous=None)
    key, content = await content_of(store)
    fields = json.loads(content)
    del fields["versions"][0]["effective"]
    await store.delete(key)
    await store.put(key, json.dumps(fields).encode())
    stored = await storage(store).read_topic(CatalogueTopicKey("orders", TOPIC_ID))
    assert stored is not None
    assert stored.versions == (replace(topic(), effective={}),)


@pytest.mark.parametrize("name", RINGS)
async def test_node_is_replaced_and_read_with_its_snapshot(store: MemoryObjectStore, name: str) -> None:
    catalogue = storage(store, RINGS[name])
    await catalogue.write_node(replace(NODE, metadata_snapshot=None))
    await catalogue.write_node(NODE)
    assert await catalogue.read_node(1) == NODE
    assert await catalogue.read_node(2) is None


async def test_snapshot_is_sealed_with_the_active_key(store: MemoryObjectStore) -> None:
    await storage(store, ring("old")).write_node(NODE)
    key, content = await content_of(store)
    assert b"dmVyaWZpZXIgb2YgYSBwYXNzd29yZA" not in content  # base64 of the snapshot
    with pytest.raises(RemoteKeyMissingError, match="'old'"):
        CatalogueCodec("cluster", KEYS.catalogue.prefix, KeyRing(None, {})).secret(
            key, CatalogueCodec("cluster", KEYS.catalogue.prefix, EMPTY_RING).decode(key, content)
        )


async def test_objects_without_proof_are_refused_where_a_key_ring_is_configured(store: MemoryObjectStore) -> None:
    await storage(store).write_positions(positions())
    await storage(store).write_topic([topic()], previous=None)
    await storage(store).write_node(NODE)
    proving = storage(store, ring("old"))
    with pytest.raises(RemoteUnauthenticatedError):
        await proving.read_positions(CataloguePositionsKey(NOW_MS, 1))
    with pytest.raises(RemoteUnauthenticatedError):
        await proving.read_node(1)
    stored = await proving.read_topic(CatalogueTopicKey("orders", TOPIC_ID))
    assert stored is not None
    assert stored.versions == ()
    assert "nothing proves" in stored.damage


async def test_object_in_the_place_of_another_is_refused(store: MemoryObjectStore) -> None:
    for keys in (EMPTY_RING, ring("old")):
        await storage(store, keys).write_positions(positions())
        _, content = await content_of(store)
        await store.put(KEYS.catalogue.key(CataloguePositionsKey(NOW_MS, 2)), content)
        with pytest.raises(RemoteIntegrityError):
            await storage(store, keys).read_positions(CataloguePositionsKey(NOW_MS, 2))
        for info in await store.list_objects(""):
            await store.delete(info.key)


async def test_identity_of_a_node_that_no_file_can_have_is_damage(store: MemoryObjectStore) -> None:
    """It would end a restore of the node at its last step."""
    await storage(store).write_node(replace(NODE, meta_properties={"/data": "cluster.id=\u6f22\n"}))
    with pytest.raises(RemoteIntegrityError, match="meta_properties"):
        await storage(store).read_node(NODE.node_id)


async def test_damaged_compression_and_other_clusters_are_refused(store: MemoryObjectStore) -> None:
    key = CataloguePositionsKey(NOW_MS, 1)
    await store.put(KEYS.catalogue.key(key), b"no frame")
    with pytest.raises(RemoteIntegrityError, match="zstd"):
        await storage(store).read_positions(key)
    foreign = CatalogueCodec("other", KEYS.catalogue.prefix, EMPTY_RING).encode(
        KEYS.catalogue.key(CatalogueNodeKey(1)), {"node_id": 1}
    )
    await store.put(KEYS.catalogue.key(CatalogueNodeKey(1)), foreign)
    with pytest.raises(RemoteIntegrityError, match="of cluster 'other'"):
        await storage(store).read_node(1)


async def test_object_of_a_later_tierd_is_no_damage(store: MemoryObjectStore) -> None:
    key = KEYS.catalogue.key(CatalogueTopicKey("orders", TOPIC_ID))
    await store.put(key, b'{"format_version": 2}')
    with pytest.raises(RemoteFormatError, match="format_version 2"):
        await storage(store).read_topic(CatalogueTopicKey("orders", TOPIC_ID))


async def test_last_positions_of_each_node_at_or_before_a_moment_are_read(store: MemoryObjectStore) -> None:
    catalogue = storage(store)
    for node_id, taken_ms in ((1, 100), (1, 200), (1, 300), (2, 150), (3, 201)):
        await catalogue.write_positions(positions(node_id=node_id, taken_ms=taken_ms))
    found = await read_positions_at(catalogue, 200)
    assert [(each.node_id, each.taken_ms) for each in found.positions] == [(1, 200), (2, 150)]
    newest = await read_positions_at(catalogue, None)
    assert [(each.node_id, each.taken_ms) for each in newest.positions] == [(1, 300), (2, 150), (3, 201)]


async def test_earlier_positions_stand_in_for_a_damaged_object(store: MemoryObjectStore) -> None:
    await storage(store).write_positions(positions(taken_ms=100))
    await store.put(KEYS.catalogue.key(CataloguePositionsKey(200, 1)), b"?")
    found = await read_positions_at(storage(store), None)
    assert [each.taken_ms for each in found.positions] == [100]
    assert len(found.problems) == 1


DAMAGE = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["topic", "groups"]), inner),
    max_leaves=5,
)


@settings(max_examples=60)
@given(st.sampled_from(["topics", "coordinated", "node_id", "taken_ms"]), DAMAGE)
def test_field_of_any_other_form_is_refused_or_read(name: str, value: object) -> None:
    fields = {**positions_fields(positions()), name: value}
    with contextlib.suppress(RemoteIntegrityError):
        parse_positions("key", fields, node_id=1, taken_ms=NOW_MS)


OFFSETS = st.integers(0, (1 << 63) - 1)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
COMMITS = st.dictionaries(
    st.builds(TopicPartition, TEXTS, st.integers(0, 5)),
    st.builds(
        CommittedPosition,
        offset=OFFSETS,
        leader_epoch=st.integers(-1, 9),
        metadata=TEXTS,
        committed_ms=st.integers(-1, NOW_MS),
        topic_id=st.none() | st.uuids(),
    ),
    max_size=3,
)


@settings(max_examples=30)
@given(
    st.dictionaries(
        st.builds(TopicIdPartition, st.uuids(), TEXTS, st.integers(0, 5)),
        st.builds(
            PartitionPositions,
            log_start_offset=OFFSETS,
            log_end_offset=OFFSETS,
            high_watermark=OFFSETS,
            leader_epoch=st.integers(-1, 9),
        ),
        max_size=4,
    ),
    st.dictionaries(
        st.integers(0, 49),
        st.builds(
            CoordinatedGroups, leader_epoch=st.integers(-1, 9), groups=st.dictionaries(TEXTS, COMMITS, max_size=3)
        ),
        max_size=3,
    ),
)
def test_positions_of_any_content_come_back_from_their_object(
    partitions: dict[TopicIdPartition, PartitionPositions], coordinated: dict[int, CoordinatedGroups]
) -> None:
    written = Positions(node_id=1, taken_ms=NOW_MS, partitions=partitions, coordinated=coordinated)
    codec = CatalogueCodec("cluster", KEYS.catalogue.prefix, ring("old"))
    key = KEYS.catalogue.key(CataloguePositionsKey(NOW_MS, 1))
    fields = codec.decode(key, codec.encode(key, positions_fields(written)))
    assert parse_positions(key, fields, node_id=1, taken_ms=NOW_MS) == written
