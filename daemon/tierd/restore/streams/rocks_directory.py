"""RocksDirectory: one RocksDB directory as Kafka Streams opens it. Every call blocks.

Changes wait in memory tables: vectors in a directory that is only written, sorted ones in a directory that is read too.
Rows that are sorted already become a table without waiting.
Streams 3.9 has RocksDB 7.9, which opens a directory only if it knows every column family (DESIGN 13, trap 11).
Nothing is written to a write-ahead log: what ``flush`` has returned for is durable, and after a crash the directory
holds the batches up to some batch, in order.
"""

import os
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Final, Self

from tierd.log import OsDisk
from tierd.restore.stores.rocks_database import (
    DEFAULT_FAMILY,
    SIDE_FILE,
    FamilyWrite,
    RocksDatabase,
    RocksTuning,
    TableRows,
)
from tierd.restore.streams.segment_puts import Puts

_MEMORY_BYTES: Final = 48 << 20
"""Memory tables of Kafka Streams: three of 16 MiB (RocksDBStore)."""

_WRITE_BUFFERS: Final = 3
_BUFFERS_OF_TABLE: Final = 4  # of vectors: small ones are sorted within the caches of the processor
_BACKGROUND_JOBS: Final = 8  # two of which sort and write


class RocksDirectory:
    """An open RocksDB directory that takes puts or tables; one thread at a time.

    Raises, from every call:
        StoreFailedError: the disk is full or failing, or the files are damaged.
    """

    def __init__(self, path: Path, database: RocksDatabase, family: str, *, is_read: bool) -> None:
        self._path = path
        self._database = database
        self._family = family
        self._is_read = is_read

    @classmethod
    def open(
        cls,
        path: Path,
        *,
        store: str,
        column_family: str | None,
        is_read: bool = False,
    ) -> Self:
        """Open or create a directory.

        Args:
            path: of the directory; its parent is created too.
            store: name, for errors.
            column_family: that holds the data; None for the default one.
            is_read: keys are read before the last one is written; otherwise a read is slow.
        """
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o750)
        families = () if column_family is None else (column_family,)
        tuning = _tuning(is_read=is_read)
        database = RocksDatabase.open(path, store=store, tuning=tuning, families=families)
        return cls(path, database, column_family or DEFAULT_FAMILY, is_read=is_read)

    def write(self, puts: Puts, *, expired: Sequence[tuple[bytes, bytes]] = ()) -> None:
        """Write as one unit: delete the ranges ``expired``, end exclusive, then set or delete keys."""
        keys = sorted(puts) if self._is_read else puts  # sorted memory tables take ascending keys faster
        self._database.write(FamilyWrite(self._family, ((key, puts[key]) for key in keys), expired))

    def add_table(self, rows: Iterable[TableRows]) -> None:
        """Set or delete ascending keys, durably: they become one table, above those that are there."""
        self._database.add_table(rows, family=self._family)

    def read(self, key: bytes) -> bytes | None:
        """Return the value of a key."""
        return self._database.read(key, family=self._family)

    def first_key_from(self, key: bytes) -> bytes | None:
        """Return the first key that is not below ``key``."""
        return self._database.first_key_from(key, family=self._family)

    def flush(self) -> None:
        """Make everything durable that was written."""
        self._database.flush(self._family)

    def close(self) -> None:
        """Close the files; what was not flushed is lost. A second call does nothing."""
        self._database.close()

    def finish(self, *, most_tables: int = 0) -> None:
        """Make everything durable, and close the directory as Streams would leave it.

        Args:
            most_tables: if there are more tables, they are merged first.
        """
        self._database.flush(self._family)
        if self._database.table_count() > most_tables:
            self._database.compact(self._family)
        self.close()
        with suppress(FileNotFoundError):
            (self._path / SIDE_FILE).unlink()
        sync_tree(self._path)


def sync_tree(directory: Path) -> None:
    """Make the names and the files below ``directory`` durable.

    Raises:
        OSError: the disk is failing.
    """
    disk = OsDisk()
    for folder, _, names in os.walk(directory):
        for name in names:
            file = disk.open(Path(folder, name), write=False)
            try:
                file.sync()
            finally:
                file.close()
        disk.sync_directory(Path(folder))


def _tuning(*, is_read: bool) -> RocksTuning:
    """Return the settings of Kafka Streams (RocksDBStore), with merges of tables left to the end."""
    tuning = RocksTuning(
        write_buffer_bytes=_MEMORY_BYTES // _WRITE_BUFFERS,
        write_buffers=_WRITE_BUFFERS,
        bloom_bits=10,
        is_compressed=False,
        merges_on_request=True,
    )
    if is_read:
        return tuning
    return replace(
        tuning,
        write_buffer_bytes=tuning.write_buffer_bytes // _BUFFERS_OF_TABLE,
        write_buffers=_WRITE_BUFFERS * _BUFFERS_OF_TABLE,
        buffers_of_table=_BUFFERS_OF_TABLE,
        background_jobs=_BACKGROUND_JOBS,
        sorts_late=True,
    )
