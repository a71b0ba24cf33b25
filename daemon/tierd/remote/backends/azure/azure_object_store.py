"""AzureObjectStore: a container of Azure Blob Storage, read through obstore, written in blocks that are checked.

Blobs are created with ``If-None-Match: *``, also large ones, whose blocks one conditional request puts together.
Azure computes no CRC-32C: each request carries an MD5 that the store compares, and ours goes into the blob's metadata.
"""

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import NamedTuple

from tierd.errors import (
    RemoteConflictError,
    RemoteResourceNotFoundError,
    RemoteStorageError,
    RetriableRemoteStorageError,
)
from tierd.kernels import crc32c
from tierd.model import ByteRange
from tierd.remote.backends.answers import NoAnswerError, UploadGoneError, require_replaced
from tierd.remote.backends.azure.azure_connection import AzureConnection, AzureContainer, AzureCredentials
from tierd.remote.backends.azure.azure_errors import AzureRefusal
from tierd.remote.backends.azure.azure_upload import CHECKSUM_NAME, UNLESS_IT_EXISTS, BlockUpload, BlockUploads
from tierd.remote.backends.chunked_uploads import ChunkedUploads
from tierd.remote.backends.client_settings import HttpTimeouts, PartLimits
from tierd.remote.backends.file_chunks import as_chunks
from tierd.remote.chunks import measured
from tierd.remote.deadlines import Deadlines, deadline
from tierd.remote.object_store import Body, ObjectInfo, ObjectStore, UnfinishedUpload, range_beyond
from tierd.remote.retrying import Retry

_PAGE_KEYS = 1000
_READ_BACK_BYTES = 8 << 20


class _Described(NamedTuple):
    info: ObjectInfo
    tag: str


