"""KeyRewrapping: data keys in manifests wrapped anew under the ring's active key. Data objects are never touched.

Safe beside a running daemon and beside itself: a manifest is replaced only if it is still what was read, and whoever
remembers an old one reads by it as before. Broken off, it is simply run again: what is done is seen and left alone.
"""

import asyncio
from collections.abc import AsyncGenerator, Sequence, Set
from dataclasses import dataclass
from enum import Enum

from tierd.errors import (
    RemoteAccessError,
    RemoteConflictError,
    RemoteIntegrityError,
    RemoteKeyMissingError,
    RemoteResourceNotFoundError,
    RemoteStorageError,
    RetriableRemoteStorageError,
)
from tierd.model import TopicPartition, uuid_to_text
from tierd.remote.keys import MANIFEST_SUFFIX, ObjectKeyFactory
from tierd.remote.object_store import ObjectStore
from tierd.remote.segments.manifest import SegmentManifest
from tierd.remote.segments.open_segment import authenticated
from tierd.remote.transform.key_ring import KeyRing

_PAGE_OBJECTS = 3000  # of a listing; a third of them are manifests


class RewrapResult(Enum):
    """What became of one manifest."""

    REWRAPPED = "rewrapped"  # or would have been, in a dry run
    CURRENT = "current"  # under the active key already
    PLAIN = "plain"  # its segment is not encrypted
    GONE = "gone"  # deleted since it was listed
    CHANGED = "changed"  # by somebody else at the same moment; the next run looks again
    MISSING_KEY = "missing_key"
    DAMAGED = "damaged"
    UNKNOWN = "unknown"  # of a version that this tierd does not know

    @property
    def is_problem(self) -> bool:
        """Whether the manifest still needs somebody."""
        return self not in {self.REWRAPPED, self.CURRENT, self.PLAIN, self.GONE}


@dataclass(frozen=True, slots=True)
class RewrapOutcome:
    """One manifest; ``problem`` and ``remedy`` are empty where there is none."""

    key: str
    result: RewrapResult
    problem: str = ""
    remedy: str = ""


class KeyRewrapping:
    """Rewraps everything below some prefixes.

    Args:
        store: where the manifests are.
        ring: has an active key.
        dry_run: look only.
        concurrency: manifests at a time.
    """

    def __init__(self, store: ObjectStore, ring: KeyRing, *, dry_run: bool = False, concurrency: int = 8) -> None:
        if ring.active_id is None:
            raise ValueError("no key of the ring is active")
        self._store = store
        self._ring = ring
        self._dry_run = dry_run
        self._concurrency = concurrency

    async def run(
        self, keys: ObjectKeyFactory, partitions: list[TopicPartition] | None = None
    ) -> AsyncGenerator[RewrapOutcome, None]:
        """Yield what became of every manifest below the prefix, in the order of the keys.

        Args:
            keys: give the prefix.
            partitions: only these, of every incarnation of their topics; None means all.

        Raises:
            RemoteStorageError: the store does not answer, or refuses us; what is done by then stays done.
        """
        topics: Sequence[str | None] = sorted({each.topic for each in partitions}) if partitions else [None]
        for topic in topics:
            numbers = {each.partition for each in partitions or [] if each.topic == topic}
            async for page in self._pages(keys, topic, numbers):
                for at in range(0, len(page), self._concurrency):
                    for outcome in await self._batch(keys, page[at : at + self._concurrency]):
                        yield outcome

    async def _pages(
        self, keys: ObjectKeyFactory, topic: str | None, numbers: Set[int]
    ) -> AsyncGenerator[list[str], None]:
        """Yield the keys of manifests, of all topics when ``topic`` is None."""
        start_after, prefix = "", keys.root if topic is None else f"{keys.root}{topic}-"
        while page := await self._store.list_objects(prefix, start_after=start_after, limit=_PAGE_OBJECTS):
            start_after = page[-1].key
            manifests = [(info.key, keys.parse(info.key)) for info in page if info.key.endswith(MANIFEST_SUFFIX)]
            yield [
                key
                for key, parsed in manifests
                if parsed and (topic is None or (parsed.topic == topic and parsed.partition in numbers))
            ]

    async def _batch(self, keys: ObjectKeyFactory, batch: list[str]) -> list[RewrapOutcome]:
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(self._one(keys, key), name=f"rewrap {key}") for key in batch]
        except ExceptionGroup as failures:
            raise failures.exceptions[0] from None
        return [task.result() for task in tasks]

    async def _one(self, keys: ObjectKeyFactory, key: str) -> RewrapOutcome:
        try:
            return RewrapOutcome(key, await self._rewrap(keys, key))
        except (RetriableRemoteStorageError, RemoteAccessError):
            raise  # nothing to do with this manifest
        except RemoteResourceNotFoundError:
            return RewrapOutcome(key, RewrapResult.GONE)
        except RemoteStorageError as error:
            return RewrapOutcome(key, _result_of(error), str(error), error.remedy)

    async def _rewrap(self, keys: ObjectKeyFactory, key: str) -> RewrapResult:
        content = await self._store.get(key)
        manifest = SegmentManifest.decode(content, key=key)
        if manifest.encryption is None:
            return RewrapResult.PLAIN
        if manifest.encryption.key_id == self._ring.active_id:
            return RewrapResult.CURRENT
        rewrapped = _rewrapped(manifest, content, self._ring, keys, key=key)
        if not self._dry_run:
            await self._store.replace(key, rewrapped, previous=content)
        return RewrapResult.REWRAPPED


def _rewrapped(manifest: SegmentManifest, content: bytes, ring: KeyRing, keys: ObjectKeyFactory, *, key: str) -> bytes:
    """The manifest with its data key under the active key, everything else as it was.

    Raises:
        RemoteKeyMissingError: the ring has not the key that it is under now.
        RemoteIntegrityError: it was changed, or lies under another segment's key.
    """
    parsed = keys.parse(key)
    assert parsed is not None, "only keys of segments are asked for"
    assert manifest.encryption is not None, "only encrypted segments are asked for"
    if manifest.segment_id != uuid_to_text(parsed.segment_id):
        raise RemoteIntegrityError(f"{key}: the manifest describes another segment", remedy="run tierd verify")
    try:
        binding, wrapped = manifest.binding(), manifest.encryption.wrapped
    except ValueError as error:
        raise RemoteIntegrityError(f"{key}: {error}", remedy="restore the manifest from a version of it") from error
    cipher = authenticated(manifest, content, binding, ring, key=key)
    fresh = ring.wrap(ring.unwrap(wrapped, binding, key=key), binding)
    encryption = manifest.encryption.rewrapped(fresh)
    encoded = manifest.model_copy(update={"encryption": encryption}).encode()
    SegmentManifest.decode(encoded, key=key).require_authentic(cipher, encoded, key=key)
    return encoded


def _result_of(error: RemoteStorageError) -> RewrapResult:
    match error:
        case RemoteKeyMissingError():
            return RewrapResult.MISSING_KEY
        case RemoteIntegrityError():
            return RewrapResult.DAMAGED
        case RemoteConflictError():
            return RewrapResult.CHANGED
        case _:
            return RewrapResult.UNKNOWN
