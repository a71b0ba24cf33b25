"""Program ``python -m tests.bench.metadata_child WHAT …``: one measurement of the metadata in a process of its own."""

import asyncio
import gc
import json
import os
import random
import sys
import time
from bisect import bisect_right
from collections.abc import Awaitable, Callable
from pathlib import Path
from statistics import median

import structlog

from tests.bench.child_process import resident_bytes
from tests.bench.segment_rows import (
    BROKER_ID,
    CLUSTER_ID,
    EPOCH,
    KEYS,
    RECORDS,
    SESSION,
    partition_number,
    partition_rows,
    started_segment,
)
from tests.fakes.memory_object_store import MemoryObjectStore
from tests.tiering.rebuilding.tier import FilledTier, rebuild_of
from tierd.clock import SystemClock
from tierd.metadata import Batch, KeyValueStore, MemoryKeyValueStore, Put, RemoteLogMetadataManager
from tierd.metadata.kv import PostgresKeyValueStore, RedisKeyValueStore, SqliteKeyValueStore
from tierd.metadata.views.view_rows import load_partition
from tierd.model import RemoteLogSegmentState
from tierd.remote.object_keys import MANIFEST_SUFFIX

Answer = dict[str, float]

_ROWS_PER_BATCH = 500

FINISHED = RemoteLogSegmentState.COPY_SEGMENT_FINISHED


