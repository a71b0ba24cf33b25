"""KeyRewrapping: data keys in manifests wrapped anew under the ring's active key. Data objects are never touched.

Tombstones, log start records, reports of erasures and objects of the catalogue are given tags of the active key, where
a key of the ring proves them. An object that no key of the ring proves stays as it is.

The run is safe beside a daemon and beside a second run. A manifest is replaced if it still is as it was read, and a
reader that remembers the old manifest reads by it as before. After an interruption the same command continues: objects
that are done already are left alone.
"""

import asyncio
from collections.abc import AsyncGenerator, Sequence, Set
from dataclasses import dataclass
from enum import Enum
from functools import partial

from tierd.errors import (
    RemoteAccessError,
    RemoteConflictError,
    RemoteIntegrityError,
    RemoteKeyMissingError,
    RemoteResourceNotFoundError,
    RemoteStorageError,
    RemoteUnauthenticatedError,
    RetriableRemoteStorageError,
)
from tierd.model import TopicIdPartition, TopicPartition, uuid_to_text
from tierd.remote.catalogue_object import CatalogueCodec
from tierd.remote.object_keys import MANIFEST_SUFFIX, TOMBSTONE_SUFFIX, ObjectKeyFactory, SegmentKey
from tierd.remote.object_limits import CATALOGUE, ERASURE_REPORT, LOG_START, MANIFEST, TOMBSTONE, ObjectKind, read_whole
from tierd.remote.object_store import ObjectStore
from tierd.remote.segments.manifest import SegmentManifest
from tierd.remote.segments.open_segment import authenticated
from tierd.remote.transform.binding import erasure_report_binding, log_start_binding
from tierd.remote.transform.key_ring import KeyRing
from tierd.remote.transform.object_tag import tagged_anew
from tierd.tasks import together

_PAGE_OBJECTS = 3000  # of a listing; a third of them are manifests


class RewrapResult(Enum):
    """Result for one manifest or object with a tag."""

    REWRAPPED = "rewrapped"  # or would have been, in a dry run
    CURRENT = "current"  # under the active key already
    PLAIN = "plain"  # its segment is not encrypted
    GONE = "gone"  # deleted since it was listed
    CHANGED = "changed"  # by another process at the same moment; the next run reads it again
    MISSING_KEY = "missing_key"
    DAMAGED = "damaged"
    UNKNOWN = "unknown"  # of a version that this tierd does not know
    RETAGGED = "retagged"  # no manifest: it has a tag of the active key now, or would have
    TAG_CURRENT = "tag_current"  # no manifest: it has such a tag already
    UNAUTHENTICATED = "unauthenticated"  # no manifest: no key of the ring proves it

    @property
    def is_problem(self) -> bool:
        """Return True where a person has to do something about the manifest."""
        return self not in {self.REWRAPPED, self.CURRENT, self.PLAIN, self.GONE, self.RETAGGED, self.TAG_CURRENT}


@dataclass(frozen=True, slots=True)
class RewrapOutcome:
    """One manifest or object with a tag; ``problem`` and ``remedy`` are empty where there is none."""

    key: str
    result: RewrapResult
    problem: str = ""
    remedy: str = ""

    @property
    def is_manifest(self) -> bool:
        """Return True for a manifest, False for an object with a tag of its own."""
        return self.key.endswith(MANIFEST_SUFFIX)


