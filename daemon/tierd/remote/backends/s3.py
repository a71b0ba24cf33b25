"""S3ObjectStore: any S3-compatible store, through aiobotocore.

Every object is created with ``If-None-Match: *`` and our own CRC-32C, so that the store itself verifies what arrived.
Payloads go unsigned and are streamed from disk; the client library's own retries are off.
"""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError

from tierd.errors import (
    RemoteConflictError,
    RemoteResourceNotFoundError,
    RemoteStorageError,
    RetriableRemoteStorageError,
)
from tierd.kernels import crc32c, crc32c_of_range
from tierd.model import CHECKSUM_BLOCK_BYTES, ByteRange
from tierd.remote.backends.s3_connection import S3Connection, status_of
from tierd.remote.backends.s3_errors import NoAnswerError, UploadGoneError
from tierd.remote.backends.s3_multipart import CLEAN_UP_TIMEOUT_S, MultipartUploads
from tierd.remote.backends.s3_parts import (
    Part,
    composite_checksum,
    crc32c_of,
    decoded,
    encoded,
    part_of_bytes,
    parts_of,
    size_of,
)
from tierd.remote.backends.s3_sender import BodySender
from tierd.remote.deadlines import Deadlines, deadline
from tierd.remote.object_store import FileBody, ObjectInfo, UnfinishedUpload
from tierd.remote.retrying import Retry

if TYPE_CHECKING:
    from types_aiobotocore_s3.type_defs import GetObjectRequestTypeDef

_MIN_PART_BYTES = 5 << 20  # S3's own limit
_READ_BACK_BYTES = 8 << 20
_SPARE_CONNECTIONS = 16  # for calls without a body, which must not queue behind uploads that hang


