"""TombstoneStorage: the tombstones of segments in an object store, with the tags that prove who wrote them."""

from tierd.errors import RemoteConflictError, RemoteResourceNotFoundError, RemoteUnauthenticatedError
from tierd.model import RemoteLogSegmentMetadata
from tierd.remote.object_keys import TOMBSTONE_SUFFIX, ObjectKeyFactory
from tierd.remote.object_limits import TOMBSTONE, read_whole
from tierd.remote.object_store import ObjectStore
from tierd.remote.segments.tombstone import Tombstone
from tierd.remote.transform.binding import SegmentBinding
from tierd.remote.transform.key_ring import KeyRing
from tierd.remote.transform.object_tag import require_tag, with_tag


class TombstoneStorage:
    """Tombstones of one cluster. With a key ring they are written with tags, and a read demands the tag."""

    def __init__(self, store: ObjectStore, cluster_id: str, ring: KeyRing) -> None:
        self._store = store
        self._cluster_id = cluster_id
        self._ring = ring

    async def write(self, keys: ObjectKeyFactory, metadata: RemoteLogSegmentMetadata, tombstone: Tombstone) -> None:
        """Store durably that the segment is to be deleted; a tombstone that is there already stays as it is.

        With a key ring, an object whose tag proves nothing is replaced: the metadata of the caller says that the
        segment is to be deleted, and a rebuild uses only tombstones that are proven.

        Raises:
            RemoteObjectTooLargeError: no tombstone is that large; what is there cannot be replaced by content either.
            RemoteIntegrityError: the present object is no tombstone.
        """
        key = keys.segment(metadata, TOMBSTONE_SUFFIX)
        binding = self._binding(metadata)
        content = with_tag(tombstone.encode(), self._ring, binding)
        try:
            await self._store.put(key, content)
        except RemoteConflictError:
            stored = await read_whole(self._store, key, TOMBSTONE)
            try:
                require_tag(stored, self._ring, binding, key=key)
            except RemoteUnauthenticatedError:
                await self._store.replace(key, content, previous=stored)
                return
            Tombstone.decode(stored, key=key)

    async def read(
        self, keys: ObjectKeyFactory, metadata: RemoteLogSegmentMetadata, *, accepts_unauthenticated: bool
    ) -> Tombstone | None:
        """Return the segment's tombstone, None when it has none.

        Args:
            keys: of the segment.
            metadata: of the segment.
            accepts_unauthenticated: return a tombstone without proof too, although a key ring is configured.

        Raises:
            RemoteUnauthenticatedError: nothing proves that a holder of the key ring wrote it.
            RemoteIntegrityError: the present object is no tombstone.
        """
        key = keys.segment(metadata, TOMBSTONE_SUFFIX)
        try:
            content = await read_whole(self._store, key, TOMBSTONE)
        except RemoteResourceNotFoundError:
            return None
        if not accepts_unauthenticated:
            require_tag(content, self._ring, self._binding(metadata), key=key)
        return Tombstone.decode(content, key=key)

    def _binding(self, metadata: RemoteLogSegmentMetadata) -> bytes:
        return SegmentBinding.of(metadata, cluster_id=self._cluster_id).for_tombstone()
