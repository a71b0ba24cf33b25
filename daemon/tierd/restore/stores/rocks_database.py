"""RocksDatabase: an open RocksDB directory with its column families; rocksdict ends here. Every call blocks.

Nothing is written to a write-ahead log: what ``flush`` has returned for is durable, and after a crash a column family
holds the batches up to some batch, in order.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import starmap
from pathlib import Path
from typing import Final, NamedTuple, Self

from rocksdict import (
    BlockBasedOptions,
    ColumnFamily,
    DBCompactionStyle,
    DBCompressionType,
    IngestExternalFileOptions,
    MemtableFactory,
    Options,
    Rdict,
    SstFileWriter,
    WriteBatch,
    WriteOptions,
)

from tierd.restore.changelog.changelog_errors import StoreFailedError

DEFAULT_FAMILY: Final = "default"
SIDE_FILE: Final = "rocksdict-config.json"  # of rocksdict; RocksDB has no such file

_TABLE_FILE: Final = "tierd.table"  # while it is written; RocksDB gives it a name of its own
_TABLE_FORMAT: Final = 5  # RocksDB 7.9, which Kafka Streams 3.9 has, reads no later one (DESIGN 13, trap 11)


@dataclass(frozen=True, slots=True, kw_only=True)
class RocksTuning:
    """Settings of a RocksDB directory; the defaults are those of RocksDB.

    Attributes:
        write_buffer_bytes: size of a memory table.
        write_buffers: number of memory tables of a column family.
        buffers_of_table: number of memory tables that become one table, by a merge of what each has in order.
        background_jobs: number of RocksDB's jobs at a time; a quarter of them write memory tables to files.
        flushes_families_together: the memory tables of all column families become tables in one atomic step.
        kept_logs: number of RocksDB's own log files that stay.
        bloom_bits: bits of the filter for each key; None for no filter.
        is_compressed: tables are compressed.
        merges_on_request: tables are merged by ``compact`` and by no thread of RocksDB.
        sorts_late: memory tables are vectors. RocksDB appends to a vector, and a thread of RocksDB sorts it without the
            interpreter's lock when its table is written. A key that is in a memory table is slow to read.
    """

    write_buffer_bytes: int
    write_buffers: int = 2
    buffers_of_table: int = 1
    background_jobs: int = 2
    flushes_families_together: bool = False
    kept_logs: int = 1000
    bloom_bits: int | None = None
    is_compressed: bool = True
    merges_on_request: bool = False
    sorts_late: bool = False


class FamilyWrite(NamedTuple):
    """Changes of one column family, in order: ranges to delete, end exclusive, then keys to set, or delete if None."""

    family: str
    changes: Iterable[tuple[bytes, bytes | None]]
    deleted_ranges: Sequence[tuple[bytes, bytes]] = ()


class TableRows(NamedTuple):
    """Some rows of a table.

    Attributes:
        pairs: keys and values; each key is above the one before, as unsigned bytes.
        value_sizes: of each value, negative for a key to delete; None to delete none.
    """

    pairs: Iterable[tuple[bytes, bytes]]
    value_sizes: Sequence[int] | None


class RocksDatabase:
    """An open RocksDB directory. One thread at a time.

    Raises, from every call:
        StoreFailedError: the files are damaged, or the disk is full or failing.
    """

    def __init__(self, path: Path, store: str, database: Rdict, tuning: RocksTuning, families: Sequence[str]) -> None:
        self._path = path
        self._tuning = tuning
        self._store = store
        self._database = database
        # RocksDB keeps its lock as long as one of these lives: ``close`` drops them first.
        self._families: dict[str, Rdict] = {DEFAULT_FAMILY: database}
        self._handles: dict[str, ColumnFamily | None] = {DEFAULT_FAMILY: None}
        for name in families:
            self._families[name] = database.get_column_family(name)
            self._handles[name] = database.get_column_family_handle(name)
        self._unlogged = WriteOptions()
        setattr(self._unlogged, "disable_wal", True)  # noqa: B010 - an attribute, which the stubs call a method

    @classmethod
    def open(cls, path: Path, *, store: str, tuning: RocksTuning, families: Sequence[str] = ()) -> Self:
        """Open the directory at ``path``, or create it.

        Args:
            path: directory, whose parent exists.
            store: name of the store, for errors.
            tuning: settings of every column family.
            families: column families beside the default one.
        """
        with _translated(path, store):
            by_name = {name: _options(tuning) for name in (DEFAULT_FAMILY, *families)}
            opened = cls(path, store, Rdict(str(path), _options(tuning), by_name), tuning, families)
            (path / _TABLE_FILE).unlink(missing_ok=True)  # of a killed process
            return opened

    def write(self, *writes: FamilyWrite) -> None:
        """Write all changes as one unit."""
        with _translated(self._path, self._store):
            batch = WriteBatch(raw_mode=True)
            for write in writes:
                batch.set_default_column_family(self._handles[write.family])  # of the calls that follow
                for first, end in write.deleted_ranges:
                    batch.delete_range(first, end)
                for key, value in write.changes:
                    if value is None:
                        batch.delete(key)
                    else:
                        batch.put(key, value)
            self._database.write(batch, self._unlogged)

    def add_table(self, rows: Iterable[TableRows], *, family: str) -> None:
        """Write rows as one table, whose keys replace those of the tables before it, and make it durable.

        Args:
            rows: of the whole table, at least one; ascending by key, no key twice.
            family: which gets the table.
        """
        with _translated(self._path, self._store):
            path = self._path / _TABLE_FILE
            table = SstFileWriter(_options(self._tuning))
            table.open(str(path))
            for pairs, value_sizes in rows:
                if value_sizes is None:
                    deque(starmap(table.__setitem__, pairs), maxlen=0)  # a loop without bytecode: there are millions
                    continue
                for (key, value), size in zip(pairs, value_sizes, strict=True):
                    if size < 0:
                        del table[key]
                    else:
                        table[key] = value
            table.finish()
            moving = IngestExternalFileOptions()
            moving.set_move_files(True)
            self._families[family].ingest_external_file([str(path)], moving)

    def read(self, key: bytes, *, family: str = DEFAULT_FAMILY) -> bytes | None:
        """Return the value of a key."""
        with _translated(self._path, self._store):
            value: bytes | None = self._families[family].get(key)
            return value

    def first_key_from(self, key: bytes, *, family: str = DEFAULT_FAMILY) -> bytes | None:
        """Return the first key that is not below ``key``."""
        with _translated(self._path, self._store):
            found = next(iter(self._families[family].keys(from_key=key)), None)
            assert found is None or isinstance(found, bytes), "raw mode has no other keys"
            return found

    def flush(self, *families: str) -> None:
        """Make everything durable that was written to ``families``, in this order."""
        with _translated(self._path, self._store):
            for family in families:
                self._families[family].flush()

    def compact(self, family: str = DEFAULT_FAMILY) -> None:
        """Merge the tables of a column family into few."""
        with _translated(self._path, self._store):
            self._families[family].compact_range(None, None)

    def table_count(self) -> int:
        """Return the number of tables, of all column families."""
        with _translated(self._path, self._store):
            return len(self._database.live_files())

    def close(self) -> None:
        """Close the files. A second call does nothing."""
        if not self._families:
            return
        self._families.clear()
        self._handles.clear()
        with _translated(self._path, self._store):
            self._database.close()


def _options(tuning: RocksTuning) -> Options:
    tables = BlockBasedOptions()
    tables.set_format_version(_TABLE_FORMAT)
    if tuning.bloom_bits is not None:
        tables.set_bloom_filter(tuning.bloom_bits, block_based=False)
    options = Options(raw_mode=True)
    options.create_if_missing(True)
    options.create_missing_column_families(True)
    options.set_atomic_flush(tuning.flushes_families_together)
    options.set_block_based_table_factory(tables)
    options.set_write_buffer_size(tuning.write_buffer_bytes)
    options.set_max_write_buffer_number(tuning.write_buffers)
    options.set_min_write_buffer_number_to_merge(tuning.buffers_of_table)
    options.set_max_background_jobs(tuning.background_jobs)
    options.set_keep_log_file_num(tuning.kept_logs)
    if not tuning.is_compressed:
        options.set_compression_type(DBCompressionType.none())
    if tuning.merges_on_request:
        options.set_compaction_style(DBCompactionStyle.universal())
        options.set_disable_auto_compactions(True)
    if tuning.sorts_late:
        options.set_memtable_factory(MemtableFactory.vector())
        options.set_allow_concurrent_memtable_write(False)  # vectors do not support it
    return options


@contextmanager
def _translated(path: Path, store: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        if type(error) is not Exception:  # rocksdict raises Exception itself
            raise
        raise StoreFailedError(store, f"RocksDB: {path}: {error}") from error
