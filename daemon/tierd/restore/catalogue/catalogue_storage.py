"""CatalogueStorage: the catalogue's objects in the bucket. With a key ring they are proven, and what is not is refused.

Positions objects are written once. Objects of topics and nodes are replaced where they still are as they were read.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from tierd.errors import (
    RemoteConflictError,
    RemoteIntegrityError,
    RemoteResourceNotFoundError,
    RetriableRemoteStorageError,
)
from tierd.remote import (
    CATALOGUE,
    CatalogueCodec,
    CatalogueKey,
    CatalogueKeys,
    CatalogueNodeKey,
    CataloguePositionsKey,
    CatalogueTopicKey,
    KeyRing,
    ObjectKeyFactory,
    ObjectStore,
    read_whole,
)
from tierd.restore.catalogue.catalogue_json import (
    node_fields,
    parse_node,
    parse_positions,
    parse_topic,
    positions_fields,
    topic_fields,
)
from tierd.restore.catalogue.catalogue_objects import CataloguedNode, CataloguedTopic, Positions

_PAGE_OBJECTS = 1000
_ATTEMPTS = 3


@dataclass(frozen=True, slots=True)
class StoredTopic:
    """Object in the place of a topic's.

    Attributes:
        content: of the object.
        versions: the newest last; none where the content is damaged, or is not proven by the key ring.
        damage: reason why there are none; otherwise empty.
    """

    content: bytes
    versions: tuple[CataloguedTopic, ...]
    damage: str = ""


class CatalogueStorage:
    """Catalogue of one cluster, below one prefix of one store."""

    def __init__(self, store: ObjectStore, keys: ObjectKeyFactory, ring: KeyRing) -> None:
        self._store = store
        self._keys: CatalogueKeys = keys.catalogue
        self._codec = CatalogueCodec(keys.cluster_id, keys.catalogue.prefix, ring)

    async def write_positions(self, positions: Positions) -> None:
        """Store positions durably, under their time and node.

        Raises:
            RemoteStorageError: the store failed; the object may or may not be there.
        """
        key = self._keys.key(CataloguePositionsKey(positions.taken_ms, positions.node_id))
        content = await asyncio.to_thread(lambda: self._codec.encode(key, positions_fields(positions)))
        await self._store.put(key, content)

    async def read_positions(self, identity: CataloguePositionsKey) -> Positions:
        """Return the positions of one object.

        Raises:
            RemoteResourceNotFoundError: the object is gone.
            RemoteUnauthenticatedError: the key ring does not prove it.
            RemoteStorageError: the object is damaged, or the store failed.
        """
        key = self._keys.key(identity)
        content = await read_whole(self._store, key, CATALOGUE)

        def parsed() -> Positions:
            fields = self._codec.decode(key, content)
            return parse_positions(key, fields, node_id=identity.node_id, taken_ms=identity.taken_ms)

        return await asyncio.to_thread(parsed)

    async def list_positions(self) -> list[CataloguePositionsKey]:
        """Return every positions object by its key, the oldest first.

        Raises:
            RemoteStorageError: the store failed.
        """
        found = await self._listed(self._keys.all_positions)
        return [each for each in found if isinstance(each, CataloguePositionsKey)]

    async def remove_positions(self, identity: CataloguePositionsKey) -> None:
        """Remove one object; none is no error.

        Raises:
            RemoteObjectRetainedError: the store keeps it.
            RemoteStorageError: the store failed.
        """
        await self._store.delete(self._keys.key(identity))

    async def list_topics(self) -> list[CatalogueTopicKey]:
        """Return every topic that has an object, in the order of their keys.

        Raises:
            RemoteStorageError: the store failed.
        """
        found = await self._listed(self._keys.all_topics)
        return [each for each in found if isinstance(each, CatalogueTopicKey)]

    async def read_topic(self, identity: CatalogueTopicKey) -> StoredTopic | None:
        """Return the object of a topic; None where there is none.

        Raises:
            RemoteFormatError: a later tierd wrote it.
            RemoteObjectTooLargeError: the object is larger than any of its kind.
            RemoteStorageError: the store failed.
        """
        key = self._keys.key(identity)
        try:
            content = await read_whole(self._store, key, CATALOGUE)
        except RemoteResourceNotFoundError:
            return None
        try:
            fields = await asyncio.to_thread(self._codec.decode, key, content)
            versions = parse_topic(key, fields, topic=identity.topic, topic_id=identity.topic_id)
        except RemoteIntegrityError as error:
            return StoredTopic(content, (), str(error))
        return StoredTopic(content, versions)

    async def write_topic(self, versions: Sequence[CataloguedTopic], *, previous: bytes | None) -> None:
        """Store the versions of a topic durably if its object still has the content ``previous``; None for no object.

        Raises:
            RemoteConflictError: the object has other content.
            RemoteResourceNotFoundError: the object is gone.
            RemoteStorageError: the store failed; the object may or may not have the new content.
        """
        key = self._keys.key(CatalogueTopicKey(versions[-1].name, versions[-1].topic_id))
        content = await asyncio.to_thread(lambda: self._codec.encode(key, topic_fields(versions)))
        await self._put(key, content, previous)

    async def read_node(self, node_id: int) -> CataloguedNode | None:
        """Return the object of a node; None where there is none.

        Raises:
            RemoteUnauthenticatedError: the key ring does not prove it.
            RemoteKeyMissingError: the key ring lacks the key that sealed its snapshot.
            RemoteStorageError: the object is damaged, or the store failed.
        """
        key = self._keys.key(CatalogueNodeKey(node_id))
        try:
            content = await read_whole(self._store, key, CATALOGUE)
        except RemoteResourceNotFoundError:
            return None

        def parsed() -> CataloguedNode:
            fields = self._codec.decode(key, content)
            return parse_node(key, fields, node_id=node_id, snapshot=self._codec.secret(key, fields))

        return await asyncio.to_thread(parsed)

    async def list_nodes(self) -> list[int]:
        """Return the ids of the nodes that have an object, ascending.

        Raises:
            RemoteStorageError: the store failed.
        """
        found = await self._listed(self._keys.all_nodes)
        return sorted(each.node_id for each in found if isinstance(each, CatalogueNodeKey))

    async def write_node(self, node: CataloguedNode) -> None:
        """Store a node durably, in the place of what is there: only the node itself writes its object.

        Raises:
            RemoteStorageError: the store failed, or another process writes the object too.
        """
        key = self._keys.key(CatalogueNodeKey(node.node_id))
        content = await asyncio.to_thread(
            lambda: self._codec.encode(key, node_fields(node), secret=node.metadata_snapshot)
        )
        for _ in range(_ATTEMPTS):
            try:
                previous: bytes | None = await read_whole(self._store, key, CATALOGUE)
            except RemoteResourceNotFoundError:
                previous = None
            try:
                await self._put(key, content, previous)
            except (RemoteConflictError, RemoteResourceNotFoundError):
                continue
            return
        raise RetriableRemoteStorageError(
            f"{key} changed {_ATTEMPTS} times while it was written",
            remedy="look for a second tierd with the same node id",
        )

    async def _put(self, key: str, content: bytes, previous: bytes | None) -> None:
        if previous is None:
            await self._store.put(key, content)
        elif previous != content:
            await self._store.replace(key, content, previous=previous)

    async def _listed(self, prefix: str) -> list[CatalogueKey]:
        found: list[CatalogueKey] = []
        last = ""
        while page := await self._store.list_objects(prefix, start_after=last, limit=_PAGE_OBJECTS):
            last = page[-1].key
            found += [identity for info in page if (identity := self._keys.parse(info.key)) is not None]
        return found
