"""BlockUploads: blobs in one request, or in parallel blocks that one request puts together if the key is free."""

import asyncio
import base64
import hashlib
from collections.abc import AsyncIterator, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import asynccontextmanager
from functools import partial
from typing import NamedTuple
from urllib.parse import quote
from uuid import uuid4

from tierd.kernels import crc32c
from tierd.remote.backends.azure.azure_connection import AzureConnection
from tierd.remote.backends.parts import UploadPart, crc32c_of, size_of
from tierd.remote.chunks import ByteView
from tierd.remote.deadlines import Deadlines, deadline
from tierd.remote.retrying import Retry

CHECKSUM_NAME = "crc32c"
"""Name of the metadata entry with the CRC-32C in hexadecimal digits: the store computes none itself."""

UNLESS_IT_EXISTS: Mapping[str, str] = {"If-None-Match": "*"}


class BlockUpload(NamedTuple):
    """An upload under way; the id keeps its blocks apart from those of any other upload of the key."""

    key: str
    upload_id: str


class BlockUploads:
    """Uploads in blocks: each has an MD5, which the store compares, and the blob has a CRC-32C in its metadata.

    Blocks that are not put together are not visible and cannot be removed. The store drops them after a week, or when
    the key is next written.
    """

    def __init__(
        self, connection: AzureConnection, threads: Executor, *, deadlines: Deadlines, retry: Retry | None
    ) -> None:
        self._connection = connection
        self._threads = threads
        self._deadlines = deadlines
        self._retry = retry

    async def put_whole(self, key: str, content: ByteView, *, condition: Mapping[str, str]) -> None:
        """Store a blob in one request.

        Raises:
            RemoteConflictError: the condition does not hold.
        """
        headers = {
            "x-ms-blob-type": "BlockBlob",
            "Content-Type": "application/octet-stream",
            "Content-MD5": await self._md5(content),
            f"x-ms-meta-{CHECKSUM_NAME}": f"{crc32c(content):08x}",
            **condition,
        }
        async with deadline(f"put {key}", self._deadlines.for_size(len(content))):
            await self._connection.put("put", key, "", content, headers)

    @asynccontextmanager
    async def begun(self, key: str) -> AsyncIterator[BlockUpload]:
        """Begin an upload, to be completed inside the context. There is nothing to abort."""
        yield BlockUpload(key, uuid4().hex)

    async def send_bytes(self, upload: BlockUpload, part: UploadPart, content: memoryview) -> str:
        """Send one block; return its id."""
        block_id = base64.b64encode(f"{upload.upload_id}-{part.number:06d}".encode()).decode()
        query = f"comp=block&blockid={quote(block_id, safe='')}"
        headers = {"Content-MD5": await self._md5(content)}

        async def send() -> None:
            async with deadline(f"upload block {upload.key}", self._deadlines.for_size(len(content))):
                await self._connection.put("upload block", upload.key, query, content, headers)

        key, number = upload.key, part.number
        await (self._retry.request("upload_part", send, key=key, part=number) if self._retry else send())
        return block_id

    async def complete(self, upload: BlockUpload, parts: Sequence[UploadPart], tags: Sequence[str]) -> None:
        """Make the blob appear, unless its key exists.

        Raises:
            RemoteConflictError: the key exists.
            UploadGoneError: another upload of the key was completed meanwhile.
        """
        listed = "".join(f"<Uncommitted>{tag}</Uncommitted>" for tag in tags)
        content = f'<?xml version="1.0" encoding="utf-8"?><BlockList>{listed}</BlockList>'.encode()
        headers = {
            "x-ms-blob-content-type": "application/octet-stream",
            f"x-ms-meta-{CHECKSUM_NAME}": f"{crc32c_of(parts):08x}",
            **UNLESS_IT_EXISTS,
        }

        async def complete() -> None:
            async with deadline(f"complete upload {upload.key}", self._deadlines.for_size(size_of(parts))):
                await self._connection.put("complete upload", upload.key, "comp=blocklist", content, headers)

        await (self._retry.request("complete_upload", complete, key=upload.key) if self._retry else complete())

    async def _md5(self, content: ByteView) -> str:
        hashing = partial(hashlib.md5, content, usedforsecurity=False)
        digest = await asyncio.get_running_loop().run_in_executor(self._threads, hashing)
        return base64.b64encode(digest.digest()).decode()
