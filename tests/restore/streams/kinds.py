"""A store of each type, a changelog for it, and a clock by which everything is flushed.

``python -m tests.restore.streams.kinds killed DIRECTORY`` begins to restore a store of each type, and is killed.
``… table STEP DIRECTORY`` begins to restore a key-value store, and is killed at a step of a table.
``… large DIRECTORY`` restores a store of 12 MB, and prints the offset after which it began, or why it failed.
"""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncGenerator, Iterable, Iterator
from pathlib import Path
from random import Random

from tests.fakes.clock import FakeClock
from tests.restore.streams.states import ListedChangelog, read_store, records, restore
from tierd.errors import TierError
from tierd.log import Record
from tierd.restore.changelog.changelog_source import ChangelogRecords
from tierd.restore.stores import rocks_database
from tierd.restore.stores.rocks_database import RocksDatabase, TableRows
from tierd.restore.streams.streams_restore import FLUSH_INTERVAL_MS
from tierd.restore.streams.streams_store import StreamsStore, StreamsStoreType

TYPES = list(StreamsStoreType)
BATCH = 60
KILLED_IN = 4  # the batch, counted from 0, that a killed run does not apply


class FlushingClock(FakeClock):
    """A clock by which every batch is old enough to be flushed."""

    def now_ms(self) -> int:
        self.advance(FLUSH_INTERVAL_MS / 1000)
        return super().now_ms()


def window_key(key: bytes, start_ms: int, number: int = 0) -> bytes:
    return key + start_ms.to_bytes(8, "big", signed=True) + number.to_bytes(4, "big")


def session_key(key: bytes, start_ms: int, end_ms: int) -> bytes:
    return key + end_ms.to_bytes(8, "big") + start_ms.to_bytes(8, "big")


def store_of(kind: StreamsStoreType) -> StreamsStore:
    retention = (300, 150) if kind.has_retention else (None, None)
    return StreamsStore(
        name="s", changelog="c", subtopology=0, type=kind, retention_ms=retention[0], segment_interval_ms=retention[1]
    )


def log_of(kind: StreamsStoreType, *, count: int = 400) -> list[Record]:
    """Return records of which time moves on, some late, some deletes, some without key; the first segments expire."""
    rows: list[tuple[bytes | None, bytes | None, int]] = []
    for number in range(count):
        time_ms = number * 5 - (60 if number % 7 == 0 else 0) + 100
        word = b"k%d" % (number * number % 23)
        match kind:
            case StreamsStoreType.WINDOW | StreamsStoreType.TIMESTAMPED_WINDOW:
                key = window_key(word, time_ms // 20 * 20)
            case StreamsStoreType.SESSION:
                key = session_key(word, time_ms - 20, time_ms)
            case _:
                key = word
        value = None if number % 11 == 0 else b"v%d" % number
        rows.append((None if number % 97 == 0 else key, value, time_ms))
    return records(*rows)


PLAIN = store_of(StreamsStoreType.KEY_VALUE)


class _WaitingChangelog(ListedChangelog):
    """Changelog that stops for ever before a batch, after it has said so."""

    def __init__(self, rows: list[Record], reached: "asyncio.Semaphore") -> None:
        super().__init__(rows, size=BATCH)
        self._reached = reached

    async def read(self, offset: int | None) -> AsyncGenerator[ChangelogRecords]:
        number = 0
        async for batch in super().read(offset):
            if number == KILLED_IN:
                self._reached.release()
                await asyncio.Event().wait()
            number += 1
            yield batch


async def _restore_and_die(directory: Path) -> None:
    reached = asyncio.Semaphore(0)
    async with asyncio.TaskGroup() as tasks:
        for kind in TYPES:
            changelog = _WaitingChangelog(log_of(kind), reached)
            tasks.create_task(restore(store_of(kind), changelog, directory / kind.value, clock=FlushingClock()))
        for _ in TYPES:
            await reached.acquire()
        os.kill(os.getpid(), signal.SIGKILL)


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


async def _die_in_table(step: str, directory: Path) -> None:
    """Restore a store of which each batch becomes a table, up to a step of the table ``KILLED_IN``."""
    add_table, done = RocksDatabase.add_table, 0

    def dying(rows: Iterable[TableRows]) -> Iterator[TableRows]:
        yield from rows
        _die()

    def add(self: RocksDatabase, rows: Iterable[TableRows], *, family: str) -> None:
        nonlocal done
        is_last = done == KILLED_IN
        done += 1
        if is_last and step == "written":
            setattr(rocks_database, "IngestExternalFileOptions", _die)  # noqa: B010  made before RocksDB takes the file
        add_table(self, dying(rows) if is_last and step == "half-written" else rows, family=family)
        if is_last:
            _die()

    setattr(RocksDatabase, "add_table", add)  # noqa: B010  mypy takes no other method
    await restore(PLAIN, ListedChangelog(log_of(PLAIN.type), size=BATCH), directory, clock=FlushingClock())


async def _restore_large(directory: Path) -> None:
    random = Random(1)
    rows = records(*((b"%d" % number, random.randbytes(4096), number) for number in range(3000)))
    try:
        restored = await restore(PLAIN, ListedChangelog(rows, size=100), directory, clock=FlushingClock())
    except TierError as error:
        sys.exit(f"{type(error).__name__}: {error}")
    print(restored.resumed_after, restored.last_offset, len(read_store(restored.directory)[".:default"]))


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["killed", target]:
            asyncio.run(_restore_and_die(Path(target)))
        case ["table", table_step, target]:
            asyncio.run(_die_in_table(table_step, Path(target)))
        case ["large", target]:
            asyncio.run(_restore_large(Path(target)))
