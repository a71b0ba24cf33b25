"""ObjectStore: the narrow promise that every backend keeps; segments, retries and metrics are built on top of it."""

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Protocol, TypeAlias

from tierd.errors import ObjectVersionsUnknownError, RemoteResourceNotFoundError
from tierd.model import BlockChecksums, ByteRange


@dataclass(frozen=True, slots=True)
class FileBody:
    """A whole file, or a part of it, to be streamed from disk in steps.

    Attributes:
        path: read with ordinary reads; may be ``/proc/self/fd/N``.
        byte_range: the bytes to send; None for an empty file.
        checksums: of the whole file; ``kernels.crc32c_of_range`` gives that of ``byte_range``.
        pace: the sender awaits it with the size of each step before the step leaves; None: no limit of the rate.
    """

    path: Path
    byte_range: ByteRange | None
    checksums: BlockChecksums
    pace: Callable[[int], Awaitable[None]] | None = None

    @property
    def size(self) -> int:
        """Return the number of bytes to send."""
        return self.byte_range.size if self.byte_range else 0


@dataclass(frozen=True, slots=True)
class ChunkedBody:
    """Bytes that are made while they are sent, so that their number is not known before.

    Attributes:
        chunks: gives an iterator over the same bytes each time it is called, for a repetition or a comparison.
            An iterator that has ``aclose`` is closed when it is left early.
        max_size_bytes: an upper bound of their number, for deadlines and for choosing parts.
        pace: the sender awaits it with the size of each step before the step leaves; None: no limit of the rate.
    """

    chunks: Callable[[], AsyncIterator[bytes]]
    max_size_bytes: int
    pace: Callable[[int], Awaitable[None]] | None = None


Body: TypeAlias = bytes | FileBody | ChunkedBody


def range_beyond(*contents: bytes) -> ByteRange:
    """Return the range that suffices to compare an object with ``contents``: one byte more than the longest of them."""
    return ByteRange.of_size(0, max(map(len, contents)) + 1)


def max_size_of(body: Body) -> int:
    """Return an upper bound of the number of bytes in ``body``."""
    if isinstance(body, bytes):
        return len(body)
    return body.size if isinstance(body, FileBody) else body.max_size_bytes


class ArchiveState(StrEnum):
    """Access to the bytes of an object, as its storage class gives it."""

    READABLE = "readable"
    UNKNOWN = "unknown"  # a listing does not tell it, ``head`` does
    ARCHIVED = "archived"  # the object cannot be read until it is thawed
    THAWING = "thawing"


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """One stored object.

    Attributes:
        crc32c: checksum of the whole object; None where the store reports none.
        modified_ms: time of storing, by the clock and with the precision of the store; None where it reports none.
        storage_class: the store's own word for it; empty where the store reports none.
        archive: access to the bytes of the object.
    """

    key: str
    size_bytes: int
    crc32c: int | None = None
    modified_ms: int | None = None
    storage_class: str = ""
    archive: ArchiveState = ArchiveState.READABLE


@dataclass(frozen=True, slots=True)
class UnfinishedUpload:
    """A multipart upload that was begun and neither completed nor aborted."""

    key: str
    upload_id: str
    initiated_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectVersion:
    """One version of an object.

    Attributes:
        version_id: the store's own word for it; empty where a store has one version of each object and no more.
        size_bytes: 0 for a marker.
        is_current: a ``get`` of the key returns this version.
        is_marker: the version says that the object was deleted, and has no bytes.
        kept_until_ms: time until which the store refuses to delete the version; None where it can be deleted.
    """

    key: str
    version_id: str
    size_bytes: int
    is_current: bool
    is_marker: bool = False
    kept_until_ms: int | None = None


