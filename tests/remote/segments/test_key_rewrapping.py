import json
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest

from tests.contracts.remote_storage import Rolled, rolled
from tests.fakes.memory_object_store import MemoryObjectStore
from tests.fakes.remote_segments import segment
from tests.fakes.transforms import ring, transform_named
from tierd.errors import RemoteAccessError, RetriableRemoteStorageError, TierError
from tierd.model import ByteRange, TopicIdPartition, TopicPartition
from tierd.remote import (
    CatalogueCodec,
    CatalogueNodeKey,
    CataloguePositionsKey,
    KeyRewrapping,
    KeyRing,
    LogStartRecord,
    ObjectInfo,
    ObjectKeyFactory,
    RewrapOutcome,
    RewrapResult,
    SegmentStorage,
    Tombstone,
    Transform,
    erasure_report_binding,
    require_tag,
    with_tag,
)
from tierd.testing import content_of

KEYS = ObjectKeyFactory("pre", "cluster")
REWRAPPED, CURRENT, PLAIN_ONE = RewrapResult.REWRAPPED, RewrapResult.CURRENT, RewrapResult.PLAIN


class Watched(MemoryObjectStore):
    """Remembers what was read and replaced."""

    def __init__(self) -> None:
        super().__init__()
        self.touched: list[str] = []

    async def get(self, key: str, byte_range: ByteRange | None = None) -> bytes:
        self.touched.append(key)
        return await super().get(key, byte_range)

    async def replace(self, key: str, content: bytes, *, previous: bytes) -> None:
        self.touched.append(key)
        await super().replace(key, content, previous=previous)

    async def manifests(self) -> dict[str, dict[str, object]]:
        keys = [info.key for info in await self.list_objects("") if info.key.endswith(".manifest")]
        return {key: json.loads(await MemoryObjectStore.get(self, key)) for key in keys}

    async def key_ids(self) -> list[str | None]:
        found = [manifest["encryption"] for manifest in (await self.manifests()).values()]
        return [each["key_id"] if isinstance(each, dict) else None for each in found]


@pytest.fixture
def store() -> Watched:
    return Watched()


def storage(store: MemoryObjectStore, transform: Transform) -> SegmentStorage:
    return SegmentStorage(store, cluster_id="cluster", broker_id=1, key_prefix="pre", transform=transform)


async def copied(store: MemoryObjectStore, folder: Path, *names: str, topic: str = "orders") -> list[Rolled]:
    """Segments of one partition, each stored as its name says."""
    found = []
    for number, name in enumerate(names):
        one = rolled(folder, content_of(1000, seed=number), start_offset=number * 10)
        partition = TopicIdPartition(UUID(int=7), topic, 0)
        metadata = segment(number * 10, number * 10 + 9, partition=partition, size_bytes=1000)
        await storage(store, transform_named(name)).copy_log_segment_data(metadata, one.data)
        found.append(replace(one, metadata=metadata))
    return found


async def run(
    store: MemoryObjectStore, *, names: list[str] | None = None, keys: KeyRing | None = None, dry_run: bool = False
) -> list[RewrapOutcome]:
    rewrapping = KeyRewrapping(store, keys or ring("new"), dry_run=dry_run, concurrency=3)
    partitions = None if names is None else [TopicPartition.parse(name) for name in names]
    return [outcome async for outcome in rewrapping.run(KEYS, partitions)]


def results(outcomes: list[RewrapOutcome]) -> list[RewrapResult]:
    return [outcome.result for outcome in outcomes]


