"""Program ``python -m tests.bench.bare_puts ENDPOINT BUCKET COUNT``: small objects by the bare client.

The reference of small segments: the client library of tierd puts objects of equal size, each only if its key is absent
and with its CRC-32C, as many at a time as tierd has requests under way. It knows no segments and keeps no metadata.
"""

import asyncio
import base64
import sys
from typing import Final

import uvloop
from crc32c import crc32c

from tests.bench.bare_s3 import bare_client

OBJECT_BYTES: Final = 2000  # as large as the objects of the segments
AT_ONCE: Final = 4  # copy.concurrency and remote.s3.max_concurrency


async def put_all(endpoint_url: str, bucket: str, count: int) -> None:
    """Put ``count`` objects."""
    content = bytes(OBJECT_BYTES)
    checksum = base64.b64encode(crc32c(content).to_bytes(4, "big")).decode()
    numbers = iter(range(count))
    async with bare_client(endpoint_url, concurrency=AT_ONCE) as client:

        async def put_next() -> None:
            for number in numbers:
                await client.put_object(
                    Bucket=bucket, Key=f"{number:08}", Body=content, IfNoneMatch="*", ChecksumCRC32C=checksum
                )

        async with asyncio.TaskGroup() as group:
            for _ in range(AT_ONCE):
                group.create_task(put_next())


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(put_all(sys.argv[1], sys.argv[2], int(sys.argv[3])))