class S3ObjectStore:
    """An ``ObjectStore`` in one bucket.

    Args:
        bucket: must exist.
        endpoint_url: of a store that is not AWS.
        access_key_id: with ``secret_access_key``; both None: as the client library finds them (environment,
            files, instance role).
        part_size: bytes per part of a multipart upload; smaller objects go up in one request. A multiple of 1 MiB.
        max_concurrency: requests with a body at a time, over all uploads; more than 4 gained nothing when measured.
        storage_class: of what is streamed from files, so of logs; what lies beside them is small and read more often.
        path_style: put the bucket into the path, not into the host name.
        ca_file: certificates to trust instead of the system's.
        deadlines: for each request that sends bytes.
        retry: repeats single parts, so that a hiccup does not cost the whole segment; None: no repetition.
    """

    def __init__(
        self,
        *,
        bucket: str,
        endpoint_url: str | None = None,
        region: str | None = None,
        access_key_id: str | None = None,
        secret_access_key: str | None = None,
        part_size: int = 25 << 20,
        max_concurrency: int = 4,
        path_style: bool = False,
        storage_class: str | None = None,
        ca_file: Path | None = None,
        connect_timeout_s: float = 10.0,
        read_timeout_s: float = 60.0,
        deadlines: Deadlines | None = None,
        retry: Retry | None = None,
    ) -> None:
        if part_size < _MIN_PART_BYTES or part_size % CHECKSUM_BLOCK_BYTES:
            raise ValueError(f"part_size {part_size} is not a multiple of 1 MiB of at least 5 MiB")
        self._bucket = bucket
        self._part_size = part_size
        self._log_arguments: dict[str, Any] = {"StorageClass": storage_class} if storage_class else {}
        self._deadlines = deadlines or Deadlines()
        self._clean_up_s = min(CLEAN_UP_TIMEOUT_S, self._deadlines.base_s)
        self._connection = S3Connection(
            bucket=bucket,
            endpoint_url=endpoint_url,
            region=region,
            access_key_id=access_key_id,
            secret_access_key=secret_access_key,
            max_connections=max_concurrency + _SPARE_CONNECTIONS,
            path_style=path_style,
            ca_file=ca_file,
            connect_timeout_s=connect_timeout_s,
            read_timeout_s=read_timeout_s,
        )
        self._sender = BodySender(self._connection, max_concurrency=max_concurrency, deadlines=self._deadlines)
        self._uploads = MultipartUploads(
            self._connection,
            self._sender,
            part_size=part_size,
            arguments=self._log_arguments,
            deadlines=self._deadlines,
            retry=retry,
        )

    async def put(self, key: str, body: bytes | FileBody) -> None:
        """Create the object unless the key exists; cancelled or failed, it aborts its multipart upload first."""
        try:
            if isinstance(body, FileBody) and body.size > self._part_size:
                await self._uploads.put(key, body)
            else:
                await self._put_whole(key, body)
        except (RemoteConflictError, UploadGoneError, NoAnswerError) as error:
            # The key exists, or the reply to what created it was lost. A server may also refuse a key that exists and
            # hang up while the body is still on its way, and then only the broken connection is seen.
            await self._stored_after_all(key, body, error)

    async def get(self, key: str, byte_range: ByteRange | None = None) -> bytes:
        """Return the object's bytes, or those of ``byte_range`` clipped at its end."""
        arguments: GetObjectRequestTypeDef = {"Bucket": self._bucket, "Key": key}
        if byte_range is not None:
            arguments["Range"] = f"bytes={byte_range.start}-{byte_range.end}"
        client = await self._connection.client()
        with self._connection.translated("get", key):
            try:
                reply = await client.get_object(**arguments)
            except ClientError as error:
                if byte_range is not None and status_of(error) == 416:
                    return b""
                raise
            async with reply["Body"] as stream:
                return await stream.read()

    async def head(self, key: str) -> ObjectInfo:
        """Describe the object; with its checksum where the store knows that of the whole."""
        size, checksum = await self._describe(key)
        return ObjectInfo(key, size, decoded(checksum) if checksum and "-" not in checksum else None)

    async def delete(self, key: str) -> None:
        """Remove the object."""
        client = await self._connection.client()
        try:
            with self._connection.translated("delete", key):
                await client.delete_object(Bucket=self._bucket, Key=key)
        except RemoteResourceNotFoundError:
            pass  # AWS never says so, others do

    async def list_objects(self, prefix: str) -> list[ObjectInfo]:
        """Return every object whose key begins with ``prefix``, in order of key."""
        client = await self._connection.client()
        found: list[ObjectInfo] = []
        with self._connection.translated("list", prefix):
            pages = client.get_paginator("list_objects_v2").paginate(Bucket=self._bucket, Prefix=prefix)
            async for page in pages:
                found.extend(ObjectInfo(item["Key"], item["Size"]) for item in page.get("Contents", []))
        return sorted(found, key=lambda info: info.key)

    async def list_unfinished_uploads(self, prefix: str) -> list[UnfinishedUpload]:
        """Return multipart uploads begun under ``prefix`` that are neither completed nor aborted."""
        client = await self._connection.client()
        found: list[UnfinishedUpload] = []
        with self._connection.translated("list uploads", prefix):
            pages = client.get_paginator("list_multipart_uploads").paginate(Bucket=self._bucket, Prefix=prefix)
            async for page in pages:
                for item in page.get("Uploads", []):
                    initiated_ms = round(item["Initiated"].timestamp() * 1000)
                    found.append(UnfinishedUpload(item["Key"], item["UploadId"], initiated_ms))
        return [upload for upload in found if upload.key.startswith(prefix)]

    async def abort_upload(self, upload: UnfinishedUpload) -> None:
        """Discard an unfinished upload; one that is gone is no error."""
        await self._uploads.abort_upload(upload)

    async def check(self) -> None:
        """Raise unless the bucket is there and may be listed. A listing, because its refusals say why."""
        client = await self._connection.client()
        with self._connection.translated("list", ""):
            await client.list_objects_v2(Bucket=self._bucket, MaxKeys=1)

    async def close(self) -> None:
        """Finish aborting what was cancelled, then release the connections."""
        await self._uploads.close()
        await self._connection.close()
        self._sender.close()

    # ------------------------------------------------------------ one request

    async def _put_whole(self, key: str, body: bytes | FileBody) -> None:
        client = await self._connection.client()
        arguments: dict[str, Any] = {"Bucket": self._bucket, "Key": key, "IfNoneMatch": "*"}
        if isinstance(body, FileBody):
            arguments |= self._log_arguments
        if isinstance(body, bytes) or body.byte_range is None:
            content = body if isinstance(body, bytes) else b""
            async with self._sender.slots, deadline(f"put {key}", self._deadlines.for_size(len(content))):
                with self._connection.translated("put", key):
                    await client.put_object(Body=content, ChecksumCRC32C=encoded(crc32c(content)), **arguments)
            return
        part = Part(1, body.byte_range, crc32c_of_range(body.checksums, body.byte_range))
        async with self._sender.open(body) as source:
            await self._sender.send("put", key, part, source, partial(client.put_object, **arguments))

    # ------------------------------------------------------------ is it ours?

    async def _stored_after_all(self, key: str, body: bytes | FileBody, error: RemoteStorageError) -> None:
        """Return when the object is there with the content of ``body``, in spite of ``error``.

        Raises:
            RemoteConflictError: it is there with other content.
            RetriableRemoteStorageError: it is not there, or the store cannot be asked.
        """
        try:
            async with deadline(f"head {key}", self._clean_up_s):
                size, checksum = await self._describe(key)
        except (RemoteResourceNotFoundError, RetriableRemoteStorageError):
            raise RetriableRemoteStorageError(str(error), remedy=error.remedy) from error
        if not await self._is_same(key, body, size, checksum):
            raise RemoteConflictError(
                f"s3://{self._bucket}/{key} exists already, with other content",
                remedy="find out who wrote it; tierd never replaces an object",
            ) from error

    async def _is_same(self, key: str, body: bytes | FileBody, size: int, checksum: str | None) -> bool:
        if isinstance(body, bytes) or body.byte_range is None:
            content = body if isinstance(body, bytes) else b""
            parts = part_of_bytes(content)
        else:
            parts = parts_of(body, self._part_size)
        if size != size_of(parts):
            return False
        if checksum is not None and "-" not in checksum:
            return checksum == encoded(crc32c_of(parts))
        if checksum is not None and checksum == composite_checksum(parts):
            return True
        # No checksum, or one over parts of another size: only the bytes themselves can tell.
        return await self._crc_of_object(key, size) == crc32c_of(parts)

    async def _describe(self, key: str) -> tuple[int, str | None]:
        client = await self._connection.client()
        async with deadline(f"head {key}", self._deadlines.for_size(0)):
            with self._connection.translated("head", key):
                reply = await client.head_object(Bucket=self._bucket, Key=key, ChecksumMode="ENABLED")
        return reply["ContentLength"], reply.get("ChecksumCRC32C")

    async def _crc_of_object(self, key: str, size: int) -> int:
        total = 0
        for position in range(0, size, _READ_BACK_BYTES):
            total = crc32c(await self.get(key, ByteRange.of_size(position, _READ_BACK_BYTES)), total)
        return total