class AzureObjectStore(ObjectStore):
    """An ``ObjectStore`` in one container. Empty parts of keys (``a//b``) are refused, as are ``.`` and ``..``."""

    def __init__(
        self,
        container: AzureContainer,
        *,
        credentials: AzureCredentials = AzureCredentials(),  # noqa: B008 - frozen
        timeouts: HttpTimeouts = HttpTimeouts(),  # noqa: B008 - frozen
        parts: PartLimits = PartLimits(part_size=16 << 20),  # noqa: B008 - frozen
        deadlines: Deadlines = Deadlines(),  # noqa: B008 - frozen
        retry: Retry | None = None,
    ) -> None:
        """Prepare to use the container; nothing is connected before the first call.

        Args:
            container: the container and its account.
            credentials: the right to use it.
            timeouts: longest waits within a request.
            parts: limits of uploads; a part is a block, and ``max_concurrency`` of them are in memory at a time.
            deadlines: for each request that sends bytes.
            retry: repeats single blocks, so that a hiccup does not cost the whole segment; None: no repetition.
        """
        self._deadlines = deadlines
        self._connection = AzureConnection(container, credentials=credentials, timeouts=timeouts)
        self._threads = ThreadPoolExecutor(parts.max_concurrency, thread_name_prefix="tierd-azure")
        self._uploads = BlockUploads(self._connection, self._threads, deadlines=deadlines, retry=retry)
        self._chunks: ChunkedUploads[BlockUpload] = ChunkedUploads(
            self._uploads, partial(self._uploads.put_whole, condition=UNLESS_IT_EXISTS), limits=parts
        )

    async def put(self, key: str, body: Body) -> None:
        """Create the object unless the key exists; cancelled or failed, nothing is visible."""
        try:
            await self._chunks.put(key, as_chunks(body, self._threads))
        except (RemoteConflictError, UploadGoneError, NoAnswerError) as error:
            await self._stored_after_all(key, body, error)

    async def replace(self, key: str, content: bytes, *, previous: bytes) -> None:
        """Give the object other content, with ``If-Match`` on the version that was found to be ``previous``."""
        described = await self._describe(key)
        present = await self.get(key, range_beyond(content, previous))
        if present == content:
            return
        if present != previous:
            raise self._connection.conflict(key, "has other content than was expected")
        try:
            await self._uploads.put_whole(key, content, condition={"If-Match": described.tag})
        except (RemoteConflictError, NoAnswerError) as error:
            found = await self.get(key, range_beyond(content, previous))
            name = f"azure://{self._connection.container}/{key}"
            require_replaced(found, content, previous=previous, name=name, error=error)

    async def get(self, key: str, byte_range: ByteRange | None = None) -> bytes:
        """Return the object's bytes, or those of ``byte_range`` clipped at its end."""
        store = self._connection.store
        try:
            with self._connection.translated("get", key):
                if byte_range is None:
                    return bytes(await (await store.get_async(key)).bytes_async())
                return bytes(await store.get_range_async(key, start=byte_range.start, end=byte_range.end + 1))
        except RemoteStorageError as error:
            if byte_range is not None and _is_past_the_end(error):
                return b""
            raise

    async def head(self, key: str) -> ObjectInfo:
        """Describe the object, with the checksum that was stored beside it."""
        return (await self._describe(key)).info

    async def delete(self, key: str) -> None:
        """Remove the object."""
        with suppress(RemoteResourceNotFoundError):
            await self._connection.delete(key)

    async def list_objects(self, prefix: str, *, start_after: str = "", limit: int | None = None) -> list[ObjectInfo]:
        """Return the objects whose key begins with ``prefix``, in order of key.

        The store cannot begin in the middle of a listing: the folder of ``prefix`` is read from its beginning.
        """
        folder = prefix.rpartition("/")[0]  # the library takes folders only
        found: list[ObjectInfo] = []
        with self._connection.translated("list", prefix):
            async for page in self._connection.store.list(folder or None, chunk_size=_PAGE_KEYS):
                for meta in page:
                    key = meta["path"]
                    if key.startswith(prefix) and key > start_after:
                        modified_ms = round(meta["last_modified"].timestamp() * 1000)
                        found.append(ObjectInfo(key, meta["size"], None, modified_ms))
                if limit is not None and len(found) >= limit:
                    break
        return sorted(found, key=lambda info: info.key)[:limit]

    async def list_unfinished_uploads(self, prefix: str) -> list[UnfinishedUpload]:
        """Return no uploads: uncommitted blocks cannot be removed; the store drops them after a week."""
        del prefix
        return []

    async def abort_upload(self, upload: UnfinishedUpload) -> None:
        """Return: no upload is listed, so that there is none to abort."""

    async def check(self) -> None:
        """Raise unless the container is there and may be listed."""
        with self._connection.translated("list", ""):
            async for _ in self._connection.store.list(chunk_size=1):
                break

    async def close(self) -> None:
        """Release the connections."""
        await self._connection.close()
        self._threads.shutdown(wait=False)

    # ------------------------------------------------------------ after a lost reply

    async def _stored_after_all(self, key: str, body: Body, error: RemoteStorageError) -> None:
        try:
            async with deadline(f"head {key}", self._deadlines.clean_up_s):
                found = (await self._describe(key)).info
        except (RemoteResourceNotFoundError, RetriableRemoteStorageError):
            raise RetriableRemoteStorageError(str(error), remedy=error.remedy) from error
        ours = await measured(body)
        same = found.size_bytes == ours.size_bytes
        if same:
            crc = found.crc32c if found.crc32c is not None else await self._crc_of_object(key, found.size_bytes)
            same = crc == ours.crc32c
        if not same:
            raise self._connection.conflict(key, "exists already, with other content") from error

    async def _describe(self, key: str) -> _Described:
        with self._connection.translated("head", key):
            reply = await self._connection.store.get_async(key, options={"head": True})
            meta, attributes = reply.meta, reply.attributes
        recorded = str(attributes.get(CHECKSUM_NAME, ""))
        try:
            crc = int(recorded, 16) if recorded else None
        except ValueError:
            crc = None  # metadata of another program
        modified_ms = round(meta["last_modified"].timestamp() * 1000)
        return _Described(ObjectInfo(key, meta["size"], crc, modified_ms), meta["e_tag"] or "")

    async def _crc_of_object(self, key: str, size: int) -> int:
        total = 0
        for position in range(0, size, _READ_BACK_BYTES):
            total = crc32c(await self.get(key, ByteRange.of_size(position, _READ_BACK_BYTES)), total)
        return total


def _is_past_the_end(error: RemoteStorageError) -> bool:
    text = str(error.__cause__)
    refusal = AzureRefusal.from_text("get", "", "", text)
    return "StartTooLarge" in text or (refusal is not None and refusal.status == 416)
