"""MultipartUploads: large objects in parallel parts, whole or not at all."""

from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import structlog

from tierd.backoff import Backoff
from tierd.clock import SystemClock
from tierd.errors import RemoteResourceNotFoundError, RemoteStorageError, RetriableRemoteStorageError
from tierd.remote.backends.answers import UploadGoneError
from tierd.remote.backends.clean_ups import CleanUps
from tierd.remote.backends.parts import UploadPart, crc32c_of, encoded, parts_of, size_of
from tierd.remote.backends.s3.part_requests import PartRequests
from tierd.remote.backends.s3.s3_connection import S3Connection
from tierd.remote.backends.s3.s3_sender import BodySender, PacedFile, RequestBody, S3BodyRequest
from tierd.remote.backends.s3.s3_settings import ObjectOptions
from tierd.remote.deadlines import Deadlines, deadline
from tierd.remote.object_store import FileBody, UnfinishedUpload
from tierd.remote.retrying import Retry
from tierd.tasks import together

if TYPE_CHECKING:
    from types_aiobotocore_s3.type_defs import (
        CompletedPartTypeDef,
        UploadPartOutputTypeDef,
    )

log = structlog.get_logger()

_SendPart: TypeAlias = 'Callable[[S3BodyRequest["UploadPartOutputTypeDef"]], Awaitable["UploadPartOutputTypeDef"]]'

_ABORT_BACKOFF = Backoff(base_s=0.1, cap_s=2.0)  # short: the caller waits for it


class MultipartUpload(NamedTuple):
    """An upload under way; ``whole`` is True if the store will know the checksum of the whole object."""

    key: str
    upload_id: str
    whole: bool


