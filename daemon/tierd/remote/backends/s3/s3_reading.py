"""ObjectReader: reads of objects, their comparison with a body, and the storage classes that are thawed first."""

from typing import Any, Final, NamedTuple

from aiobotocore.response import StreamingBody
from botocore.exceptions import ClientError

from tierd.kernels import crc32c
from tierd.model import ByteRange
from tierd.remote.backends.parts import (
    UploadPart,
    composite_checksum,
    crc32c_of,
    decoded,
    encoded,
    part_of_bytes,
    parts_of,
    parts_of_chunks,
    size_of,
)
from tierd.remote.backends.s3.s3_connection import S3Connection, status_of
from tierd.remote.backends.s3.s3_settings import ObjectOptions
from tierd.remote.deadlines import Deadlines, deadline
from tierd.remote.object_store import ArchiveState, Body, FileBody, ObjectInfo

_READ_BACK_BYTES = 8 << 20
_STEP_BYTES = 1 << 20
_ARCHIVES: Final = frozenset({"GLACIER", "DEEP_ARCHIVE"})  # objects of GLACIER_IR can be read at once
_WITH_ARCHIVE_TIERS: Final = "INTELLIGENT_TIERING"
_UNDER_WAY: Final = 'ongoing-request="true"'


class Tagged(NamedTuple):
    """An object's bytes, and the entity tag that names this version of it."""

    content: bytes
    tag: str


class _Description(NamedTuple):
    info: ObjectInfo
    checksum: str | None


class ObjectReader:
    """Reads of objects with the arguments that ``options`` asks for; uploads have parts of ``part_size`` bytes."""

    def __init__(
        self, connection: S3Connection, *, options: ObjectOptions, part_size: int, deadlines: Deadlines
    ) -> None:
        self._connection = connection
        self._bucket = connection.bucket
        self._options = options
        self._part_size = part_size
        self._deadlines = deadlines

    async def read(self, key: str, byte_range: ByteRange | None = None, *, max_bytes: int | None = None) -> Tagged:
        """Return the object's bytes, or those of ``byte_range`` clipped at its end; at most the first ``max_bytes``.

        Raises:
            RemoteResourceNotFoundError: no such object.
        """
        arguments: dict[str, Any] = {"Bucket": self._bucket, "Key": key, **self._options.access()}
        if byte_range is not None:
            arguments["Range"] = f"bytes={byte_range.start}-{byte_range.end}"
        client = await self._connection.client()
        with self._connection.translated("get", key):
            try:
                reply = await client.get_object(**arguments)
            except ClientError as error:
                if byte_range is not None and status_of(error) == 416:
                    return Tagged(b"", "")
                raise
            async with reply["Body"] as stream:
                content = await (stream.read() if max_bytes is None else _first_bytes(stream, max_bytes))
                return Tagged(content, reply.get("ETag", ""))

    async def head(self, key: str) -> ObjectInfo:
        """Describe the object, with its checksum where the store knows that of the whole."""
        return (await self._describe(key)).info

    async def holds(self, key: str, body: Body, *, patience_s: float) -> bool:
        """Return True if the object is there with the content of ``body``; ``patience_s`` is for the first answer.

        Raises:
            RemoteResourceNotFoundError: no such object.
        """
        async with deadline(f"head {key}", patience_s):
            info, checksum = await self._describe(key)
        parts = await self._parts_of(body)
        if info.size_bytes != size_of(parts):
            return False
        if checksum is not None and "-" not in checksum:
            return checksum == encoded(crc32c_of(parts))
        if checksum is not None and checksum == composite_checksum(parts):
            return True
        # No checksum, or one over parts of another size: the bytes have to be compared.
        return await self._crc_of_object(key, info.size_bytes) == crc32c_of(parts)

    async def _parts_of(self, body: Body) -> list[UploadPart]:
        if isinstance(body, bytes):
            return part_of_bytes(body)
        return (
            parts_of(body, self._part_size)
            if isinstance(body, FileBody)
            else await parts_of_chunks(body, self._part_size)
        )

    async def _describe(self, key: str) -> _Description:
        client = await self._connection.client()
        async with deadline(f"head {key}", self._deadlines.for_size(0)):
            with self._connection.translated("head", key):
                reply = await client.head_object(
                    Bucket=self._bucket, Key=key, ChecksumMode="ENABLED", **self._options.access()
                )
        checksum = reply.get("ChecksumCRC32C")
        crc = decoded(checksum) if checksum and "-" not in checksum else None
        modified_ms = round(reply["LastModified"].timestamp() * 1000) if "LastModified" in reply else None
        storage_class, archive_status = reply.get("StorageClass", ""), reply.get("ArchiveStatus", "")
        info = ObjectInfo(
            key,
            reply["ContentLength"],
            crc,
            modified_ms,
            class_name(storage_class, archive_status=archive_status),
            described_state(storage_class, archive_status=archive_status, restore=reply.get("Restore", "")),
        )
        return _Description(info, checksum)

    async def _crc_of_object(self, key: str, size: int) -> int:
        total = 0
        for position in range(0, size, _READ_BACK_BYTES):
            piece = await self.read(key, ByteRange.of_size(position, _READ_BACK_BYTES))
            total = crc32c(piece.content, total)
        return total


async def _first_bytes(stream: StreamingBody, max_bytes: int) -> bytes:
    """Return the first ``max_bytes`` of ``stream``; the rest is not read."""
    content = bytearray()
    while len(content) < max_bytes and (piece := await stream.read(min(max_bytes - len(content), _STEP_BYTES))):
        content += piece
    return bytes(content)


def listed_state(storage_class: str) -> ArchiveState:
    """Return the state of an object in a listing, which has the class of the object and no more."""
    is_open = storage_class in _ARCHIVES or storage_class == _WITH_ARCHIVE_TIERS
    return ArchiveState.UNKNOWN if is_open else ArchiveState.READABLE


def described_state(storage_class: str, *, archive_status: str, restore: str) -> ArchiveState:
    """Return the state of an object.

    Args:
        storage_class: of the object.
        archive_status: archive tier of an object in the class INTELLIGENT_TIERING; empty for a readable tier.
        restore: header ``x-amz-restore`` of the answer; empty if nothing was asked to be thawed, or the time of the
            thawed copy is over.
    """
    if _UNDER_WAY in restore:
        return ArchiveState.THAWING
    if storage_class in _ARCHIVES:
        return ArchiveState.READABLE if restore else ArchiveState.ARCHIVED
    return ArchiveState.ARCHIVED if archive_status else ArchiveState.READABLE


def class_name(storage_class: str, *, archive_status: str) -> str:
    """Return the class of an object, with its archive tier."""
    return f"{storage_class} {archive_status}" if archive_status else storage_class