class KeyRewrapping:
    """Rewrapping of everything below some prefixes.

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
        """Rewrap every manifest and object with a tag below the prefix; yield the outcomes in the order of the keys.

        Args:
            keys: give the prefix.
            partitions: only these, of every incarnation of their topics; None means all.

        Raises:
            RemoteStorageError: the store does not answer, or refuses access; objects that are done stay done.
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
        """Yield the keys of manifests and of objects with tags, of all topics when ``topic`` is None."""
        for prefix in (keys.root,) if topic is None else keys.topic_prefixes(topic):
            start_after = ""
            while page := await self._store.list_objects(prefix, start_after=start_after, limit=_PAGE_OBJECTS):
                start_after = page[-1].key
                yield [info.key for info in page if _is_concerned(keys, info.key, topic, numbers)]

    async def _batch(self, keys: ObjectKeyFactory, batch: list[str]) -> list[RewrapOutcome]:
        return await together({f"rewrap {key}": partial(self._one, keys, key) for key in batch})

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
        content = await read_whole(self._store, key, _kind_of(keys, key))
        if keys.catalogue.parse(key) is not None:
            return await self._replace(key, content, await asyncio.to_thread(self._codec(keys).rewrapped, key, content))
        if not key.endswith(MANIFEST_SUFFIX):
            return await self._retag(keys, key, content)
        manifest = SegmentManifest.decode(content, key=key)
        if manifest.encryption is None:
            return RewrapResult.PLAIN
        if manifest.encryption.key_id == self._ring.active_id:
            return RewrapResult.CURRENT
        rewrapped = _rewrapped(manifest, content, self._ring, keys, key=key)
        if not self._dry_run:
            await self._store.replace(key, rewrapped, previous=content)
        return RewrapResult.REWRAPPED

    async def _retag(self, keys: ObjectKeyFactory, key: str, content: bytes) -> RewrapResult:
        tagged = tagged_anew(content, self._ring, await self._binding(keys, key), key=key)
        return await self._replace(key, content, tagged)

    def _codec(self, keys: ObjectKeyFactory) -> CatalogueCodec:
        return CatalogueCodec(keys.cluster_id, keys.catalogue.prefix, self._ring)

    async def _replace(self, key: str, content: bytes, tagged: bytes | None) -> RewrapResult:
        if tagged is None:
            return RewrapResult.TAG_CURRENT
        if not self._dry_run:
            await self._store.replace(key, tagged, previous=content)
        return RewrapResult.RETAGGED

    async def _binding(self, keys: ObjectKeyFactory, key: str) -> bytes:
        """Return the binding of the tag of an object; for a tombstone it follows from the manifest beside it."""
        if key.endswith(TOMBSTONE_SUFFIX):
            beside = key.removesuffix(TOMBSTONE_SUFFIX) + MANIFEST_SUFFIX
            manifest = SegmentManifest.decode(await read_whole(self._store, beside, MANIFEST), key=beside)
            try:
                return manifest.binding().for_tombstone()
            except ValueError as error:
                raise RemoteIntegrityError(f"{beside}: {error}", remedy="run tierd verify") from error
        if (partition := keys.parse_log_start(key)) is not None:
            return log_start_binding(keys.cluster_id, partition)
        request_id = keys.parse_erasure_report(key)
        assert request_id is not None, "no other key is asked for"
        return erasure_report_binding(keys.cluster_id, request_id)


def _is_concerned(keys: ObjectKeyFactory, key: str, topic: str | None, numbers: Set[int]) -> bool:
    place: SegmentKey | TopicIdPartition | None = keys.parse_log_start(key)
    if place is None and key.endswith((MANIFEST_SUFFIX, TOMBSTONE_SUFFIX)):
        place = keys.parse(key)
    if place is None:
        is_of_cluster = keys.parse_erasure_report(key) is not None or keys.catalogue.parse(key) is not None
        return topic is None and is_of_cluster
    return topic is None or (place.topic == topic and place.partition in numbers)


def _kind_of(keys: ObjectKeyFactory, key: str) -> ObjectKind:
    """Return the kind of an object that ``_is_concerned``."""
    if key.endswith(MANIFEST_SUFFIX):
        return MANIFEST
    if key.endswith(TOMBSTONE_SUFFIX):
        return TOMBSTONE
    if keys.catalogue.parse(key) is not None:
        return CATALOGUE
    return ERASURE_REPORT if keys.parse_log_start(key) is None else LOG_START


def _rewrapped(manifest: SegmentManifest, content: bytes, ring: KeyRing, keys: ObjectKeyFactory, *, key: str) -> bytes:
    """Return the manifest with its data key under the active key, everything else as it was.

    Raises:
        RemoteKeyMissingError: the ring lacks the key that wraps the data key now.
        RemoteIntegrityError: the manifest was changed, or lies under another segment's key.
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
        case RemoteUnauthenticatedError():
            return RewrapResult.UNAUTHENTICATED
        case RemoteKeyMissingError():
            return RewrapResult.MISSING_KEY
        case RemoteIntegrityError():
            return RewrapResult.DAMAGED
        case RemoteConflictError():
            return RewrapResult.CHANGED
        case _:
            return RewrapResult.UNKNOWN
