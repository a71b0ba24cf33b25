"""MemoryKeyValueStore: the contract in a dictionary, for tests and trials."""

import asyncio
from bisect import bisect_left, insort
from collections.abc import Iterable

from tierd.errors import BackendUnavailableError
from tierd.metadata.kv.key_value_store import Batch, DeletePrefix, KeyValueStore, Put, end_of


class MemoryKeyValueStore(KeyValueStore):
    """A store in the memory of this process, gone at its end. Every call yields to the event loop once."""

    def __init__(self) -> None:
        self._values: dict[str, bytes] = {}
        self._keys: list[str] = []  # invariant: sorted, the keys of _values
        self._closed = False

    async def get(self, key: str) -> bytes | None:
        """Return the value under ``key``."""
        await self._yield_once()
        return self._values.get(key)

    async def get_many(self, keys: Iterable[str]) -> dict[str, bytes]:
        """Return the values of those keys that exist."""
        await self._yield_once()
        return {key: self._values[key] for key in keys if key in self._values}

    async def scan(self, prefix: str) -> list[tuple[str, bytes]]:
        """Return every pair below ``prefix``, in order."""
        await self._yield_once()
        pairs: list[tuple[str, bytes]] = []
        for index in range(bisect_left(self._keys, prefix), len(self._keys)):
            key = self._keys[index]
            if not key.startswith(prefix):
                break
            pairs.append((key, self._values[key]))
        return pairs

    async def apply(self, batch: Batch) -> None:
        """Apply a batch, all of it or nothing."""
        await self._yield_once()
        if (refusal := batch.refusal(self._values.get)) is not None:
            raise refusal
        for write in batch.writes:
            if isinstance(write, Put):
                if write.key not in self._values:
                    insort(self._keys, write.key)
                self._values[write.key] = write.value
            elif isinstance(write, DeletePrefix):
                self._delete_prefix(write.prefix)
            elif self._values.pop(write.key, None) is not None:
                del self._keys[bisect_left(self._keys, write.key)]

    async def close(self) -> None:
        """Refuse further calls; the values stay, so that a test can read them."""
        self._closed = True
        await asyncio.sleep(0)

    def _delete_prefix(self, prefix: str) -> None:
        covered = slice(bisect_left(self._keys, prefix), bisect_left(self._keys, end_of(prefix)))
        for key in self._keys[covered]:
            del self._values[key]
        del self._keys[covered]

    async def _yield_once(self) -> None:
        await asyncio.sleep(0)
        if self._closed:
            raise BackendUnavailableError("the metadata store is closed")