class ObjectStore(Protocol):
    """Objects by key. ``replace`` alone changes an object. Keys are relative text with ``/`` between parts.

    Backends classify errors (see ``errors.RemoteStorageError`` and its kinds), and a wrapper repeats calls that may
    succeed later. Writes are durable when the call returns, and an object is visible whole or not at all. A store that
    cannot list versions inherits from this class, whose two calls for versions raise ``ObjectVersionsUnknownError``.
    """

    async def put(self, key: str, body: Body) -> None:
        """Create the object unless the key exists (``If-None-Match: *``).

        An object that exists with the same size and CRC-32C is success. Large bodies go up in parts where the store
        has them, of which only a few are in memory at a time. Failed or cancelled, the upload is aborted before the
        call ends. Parts that the store has whole are waited for, within a deadline: they would bring the upload back.
        Where the deadline passes, or a second cancellation comes, the unfinished upload may be listed for a while.

        Raises:
            RemoteConflictError: the key exists with other content.
            RemoteIntegrityError: the bytes read are not those of ``body.checksums``; nothing is visible.
            TierError: ``body.chunks`` raised it; nothing is visible.
        """

    async def replace(self, key: str, content: bytes, *, previous: bytes) -> None:
        """Give a small object other content if its content is ``previous`` now.

        A reader sees the old content or the new one. An object that has the new content already is success: the reply
        to an earlier attempt may have been lost.

        Raises:
            RemoteResourceNotFoundError: no such object.
            RemoteConflictError: the object has other content than ``previous``.
        """

    async def get(self, key: str, byte_range: ByteRange | None = None) -> bytes:
        """Return the object's bytes, or those of ``byte_range`` clipped at its end; empty when past it.

        Without a range the answer is as large as the object. An object that another process may have written is read by
        ``object_limits.read_whole``, or in ranges.

        Raises:
            RemoteResourceNotFoundError: no such object.
        """

    async def head(self, key: str) -> ObjectInfo:
        """Describe the object.

        Raises:
            RemoteResourceNotFoundError: no such object.
        """

    async def delete(self, key: str) -> None:
        """Remove the object; one that is not there is no error.

        Raises:
            RemoteObjectRetainedError: the store keeps it, by Object Lock, a retention policy or a legal hold.
        """

    async def list_objects(self, prefix: str, *, start_after: str = "", limit: int | None = None) -> list[ObjectInfo]:
        """Return the objects whose key begins with ``prefix``, in order of their keys' UTF-8 bytes.

        Args:
            prefix: whole keys, not folders.
            start_after: leave out this key and all before it; the last key of one page gives the next.
            limit: return at most so many, 1 or more; None returns all.
        """

    async def list_unfinished_uploads(self, prefix: str) -> list[UnfinishedUpload]:
        """Return uploads begun under ``prefix`` that are neither completed nor aborted, temporary files included."""

    async def abort_upload(self, upload: UnfinishedUpload) -> None:
        """Discard an unfinished upload; one that is gone is no error."""

    async def list_versions(self, prefix: str) -> list[ObjectVersion]:
        """Return every version of every object whose key begins with ``prefix``, by key; markers too.

        Raises:
            ObjectVersionsUnknownError: the store cannot list versions.
            RemoteAccessError: the credentials have no right to list versions.
        """
        del prefix
        raise _versions_unknown()

    async def delete_version(self, version: ObjectVersion) -> None:
        """Remove one version for good; one that is gone is no error.

        Raises:
            RemoteObjectRetainedError: the store keeps it, by Object Lock, a retention policy or a legal hold.
            ObjectVersionsUnknownError: the store cannot do it.
        """
        del version
        raise _versions_unknown()

    async def check(self) -> None:
        """Raise unless the store answers and the bucket or directory is there and may be used."""

    async def close(self) -> None:
        """Release connections; closing twice is harmless."""


async def exists(store: ObjectStore, key: str) -> bool:
    """Return True if the object is there.

    Raises:
        RemoteStorageError: the store does not say.
    """
    try:
        await store.head(key)
    except RemoteResourceNotFoundError:
        return False
    return True


def _versions_unknown() -> ObjectVersionsUnknownError:
    return ObjectVersionsUnknownError(
        "tierd cannot ask this kind of object store for older versions and soft-deleted objects",
        remedy="see with the store's own tools that none of the partition are left, then tierd erase attest ID",
    )
