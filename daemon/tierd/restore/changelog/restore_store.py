"""RestoreStore: a key-value state store that a changelog is restored into (changelog-restore 3.5)."""

from pathlib import Path
from typing import Protocol

from tierd.restore.changelog.changelog_source import ChangelogRecords


class RestoreStore(Protocol):
    """State store that takes records of one changelog, in order. All calls run one after the other, in one thread.

    ``open`` comes first and ``close`` last; the reader calls the other methods in between.

    Raises, from every call:
        StoreFailedError: the disk is full or failing, or the files are damaged. The store can be wiped.
    """

    @property
    def name(self) -> str:
        """Return the name of the store, as the topology has it."""

    @property
    def persistent(self) -> bool:
        """Return True if the data survive ``close``."""

    @property
    def timestamped(self) -> bool:
        """Return True if values begin with the record's timestamp: 8 bytes, big-endian."""

    @property
    def transactional(self) -> bool:
        """Return True if ``restore_batch`` keeps records and offset as one unit, also across a crash."""

    async def open(self, directory: Path) -> None:
        """Open or create the store in ``directory``; finish a wipe that a crash has interrupted."""

    async def close(self, *, clean: bool) -> None:
        """Close the store; ``clean`` makes everything durable first. A second call does nothing."""

    async def wipe(self) -> None:
        """Remove all data, the stored offset and the store id; the store stays open and is empty.

        A crash in the middle leaves a mark, by which the next ``open`` finishes the wipe.
        """

    async def restore_batch(self, records: ChangelogRecords, last_offset: int) -> None:
        """Set or delete every key, in order. No key is None; a value None deletes.

        Args:
            records: converted already: for a timestamped store every value begins with the timestamp.
            last_offset: offset of the last applied record, which a transactional store keeps with the data.
        """

    async def stored_offset(self) -> int | None:
        """Return the last applied offset of a transactional store; None after a wipe, and for every other store."""

    async def store_id(self) -> str | None:
        """Return the id of these files, given when they were made; it changes when they are wiped or removed.

        None for a store that is not persistent.
        """

    async def is_empty(self) -> bool:
        """Return True if the store holds no key."""

    async def flush(self) -> None:
        """Make every batch durable that was applied before this call."""
