"""ObjectStore: the narrow promise that every backend keeps; segments, retries and metrics are built on top of it."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from tierd.model import BlockChecksums, ByteRange


@dataclass(frozen=True, slots=True)
class FileBody:
    """A whole file, or a part of it, to be streamed from disk in steps.

    Attributes:
        path: read with ordinary reads; may be ``/proc/self/fd/N``.
        byte_range: what to send; None for an empty file.
        checksums: of the whole file; ``kernels.crc32c_of_range`` gives that of ``byte_range``.
        pace: awaited with the size of each step before it leaves, by whoever sends; None sends as fast as it goes.
    """

    path: Path
    byte_range: ByteRange | None
    checksums: BlockChecksums
    pace: Callable[[int], Awaitable[None]] | None = None

    @property
    def size(self) -> int:
        """Bytes to send."""
        return self.byte_range.size if self.byte_range else 0


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """One stored object. ``crc32c`` is None where the store does not tell."""

    key: str
    size_bytes: int
    crc32c: int | None = None


@dataclass(frozen=True, slots=True)
class UnfinishedUpload:
    """A multipart upload that was begun and neither completed nor aborted."""

    key: str
    upload_id: str
    initiated_ms: int


class ObjectStore(Protocol):
    """Keys to immutable objects. Keys are relative text with ``/`` between parts.

    Backends only classify errors (see ``errors.RemoteStorageError`` and its kinds); one wrapper retries for all.
    Writes are durable when the call returns, and an object is visible whole or not at all.
    """

    async def put(self, key: str, body: bytes | FileBody) -> None:
        """Create the object unless the key exists (``If-None-Match: *``).

        An object that exists with the same size and CRC-32C is success. Large files go up in parallel parts where
        the store has them; failed or cancelled, the upload is aborted.

        Raises:
            RemoteConflictError: the key exists with other content.
            RemoteIntegrityError: the bytes read are not those of ``body.checksums``; nothing is visible.
        """

    async def get(self, key: str, byte_range: ByteRange | None = None) -> bytes:
        """Return the object's bytes, or those of ``byte_range`` clipped at its end; empty when past it.

        Raises:
            RemoteResourceNotFoundError: no such object.
        """

    async def head(self, key: str) -> ObjectInfo:
        """Describe the object.

        Raises:
            RemoteResourceNotFoundError: no such object.
        """

    async def delete(self, key: str) -> None:
        """Remove the object; one that is not there is no error."""

    async def list_objects(self, prefix: str) -> list[ObjectInfo]:
        """Return every object whose key begins with ``prefix``, in order of key."""

    async def list_unfinished_uploads(self, prefix: str) -> list[UnfinishedUpload]:
        """Return uploads begun under ``prefix`` that are neither completed nor aborted, temporary files included."""

    async def abort_upload(self, upload: UnfinishedUpload) -> None:
        """Discard an unfinished upload; one that is gone is no error."""

    async def check(self) -> None:
        """Raise unless the store answers and the bucket or directory is there and may be used."""

    async def close(self) -> None:
        """Release connections; closing twice is harmless."""