def main() -> None:
    """Measure what the arguments say and print the numbers."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(40))
    what, *arguments = sys.argv[1:]
    measure: dict[str, Callable[..., Awaitable[Answer]]] = {
        "lookups": lookups,
        "transitions": transitions,
        "fill": fill,
        "load": load,
        "follow": follow,
        "many": many,
        "rebuild": rebuild,
    }
    print(json.dumps(asyncio.run(_answer(measure[what](*arguments)))))


async def _answer(measured: Awaitable[Answer]) -> Answer:
    return await measured


async def lookups(segments: str, asked: str) -> Answer:
    """Measure lookups by offset in one partition, against a bisection of its start offsets."""
    partition, count = partition_number(0), int(segments)
    view = load_partition(partition, _sorted_rows(partition.partition, count), KEYS).view
    source = random.Random(1)
    offsets = [source.randrange(count * RECORDS) for _ in range(int(asked))]
    starts = [number * RECORDS for number in range(count)]
    begun_s = time.perf_counter()
    for offset in offsets:
        found = view.segment_for(EPOCH, offset)
        assert found is not None
    ours_s = time.perf_counter() - begun_s
    begun_s = time.perf_counter()
    for offset in offsets:
        starts[bisect_right(starts, offset) - 1]
    return {"ours": len(offsets) / ours_s, "reference": len(offsets) / (time.perf_counter() - begun_s)}


async def transitions(backend: str, address: str, partitions: str, seconds: str, rounds: str) -> Answer:
    """Measure durable transitions a second, against bare writes of one row each, as many at a time, in turns."""
    store = await _opened(backend, address)
    manager, count = _manager(store), int(partitions)
    for number in range(count):
        await manager.become_leader(partition_number(number), EPOCH)
    ours, bare = [0] * count, [0] * count

    async def copy_segment(number: int) -> None:
        started = started_segment(partition_number(number), ours[number])
        await manager.add(started)
        await manager.update(started.advance(FINISHED, event_timestamp_ms=1, broker_id=BROKER_ID))
        ours[number] += 1

    async def write_row(number: int) -> None:
        await store.apply(Batch([Put(f"bare/{number}/{bare[number]}", b"x" * 300)]))
        bare[number] += 1

    async def rate_of(step: Callable[[int], Awaitable[None]], done: list[int]) -> float:
        before, begun_s = sum(done), time.perf_counter()

        async def repeat(number: int) -> None:
            while time.perf_counter() - begun_s < float(seconds):
                await step(number)

        await asyncio.gather(*map(repeat, range(count)))
        return (sum(done) - before) / (time.perf_counter() - begun_s)

    rates = [(2 * await rate_of(copy_segment, ours), await rate_of(write_row, bare)) for _ in range(int(rounds))]
    await manager.close()
    await store.close()
    return {"ours": median(rate for rate, _ in rates), "ratio": median(rate / plain for rate, plain in rates)}


async def fill(path: str, segments: str) -> Answer:
    """Write the rows that ``load`` loads, in another process, so that their memory is not reused."""
    store = await SqliteKeyValueStore.open(Path(path))
    for batch in _batches(0, int(segments)):
        await store.apply(batch)
    await store.close()
    return {}


async def load(path: str, segments: str) -> Answer:
    """Take the leadership of one partition from SQLite, against reading its rows and parsing their JSON."""
    partition, count = partition_number(0), int(segments)
    store = await SqliteKeyValueStore.open(Path(path))
    gc.collect()
    before = _resident()
    Path("/proc/self/clear_refs").write_text("5")  # the peak counts from here on
    manager = _manager(store)
    begun_s = time.perf_counter()
    await manager.become_leader(partition, EPOCH + 1)
    ours_s = time.perf_counter() - begun_s
    _, peak = resident_bytes(os.getpid())
    gc.collect()
    assert len(manager.view(partition).list()) == count
    memory = _resident() - before
    begun_s = time.perf_counter()
    for key, value in await store.scan(KEYS.partition_prefix(partition)):
        if "/seg/" in key:
            json.loads(value[1:])  # behind the number of the format
    reference_s = time.perf_counter() - begun_s
    answer = {"ours": ours_s, "reference": reference_s, "memory": memory, "peak": peak - before}
    await manager.close()
    await store.close()
    return answer


async def follow(path: str, segments: str, looks: str) -> Answer:
    """Refresh one partition of SQLite as a follower after each change, against reading all of its rows once."""
    partition = partition_number(0)
    store = await SqliteKeyValueStore.open(Path(path))
    leader, follower = _manager(store), _manager(store)
    await leader.become_leader(partition, EPOCH + 1)
    follower.follow(partition)
    took_s = []
    for _ in range(int(looks)):
        await leader.prove_leadership(partition)
        begun_s = time.perf_counter()
        tier = await follower.read_epochs(partition)
        took_s.append(time.perf_counter() - begun_s)
        assert tier.copied_offset_for_epoch(EPOCH) == int(segments) * RECORDS - 1
    begun_s = time.perf_counter()
    await follower.read_view(partition)
    reference_s = time.perf_counter() - begun_s
    await store.close()
    return {"ours": median(took_s), "reference": reference_s}


async def many(partitions: str, segments: str) -> Answer:
    """Measure the views of many partitions in one process."""
    gc.collect()
    before = _resident()
    views = [
        load_partition(partition_number(number), _sorted_rows(number, int(segments)), KEYS).view
        for number in range(int(partitions))
    ]
    gc.collect()
    assert sum(len(view.list()) for view in views) == int(partitions) * int(segments)
    gc.collect()
    return {"memory": _resident() - before}


async def rebuild(directory: str, segments: str) -> Answer:
    """Rebuild SQLite from a bucket in memory, against parsing the JSON of every manifest in it."""
    root, objects = Path(directory), MemoryObjectStore()
    tier = FilledTier(root, objects)
    await tier.claim()
    await tier.lead()
    for number in range(int(segments)):
        await tier.copy(number * 10, number * 10 + 9)
    begun_s = time.perf_counter()
    for info in await objects.list_objects(""):
        if info.key.endswith(MANIFEST_SUFFIX):
            json.loads(await objects.get(info.key))
    reference_s = time.perf_counter() - begun_s
    store = await SqliteKeyValueStore.open(root / "rebuilt.db")
    begun_s = time.perf_counter()
    report = await rebuild_of(objects, store).run()
    ours_s = time.perf_counter() - begun_s
    await store.close()
    assert report.is_sound
    return {"ours": ours_s, "reference": reference_s}


def _manager(store: KeyValueStore) -> RemoteLogMetadataManager:
    return RemoteLogMetadataManager(
        store, cluster_id=CLUSTER_ID, broker_id=BROKER_ID, session_id=SESSION, clock=SystemClock()
    )


async def _opened(backend: str, address: str) -> KeyValueStore:
    match backend:
        case "sqlite":
            return await SqliteKeyValueStore.open(Path(address))
        case "postgres":
            return await PostgresKeyValueStore.open(address, schema_name="tierd", pool_size=4, timeout_s=5.0)
        case "redis":
            return await RedisKeyValueStore.open(address, replicas=0, pool_size=8, timeout_s=5.0)
        case _:
            return MemoryKeyValueStore()


def _sorted_rows(number: int, segments: int) -> list[tuple[str, bytes]]:
    partition = partition_number(number)
    prefix = KEYS.partition_prefix(partition)
    return sorted(pair for pair in partition_rows(partition, segments) if pair[0].startswith(prefix))


def _batches(number: int, segments: int) -> list[Batch]:
    puts = [Put(key, value) for key, value in partition_rows(partition_number(number), segments)]
    return [Batch(puts[at : at + _ROWS_PER_BATCH]) for at in range(0, len(puts), _ROWS_PER_BATCH)]


def _resident() -> int:
    return resident_bytes(os.getpid())[0]


if __name__ == "__main__":
    main()