async def test_run_wraps_data_keys_under_the_active_key_and_leaves_data_objects(store: Watched, tmp_path: Path) -> None:
    segments = await copied(store, tmp_path, "aes", "plain", "zstd+aes", "aes", "aes")
    data = {i.key: await store.get(i.key) for i in await store.list_objects("") if not i.key.endswith(".manifest")}
    store.touched.clear()
    assert results(await run(store)) == [REWRAPPED, PLAIN_ONE, REWRAPPED, REWRAPPED, REWRAPPED]
    assert all(key.endswith(".manifest") for key in store.touched)
    assert {key: await store.get(key) for key in data} == data
    assert await store.key_ids() == ["new", None, "new", "new", "new"]
    only_new = storage(store, Transform(ring=ring("new", "new")))
    for each in segments:
        assert await only_new.fetch_log_segment(each.metadata, ByteRange(0, 999)) == each.content


async def test_second_run_leaves_done_objects_alone(store: Watched, tmp_path: Path) -> None:
    await copied(store, tmp_path, "aes", "aes")
    await run(store)
    before = await store.manifests()
    assert results(await run(store)) == [CURRENT, CURRENT]
    assert await store.manifests() == before


async def test_run_after_an_interruption_at_any_call_does_the_rest(tmp_path: Path) -> None:
    class BreaksOff(Watched):
        left = 0

        async def replace(self, key: str, content: bytes, *, previous: bytes) -> None:
            if not self.left:
                raise RetriableRemoteStorageError("the store is away")
            self.left -= 1
            await super().replace(key, content, previous=previous)

    store = BreaksOff()
    segments = await copied(store, tmp_path, *["aes"] * 5)
    for done in range(1, 6):
        store.left = 1
        if done < 5:
            with pytest.raises(RetriableRemoteStorageError):
                await run(store)
        else:
            await run(store)
        assert (await store.key_ids()).count("new") == done
        reader = storage(store, Transform(ring=ring("new")))
        for each in segments:
            assert await reader.fetch_log_segment(each.metadata, ByteRange(0, 999)) == each.content


async def test_dry_run_reports_outcomes_and_writes_no_object(store: Watched, tmp_path: Path) -> None:
    await copied(store, tmp_path, "aes", "plain")
    before = await store.manifests()
    assert results(await run(store, dry_run=True)) == [REWRAPPED, PLAIN_ONE]
    assert await store.manifests() == before


async def test_run_for_named_partitions_leaves_the_others(store: Watched, tmp_path: Path) -> None:
    for topic in ("orders", "orders-x", "audit"):
        await copied(store, tmp_path, "aes", topic=topic)
    assert results(await run(store, names=["orders-0", "orders-1"])) == [REWRAPPED]
    assert results(await run(store, names=["orders-0", "orders-x-0"])) == [CURRENT, REWRAPPED]
    assert await run(store, names=["nobody-0"]) == []
    assert results(await run(store)) == [REWRAPPED, CURRENT, CURRENT]


async def test_missing_key_is_reported_and_other_segments_are_rewrapped(store: Watched, tmp_path: Path) -> None:
    await copied(store, tmp_path, "aes", "plain")
    missing, plain = await run(store, keys=ring("new", "new"))
    assert (missing.result, plain.result) == (RewrapResult.MISSING_KEY, PLAIN_ONE)
    assert missing.result.is_problem
    assert "'old'" in missing.problem
    assert "remote.encryption.keys" in missing.remedy


async def test_damaged_manifest_is_reported_and_left_as_it_is(store: Watched, tmp_path: Path) -> None:
    await copied(store, tmp_path, "aes", "aes", "aes", "aes", "aes")
    changes: list[dict[str, object]] = [{"leader_epoch": 9}, {"segment_id": "x"}, {"format_version": 2}, {}, {}]
    for (key, fields), change in zip((await store.manifests()).items(), changes, strict=True):
        await store.replace(key, json.dumps(fields | change).encode(), previous=await store.get(key))
    keys = list(await store.manifests())
    foreign = await store.get(keys[4])
    await store.replace(keys[3], foreign, previous=await store.get(keys[3]))
    before = await store.manifests()
    damaged, unknown = RewrapResult.DAMAGED, RewrapResult.UNKNOWN
    assert results(await run(store)) == [damaged, damaged, unknown, damaged, REWRAPPED]
    after = await store.manifests()
    assert {key: after[key] for key in keys[:4]} == {key: before[key] for key in keys[:4]}


