"""OwnedObjectStore: nothing is written into a tier before the prefix is proven to be ours (DESIGN 4)."""

import asyncio
from collections.abc import Awaitable, Callable

import structlog

from tierd.backoff import Backoff
from tierd.clock import Clock
from tierd.errors import ForeignTierError, MetadataError, RemoteStorageError, TierError
from tierd.model import ByteRange
from tierd.remote import Body, ObjectInfo, ObjectStore, ObjectVersion, UnfinishedUpload, versions_of

log = structlog.get_logger()


class OwnedObjectStore:
    """An ``ObjectStore`` that proves its ownership before the first change; reads pass through.

    So a daemon may start while the object store is away: partitions are watched and held meanwhile.
    """

    def __init__(self, inner: ObjectStore, claim: Callable[[], Awaitable[None]]) -> None:
        """``claim`` returns when the prefix is ours; it may be called again after a failure."""
        self._inner = inner
        self._claim = claim
        self._claiming = asyncio.Lock()
        self.problem = "the object store has not answered yet"
        """Why the tier is not ours yet; empty when it is."""

    async def own(self) -> None:
        """Claim the prefix unless that is done.

        Raises:
            ForeignTierError: it belongs to another metadata store.
            RemoteStorageError: the object store failed.
            MetadataError: the metadata store, which says if the tier was ever claimed, failed.
        """
        if not self.problem:
            return
        async with self._claiming:  # held across the network on purpose: one claim serves everybody who waits
            if not self.problem:  # somebody else's claim has succeeded meanwhile
                return
            try:
                await self._claim()
            except TierError as error:
                self.problem = str(error)
                raise
            self.problem = ""

    async def put(self, key: str, body: Body) -> None:
        """Create the object, once the prefix is ours."""
        await self.own()
        await self._inner.put(key, body)

    async def replace(self, key: str, content: bytes, *, previous: bytes) -> None:
        """Give the object other content, once the prefix is ours."""
        await self.own()
        await self._inner.replace(key, content, previous=previous)

    async def get(self, key: str, byte_range: ByteRange | None = None) -> bytes:
        """Return the object's bytes."""
        return await self._inner.get(key, byte_range)

    async def head(self, key: str) -> ObjectInfo:
        """Describe the object."""
        return await self._inner.head(key)

    async def delete(self, key: str) -> None:
        """Remove the object, once the prefix is ours."""
        await self.own()
        await self._inner.delete(key)

    async def list_objects(self, prefix: str, *, start_after: str = "", limit: int | None = None) -> list[ObjectInfo]:
        """Return the objects below ``prefix``."""
        return await self._inner.list_objects(prefix, start_after=start_after, limit=limit)

    async def list_unfinished_uploads(self, prefix: str) -> list[UnfinishedUpload]:
        """Return unfinished uploads below ``prefix``."""
        return await self._inner.list_unfinished_uploads(prefix)

    async def abort_upload(self, upload: UnfinishedUpload) -> None:
        """Discard an unfinished upload, once the prefix is ours."""
        await self.own()
        await self._inner.abort_upload(upload)

    async def list_versions(self, prefix: str) -> list[ObjectVersion]:
        """Return every version of the objects below ``prefix``."""
        return await versions_of(self._inner).list_versions(prefix)

    async def delete_version(self, version: ObjectVersion) -> None:
        """Remove one version, once the prefix is ours."""
        await self.own()
        await versions_of(self._inner).delete_version(version)

    async def check(self) -> None:
        """Raise unless the store may be used."""
        await self._inner.check()

    async def close(self) -> None:
        """Close the inner store."""
        await self._inner.close()


async def own_until_done(
    store: OwnedObjectStore, *, clock: Clock, random: Callable[[], float], backoff: Backoff
) -> None:
    """Try until the prefix is ours, with backoff; logs each change of cause once.

    Raises:
        ForeignTierError: it belongs to another metadata store, which no waiting changes.
    """
    failures, reported = 0, ""
    while True:
        try:
            await store.own()
        except ForeignTierError:
            raise
        except (RemoteStorageError, MetadataError) as error:
            failures += 1
            if str(error) != reported:
                reported = str(error)
                log.warning("tier_not_reachable", problem=reported, remedy=error.remedy)
        else:
            return
        await clock.sleep(backoff.delay_s(failures, random=random))
