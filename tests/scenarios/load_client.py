"""Connections to the endpoint in great number, on messages of kio: consumers that count, and bytes of any kind."""

import asyncio
import struct
from datetime import timedelta
from types import TracebackType
from typing import Self

from kio.schema.api_versions.v3.request import ApiVersionsRequest
from kio.schema.errors import ErrorCode
from kio.schema.fetch.v11.request import FetchPartition, FetchRequest, FetchTopic
from kio.schema.fetch.v11.response import FetchResponse, PartitionData
from kio.schema.types import TopicName
from kio.static.primitive import i8, i32, i32Timedelta, i64

from tests.serve.kafka.kio_messages import frame, sized
from tierd.control.kafka_framing import decoded

ANSWER_DEADLINE_S = 60.0
CONSUMER_DEADLINE_S = 90.0
_CORRELATION_ID_BYTES = 4
_BATCH_START = struct.Struct(">qi")  # base offset, and the size of what follows
_LAST_OFFSET_DELTA_AT, _BATCH_OVERHEAD = 23, 12


class LoadConnection:
    """One connection, one request at a time; a context manager."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def opened(cls, host: str, port: int) -> Self:
        """Open a connection and ask for the supported versions, as every client does."""
        async with asyncio.timeout(ANSWER_DEADLINE_S):
            connection = cls(*await asyncio.open_connection(host, port))
            request = ApiVersionsRequest(client_software_name="load", client_software_version="1")
            await connection.send(sized(frame(request)))
            await connection.answer()
        return connection

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._writer.close()

    async def send(self, content: bytes) -> None:
        """Send any bytes."""
        self._writer.write(content)
        await self._writer.drain()

    async def answer(self) -> bytes:
        """Return the next answer without its size."""
        size_bytes = int.from_bytes(await self._reader.readexactly(4), "big")
        return await self._reader.readexactly(size_bytes)

    async def fetch(
        self, topic: str, partition: int, offset: int, *, max_bytes: int, max_wait_s: float
    ) -> PartitionData:
        """Return the answer about one partition; it waits for a byte at least."""
        async with asyncio.timeout(ANSWER_DEADLINE_S):
            await self.send(fetch_frame(topic, partition, offset, max_bytes=max_bytes, max_wait_s=max_wait_s))
            content = await self.answer()
        (answered,) = decoded(FetchResponse, content[_CORRELATION_ID_BYTES:]).responses
        return answered.partitions[0]

    async def consume(self, topic: str, partition: int, *, max_bytes: int) -> int:
        """Read a partition from offset 0 to its high watermark, without a gap, and return the number of records.

        An answer without records is asked for again: the tier may need longer than the longest wait.

        Raises:
            AssertionError: a batch does not begin where the one before it has ended.
        """
        offset, end = 0, 1
        async with asyncio.timeout(CONSUMER_DEADLINE_S):
            while offset < end:
                found = await self.fetch(topic, partition, offset, max_bytes=max_bytes, max_wait_s=1.0)
                assert found.error_code is ErrorCode.none, found.error_code
                offset, end = end_of_batches(found.records or b"", offset), found.high_watermark
        return offset


def fetch_frame(topic: str, partition: int, offset: int, *, max_bytes: int, max_wait_s: float) -> bytes:
    """Return the frame of a Fetch request for one partition."""
    wanted = FetchPartition(partition=i32(partition), fetch_offset=i64(offset), partition_max_bytes=i32(max_bytes))
    request = FetchRequest(
        max_wait=i32Timedelta.parse(timedelta(seconds=max_wait_s)),
        min_bytes=i32(1),
        max_bytes=i32(max_bytes),
        isolation_level=i8(0),
        topics=(FetchTopic(topic=TopicName(topic), partitions=(wanted,)),),
        forgotten_topics_data=(),
    )
    return sized(frame(request))


def end_of_batches(records: bytes | memoryview, offset: int) -> int:
    """Return the offset behind the whole batches of an answer, which have to follow ``offset`` without a gap."""
    position = 0
    while position + _BATCH_OVERHEAD <= len(records):
        base_offset, size_bytes = _BATCH_START.unpack_from(records, position)
        if position + _BATCH_OVERHEAD + size_bytes > len(records):
            break
        (last_delta,) = struct.unpack_from(">i", records, position + _LAST_OFFSET_DELTA_AT)
        assert base_offset <= offset <= base_offset + last_delta, (base_offset, offset)
        assert base_offset == offset or position == 0, f"the batch at {base_offset} does not begin at {offset}"
        offset, position = base_offset + last_delta + 1, position + _BATCH_OVERHEAD + size_bytes
    return offset