async def test_unknown_fields_of_a_rewrapped_manifest_are_kept(store: Watched, tmp_path: Path) -> None:
    await copied(store, tmp_path, "aes")
    ((key, fields),) = (await store.manifests()).items()
    before = fields.pop("encryption")
    await run(store)
    rewrapped = (await store.manifests())[key]
    after = rewrapped.pop("encryption")
    assert rewrapped == fields
    assert isinstance(before, dict)
    assert isinstance(after, dict)
    assert {name for name in before if after[name] != before[name]} == {"key_id", "wrapped_key"}


async def test_manifest_that_goes_or_changes_during_the_run_is_reported(tmp_path: Path) -> None:
    class Busy(Watched):
        async def replace(self, key: str, content: bytes, *, previous: bytes) -> None:
            if "/00000000000000000000-" in key:
                await self.delete(key)  # the daemon expires it at this moment
            else:
                await super().replace(key, previous + b" ", previous=previous)
            await super().replace(key, content, previous=previous)

    store = Busy()
    await copied(store, tmp_path, "aes", "aes")
    gone, changed = await run(store)
    assert (gone.result, changed.result) == (RewrapResult.GONE, RewrapResult.CHANGED)
    assert not gone.result.is_problem
    assert changed.result.is_problem
    assert len(await store.manifests()) == 1


@pytest.mark.parametrize("error", [RetriableRemoteStorageError("away"), RemoteAccessError("refused")])
async def test_store_that_does_not_answer_ends_the_run(store: Watched, tmp_path: Path, error: TierError) -> None:
    await copied(store, tmp_path, "aes", "aes")

    class Failing(Watched):
        async def get(self, key: str, byte_range: ByteRange | None = None) -> bytes:
            raise error

    failing = Failing()
    failing._objects = store._objects
    failing._modified_ms = store._modified_ms
    with pytest.raises(type(error)):
        await run(failing)


async def test_run_covers_a_tier_larger_than_a_page(tmp_path: Path) -> None:
    class SmallPages(Watched):
        async def list_objects(
            self, prefix: str, *, start_after: str = "", limit: int | None = None
        ) -> list[ObjectInfo]:
            return await super().list_objects(prefix, start_after=start_after, limit=2 if limit else None)

    store = SmallPages()
    await copied(store, tmp_path, *["aes"] * 4)
    assert results(await run(store)) == [REWRAPPED] * 4


def test_ring_without_an_active_key_is_refused(store: Watched) -> None:
    with pytest.raises(ValueError, match="active"):
        KeyRewrapping(store, ring(None))


async def test_object_with_a_tag_gets_a_tag_of_the_active_key(store: Watched, tmp_path: Path) -> None:
    (one, plain) = await copied(store, tmp_path, "aes", "plain")
    partition = one.metadata.segment.topic_id_partition
    tombstone = Tombstone("retention-time", 1, 2, 1)
    old = storage(store, transform_named("aes"))
    await old.write_tombstone(one.metadata, tombstone)
    await old.write_tombstone(plain.metadata, tombstone)
    await old.log_starts.write(
        partition, LogStartRecord(log_start_offset=5, leader_epoch=0, broker_id=1, written_ms=0), previous=None
    )
    request_id = UUID(int=77)
    binding = erasure_report_binding("cluster", request_id)
    await store.put(KEYS.erasure_report(request_id), with_tag(b'{"format_version": 1}', ring(), binding))

    before = {info.key: await store.get(info.key) for info in await store.list_objects("")}
    assert results(await run(store, dry_run=True)).count(RewrapResult.RETAGGED) == 4
    assert {key: await store.get(key) for key in before} == before
    assert results(await run(store)).count(RewrapResult.RETAGGED) == 4
    again = results(await run(store))
    assert (again.count(RewrapResult.RETAGGED), again.count(RewrapResult.TAG_CURRENT)) == (0, 4)

    only_new = storage(store, Transform(encrypts=True, ring=ring("new", "new")))
    assert await only_new.read_tombstone(one.metadata) == tombstone
    assert await only_new.read_tombstone(plain.metadata) == tombstone
    stored = await only_new.log_starts.read(partition)
    assert stored is not None
    assert stored.record is not None
    require_tag(await store.get(KEYS.erasure_report(request_id)), ring("new", "new"), binding, key="k")


