"""Child processes of a ``ForkingParent``, which fill and wipe stores until they are killed.

Batch n sets the keys of n to the value n, and deletes those of batch n - 3. So the content follows from the offset.
"""

import asyncio
import os
from pathlib import Path
from typing import Final

from tests.fakes.forking_parent import serve_lines
from tests.restore.stores.store_fixtures import changes
from tierd.restore.stores import rocks_files  # noqa: F401  imported before the first fork
from tierd.restore.stores.rocks_store import RocksStore
from tierd.restore.stores.sqlite_store import SqliteStore

_KEYS: Final = 50
_BATCHES_BETWEEN_WIPES: Final = 3


def batch_number(number: int) -> list[tuple[bytes, bytes | None]]:
    """Return the changes of batch ``number``."""
    puts: list[tuple[bytes, bytes | None]] = [(b"%d-%d" % (number, n), b"%d" % number) for n in range(_KEYS)]
    return puts + [(b"%d-%d" % (number - 3, n), None) for n in range(_KEYS)]


def expected_content(offset: int | None) -> dict[bytes, bytes]:
    """Return the content behind batch ``offset``."""
    if offset is None:
        return {}
    batches = range(max(offset - 2, 0), offset + 1)
    return {b"%d-%d" % (number, n): b"%d" % number for number in batches for n in range(_KEYS)}


async def _fill(store: SqliteStore | RocksStore, directory: Path) -> None:
    """Apply batches for ever, and print a line for each."""
    await store.open(directory)
    offset = await store.stored_offset()
    number = 0 if offset is None else offset + 1
    while True:
        await store.restore_batch(changes(batch_number(number)), number)
        print(f"applied {number}", flush=True)
        number += 1


async def _wipe(store: SqliteStore | RocksStore, directory: Path) -> None:
    """Wipe and fill a store for ever, and print a line before each further wipe."""
    await store.open(directory)
    while True:
        await store.wipe()
        for number in range(_BATCHES_BETWEEN_WIPES):
            await store.restore_batch(changes(batch_number(number)), number)
        await store.flush()
        print("applied all", flush=True)


def live(line: str) -> int:
    """Run one child: ``<fill or wipe> <kind> <directory>``. It prints its process id first."""
    action, kind, directory = line.split(maxsplit=2)
    print(os.getpid(), flush=True)
    # Memory tables so small that RocksDB often flushes them.
    store = SqliteStore("counts") if kind == "sqlite" else RocksStore("counts", write_buffer_bytes=64 << 10)
    asyncio.run((_fill if action == "fill" else _wipe)(store, Path(directory.strip())))
    return 0


if __name__ == "__main__":
    serve_lines(live)
