"""What a store keeps of objects that were deleted or replaced: a further promise that not every backend can make."""

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from tierd.errors import ObjectVersionsUnknownError


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectVersion:
    """One version of an object.

    Attributes:
        version_id: the store's own word for it; empty where a store has one version of each object and no more.
        size_bytes: 0 for a marker.
        is_current: whether whoever asks for the key gets this one.
        is_marker: the version says that the object was deleted, and has no bytes.
        kept_until_ms: until when the store keeps it whatever anybody asks; None where it can be deleted.
    """

    key: str
    version_id: str
    size_bytes: int
    is_current: bool
    is_marker: bool = False
    kept_until_ms: int | None = None


@runtime_checkable
class VersionedObjects(Protocol):
    """A store that tells of every version that it keeps. Wrappers have both calls and pass them on."""

    async def list_versions(self, prefix: str) -> list[ObjectVersion]:
        """Return every version of every object whose key begins with ``prefix``, by key; markers too.

        Raises:
            ObjectVersionsUnknownError: the store cannot tell.
            RemoteAccessError: it does not tell us.
        """

    async def delete_version(self, version: ObjectVersion) -> None:
        """Remove one version for good; one that is gone is no error.

        Raises:
            RemoteObjectRetainedError: the store keeps it, by Object Lock, a retention policy or a legal hold.
            ObjectVersionsUnknownError: the store cannot do it.
        """


def versions_of(store: object) -> VersionedObjects:
    """The store as one that tells of versions.

    Raises:
        ObjectVersionsUnknownError: it does not.
    """
    if isinstance(store, VersionedObjects):
        return store
    raise ObjectVersionsUnknownError(
        "tierd cannot ask this kind of object store for older versions and soft-deleted objects",
        remedy="see with the store's own tools that none of the partition are left, then tierd erase attest ID",
    )