class MultipartUploads:
    """Uploads in parts of ``part_size`` bytes.

    ``retry`` repeats single parts, so that a hiccup does not cost the whole segment.
    """

    def __init__(
        self,
        connection: S3Connection,
        sender: BodySender,
        *,
        part_size: int,
        options: ObjectOptions,
        deadlines: Deadlines,
        retry: Retry | None,
    ) -> None:
        self._connection = connection
        self._bucket = connection.bucket
        self._sender = sender
        self._part_size = part_size
        self._options = options
        self._deadlines = deadlines
        self._retry = retry
        self._abort_retry = (retry or Retry(clock=SystemClock())).paused_by(_ABORT_BACKOFF, SystemClock())
        self._clean_ups = CleanUps()
        self._part_requests = PartRequests(self._clean_ups, patience_s=deadlines.clean_up_s)

    async def put(self, key: str, body: FileBody) -> None:
        """Create the object in parts; failed or cancelled, the upload is aborted.

        Raises:
            RemoteConflictError: the key exists.
            UploadGoneError: another caller aborted the upload, or it was completed and the reply was lost.
            NoAnswerError: the upload may have been completed.
        """
        parts = parts_of(body, self._part_size)
        async with self._sender.open(body) as source, self.begun(key) as upload:
            tags = await self._send_parts(upload, source, parts)
            await self.complete(upload, parts, tags)

    def begun(self, key: str) -> AbstractAsyncContextManager[MultipartUpload]:
        """Begin an upload, to be completed inside the context; after a failure or a cancellation it is aborted."""
        begin = self._create_upload(key)
        return self._clean_ups.upload(key, begin, self._abort, patience_s=self._deadlines.clean_up_s)

    async def send_bytes(self, upload: MultipartUpload, part: UploadPart, content: memoryview) -> str:
        """Send one part that is in memory; return its entity tag."""
        call = partial(self._sender.send_bytes, "upload part", upload.key, content, part.crc32c)
        return await self._send_part(upload, part, call)

    async def abort_upload(self, upload: UnfinishedUpload) -> None:
        """Discard an unfinished upload; one that is gone is no error."""
        client = await self._connection.client()
        try:
            with self._connection.translated("abort upload", upload.key):
                await client.abort_multipart_upload(Bucket=self._bucket, Key=upload.key, UploadId=upload.upload_id)
        except (UploadGoneError, RemoteResourceNotFoundError):
            pass

    async def close(self) -> None:
        """Finish the aborts of cancelled uploads; each abort has a deadline."""
        await self._clean_ups.close()

    async def _create_upload(self, key: str) -> MultipartUpload:
        client = await self._connection.client()
        async with deadline(f"begin upload {key}", self._deadlines.for_size(0)):
            with self._connection.translated("begin upload", key):
                reply = await client.create_multipart_upload(
                    Bucket=self._bucket,
                    Key=key,
                    ChecksumAlgorithm="CRC32C",
                    ChecksumType="FULL_OBJECT",
                    **self._options.creation(is_log=True),
                )
        whole = reply.get("ChecksumType") == "FULL_OBJECT"  # older stores know only composite
        return MultipartUpload(key, reply["UploadId"], whole)

    async def _send_parts(self, upload: MultipartUpload, source: PacedFile, parts: list[UploadPart]) -> list[str]:
        """Send every part, a few at a time; return their entity tags. The first failure ends the others."""

        def send(part: UploadPart) -> Coroutine[object, object, str]:
            call = partial(self._sender.send, "upload part", upload.key, part, source)
            return self._send_part(upload, part, call)

        return await together({f"upload {upload.key} {part.number}": partial(send, part) for part in parts})

    async def _send_part(self, upload: MultipartUpload, part: UploadPart, send: "_SendPart") -> str:
        client = await self._connection.client()
        upload_part = partial(
            client.upload_part,
            Bucket=self._bucket,
            Key=upload.key,
            UploadId=upload.upload_id,
            PartNumber=part.number,
            **self._options.access(),
        )

        async def request(
            *,
            Body: "RequestBody",  # noqa: N803 - S3's words
            ContentLength: int,  # noqa: N803
            ChecksumCRC32C: str,  # noqa: N803
        ) -> "UploadPartOutputTypeDef":
            call = partial(upload_part, Body=Body, ContentLength=ContentLength, ChecksumCRC32C=ChecksumCRC32C)
            return await self._part_requests.run(upload.upload_id, call, withhold=partial(_withhold, Body))

        call = partial(send, request)
        retried = self._retry.request("upload_part", call, key=upload.key, part=part.number) if self._retry else call()
        reply = await retried
        return str(reply["ETag"])

    async def complete(self, upload: MultipartUpload, parts: Sequence[UploadPart], tags: Sequence[str]) -> None:
        """Make the object appear, unless its key exists.

        Raises:
            RemoteConflictError: the key exists.
            UploadGoneError: another caller aborted the upload, or it was completed and the reply was lost.
            NoAnswerError: the upload may have been completed.
        """
        key = upload.key
        client = await self._connection.client()
        listed: list[CompletedPartTypeDef] = [
            {"PartNumber": part.number, "ETag": tag, "ChecksumCRC32C": encoded(part.crc32c)}
            for part, tag in zip(parts, tags, strict=True)
        ]
        arguments: dict[str, Any] = {
            "Bucket": self._bucket,
            "Key": key,
            "UploadId": upload.upload_id,
            "MultipartUpload": {"Parts": listed},
            "IfNoneMatch": "*",
            **self._options.access(),
        }
        if upload.whole:
            arguments |= {"ChecksumType": "FULL_OBJECT", "ChecksumCRC32C": encoded(crc32c_of(parts))}

        async def complete() -> None:
            async with deadline(f"complete upload {key}", self._deadlines.for_size(size_of(parts))):
                with self._connection.translated("complete upload", key):
                    await client.complete_multipart_upload(**arguments)

        await (self._retry.request("complete_upload", complete, key=key) if self._retry else complete())

    async def _abort(self, upload: MultipartUpload) -> None:
        key, upload_id = upload.key, upload.upload_id
        await self._part_requests.settled(upload_id)
        try:
            async with deadline(f"abort upload {key}", self._deadlines.clean_up_s):
                call = partial(self._abort_for_good, UnfinishedUpload(key, upload_id, 0))
                await self._abort_retry.taking_back("abort_upload", call, key=key)
        except RemoteStorageError as error:
            # The sweep finds it later. The failure before the abort is the one to report.
            log.warning("upload_not_aborted", key=key, upload_id=upload_id, error=str(error))

    async def _abort_for_good(self, upload: UnfinishedUpload) -> None:
        """Abort, and list uploads as a check: a part whose connection was cut may still be on its way to the disk.

        Raises:
            RetriableRemoteStorageError: the upload is still listed.
        """
        await self.abort_upload(upload)
        client = await self._connection.client()
        with self._connection.translated("list uploads", upload.key):
            listed = await client.list_multipart_uploads(
                Bucket=self._bucket, Prefix=upload.key, EncodingType="url"
            )  # escaped: a foreign key may begin with this key, and go on with characters that XML cannot express
        if any(item["UploadId"] == upload.upload_id for item in listed.get("Uploads", [])):
            raise RetriableRemoteStorageError(f"{upload.key}: upload {upload.upload_id} outlived its abort")


def _withhold(body: "RequestBody") -> bool:
    return not isinstance(body, bytes) and body.withhold()
