"""Log start records: their bytes, their keys, and how they are stored."""

import json
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fakes.memory_object_store import MemoryObjectStore
from tests.fakes.transforms import ring
from tierd.errors import RemoteConflictError, RemoteFormatError, RemoteIntegrityError, RemoteResourceNotFoundError
from tierd.model import TopicIdPartition, uuid_to_text
from tierd.remote import LogStartRecord, LogStartStorage, ObjectKeyFactory, with_tag
from tierd.remote.transform.binding import log_start_binding

CLUSTER = "cluster"
KEYS = ObjectKeyFactory("tiers/a", CLUSTER)
PARTITION = TopicIdPartition(UUID(int=7), "orders-of-2024", 10)
KEY = KEYS.log_start(PARTITION)
RECORD = LogStartRecord(log_start_offset=2537, leader_epoch=4, broker_id=1, written_ms=1_700_000_000_000)

records = st.builds(
    LogStartRecord,
    log_start_offset=st.integers(0, 2**63 - 1),
    leader_epoch=st.integers(-1, 2**31 - 1),
    broker_id=st.integers(-1, 2**31 - 1),
    written_ms=st.integers(0, 2**63 - 1),
    unknown=st.dictionaries(st.sampled_from(["tag", "signed_by", "future"]), st.text() | st.integers() | st.none()),
)
partitions = st.builds(
    TopicIdPartition,
    st.uuids(),
    st.from_regex(r"[a-zA-Z0-9._-]{1,60}", fullmatch=True),
    st.integers(0, 2**31 - 1),
)


def decoded(content: bytes, partition: TopicIdPartition = PARTITION) -> LogStartRecord:
    return LogStartRecord.decode(content, key=KEY, cluster_id=CLUSTER, partition=partition)


@given(records, partitions)
def test_record_is_decoded_as_it_was_encoded(record: LogStartRecord, partition: TopicIdPartition) -> None:
    assert decoded(record.encode(CLUSTER, partition), partition) == record


def test_record_of_this_version_has_these_bytes() -> None:
    expected = {
        "format_version": 1,
        "cluster_id": CLUSTER,
        "topic": "orders-of-2024",
        "topic_id": uuid_to_text(PARTITION.topic_id),
        "partition": 10,
        "log_start_offset": 2537,
        "leader_epoch": 4,
        "broker_id": 1,
        "written_ms": 1_700_000_000_000,
    }
    assert json.loads(RECORD.encode(CLUSTER, PARTITION)) == expected


@given(
    st.binary(max_size=200)
    | st.recursive(st.none() | st.integers() | st.text(), st.lists).map(json.dumps).map(str.encode)
)
def test_bytes_that_are_no_record_are_damaged(content: bytes) -> None:
    with pytest.raises(RemoteIntegrityError, match=r"log-start\.json"):
        decoded(content)


@given(
    st.sampled_from(["log_start_offset", "leader_epoch", "broker_id", "written_ms", "topic", "topic_id", "partition"]),
    st.none() | st.text(max_size=3) | st.booleans() | st.floats(allow_nan=False) | st.integers(max_value=-2),
)
def test_record_with_a_wrong_field_is_damaged(name: str, value: object) -> None:
    fields = json.loads(RECORD.encode(CLUSTER, PARTITION)) | {name: value}
    if name in {"broker_id", "written_ms"} and type(value) is int:
        return
    with pytest.raises(RemoteIntegrityError):
        decoded(json.dumps(fields).encode())


def test_record_of_another_partition_or_cluster_is_damaged() -> None:
    content = RECORD.encode(CLUSTER, PARTITION)
    with pytest.raises(RemoteIntegrityError, match="another partition"):
        decoded(content, TopicIdPartition(UUID(int=8), PARTITION.topic, PARTITION.partition))
    with pytest.raises(RemoteIntegrityError, match="another partition"):
        decoded(RECORD.encode("other", PARTITION))


def test_record_of_a_later_version_is_not_understood() -> None:
    fields = json.loads(RECORD.encode(CLUSTER, PARTITION)) | {"format_version": 2}
    with pytest.raises(RemoteFormatError, match="format_version 2"):
        decoded(json.dumps(fields).encode())


@given(partitions)
def test_key_of_a_log_start_names_its_partition_and_no_segment(partition: TopicIdPartition) -> None:
    key = KEYS.log_start(partition)
    assert KEYS.parse_log_start(key) == partition
    assert KEYS.parse(key) is None
    assert key.startswith(KEYS.partition_prefix(partition))