async def test_object_without_proof_is_reported_and_gets_no_tag(store: Watched, tmp_path: Path) -> None:
    (one,) = await copied(store, tmp_path, "aes")
    key = KEYS.segment(one.metadata, ".tombstone")
    await store.put(key, Tombstone("retention-time", 1, 2, 1).encode())
    (tombstone,) = [outcome for outcome in await run(store) if outcome.key == key]
    assert tombstone.result is RewrapResult.UNAUTHENTICATED
    assert tombstone.result.is_problem
    assert await store.get(key) == Tombstone("retention-time", 1, 2, 1).encode()


async def test_tombstone_without_its_manifest_and_objects_of_other_topics_are_passed_over(
    store: Watched, tmp_path: Path
) -> None:
    (one,) = await copied(store, tmp_path, "aes")
    await storage(store, transform_named("aes")).write_tombstone(one.metadata, Tombstone("retention-time", 1, 2, 1))
    await store.delete(KEYS.segment(one.metadata, ".manifest"))
    assert results(await run(store, names=["orders-0"])) == [RewrapResult.GONE]
    assert results(await run(store, names=["other-0"])) == []


async def test_objects_of_the_catalogue_get_tag_and_seal_of_the_active_key(store: Watched) -> None:
    node, positions = CatalogueNodeKey(1), CataloguePositionsKey(1_000, 1)
    old = CatalogueCodec("cluster", KEYS.catalogue.prefix, ring("old"))
    for identity, secret in ((node, b"verifier"), (positions, None)):
        key = KEYS.catalogue.key(identity)
        await store.put(key, old.encode(key, {"node_id": 1}, secret=secret))
    forged = KEYS.catalogue.key(CatalogueNodeKey(2))
    await store.put(forged, CatalogueCodec("cluster", KEYS.catalogue.prefix, ring("new", "new")).encode(forged, {}))
    rewrapping = KeyRewrapping(store, ring("new"))
    results = [outcome.result async for outcome in rewrapping.run(KEYS)]
    assert results == [RewrapResult.RETAGGED, RewrapResult.TAG_CURRENT, RewrapResult.RETAGGED]
    alone = CatalogueCodec("cluster", KEYS.catalogue.prefix, ring("new", "new"))
    key = KEYS.catalogue.key(node)
    fields = alone.decode(key, await store.get(key))
    assert alone.secret(key, fields) == b"verifier"
    alone.require_proof(KEYS.catalogue.key(positions), await store.get(KEYS.catalogue.key(positions)))
    again = [outcome.result async for outcome in KeyRewrapping(store, ring("new")).run(KEYS)]
    assert set(again) == {RewrapResult.TAG_CURRENT}


async def test_object_of_the_catalogue_that_no_key_proves_stays_as_it_is(store: Watched) -> None:
    key = KEYS.catalogue.key(CatalogueNodeKey(1))
    plain = CatalogueCodec("cluster", KEYS.catalogue.prefix, KeyRing(None, {})).encode(key, {"node_id": 1})
    await store.put(key, plain)
    outcomes = [outcome async for outcome in KeyRewrapping(store, ring("new")).run(KEYS)]
    assert [outcome.result for outcome in outcomes] == [RewrapResult.UNAUTHENTICATED]
    assert await store.get(key) == plain
