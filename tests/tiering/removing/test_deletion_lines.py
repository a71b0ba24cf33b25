"""Ledger lines of deletions while the store is unreachable, refuses, or has no object of the copy."""

from pathlib import Path

import pytest

from tests.fakes.memory_object_store import MemoryObjectStore
from tests.tiering.removing.world import DELETING, STARTED, Process, World
from tierd.errors import RemoteStorageError, RetriableRemoteStorageError
from tierd.model import RemoteLogSegmentMetadata
from tierd.remote import ObjectInfo


class UnreachableStore(MemoryObjectStore):
    """Store that can be unreachable."""

    is_away = False

    async def head(self, key: str) -> ObjectInfo:
        self._require_answer()
        return await super().head(key)

    async def delete(self, key: str) -> None:
        self._require_answer()
        await super().delete(key)

    def _require_answer(self) -> None:
        if self.is_away:
            raise RetriableRemoteStorageError("away")


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


async def attempt(process: Process, start: int, *, with_objects: bool) -> RemoteLogSegmentMetadata:
    """Begin a copy of a hundred offsets that is never finished."""
    metadata = await process.add(start, start + 99, state=STARTED)
    if not with_objects:
        for suffix in (".log", ".indexes", ".manifest"):
            await process.world.objects.delete(process.key(metadata, suffix))
    return metadata


async def test_attempts_without_an_object_write_no_line_during_and_after_an_outage_of_the_store(world: World) -> None:
    store = UnreachableStore(clock=world.clock)
    world.objects = store
    process = world.process()
    await process.lead()
    attempts = [await attempt(process, start * 100, with_objects=False) for start in range(20)]
    store.is_away = True
    for each in attempts:
        with pytest.raises(RetriableRemoteStorageError):
            await process.deletion.delete(each)
    assert set(process.states().values()) == {DELETING}
    store.is_away = False
    await process.sweep().run_once()
    assert len(process.states()) == 4, "sixteen in one run"
    assert world.ledger_lines() == []


async def test_ledger_line_of_an_attempt_is_written_before_its_object_is_deleted(world: World) -> None:
    process = world.process()
    await process.lead()
    metadata = await attempt(process, 0, with_objects=True)
    lines: list[list[tuple[str, int]]] = []
    process.storage.on_delete = lambda _: lines.append(world.steps())
    await process.deletion.delete(metadata)
    assert lines == [[("deleted", 0)]]
    assert world.steps() == [("deleted", 0)]


async def test_deletion_that_fails_repeatedly_writes_its_lines_once_per_process(world: World) -> None:
    process = world.process()
    await process.lead()
    metadata = await attempt(process, 0, with_objects=True)
    process.storage.refuses = True
    for _ in range(10):
        with pytest.raises(RemoteStorageError, match="refused"):
            await process.deletion.delete(metadata)
    assert world.steps() == [("deleted", 0), ("failed", 0)]

    process.storage.refuses = False
    await process.deletion.delete(metadata)
    assert world.steps() == [("deleted", 0), ("failed", 0)]
    assert process.states() == {}
