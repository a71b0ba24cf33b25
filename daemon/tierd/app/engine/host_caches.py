"""The caches on disk of this host: an erasure evicts the segments that are gone."""

import asyncio
import contextlib
import socket
from collections.abc import Awaitable, Callable, Collection, Sequence
from pathlib import Path
from uuid import UUID

from tierd.app.engine.compose import Engine
from tierd.app.stores.caches import CHUNKS_DIRECTORY
from tierd.errors import StateDirError
from tierd.model import RemoteLogSegmentId, TopicIdPartition, uuid_to_text
from tierd.pipeline import (
    Candidate,
    EraseRequests,
    ErasureKeeper,
    ErasureReports,
    KeeperParts,
    LeftSegment,
    OldVersions,
)
from tierd.remote import ObjectKeyFactory, purge_chunks
from tierd.tiering import FetchService, Removals


class HostCaches:
    """Caches of chunks and indexes on disk; open caches evict by themselves, of others the files are deleted."""

    def __init__(self, cache_dir: Path, keys: ObjectKeyFactory, fetches: FetchService | None) -> None:
        """Evict nothing yet; ``keys`` names new segments, and older segments are named by their custom metadata."""
        self._chunks = cache_dir / CHUNKS_DIRECTORY
        self._indexes = cache_dir  # as ``fetching`` gives it to the service
        self._keys = keys
        self._fetches = fetches

    @property
    def host(self) -> str:
        """Return the name of this host."""
        return socket.gethostname()

    async def evict(self, partition: TopicIdPartition, segments: Sequence[LeftSegment]) -> int:
        """Evict everything of these segments; return how many files are left because they are in use.

        Raises:
            StateDirError: a directory of the caches cannot be read or changed.
        """
        keys = [
            self._keys.for_custom_metadata(each.custom_metadata, partition.topic).object(
                RemoteLogSegmentId(partition, each.id), each.start_offset, ".log"
            )
            for each in segments
        ]
        ids = {each.id for each in segments}
        try:
            return await self._evict_chunks(keys) + await self._evict_indexes(ids)
        except OSError as error:
            raise StateDirError(
                f"the caches cannot be looked at: {error}", remedy=f"let this user read and write {self._chunks.parent}"
            ) from error

    async def _evict_chunks(self, keys: Collection[str]) -> int:
        cache = self._fetches.chunk_cache if self._fetches is not None else None
        with contextlib.suppress(FileNotFoundError):  # no cache was ever kept
            return await cache.purge(keys) if cache else await asyncio.to_thread(purge_chunks, self._chunks, keys)
        return 0

    async def _evict_indexes(self, ids: Collection[UUID]) -> int:
        cache = self._fetches.index_cache if self._fetches is not None else None
        if cache is not None:
            cache.remove(ids)  # the cache deletes the files a little later
        return await asyncio.to_thread(_remove_indexes, self._indexes, ids, only_count=cache is not None)


def erasure_keeper(
    engine: Engine,
    removals: Removals,
    requests: EraseRequests,
    find: Callable[[TopicIdPartition], Awaitable[Candidate | None]],
    fetches: FetchService | None,
) -> ErasureKeeper:
    """Return the keeper that carries out erase requests, over the parts of one engine."""
    config = engine.settings.config
    keys = ObjectKeyFactory(config.remote.key_prefix, engine.identity.cluster_id)
    return ErasureKeeper(
        KeeperParts(
            requests=requests,
            find=find,
            remove=removals.remove_at_once,
            versions=OldVersions(engine.store, keys),
            caches=HostCaches(config.cache_dir, keys, fetches),
            reports=ErasureReports(engine.store, keys, requests, engine.ring),
            clock=engine.clock,
        )
    )


def _remove_indexes(directory: Path, ids: Collection[UUID], *, only_count: bool) -> int:
    """Remove the index files of these segments, or only count them; return the number of files that are left."""
    texts = {uuid_to_text(each) for each in ids}
    try:
        files = [path for path in directory.iterdir() if _segment_of(path.name) in texts]
    except FileNotFoundError:
        return 0
    if only_count:
        return len(files)
    for path in files:
        path.unlink(missing_ok=True)
    return 0


def _segment_of(name: str) -> str:
    """Return the segment id in a name like ``<start offset>_<segment id>.index``."""
    return name.partition("_")[2].partition(".")[0]
