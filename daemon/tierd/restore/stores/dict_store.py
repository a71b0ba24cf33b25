"""DictStore: a state store in memory (changelog-restore 3.5)."""

from pathlib import Path

from tierd.restore.changelog.changelog_source import ChangelogRecords


class DictStore:
    """Store that a process loses with its memory, and that is restored from the beginning.

    Attributes:
        name: as the topology has it.
        data: the present keys and values.
    """

    persistent = False
    transactional = False

    def __init__(self, name: str, *, timestamped: bool = False) -> None:
        self.name = name
        self.timestamped = timestamped
        self.data: dict[bytes, bytes] = {}

    async def open(self, directory: Path) -> None:
        """Begin empty; ``directory`` is not used."""
        self.data.clear()

    async def close(self, *, clean: bool) -> None:
        """Keep the data for readers of ``data``."""

    async def wipe(self) -> None:
        """Remove all data."""
        self.data.clear()

    async def restore_batch(self, records: ChangelogRecords, last_offset: int) -> None:
        """Set or delete every key, in order."""
        for key, value in zip(records.keys, records.values, strict=True):
            assert key is not None, "the reader leaves records without a key out"
            if value is None:
                self.data.pop(key, None)
            else:
                self.data[key] = value

    async def stored_offset(self) -> int | None:
        """Return None: no offset outlives the process."""
        return None

    async def store_id(self) -> str | None:
        """Return None: there are no files."""
        return None

    async def is_empty(self) -> bool:
        """Return True if the store holds no key."""
        return not self.data

    async def flush(self) -> None:
        """Do nothing: memory is not durable."""
