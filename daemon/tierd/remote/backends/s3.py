"""S3ObjectStore: any S3-compatible store, through aiobotocore.

Every object is created with ``If-None-Match: *`` and our own CRC-32C, so that the store itself verifies what arrived.
Payloads go unsigned and are streamed from disk; the client library's own retries are off.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar, cast

import aiohttp
import structlog
from aiobotocore.config import AioConfig
from aiobotocore.session import get_session
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    HTTPClientError,
    NoCredentialsError,
    PartialCredentialsError,
    SSLError,
)
from botocore.exceptions import ConnectionError as BotoConnectionError
from botocore.parsers import ResponseParserError

from tierd.clock import SystemClock
from tierd.errors import (
    RemoteAccessError,
    RemoteConflictError,
    RemoteResourceNotFoundError,
    RemoteStorageError,
    RetriableRemoteStorageError,
)
from tierd.kernels import crc32c, crc32c_of_range
from tierd.model import CHECKSUM_BLOCK_BYTES, ByteRange
from tierd.remote.backends.s3_body import SourceFile, StreamedBody
from tierd.remote.backends.s3_errors import NoAnswerError, S3Refusal, UploadGoneError, error_for
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
from tierd.remote.deadlines import Deadlines, deadline
from tierd.remote.object_store import FileBody, ObjectInfo, UnfinishedUpload
from tierd.remote.retrying import Backoff, Retry
from tierd.remote.source import unreadable

if TYPE_CHECKING:
    from types_aiobotocore_s3 import S3Client
    from types_aiobotocore_s3.type_defs import (
        CompletedPartTypeDef,
        CompleteMultipartUploadRequestTypeDef,
        GetObjectRequestTypeDef,
    )

log = structlog.get_logger()

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

_MIN_PART_BYTES = 5 << 20  # S3's own limit
_CLEAN_UP_TIMEOUT_S = 10.0
_READ_BACK_BYTES = 8 << 20
_AGAIN = Retry(clock=SystemClock(), backoff=Backoff(base_s=0.1, cap_s=2.0))
_SPARE_CONNECTIONS = 16  # for calls without a body, which must not queue behind uploads that hang


_UNREACHABLE = (
    BotoConnectionError,
    HTTPClientError,
    ResponseParserError,  # not S3 that answered: a proxy's page, or half an answer
    aiohttp.ClientError,  # out of a body that is read
    ConnectionError,
    TimeoutError,
)


class _Source(NamedTuple):
    file: SourceFile
    pace: Callable[[int], Awaitable[None]] | None


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
        self._clean_up_s = min(_CLEAN_UP_TIMEOUT_S, self._deadlines.base_s)
        self._retry = retry
        self._slots = asyncio.Semaphore(max_concurrency)
        self._threads = ThreadPoolExecutor(max_concurrency, thread_name_prefix="tierd-s3")
        self._resources = AsyncExitStack()
        self._connecting = asyncio.Lock()
        self._connected: S3Client | None = None
        self._cleaning_up: set[asyncio.Task[None]] = set()
        self._client_arguments: dict[str, Any] = {
            "endpoint_url": endpoint_url,
            "region_name": region,
            "aws_access_key_id": access_key_id,
            "aws_secret_access_key": secret_access_key,
            "verify": str(ca_file) if ca_file else None,
            "config": AioConfig(
                connect_timeout=connect_timeout_s,
                read_timeout=read_timeout_s,
                max_pool_connections=max_concurrency + _SPARE_CONNECTIONS,
                retries={"total_max_attempts": 1},
                request_checksum_calculation="when_required",
                response_checksum_validation="when_required",
                s3={"addressing_style": "path" if path_style else "auto", "payload_signing_enabled": False},
            ),
        }

    async def put(self, key: str, body: bytes | FileBody) -> None:
        """Create the object unless the key exists; cancelled or failed, it aborts its multipart upload first."""
        try:
            if isinstance(body, FileBody) and body.size > self._part_size:
                await self._put_in_parts(key, body)
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
        client = await self._client()
        with self._translated("get", key):
            try:
                reply = await client.get_object(**arguments)
            except ClientError as error:
                if byte_range is not None and _status(error) == 416:
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
        client = await self._client()
        try:
            with self._translated("delete", key):
                await client.delete_object(Bucket=self._bucket, Key=key)
        except RemoteResourceNotFoundError:
            pass  # AWS never says so, others do

    async def list_objects(self, prefix: str) -> list[ObjectInfo]:
        """Return every object whose key begins with ``prefix``, in order of key."""
        client = await self._client()
        found: list[ObjectInfo] = []
        with self._translated("list", prefix):
            pages = client.get_paginator("list_objects_v2").paginate(Bucket=self._bucket, Prefix=prefix)
            async for page in pages:
                found.extend(ObjectInfo(item["Key"], item["Size"]) for item in page.get("Contents", []))
        return sorted(found, key=lambda info: info.key)

    async def list_unfinished_uploads(self, prefix: str) -> list[UnfinishedUpload]:
        """Return multipart uploads begun under ``prefix`` that are neither completed nor aborted."""
        client = await self._client()
        found: list[UnfinishedUpload] = []
        with self._translated("list uploads", prefix):
            pages = client.get_paginator("list_multipart_uploads").paginate(Bucket=self._bucket, Prefix=prefix)
            async for page in pages:
                for item in page.get("Uploads", []):
                    initiated_ms = round(item["Initiated"].timestamp() * 1000)
                    found.append(UnfinishedUpload(item["Key"], item["UploadId"], initiated_ms))
        return [upload for upload in found if upload.key.startswith(prefix)]

    async def abort_upload(self, upload: UnfinishedUpload) -> None:
        """Discard an unfinished upload; one that is gone is no error."""
        client = await self._client()
        try:
            with self._translated("abort upload", upload.key):
                await client.abort_multipart_upload(Bucket=self._bucket, Key=upload.key, UploadId=upload.upload_id)
        except (UploadGoneError, RemoteResourceNotFoundError):
            pass

    async def check(self) -> None:
        """Raise unless the bucket is there and may be listed. A listing, because its refusals say why."""
        client = await self._client()
        with self._translated("list", ""):
            await client.list_objects_v2(Bucket=self._bucket, MaxKeys=1)

    async def close(self) -> None:
        """Finish aborting what was cancelled, then release the connections."""
        if self._cleaning_up:
            await asyncio.wait(self._cleaning_up)  # each has a deadline
        async with self._connecting:
            self._connected = None
            await self._resources.aclose()
        self._threads.shutdown(wait=False)

    # ------------------------------------------------------------ one request

    async def _put_whole(self, key: str, body: bytes | FileBody) -> None:
        client = await self._client()
        arguments: dict[str, Any] = {"Bucket": self._bucket, "Key": key, "IfNoneMatch": "*"}
        if isinstance(body, FileBody):
            arguments |= self._log_arguments
        if isinstance(body, bytes) or body.byte_range is None:
            content = body if isinstance(body, bytes) else b""
            async with self._slots, deadline(f"put {key}", self._deadlines.for_size(len(content))):
                with self._translated("put", key):
                    await client.put_object(Body=content, ChecksumCRC32C=encoded(crc32c(content)), **arguments)
            return
        part = Part(1, body.byte_range, crc32c_of_range(body.checksums, body.byte_range))
        async with self._open(body) as source:
            await self._send("put", key, part, _Source(source, body.pace), partial(client.put_object, **arguments))

    async def _send(self, operation: str, key: str, part: Part, source: "_Source", request: "_Request[T]") -> T:
        """Make one request with the bytes of ``part`` as its body."""
        size = part.byte_range.size
        what = f"{operation} {key}"
        async with self._slots, deadline(what, self._deadlines.for_size(size)) as running:
            stream = StreamedBody(
                source.file, part.byte_range, threads=self._threads, running=running, pace=source.pace
            )
            try:
                with self._translated(operation, key):
                    return await request(Body=stream, ContentLength=size, ChecksumCRC32C=encoded(part.crc32c))
            except RemoteStorageError:
                if stream.failure is not None:
                    raise stream.failure from None
                raise
            finally:
                stream.discard()

    # ------------------------------------------------------------ many parts

    async def _put_in_parts(self, key: str, body: FileBody) -> None:
        parts = parts_of(body, self._part_size)
        async with self._open(body) as source:
            upload_id, whole = await self._begin_upload(key)
            try:
                tags = await self._send_parts(key, upload_id, _Source(source, body.pace), parts)
                await self._complete(key, upload_id, parts, tags, whole=whole)
            except BaseException:
                await self._clean_up(self._abort(key, upload_id))
                raise

    async def _begin_upload(self, key: str) -> tuple[str, bool]:
        """Begin a multipart upload; return its id, and whether the store will know the checksum of the whole.

        Cancelled while the reply is on its way, it waits for the id, to abort what would be nobody's.
        """
        creating = asyncio.create_task(self._create_upload(key), name=f"begin upload {key}")
        try:
            return await asyncio.shield(creating)
        except asyncio.CancelledError:
            await self._clean_up(self._abort_when_created(key, creating))
            raise

    async def _create_upload(self, key: str) -> tuple[str, bool]:
        client = await self._client()
        async with deadline(f"begin upload {key}", self._deadlines.for_size(0)):
            with self._translated("begin upload", key):
                reply = await client.create_multipart_upload(
                    Bucket=self._bucket,
                    Key=key,
                    ChecksumAlgorithm="CRC32C",
                    ChecksumType="FULL_OBJECT",
                    **self._log_arguments,
                )
        return reply["UploadId"], reply.get("ChecksumType") == "FULL_OBJECT"  # older stores know only composite

    async def _send_parts(self, key: str, upload_id: str, source: "_Source", parts: list[Part]) -> list[str]:
        """Send every part, a few at a time; return their entity tags. The first failure ends the others."""
        client = await self._client()
        request = partial(client.upload_part, Bucket=self._bucket, Key=key, UploadId=upload_id)

        async def send(part: Part) -> str:
            numbered = partial(request, PartNumber=part.number)
            call = partial(self._send, "upload part", key, part, source, numbered)
            reply = await (call() if self._retry is None else self._retry("upload_part", call))
            return str(reply["ETag"])

        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(send(part), name=f"upload {key} {part.number}") for part in parts]
        except BaseExceptionGroup as failures:
            raise failures.exceptions[0] from None
        return [task.result() for task in tasks]

    async def _complete(self, key: str, upload_id: str, parts: list[Part], tags: list[str], *, whole: bool) -> None:
        client = await self._client()
        listed: list[CompletedPartTypeDef] = [
            {"PartNumber": part.number, "ETag": tag, "ChecksumCRC32C": encoded(part.crc32c)}
            for part, tag in zip(parts, tags, strict=True)
        ]
        arguments: CompleteMultipartUploadRequestTypeDef = {
            "Bucket": self._bucket,
            "Key": key,
            "UploadId": upload_id,
            "MultipartUpload": {"Parts": listed},
            "IfNoneMatch": "*",
        }
        if whole:
            arguments |= {"ChecksumType": "FULL_OBJECT", "ChecksumCRC32C": encoded(crc32c_of(parts))}

        async def complete() -> None:
            async with deadline(f"complete upload {key}", self._deadlines.for_size(size_of(parts))):
                with self._translated("complete upload", key):
                    await client.complete_multipart_upload(**arguments)

        await (complete() if self._retry is None else self._retry("complete_upload", complete))

    async def _abort(self, key: str, upload_id: str) -> None:
        try:
            async with deadline(f"abort upload {key}", self._clean_up_s):
                # Again when it fails: a part whose connection was cut may still be on its way to the server's disk.
                await _AGAIN("abort_upload", partial(self.abort_upload, UnfinishedUpload(key, upload_id, 0)))
        except RemoteStorageError as error:
            # The sweep finds it later; the failure that brought us here is the one to report.
            log.warning("upload_not_aborted", key=key, upload_id=upload_id, error=str(error))

    async def _abort_when_created(self, key: str, creating: "asyncio.Task[tuple[str, bool]]") -> None:
        try:
            async with deadline(f"begin upload {key}", self._clean_up_s):
                upload_id, _ = await creating
        except RemoteStorageError as error:
            log.warning("upload_perhaps_left", key=key, error=str(error))
        else:
            await self._abort(key, upload_id)

    async def _clean_up(self, work: Coroutine[object, object, None]) -> None:
        """Await ``work``; a second cancellation stops the waiting, not the work, and ``close`` waits for that."""
        task = asyncio.create_task(work, name="clean up an upload")
        self._cleaning_up.add(task)
        task.add_done_callback(self._cleaning_up.discard)
        await asyncio.shield(task)

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
        client = await self._client()
        async with deadline(f"head {key}", self._deadlines.for_size(0)):
            with self._translated("head", key):
                reply = await client.head_object(Bucket=self._bucket, Key=key, ChecksumMode="ENABLED")
        return reply["ContentLength"], reply.get("ChecksumCRC32C")

    async def _crc_of_object(self, key: str, size: int) -> int:
        total = 0
        for position in range(0, size, _READ_BACK_BYTES):
            total = crc32c(await self.get(key, ByteRange.of_size(position, _READ_BACK_BYTES)), total)
        return total

    # ------------------------------------------------------------ the client and its errors

    async def _client(self) -> "S3Client":
        if self._connected is None:
            async with self._connecting:
                if self._connected is None:
                    with self._translated("connect", ""):
                        context = get_session().create_client("s3", **self._client_arguments)
                        client = await self._resources.enter_async_context(cast("_Connecting", context))
                    client.meta.events.register("before-call.s3", _never_redirect)
                    self._connected = client
        return self._connected

    @asynccontextmanager
    async def _open(self, body: FileBody) -> AsyncIterator[SourceFile]:
        opening = asyncio.get_running_loop().run_in_executor(self._threads, SourceFile, body.path)
        try:
            source = await asyncio.shield(opening)
        except OSError as error:
            raise unreadable(body.path, error) from error
        except asyncio.CancelledError:
            opening.add_done_callback(_close_unwanted)
            raise
        try:
            yield source
        finally:
            source.close()

    @contextmanager
    def _translated(self, operation: str, key: str) -> Iterator[None]:
        """Turn the client library's errors, and those of the libraries below it, into ours."""
        subject = f"{operation} s3://{self._bucket}/{key}"
        try:
            yield
        except ClientError as error:
            raise error_for(self._refusal(operation, key, error), now=datetime.now(UTC)) from error
        except (NoCredentialsError, PartialCredentialsError) as error:
            raise RemoteAccessError(
                f"{subject}: no credentials: {error}",
                remedy="set remote.s3.access_key_id and secret_access_key, or give this host a role",
            ) from error
        except SSLError as error:
            raise RemoteAccessError(
                f"{subject}: {_innermost(error)}",
                remedy="set remote.s3.ca_file to the authority that signed the store's certificate",
            ) from error
        except _UNREACHABLE as error:
            raise NoAnswerError(
                f"{subject}: {self._endpoint} does not answer: {_innermost(error)}",
                remedy="it is tried again; look at the store and at the network to it",
            ) from error
        except (BotoCoreError, ValueError) as error:
            raise RemoteStorageError(f"{subject}: {error}", remedy="correct the settings below remote.s3") from error

    @property
    def _endpoint(self) -> str:
        if self._connected is not None:
            return self._connected.meta.endpoint_url
        return str(self._client_arguments["endpoint_url"] or "S3")

    def _refusal(self, operation: str, key: str, error: ClientError) -> S3Refusal:
        fields = {name: str(value) for name, value in error.response.get("Error", {}).items()}
        metadata = error.response.get("ResponseMetadata", {})
        region = self._connected.meta.region_name if self._connected else None
        return S3Refusal(
            operation=operation,
            bucket=self._bucket,
            key=key,
            endpoint=self._endpoint,
            region=region or "(none)",
            status=_status(error),
            code=fields.pop("Code", ""),
            message=fields.pop("Message", ""),
            details=fields,
            headers={name.lower(): str(value) for name, value in metadata.get("HTTPHeaders", {}).items()},
        )


class _Connecting(Protocol):
    async def __aenter__(self) -> "S3Client": ...

    async def __aexit__(self, *exc: object) -> bool | None: ...


class _Request(Protocol[T_co]):
    def __call__(self, *, Body: StreamedBody, ContentLength: int, ChecksumCRC32C: str) -> Awaitable[T_co]: ...  # noqa: N803 - S3's words


def _status(error: ClientError) -> int:
    return int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))


def _innermost(error: BaseException) -> str:
    """What the library at the bottom said; those above it mostly repeat the URL."""
    inner = getattr(error, "kwargs", {}).get("error") or error
    return f"{type(inner).__name__}: {inner}" if str(inner) else type(inner).__name__


def _never_redirect(params: dict[str, Any], **_: object) -> None:
    # botocore follows the region that a refusal names. Its streams could not be sent twice, and the operator should
    # know: tell it that it has followed already.
    params.setdefault("context", {})["s3_redirect"] = {"redirected": True, "bucket": ""}


def _close_unwanted(opening: "asyncio.Future[SourceFile]") -> None:
    if not opening.cancelled() and opening.exception() is None:
        opening.result().close()
