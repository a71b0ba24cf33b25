"""S3ObjectStore: any S3-compatible store, through aiobotocore.

Objects are created with ``If-None-Match: *`` and a CRC-32C that the store verifies. Payloads go unsigned and are
streamed from disk; the client library's own retries are off.
"""

from collections.abc import AsyncGenerator
from functools import partial
from typing import TYPE_CHECKING
from urllib.parse import unquote_plus

from tierd.errors import (
    RemoteConflictError,
    RemoteResourceNotFoundError,
    RemoteStorageError,
    RetriableRemoteStorageError,
)
from tierd.kernels import crc32c, crc32c_of_range
from tierd.model import CHECKSUM_BLOCK_BYTES, ByteRange
from tierd.remote.backends.answers import NoAnswerError, UploadGoneError, conflict, require_replaced
from tierd.remote.backends.chunked_uploads import ChunkedUploads
from tierd.remote.backends.client_settings import PartLimits
from tierd.remote.backends.parts import UploadPart
from tierd.remote.backends.s3.s3_connection import S3Connection
from tierd.remote.backends.s3.s3_multipart import MultipartUploads
from tierd.remote.backends.s3.s3_ranged import S3RangedReads, can_read_ranges
from tierd.remote.backends.s3.s3_reading import ObjectReader, listed_state
from tierd.remote.backends.s3.s3_sender import BodySender
from tierd.remote.backends.s3.s3_settings import ObjectOptions, S3Bucket, S3Keys, S3Network
from tierd.remote.backends.s3.s3_versions import S3Versions
from tierd.remote.chunks import ByteView
from tierd.remote.deadlines import Deadlines, deadline
from tierd.remote.object_store import (
    Body,
    ChunkedBody,
    FileBody,
    ObjectInfo,
    ObjectVersion,
    UnfinishedUpload,
    range_beyond,
)
from tierd.remote.retrying import Retry

if TYPE_CHECKING:
    from types_aiobotocore_s3 import S3Client
    from types_aiobotocore_s3.type_defs import (
        ListMultipartUploadsOutputTypeDef,
        ListMultipartUploadsRequestTypeDef,
        ListObjectsV2RequestPaginateTypeDef,
    )

_MIN_PART_BYTES = 5 << 20  # S3's own limit
_PAGE_KEYS = 1000  # S3's own limit
_UNLESS_IT_EXISTS = {"IfNoneMatch": "*"}
_SPARE_CONNECTIONS = 16  # for calls without a body, which must not queue behind uploads that hang


