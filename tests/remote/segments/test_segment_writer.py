"""Objects of a segment as they are stored."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.contracts.remote_storage import Rolled, rolled
from tests.fakes.memory_object_store import MemoryObjectStore
from tests.fakes.remote_segments import segment
from tests.fakes.transforms import mixed_content, ring, transform_named
from tierd.errors import RemoteConflictError
from tierd.model import TimestampRange
from tierd.remote import Body, ChunkedBody, FileBody, SegmentStorage, Transform
from tierd.testing import checksums_of, content_of

MIB = 1 << 20


class BodiesSeen(MemoryObjectStore):
    """Remembers the bodies."""

    def __init__(self) -> None:
        super().__init__()
        self.bodies: dict[str, Body] = {}

    async def put(self, key: str, body: Body) -> None:
        self.bodies[key.rpartition(".")[2]] = body
        await super().put(key, body)

    async def objects(self) -> dict[str, bytes]:
        return {i.key.rpartition(".")[2]: await self.get(i.key) for i in await self.list_objects("")}


async def stored(one: Rolled, transform: Transform) -> tuple[dict[str, bytes], dict[str, Any], BodiesSeen]:
    store = BodiesSeen()
    storage = SegmentStorage(store, cluster_id="cluster", broker_id=1, chunk_size=MIB, transform=transform)
    await storage.copy_log_segment_data(one.metadata, one.data)
    objects = await store.objects()
    return objects, json.loads(objects["manifest"]), store


@pytest.fixture
def one(tmp_path: Path) -> Rolled:
    return rolled(tmp_path, mixed_content(5 * MIB + 100))


async def test_a_plain_log_is_streamed_from_its_file(one: Rolled) -> None:
    objects, manifest, store = await stored(one, transform_named("plain"))
    assert isinstance(store.bodies["log"], FileBody)
    assert objects["log"] == one.content
    assert "compressed" not in manifest["log"]["chunks"][0]


async def test_a_compressed_log_says_of_each_chunk_how_it_is_stored(one: Rolled) -> None:
    objects, manifest, store = await stored(one, transform_named("zstd"))
    assert isinstance(store.bodies["log"], ChunkedBody)
    assert manifest["compression"] == {"type": "zstd", "level": 3}
    chunks = manifest["log"]["chunks"]
    assert [chunk.get("compressed", False) for chunk in chunks] == [True, True, False, True, True, False]
    assert sum(chunk["size_bytes"] for chunk in chunks) == len(objects["log"]) == manifest["log"]["size_bytes"]
    assert len(objects["log"]) < len(one.content) / 2
    assert manifest["size_bytes"] == len(one.content)


async def test_segment_that_cannot_shrink_is_stored_plain(tmp_path: Path) -> None:
    one = rolled(tmp_path, content_of(2 * MIB))
    _, manifest, store = await stored(one, transform_named("zstd"))
    assert isinstance(store.bodies["log"], FileBody)
    assert manifest["compression"] == {"type": "none"}


async def test_objects_of_an_encrypted_segment_hold_no_plain_records(tmp_path: Path) -> None:
    one = rolled(tmp_path, b"very secret records " * 1000)
    objects, manifest, _ = await stored(one, transform_named("aes"))
    for secret in (b"very secret", b"offset index", b"producer snapshot", b"transactions"):
        assert not any(secret in content for content in objects.values())
    encryption = manifest["encryption"]
    assert (encryption["algorithm"], encryption["key_id"]) == ("AES-256-GCM", "old")
    assert len(encryption["manifest_tag"]) == 64
    assert manifest["indexes"]["timestamp"]["size_bytes"] == 16  # even what is empty is authenticated


async def test_no_two_attempts_share_a_data_key(one: Rolled) -> None:
    first, _, _ = await stored(one, transform_named("aes"))
    second, _, _ = await stored(one, transform_named("aes"))
    assert first["log"] != second["log"]


async def test_an_attempt_that_is_repeated_makes_the_same_objects(one: Rolled) -> None:
    class FailsAtManifest(BodiesSeen):
        has_failed = False

        async def put(self, key: str, body: Body) -> None:
            if key.endswith(".manifest") and not self.has_failed:
                self.has_failed = True
                raise OSError("the connection is gone")
            await super().put(key, body)

    store = FailsAtManifest()
    transform = transform_named("zstd+aes")
    storage = SegmentStorage(store, cluster_id="cluster", broker_id=1, chunk_size=MIB, transform=transform)
    with pytest.raises(Exception, match="connection is gone"):
        await storage.copy_log_segment_data(one.metadata, one.data)
    before = await store.objects()
    await storage.copy_log_segment_data(one.metadata, one.data)
    assert {name: (await store.objects())[name] for name in before} == before


async def test_other_content_under_the_same_id_has_another_data_key(one: Rolled, tmp_path: Path) -> None:
    store = BodiesSeen()
    storage = SegmentStorage(store, cluster_id="cluster", broker_id=1, chunk_size=MIB, transform=transform_named("aes"))
    await storage.copy_log_segment_data(one.metadata, one.data)
    first = (await store.objects())["log"]
    other = bytearray(one.content)
    other[-1] ^= 1
    one.data.log.write_bytes(other)
    changed = replace(one.data, log_checksums=checksums_of(bytes(other)))
    with pytest.raises(RemoteConflictError):
        await storage.copy_log_segment_data(one.metadata, changed)
    sent = store.bodies["log"]
    assert isinstance(sent, ChunkedBody)
    second = b"".join([chunk async for chunk in sent.chunks()])
    assert second[:MIB] != first[:MIB]  # the first chunk is the same in both, its key is not


async def test_broken_attempts_are_remembered_within_a_bound(tmp_path: Path) -> None:
    class Refusing(MemoryObjectStore):
        async def put(self, key: str, body: Body) -> None:
            del key, body
            raise OSError("no")

    transform = Transform(encrypts=True, ring=ring())
    storage = SegmentStorage(Refusing(), cluster_id="cluster", broker_id=1, transform=transform)
    data = rolled(tmp_path, b"x").data
    for _ in range(70):
        with pytest.raises(Exception, match="OSError"):
            await storage.copy_log_segment_data(segment(0, 9, size_bytes=1), data)
    assert len(storage._writer._attempts) == 64


@pytest.mark.parametrize("name", ["plain", "zstd+aes"])
async def test_chunks_tell_the_times_of_their_blocks(one: Rolled, name: str) -> None:
    blocks = [TimestampRange(10 * n, 10 * n + 5) for n in range(6)]
    store = BodiesSeen()
    storage = SegmentStorage(store, cluster_id="c", broker_id=1, chunk_size=2 * MIB, transform=transform_named(name))
    timed = replace(one.data, chunk_timestamps=(*blocks[:3], None, *blocks[4:]))
    await storage.copy_log_segment_data(one.metadata, timed)
    chunks = json.loads((await store.objects())["manifest"])["log"]["chunks"]
    assert [(c.get("min_timestamp_ms"), c.get("max_timestamp_ms")) for c in chunks] == [(0, 15), (None, None), (40, 55)]
    assert "min_timestamp_ms" not in chunks[1]
    manifest = await storage.read_manifest(one.metadata)
    assert [chunk.timestamps for chunk in manifest.log.chunks] == [TimestampRange(0, 15), None, TimestampRange(40, 55)]


async def test_times_of_another_log_are_refused(one: Rolled) -> None:
    storage = SegmentStorage(MemoryObjectStore(), cluster_id="c", broker_id=1, chunk_size=MIB)
    with pytest.raises(Exception, match="timestamps of 5 blocks for a log of"):
        await storage.copy_log_segment_data(one.metadata, replace(one.data, chunk_timestamps=(None,) * 5))
