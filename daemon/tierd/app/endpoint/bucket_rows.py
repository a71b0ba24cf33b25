"""BucketRows: the metadata of a tier without its metadata store, read from the bucket into memory again and again."""

from collections.abc import Awaitable, Callable, Iterable
from typing import Final

import structlog

from tierd.clock import Clock
from tierd.errors import RefusedError, TierError
from tierd.metadata import Batch, KeyValueStore, MemoryKeyValueStore

log = structlog.get_logger()

_INTERVAL_S: Final = 600.0
_LEAST_PAUSE: Final = 20.0  # times the last reading: a large tier is not read all the time

Fill = Callable[[KeyValueStore], Awaitable[None]]
"""Reads the metadata from the bucket into an empty store."""


class BucketRows(KeyValueStore):
    """Rows as they were read last; they change all at once. Nothing can be written."""

    def __init__(self, rows: KeyValueStore, fill: Fill, *, clock: Clock) -> None:
        """Begin with ``rows``, and replace them by what ``fill`` reads later."""
        self._rows = rows
        self._fill = fill
        self._clock = clock

    async def refresh(self) -> None:
        """Read the bucket at intervals until cancelled; after a failure the former rows count."""
        pause_s = _INTERVAL_S
        while True:
            await self._clock.sleep(pause_s)
            begun_s, fresh = self._clock.monotonic_s(), MemoryKeyValueStore()
            try:
                await self._fill(fresh)
            except TierError as error:
                log.warning("bucket_not_read", problem=str(error), remedy=error.remedy)
            else:
                self._rows = fresh
            pause_s = max(_INTERVAL_S, _LEAST_PAUSE * (self._clock.monotonic_s() - begun_s))

    async def get(self, key: str) -> bytes | None:
        """Return the value under ``key``."""
        return await self._rows.get(key)

    async def get_many(self, keys: Iterable[str]) -> dict[str, bytes]:
        """Return the values of those keys that exist."""
        return await self._rows.get_many(keys)

    async def scan(self, prefix: str) -> list[tuple[str, bytes]]:
        """Return every pair whose key begins with ``prefix``."""
        return await self._rows.scan(prefix)

    async def apply(self, batch: Batch) -> None:
        """Refuse every change.

        Raises:
            RefusedError: always.
        """
        raise RefusedError(f"{len(batch.writes)} rows cannot be written: they are a copy of what the bucket has")

    async def close(self) -> None:
        """Do nothing."""
