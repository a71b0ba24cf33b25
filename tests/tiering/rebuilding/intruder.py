"""Intruder of an encrypted tier, who puts objects, deletes none, and has no key ring."""

import json
from collections.abc import Collection
from pathlib import Path

from tests.fakes.log_dirs import LogDirWriter
from tests.fakes.memory_object_store import MemoryObjectStore
from tests.tiering.setups import Tier
from tierd.model import TopicIdPartition
from tierd.remote import Tombstone

FORGED = b"forged"


class Intruder:
    """Maker of objects that lack only the proof of the key ring.

    Args:
        folder: scratch space.
        store: the bucket of the victim.
        partition: of the victim.
    """

    def __init__(self, folder: Path, store: MemoryObjectStore, partition: TopicIdPartition) -> None:
        self._folder = folder
        self._store = store
        self._partition = partition

    async def put(self, key: str, content: bytes) -> None:
        """Put an object by a plain request, in the place of an existing one."""
        await self._store.delete(key)
        await self._store.put(key, content)

    async def segments(self, *, records: int, leader_epoch: int = 0, replaces: Collection[str] = ()) -> None:
        """Put a plain segment of ``records`` forged records from offset 0 on, which replaces those with the ids."""
        log_dir = LogDirWriter(self._folder / "intruder")
        writer = log_dir.add_partition(
            self._partition.topic,
            self._partition.partition,
            topic_id=self._partition.topic_id,
            leader_epoch=leader_epoch,
        )
        for _ in range(records):
            writer.append([FORGED])
        writer.roll()
        writer.append([FORGED])
        log_dir.write_checkpoints()
        tier = Tier(self._folder / "intruder", [log_dir.path], store=MemoryObjectStore())
        tier.clock.advance(3600)
        await tier.session().copy_once()
        for info in await tier.store.list_objects(""):
            content = await tier.store.get(info.key)
            if info.key.endswith(".manifest"):
                fields = json.loads(content) | {"replaces": list(replaces), "leader_epoch": leader_epoch}
                content = json.dumps(fields).encode()
            await self.put(info.key, content)

    async def tombstones(self, *, delete_after_ms: int = 1) -> None:
        """Put a tombstone beside every manifest; its grace is over by default."""
        for info in await self._store.list_objects(""):
            if info.key.endswith(".manifest"):
                tombstone = Tombstone("retention-time", 0, delete_after_ms, 1)
                await self.put(info.key.removesuffix(".manifest") + ".tombstone", tombstone.encode())
