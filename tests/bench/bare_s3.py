"""Reference of tierd's S3 uploads: the same client library without tierd.

The reference streams a file to S3 in the cheapest way of aiobotocore: multipart, unsigned payload, our own CRC-32C per
part, bodies read ahead in steps by threads, four parts at a time.
"""

import asyncio
import base64
import os
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, cast

from aiobotocore.config import AioConfig
from aiobotocore.session import get_session
from crc32c import crc32c

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

    from types_aiobotocore_s3 import S3Client

STEP_BYTES = 1 << 20


class FileSlice:
    """Request body of ``size`` bytes from ``start`` on, one step read ahead in a thread."""

    def __init__(self, file: int, start: int, size: int, reader: ThreadPoolExecutor) -> None:
        self._file, self._start, self._size, self._reader = file, start, size, reader

    def __len__(self) -> int:
        return self._size

    def read(self, size: int = -1) -> bytes:
        """Exist for botocore, which accepts only bodies with this method."""
        raise NotImplementedError

    async def __aiter__(self) -> AsyncIterator[bytes]:
        loop = asyncio.get_running_loop()
        position, end = self._start, self._start + self._size
        step = loop.run_in_executor(self._reader, os.pread, self._file, min(STEP_BYTES, end - position), position)
        while position < end:
            data = await step
            position += len(data)
            if position < end:
                step = loop.run_in_executor(
                    self._reader, os.pread, self._file, min(STEP_BYTES, end - position), position
                )
            yield data


def _encoded(crc: int) -> str:
    return base64.b64encode(crc.to_bytes(4, "big")).decode()


def _checksum(file: int, start: int, size: int) -> str:
    crc = 0
    for position in range(start, start + size, STEP_BYTES):
        crc = crc32c(os.pread(file, min(STEP_BYTES, start + size - position), position), crc)
    return _encoded(crc)


def bare_client(
    endpoint: str,
    *,
    concurrency: int,
    access_key_id: str = "tierdtest",
    secret_access_key: str = "tierdtestsecret",
    region: str = "us-east-1",
) -> "AbstractAsyncContextManager[S3Client]":
    """Return the context of a client that repeats no request and signs no payload."""
    config = AioConfig(
        max_pool_connections=concurrency,
        retries={"total_max_attempts": 1},
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
        s3={"addressing_style": "path", "payload_signing_enabled": False},
    )
    return get_session().create_client(
        "s3",
        endpoint_url=endpoint,
        region_name=region,
        aws_access_key_id=access_key_id,
        aws_secret_access_key=secret_access_key,
        config=config,
    )


async def bare_upload(
    endpoint: str,
    bucket: str,
    key: str,
    path: Path,
    *,
    access_key_id: str = "tierdtest",
    secret_access_key: str = "tierdtestsecret",
    region: str = "us-east-1",
    part_size: int = 25 << 20,
    concurrency: int = 4,
    part_checksums: list[str] | None = None,
) -> None:
    """Upload the file ``path``, which must not be empty, overwriting what is there.

    Args:
        part_checksums: base64 CRC-32C of every part, if they are known already; otherwise the file is read for them.
    """
    client_context = bare_client(
        endpoint,
        concurrency=concurrency,
        access_key_id=access_key_id,
        secret_access_key=secret_access_key,
        region=region,
    )
    slots = asyncio.Semaphore(concurrency)
    file = os.open(path, os.O_RDONLY)
    try:
        size = os.fstat(file).st_size
        starts = range(0, size, part_size)
        with ThreadPoolExecutor(concurrency) as reader:
            async with client_context as client:
                upload = await client.create_multipart_upload(Bucket=bucket, Key=key, ChecksumAlgorithm="CRC32C")
                loop = asyncio.get_running_loop()

                async def send(number: int, start: int) -> tuple[int, str, str]:
                    length = min(part_size, size - start)
                    async with slots:
                        if part_checksums is None:
                            checksum = await loop.run_in_executor(reader, _checksum, file, start, length)
                        else:
                            checksum = part_checksums[number - 1]
                        reply = await client.upload_part(
                            Bucket=bucket,
                            Key=key,
                            UploadId=upload["UploadId"],
                            PartNumber=number,
                            Body=cast(
                                "bytes", FileSlice(file, start, length, reader)
                            ),  # typed for blocking bodies only
                            ContentLength=length,
                            ChecksumCRC32C=checksum,
                        )
                    return number, reply["ETag"], checksum

                async with asyncio.TaskGroup() as group:
                    tasks = [group.create_task(send(n, start)) for n, start in enumerate(starts, 1)]
                parts = [task.result() for task in tasks]
                await client.complete_multipart_upload(
                    Bucket=bucket,
                    Key=key,
                    UploadId=upload["UploadId"],
                    MultipartUpload={
                        "Parts": [{"PartNumber": n, "ETag": etag, "ChecksumCRC32C": crc} for n, etag, crc in parts]
                    },
                )
    finally:
        os.close(file)
