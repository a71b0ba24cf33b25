"""GcsObjectStore: a Google Cloud Storage bucket, through the JSON API (gcloud-aio-storage).

Objects are created with the precondition that the key has no generation, replaced with that of the generation that
was read; the store computes a CRC-32C of every object, which is compared with ours.
"""

import asyncio
from collections.abc import AsyncGenerator
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from tierd.errors import (
    RemoteConflictError,
    RemoteIntegrityError,
    RemoteResourceNotFoundError,
    RemoteStorageError,
    RetriableRemoteStorageError,
)
from tierd.kernels import crc32c
from tierd.model import ByteRange
from tierd.remote.backends.answers import NoAnswerError, UploadGoneError, conflict, require_replaced
from tierd.remote.backends.client_settings import HttpTimeouts, PartLimits
from tierd.remote.backends.file_chunks import as_chunks
from tierd.remote.backends.gcs.gcs_connection import GcsConnection, Reply
from tierd.remote.backends.gcs.gcs_upload import ResumableUploads
from tierd.remote.backends.gcs.gcs_versions import GcsVersions
from tierd.remote.backends.parts import decoded, encoded
from tierd.remote.chunks import GatheredPart, Measured, gathered, measured
from tierd.remote.deadlines import Deadlines, deadline
from tierd.remote.object_store import Body, FileBody, ObjectInfo, ObjectVersion, UnfinishedUpload, range_beyond
from tierd.remote.retrying import Retry

_PART_UNIT = 256 << 10  # what the store takes
_PAGE_KEYS = 1000
_REFUSAL_BYTES = 64 << 10  # of an answer that tells why there is none
_SPARE_CONNECTIONS = 16  # for calls without a body, which must not queue behind uploads that hang


