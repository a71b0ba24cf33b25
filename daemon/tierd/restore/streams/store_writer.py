"""StoreWriter: takes records of a changelog for one store of Kafka Streams, in order.

Every call blocks, and all calls come from one thread. A record may be applied a second time after a crash, if every
record after it is applied again too: the store is then the same.
"""

from pathlib import Path
from typing import Protocol

from tierd.errors import install_extra
from tierd.restore.changelog.changelog_errors import StoreFailedError
from tierd.restore.changelog.changelog_source import ChangelogRecords
from tierd.restore.streams.segment_puts import AppliedRecords
from tierd.restore.streams.streams_store import StreamsStore


class StoreWriter(Protocol):
    """Writer of one store.

    Raises, from every call:
        StoreFailedError: RocksDB failed, the files are damaged, or the records are of another store type.
        OSError: the disk is full or failing.
    """

    @property
    def applied(self) -> AppliedRecords | None:
        """Return the state after the last record that was applied; None without one."""

    @property
    def skipped(self) -> int:
        """Return the number of records without a key so far."""

    def apply(self, records: ChangelogRecords) -> None:
        """Apply records; they may stay in memory until ``flush``."""

    def flush(self) -> None:
        """Make every record durable that was applied."""

    def finish(self) -> None:
        """Make everything durable, and leave the directories as Streams would; ``close`` is the only call after it."""

    def close(self) -> None:
        """Close the files; what was not flushed is lost. A second call does nothing."""


def open_store(store: StreamsStore, root: Path, *, resume: AppliedRecords | None, memory_bytes: int) -> StoreWriter:
    """Open the files of a store below ``root``, the directory of the store, or create them.

    Args:
        store: facts about it.
        root: holds what an earlier run left, and nothing else.
        resume: state for which the earlier run returned from ``flush``; None to begin with an empty ``root``.
        memory_bytes: records of a key-value store to hold in memory; other stores have the memory tables of Streams.

    Raises:
        StoreFailedError: the files cannot be opened or created, or the package is not installed.
    """
    try:
        from tierd.restore.streams.rocks_writers import open_writer  # noqa: PLC0415  rocksdict is an extra
    except ModuleNotFoundError as error:
        raise StoreFailedError(
            store.name, f"needs the package {error.name}, which is not installed", remedy=install_extra("rocksdb")
        ) from error
    return open_writer(store, root, resume=resume, memory_bytes=memory_bytes)
