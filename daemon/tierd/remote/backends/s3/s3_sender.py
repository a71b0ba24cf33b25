"""BodySender: requests whose body is a piece of a file, a few at a time over all uploads."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import NamedTuple, Protocol, TypeAlias, TypeVar

from tierd.errors import RemoteStorageError
from tierd.remote.backends.parts import UploadPart, encoded
from tierd.remote.backends.s3.s3_connection import S3Connection
from tierd.remote.backends.streamed_file import STEP_BYTES, BytesBody, SourceFile, StreamedBody, opened
from tierd.remote.chunks import ByteView
from tierd.remote.deadlines import Deadlines, deadline
from tierd.remote.object_store import FileBody

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

RequestBody: TypeAlias = StreamedBody | BytesBody | bytes


class PacedFile(NamedTuple):
    """An open file, and the pace of its bytes; None: no limit of the rate."""

    file: SourceFile
    pace: Callable[[int], Awaitable[None]] | None


class BodySender:
    """Sender of parts of files. ``slots`` bounds the requests with a body that run at a time."""

    def __init__(self, connection: S3Connection, *, max_concurrency: int, deadlines: Deadlines) -> None:
        self.slots = asyncio.Semaphore(max_concurrency)
        self._connection = connection
        self._deadlines = deadlines
        self._threads = ThreadPoolExecutor(max_concurrency, thread_name_prefix="tierd-s3")

    @asynccontextmanager
    async def open(self, body: FileBody) -> AsyncIterator[PacedFile]:
        """Open the file of ``body``; it is closed at the end, or when the last running read has returned."""
        async with opened(body.path, self._threads) as source:
            yield PacedFile(source, body.pace)

    async def send(
        self, operation: str, key: str, part: UploadPart, source: PacedFile, request: "S3BodyRequest[T]"
    ) -> T:
        """Make one request with the bytes of ``part`` as its body, before the deadline for its size."""
        size = part.byte_range.size
        what = f"{operation} {key}"
        async with self.slots, deadline(what, self._deadlines.for_size(size)) as running:
            stream = StreamedBody(
                source.file, part.byte_range, threads=self._threads, running=running, pace=source.pace
            )
            try:
                with self._connection.translated(operation, key):
                    return await request(Body=stream, ContentLength=size, ChecksumCRC32C=encoded(part.crc32c))
            except RemoteStorageError:
                if stream.failure is not None:
                    raise stream.failure from None
                raise
            finally:
                stream.discard()

    async def send_bytes(self, operation: str, key: str, content: ByteView, crc: int, request: "S3BodyRequest[T]") -> T:
        """Make one request with ``content`` as its body, before the deadline for its size."""
        async with self.slots, deadline(f"{operation} {key}", self._deadlines.for_size(len(content))):
            with self._connection.translated(operation, key):
                body: RequestBody = BytesBody(content) if len(content) > STEP_BYTES else bytes(content)
                return await request(Body=body, ContentLength=len(content), ChecksumCRC32C=encoded(crc))

    def close(self) -> None:
        """Let running reads end in the background."""
        self._threads.shutdown(wait=False)


class S3BodyRequest(Protocol[T_co]):
    """A request that still lacks its body."""

    def __call__(self, *, Body: "RequestBody", ContentLength: int, ChecksumCRC32C: str) -> Awaitable[T_co]: ...  # noqa: D102, N803 - S3's words