class GcsObjectStore:
    """An ``ObjectStore`` in one bucket."""

    def __init__(
        self,
        bucket: str,
        *,
        endpoint_url: str | None = None,
        credentials_file: Path | None = None,
        timeouts: HttpTimeouts = HttpTimeouts(),  # noqa: B008 - frozen
        parts: PartLimits = PartLimits(part_size=16 << 20),  # noqa: B008 - frozen
        deadlines: Deadlines = Deadlines(),  # noqa: B008 - frozen
        retry: Retry | None = None,
    ) -> None:
        """Prepare to use the bucket; nothing is connected before the first call.

        Args:
            bucket: must exist.
            endpoint_url: of an emulator, which is asked without credentials.
            credentials_file: JSON key of a service account; None: the default credentials of this host.
            timeouts: longest waits within a request.
            parts: limits of uploads. ``part_size`` is a multiple of 256 KiB; ``max_concurrency`` parts are in memory
                at a time.
            deadlines: for each request that sends bytes.
            retry: repeats single parts, so that a hiccup does not cost the whole segment; None: no repetition.

        Raises:
            ValueError: ``part_size`` is no multiple of 256 KiB.
        """
        if parts.part_size <= 0 or parts.part_size % _PART_UNIT:
            raise ValueError(f"part_size {parts.part_size} is not a multiple of 256 KiB")
        self._bucket = bucket
        self._part_size = parts.part_size
        self._deadlines = deadlines
        self._connection = GcsConnection(
            bucket,
            endpoint_url=endpoint_url,
            credentials_file=credentials_file,
            timeouts=timeouts,
            max_connections=parts.max_concurrency + _SPARE_CONNECTIONS,
        )
        self._versions = GcsVersions(self._connection)
        self._uploads = ResumableUploads(self._connection, deadlines=deadlines, retry=retry)
        self._places = asyncio.Semaphore(parts.max_concurrency)
        self._threads = ThreadPoolExecutor(parts.max_concurrency, thread_name_prefix="tierd-gcs")

    async def put(self, key: str, body: Body) -> None:
        """Create the object unless the key exists; cancelled or failed, it aborts its resumable upload first."""
        try:
            chunks = as_chunks(body, self._threads)
            checksum = encoded((await measured(body)).crc32c) if isinstance(body, FileBody) else None
            async with self._places, aclosing(gathered(chunks, self._part_size)) as parts:
                first = await anext(parts)
                if first.is_last:
                    described = await self._insert(key, first.content, generation="0")
                    sent = Measured(len(first.content), crc32c(first.content))
                else:
                    described, sent = await self._put_parts(key, first, parts, checksum)
            await self._require_intact(key, described, sent)
        except (RemoteConflictError, UploadGoneError, NoAnswerError) as error:
            await self._stored_after_all(key, body, error)

    async def replace(self, key: str, content: bytes, *, previous: bytes) -> None:
        """Give the object other content, if its generation is still the one that was found to be ``previous``."""
        described = await self._describe(key)
        present = await self.get(key, range_beyond(content, previous))
        if present == content:
            return
        was_read = _checksum(described) == crc32c(present)  # else it changed between the two requests
        if present != previous or not was_read:
            raise self._conflict(key, "has other content than was expected")
        try:
            await self._insert(key, content, generation=str(described["generation"]))
        except (RemoteConflictError, NoAnswerError) as error:
            found = await self.get(key, range_beyond(content, previous))
            name = f"gs://{self._bucket}/{key}"
            require_replaced(found, content, previous=previous, name=name, error=error)

    async def get(self, key: str, byte_range: ByteRange | None = None) -> bytes:
        """Return the object's bytes, or those of ``byte_range`` clipped at its end."""
        headers = {"Range": f"bytes={byte_range.start}-{byte_range.end}"} if byte_range else None
        url = self._connection.object_url(key, "alt=media")
        max_bytes = max(byte_range.size, _REFUSAL_BYTES) if byte_range else None
        reply = await self._connection.request("get", key, "GET", url, headers=headers, max_bytes=max_bytes)
        if reply.status == 416:
            return b""
        hashes = dict(pair.strip().partition("=")[::2] for pair in reply.headers.get("x-goog-hash", "").split(","))
        if _is_whole(reply, byte_range) and "crc32c" in hashes and decoded(hashes["crc32c"]) != crc32c(reply.content):
            raise RetriableRemoteStorageError(
                f"get gs://{self._bucket}/{key}: the bytes that arrived do not match the store's checksum",
                remedy="it is tried again; look at the proxies on the way to the store",
            )
        return reply.content[: byte_range.size] if byte_range else reply.content

    async def head(self, key: str) -> ObjectInfo:
        """Describe the object, with its checksum."""
        described = await self._describe(key)
        with self._connection.translated("head", key):
            return _info(described, with_checksum=True)

    async def delete(self, key: str) -> None:
        """Remove the object."""
        storage = await self._connection.storage()
        try:
            with self._connection.translated("delete", key):
                await storage.delete(self._bucket, key, timeout=self._connection.timeout)
        except RemoteResourceNotFoundError:
            pass

    async def list_objects(self, prefix: str, *, start_after: str = "", limit: int | None = None) -> list[ObjectInfo]:
        """Return the objects whose key begins with ``prefix``, in order of key."""
        storage = await self._connection.storage()
        # A page begins with the key that is asked for; one more makes up for the one that is left out.
        size = _PAGE_KEYS if limit is None else min(limit + 1, _PAGE_KEYS)
        params = {"prefix": prefix, "maxResults": str(size), "fields": "nextPageToken,items(name,size,timeCreated)"}
        if start_after:
            params["startOffset"] = start_after
        found: list[ObjectInfo] = []
        while limit is None or len(found) < limit:
            with self._connection.translated("list", prefix):
                page = await storage.list_objects(self._bucket, params=params, timeout=self._connection.timeout)
                listed = [_info(item, with_checksum=False) for item in page.get("items", [])]
            found.extend(info for info in listed if info.key > start_after)
            if not page.get("nextPageToken"):
                break
            params = params | {"pageToken": page["nextPageToken"]}
        return sorted(found, key=lambda info: info.key)[:limit]

    async def list_unfinished_uploads(self, prefix: str) -> list[UnfinishedUpload]:
        """Return no uploads: the store lists none, and drops an uncompleted upload after a week."""
        del prefix
        return []

    async def abort_upload(self, upload: UnfinishedUpload) -> None:
        """Return: no upload is listed, so that there is none to abort."""

    async def list_versions(self, prefix: str) -> list[ObjectVersion]:
        """Return every version of the objects below ``prefix``."""
        return await self._versions.list(prefix)

    async def delete_version(self, version: ObjectVersion) -> None:
        """Remove one version for good."""
        await self._versions.delete(version)

    async def check(self) -> None:
        """Raise unless the bucket is there and may be listed."""
        storage = await self._connection.storage()
        with self._connection.translated("check", ""):
            await storage.list_objects(self._bucket, params={"maxResults": "1"}, timeout=self._connection.timeout)

    async def close(self) -> None:
        """Finish the aborts of cancelled uploads, then release the connections."""
        await self._uploads.close()
        await self._connection.close()
        self._threads.shutdown(wait=False)

    # ------------------------------------------------------------ sending

    async def _insert(self, key: str, content: bytes, *, generation: str) -> dict[str, Any]:
        """Store a whole object in one request, if the key has this generation; 0 is none."""
        storage = await self._connection.storage()
        async with deadline(f"put {key}", self._deadlines.for_size(len(content))):
            with self._connection.translated("put", key):
                return await storage.upload(
                    self._bucket,
                    key,
                    content,
                    content_type="application/octet-stream",
                    parameters={"ifGenerationMatch": generation},
                    metadata={"crc32c": encoded(crc32c(content))},
                    force_resumable_upload=False,
                    timeout=self._connection.timeout,
                )

    async def _put_parts(
        self, key: str, part: GatheredPart, rest: AsyncGenerator[GatheredPart, None], checksum: str | None
    ) -> tuple[dict[str, Any], Measured]:
        size, crc = 0, 0
        async with self._uploads.begun(key, checksum=checksum) as upload:
            while True:
                described = await upload.send(part.content, position=size, is_last=part.is_last)
                size, crc = size + len(part.content), crc32c(part.content, crc)
                if part.is_last:
                    assert described is not None, "an upload ends with the description of its object"
                    return described, Measured(size, crc)
                part = await anext(rest)

    async def _require_intact(self, key: str, described: dict[str, Any], sent: Measured) -> None:
        """Compare the stored object with what was sent; delete a damaged object.

        Raises:
            RemoteIntegrityError: the two differ; the object is deleted.
        """
        with self._connection.translated("put", key):
            stored = Measured(int(described["size"]), _checksum(described))
        if stored == sent:
            return
        query = urlencode({"generation": described["generation"]})
        await self._connection.request("delete", key, "DELETE", self._connection.object_url(key, query))
        raise RemoteIntegrityError(
            f"gs://{self._bucket}/{key}: {stored.size_bytes} bytes with CRC-32C {stored.crc32c:08x} were stored, "
            f"{sent.size_bytes} with {sent.crc32c:08x} were sent",
            remedy="the object was deleted again and the segment is read again; look at the proxies on the way",
        )

    # ------------------------------------------------------------ after a lost reply

    async def _stored_after_all(self, key: str, body: Body, error: RemoteStorageError) -> None:
        try:
            async with deadline(f"head {key}", self._deadlines.clean_up_s):
                found = await self.head(key)
        except (RemoteResourceNotFoundError, RetriableRemoteStorageError):
            raise RetriableRemoteStorageError(str(error), remedy=error.remedy) from error
        if Measured(found.size_bytes, found.crc32c or 0) != await measured(body):
            raise self._conflict(key, "exists already, with other content") from error

    async def _describe(self, key: str) -> dict[str, Any]:
        storage = await self._connection.storage()
        with self._connection.translated("head", key):
            return await storage.download_metadata(self._bucket, key, timeout=self._connection.timeout)

    def _conflict(self, key: str, what: str) -> RemoteConflictError:
        return conflict(f"gs://{self._bucket}/{key} {what}")


def _info(described: dict[str, Any], *, with_checksum: bool) -> ObjectInfo:
    created = datetime.fromisoformat(described["timeCreated"])
    checksum = _checksum(described) if with_checksum else None
    return ObjectInfo(described["name"], int(described["size"]), checksum, round(created.timestamp() * 1000))


def _is_whole(reply: Reply, byte_range: ByteRange | None) -> bool:
    """Return whether the answer has all bytes of the object, which is what the store's checksum is of."""
    size = len(reply.content)
    return byte_range is None or reply.headers.get("content-range", "") == f"bytes 0-{size - 1}/{size}"


def _checksum(described: dict[str, Any]) -> int:
    return decoded(described["crc32c"])