class S3ObjectStore:
    """An ``ObjectStore`` in one bucket."""

    def __init__(
        self,
        bucket: S3Bucket,
        *,
        keys: S3Keys = S3Keys(),  # noqa: B008 - frozen
        network: S3Network = S3Network(),  # noqa: B008 - frozen
        parts: PartLimits = PartLimits(part_size=25 << 20),  # noqa: B008 - frozen
        options: ObjectOptions = ObjectOptions(),  # noqa: B008 - frozen
        check_prefix: str = "",
        deadlines: Deadlines = Deadlines(),  # noqa: B008 - frozen
        retry: Retry | None = None,
    ) -> None:
        """Prepare to use the bucket; nothing is connected before the first call.

        Args:
            bucket: the bucket and its place.
            keys: the access key; empty by default, so that the client library looks for one.
            network: the way to the store.
            parts: limits of uploads. ``part_size`` is a multiple of 1 MiB; a ``max_concurrency`` above 4 gained nothing
                when it was measured.
            options: how the bucket keeps the objects: encryption, storage class, tags.
            check_prefix: prefix of the keys that ``check`` lists, for credentials that may list nothing else.
            deadlines: for each request that sends bytes.
            retry: repeats single parts, so that a hiccup does not cost the whole segment; None: no repetition.

        Raises:
            ValueError: ``part_size`` is no multiple of 1 MiB, or less than 5 MiB.
            RemoteStorageError: a customer key would go over the network in the clear.
        """
        if parts.part_size < _MIN_PART_BYTES or parts.part_size % CHECKSUM_BLOCK_BYTES:
            raise ValueError(f"part_size {parts.part_size} is not a multiple of 1 MiB of at least 5 MiB")
        self._bucket = bucket.name
        self._part_size = parts.part_size
        self._options = options
        self._options.require_private_way(bucket.endpoint_url)
        self._check_prefix = check_prefix
        self._clean_up_s = deadlines.clean_up_s
        self._connection = S3Connection(
            bucket,
            keys=keys,
            network=network,
            max_connections=parts.max_concurrency + _SPARE_CONNECTIONS,
            customer_key=options.customer_key,
        )
        self._versions = S3Versions(self._connection)
        self._sender = BodySender(self._connection, max_concurrency=parts.max_concurrency, deadlines=deadlines)
        self._uploads = MultipartUploads(
            self._connection,
            self._sender,
            part_size=parts.part_size,
            options=options,
            deadlines=deadlines,
            retry=retry,
        )
        self._chunks = ChunkedUploads(self._uploads, self._put_log, limits=parts)
        self._ranged: S3RangedReads | None = None
        if can_read_ranges(
            endpoint_url=bucket.endpoint_url, network=network, has_customer_key=options.encryption == "c"
        ):
            self._ranged = S3RangedReads(bucket, keys=keys, network=network, masking=self._connection.masking)
        self._reader = ObjectReader(self._connection, options=options, part_size=parts.part_size, deadlines=deadlines)

    async def put(self, key: str, body: Body) -> None:
        """Create the object unless the key exists; cancelled or failed, it aborts its multipart upload first."""
        try:
            if isinstance(body, bytes):
                await self._put_bytes(key, body, is_log=False, condition=_UNLESS_IT_EXISTS)
            elif isinstance(body, ChunkedBody):
                await self._chunks.put(key, body)
            elif body.size > self._part_size:
                await self._uploads.put(key, body)
            else:
                await self._put_file(key, body)
        except (RemoteConflictError, UploadGoneError, NoAnswerError) as error:
            # The key exists, or the reply to the request that created it was lost. A server may also refuse a key that
            # exists and hang up while the body is still on its way: then the client sees a broken connection.
            await self._stored_after_all(key, body, error)

    async def replace(self, key: str, content: bytes, *, previous: bytes) -> None:
        """Give the object other content, with ``If-Match`` on the version that was found to be ``previous``."""
        present = await self._reader.read(key, max_bytes=range_beyond(content, previous).size)
        if present.content == content:
            return
        if present.content != previous:
            raise self._conflict(key, "has other content than was expected")
        try:
            await self._put_bytes(key, content, is_log=False, condition={"IfMatch": present.tag})
        except (RemoteConflictError, NoAnswerError) as error:
            async with deadline(f"get {key}", self._clean_up_s):
                found = await self._reader.read(key, max_bytes=range_beyond(content, previous).size)
            name = f"s3://{self._bucket}/{key}"
            require_replaced(found.content, content, previous=previous, name=name, error=error)

    async def get(self, key: str, byte_range: ByteRange | None = None) -> bytes:
        """Return the object's bytes, or those of ``byte_range`` clipped at its end."""
        if byte_range is not None and self._ranged is not None:
            where = (await self._connection.client()).meta
            region = where.region_name or "us-east-1"
            with self._connection.translated("get", key):
                found = await self._ranged.get(key, byte_range, endpoint_url=where.endpoint_url, region=region)
            if found is not None:
                return found
        return (await self._reader.read(key, byte_range)).content

    async def head(self, key: str) -> ObjectInfo:
        """Describe the object, with its checksum where the store knows that of the whole."""
        return await self._reader.head(key)

    async def delete(self, key: str) -> None:
        """Remove the object."""
        client = await self._connection.client()
        try:
            with self._connection.translated("delete", key):
                await client.delete_object(Bucket=self._bucket, Key=key)
        except RemoteResourceNotFoundError:
            pass  # an answer of stores other than AWS

    async def list_objects(self, prefix: str, *, start_after: str = "", limit: int | None = None) -> list[ObjectInfo]:
        """Return the objects whose key begins with ``prefix``, in order of key."""
        client = await self._connection.client()
        arguments: ListObjectsV2RequestPaginateTypeDef = {"Bucket": self._bucket, "Prefix": prefix}
        if start_after:
            arguments["StartAfter"] = start_after
        if limit is not None and limit < _PAGE_KEYS:
            arguments["PaginationConfig"] = {"PageSize": limit}
        found: list[ObjectInfo] = []
        with self._connection.translated("list", prefix):
            async for page in client.get_paginator("list_objects_v2").paginate(**arguments):
                for item in page.get("Contents", []):
                    modified_ms = round(item["LastModified"].timestamp() * 1000)
                    storage_class = item.get("StorageClass", "")
                    state = listed_state(storage_class)
                    found.append(ObjectInfo(item["Key"], item["Size"], None, modified_ms, storage_class, state))
                if limit is not None and len(found) >= limit:
                    break
        return sorted(found, key=lambda info: info.key)[:limit]

    async def list_unfinished_uploads(self, prefix: str) -> list[UnfinishedUpload]:
        """Return multipart uploads begun under ``prefix`` that are neither completed nor aborted."""
        client = await self._connection.client()
        found: list[UnfinishedUpload] = []
        with self._connection.translated("list uploads", prefix):
            async for page in _upload_pages(client, bucket=self._bucket, prefix=prefix):
                for item in page.get("Uploads", []):
                    initiated_ms = round(item["Initiated"].timestamp() * 1000)
                    found.append(UnfinishedUpload(_key_in(page, item["Key"]), item["UploadId"], initiated_ms))
        return [upload for upload in found if upload.key.startswith(prefix)]

    async def abort_upload(self, upload: UnfinishedUpload) -> None:
        """Discard an unfinished upload; one that is gone is no error."""
        await self._uploads.abort_upload(upload)

    async def list_versions(self, prefix: str) -> list[ObjectVersion]:
        """Return every version of the objects below ``prefix``."""
        return await self._versions.list(prefix)

    async def delete_version(self, version: ObjectVersion) -> None:
        """Remove one version for good."""
        await self._versions.delete(version)

    async def check(self) -> None:
        """Raise unless the bucket is there and may be listed: refusals of a listing name their reason."""
        client = await self._connection.client()
        with self._connection.translated("list", ""):
            await client.list_objects_v2(Bucket=self._bucket, Prefix=self._check_prefix, MaxKeys=1)

    async def close(self) -> None:
        """Finish the aborts of cancelled uploads, then release the connections."""
        await self._uploads.close()
        await self._connection.close()
        self._sender.close()

    # ------------------------------------------------------------ one request

    async def _put_file(self, key: str, body: FileBody) -> None:
        if body.byte_range is None:
            await self._put_log(key, b"")
            return
        client = await self._connection.client()
        part = UploadPart(1, body.byte_range, crc32c_of_range(body.checksums, body.byte_range))
        request = partial(
            client.put_object, Bucket=self._bucket, Key=key, IfNoneMatch="*", **self._options.creation(is_log=True)
        )
        async with self._sender.open(body) as source:
            await self._sender.send("put", key, part, source, request)

    async def _put_log(self, key: str, content: ByteView) -> None:
        await self._put_bytes(key, content, is_log=True, condition=_UNLESS_IT_EXISTS)

    async def _put_bytes(self, key: str, content: ByteView, *, is_log: bool, condition: dict[str, str]) -> None:
        client = await self._connection.client()
        arguments = condition | self._options.creation(is_log=is_log)
        request = partial(client.put_object, Bucket=self._bucket, Key=key, **arguments)
        await self._sender.send_bytes("put", key, content, crc32c(content), request)

    # ------------------------------------------------------------ after a lost reply

    async def _stored_after_all(self, key: str, body: Body, error: RemoteStorageError) -> None:
        """Return when the object is there with the content of ``body``, in spite of ``error``.

        Raises:
            RemoteConflictError: the object is there with other content.
            RetriableRemoteStorageError: the object is not there, or the store cannot be asked.
        """
        try:
            same = await self._reader.holds(key, body, patience_s=self._clean_up_s)
        except (RemoteResourceNotFoundError, RetriableRemoteStorageError):
            raise RetriableRemoteStorageError(str(error), remedy=error.remedy) from error
        if not same:
            raise self._conflict(key, "exists already, with other content") from error

    def _conflict(self, key: str, what: str) -> RemoteConflictError:
        return conflict(f"s3://{self._bucket}/{key} {what}")


async def _upload_pages(
    client: "S3Client", *, bucket: str, prefix: str
) -> "AsyncGenerator[ListMultipartUploadsOutputTypeDef, None]":
    """Yield every page of the unfinished uploads under ``prefix``; ``_key_in`` decodes their keys.

    The keys are escaped, because XML 1.0 cannot express some characters that a key may have, for example NUL.
    Without escapes one upload under such a key makes every listing unreadable. The client library asks for escaped keys
    in listings of objects and of versions, but not here.
    """
    request: ListMultipartUploadsRequestTypeDef = {"Bucket": bucket, "Prefix": prefix, "EncodingType": "url"}
    last = ("", "")
    while True:
        page = await client.list_multipart_uploads(**request)
        yield page
        markers = _key_in(page, page.get("NextKeyMarker", "")), page.get("NextUploadIdMarker", "")
        if not page.get("IsTruncated") or markers in (last, ("", "")):
            return
        last = request["KeyMarker"], request["UploadIdMarker"] = markers


def _key_in(page: "ListMultipartUploadsOutputTypeDef", key: str) -> str:
    """Return the key that a page has as ``key``; a store that names no encoding escapes nothing."""
    return unquote_plus(key) if page.get("EncodingType") == "url" else key