@pytest.mark.parametrize(
    "key",
    [
        "elsewhere/cluster/orders-AAAAAAAAAAAAAAAAAAAABw/0/log-start.json",
        f"{KEYS.root}orders-AAAAAAAAAAAAAAAAAAAABw/0/log-start.json.tmp",
        f"{KEYS.root}orders-AAAAAAAAAAAAAAAAAAAABw/00/log-start.json",
        f"{KEYS.root}orders-AAAAAAAAAAAAAAAAAAAABw/x/log-start.json",
        f"{KEYS.root}orders-AAAAAAAAAAAAAAAAAAAABw/{2**31}/log-start.json",
        f"{KEYS.root}orders-AAAAAAAAAAAAAAAAAAAABx/0/log-start.json",
        f"{KEYS.root}orders/0/log-start.json",
        f"{KEYS.root}log-start.json",
    ],
)
def test_other_keys_are_no_log_start(key: str) -> None:
    assert KEYS.parse_log_start(key) is None


async def test_record_is_read_as_it_was_written_and_gone_once_removed() -> None:
    storage = LogStartStorage(MemoryObjectStore(), KEYS)
    assert await storage.read(PARTITION) is None
    await storage.write(PARTITION, RECORD, previous=None)
    stored = await storage.read(PARTITION)
    assert stored is not None
    assert stored.record == RECORD
    await storage.remove(PARTITION)
    await storage.remove(PARTITION)
    assert await storage.read(PARTITION) is None


async def test_record_that_changed_since_it_was_read_is_not_overwritten() -> None:
    storage = LogStartStorage(MemoryObjectStore(), KEYS)
    later = LogStartRecord(log_start_offset=3000, leader_epoch=5, broker_id=2, written_ms=2)
    await storage.write(PARTITION, RECORD, previous=None)
    seen = await storage.read(PARTITION)
    await storage.write(PARTITION, later, previous=seen)
    with pytest.raises(RemoteConflictError):
        await storage.write(PARTITION, RECORD, previous=None)
    with pytest.raises(RemoteConflictError):
        await storage.write(PARTITION, _record(9), previous=seen)
    await storage.remove(PARTITION)
    with pytest.raises(RemoteResourceNotFoundError):
        await storage.write(PARTITION, RECORD, previous=seen)


async def test_fields_of_a_later_tierd_are_kept_when_a_record_is_rewritten() -> None:
    store = MemoryObjectStore()
    storage = LogStartStorage(store, KEYS)
    fields = json.loads(RECORD.encode(CLUSTER, PARTITION)) | {"tag": "later"}
    await store.put(KEY, json.dumps(fields).encode())
    await storage.write(PARTITION, _record(9), previous=await storage.read(PARTITION))
    assert json.loads(await store.get(KEY)) == fields | _numbers(9)


async def test_damaged_record_is_read_as_its_bytes_with_what_is_wrong() -> None:
    store = MemoryObjectStore()
    await store.put(KEY, b"{}")
    stored = await LogStartStorage(store, KEYS).read(PARTITION)
    assert stored is not None
    assert (stored.content, stored.record) == (b"{}", None)
    assert KEY in stored.damage


def _numbers(value: int) -> dict[str, int]:
    return {"log_start_offset": value, "leader_epoch": value, "broker_id": value, "written_ms": value}


def _record(value: int) -> LogStartRecord:
    return LogStartRecord(log_start_offset=value, leader_epoch=value, broker_id=value, written_ms=value)


@pytest.mark.parametrize("content", [b'{"format_version": 2}', b'{"format_version": "\\u001b[2J"}', b"[]", b"{"])
async def test_object_that_claims_a_later_version_is_replaced_where_nothing_proves_it(content: bytes) -> None:
    """A later tierd with the key ring makes a tag too; without one the object must not stop its leader."""
    store = MemoryObjectStore()
    records = LogStartStorage(store, KEYS, ring())
    await store.put(KEY, content)
    stored = await records.read(PARTITION)
    assert stored is not None
    assert stored.record is None
    assert stored.damage
    await records.write(PARTITION, RECORD, previous=stored)
    found = await records.read(PARTITION)
    assert found is not None
    assert found.record == RECORD


async def test_record_of_a_later_version_that_is_proven_is_refused() -> None:
    store = MemoryObjectStore()
    content = with_tag(b'{"format_version": 2}', ring(), log_start_binding(CLUSTER, PARTITION))
    await store.put(KEY, content)
    with pytest.raises(RemoteFormatError, match="format_version 2"):
        await LogStartStorage(store, KEYS, ring()).read(PARTITION)
