"""RocksFiles: an open RocksDB directory of a ``RocksStore``.

::

    default   keys and values as they are
    __meta    offset: 8 bytes, big-endian, signed;  store_id: text

Batches go to memory tables and not to a write-ahead log. RocksDB writes the memory tables of both column families to
tables in one atomic step (``atomic_flush``). So after a crash both are as they were behind one batch, and the records
behind that batch are restored again. A flush on request is per column family: data first, the offset last.
"""

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Final
from uuid import uuid4

from tierd.restore.changelog.changelog_errors import StoreFailedError
from tierd.restore.changelog.changelog_source import ChangelogRecords
from tierd.restore.stores.rocks_database import DEFAULT_FAMILY, FamilyWrite, RocksDatabase, RocksTuning

_META: Final = "__meta"
_OFFSET_KEY: Final = b"offset"
_STORE_ID_KEY: Final = b"store_id"
_OFFSET: Final = struct.Struct(">q")
_LOG_FILES: Final = 2


class RocksFiles:
    """Open directory. One thread at a time."""

    def __init__(self, name: str, path: Path, *, write_buffer_bytes: int) -> None:
        """Open the database, or make it.

        Args:
            name: of the store, for errors.
            path: directory.
            write_buffer_bytes: size of a memory table; a crash costs about so many bytes to restore again.

        Raises:
            StoreFailedError: the files are damaged, or the disk is full or failing.
        """
        self._name = name
        self._path = path
        tuning = RocksTuning(
            write_buffer_bytes=write_buffer_bytes, flushes_families_together=True, kept_logs=_LOG_FILES
        )
        self._database = RocksDatabase.open(path, store=name, tuning=tuning, families=(_META,))
        if self._database.read(_STORE_ID_KEY, family=_META) is None:
            self._database.write(FamilyWrite(_META, [(_STORE_ID_KEY, str(uuid4()).encode())]))
            self._database.flush(_META)

    def apply(self, records: ChangelogRecords, last_offset: int) -> None:
        """Set or delete every key in one batch with the offset."""
        self._database.write(
            FamilyWrite(DEFAULT_FAMILY, _changes(records)),
            FamilyWrite(_META, [(_OFFSET_KEY, _OFFSET.pack(last_offset))]),
        )

    def stored_offset(self) -> int | None:
        """Return the last applied offset; None before the first batch."""
        found = self._database.read(_OFFSET_KEY, family=_META)
        if found is None:
            return None
        try:
            (offset,) = _OFFSET.unpack(found)
        except struct.error as error:
            raise StoreFailedError(
                self._name, f"{self._path}: the offset is damaged", remedy="wipe the store"
            ) from error
        return int(offset)

    def store_id(self) -> str | None:
        """Return the id of the directory."""
        found = self._database.read(_STORE_ID_KEY, family=_META)
        return None if found is None else found.decode()

    def is_empty(self) -> bool:
        """Return True if there is no key."""
        return self._database.first_key_from(b"") is None

    def flush(self) -> None:
        """Write both column families to tables and sync these, the offset last."""
        self._database.flush(DEFAULT_FAMILY, _META)

    def close(self) -> None:
        """Close the database, which writes what is in memory."""
        self._database.close()


def _changes(records: ChangelogRecords) -> Iterator[tuple[bytes, bytes | None]]:
    for key, value in zip(records.keys, records.values, strict=True):
        assert key is not None, "the reader leaves records without a key out"
        yield key, value
