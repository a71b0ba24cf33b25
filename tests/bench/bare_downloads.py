"""Program ``python -m tests.bench.bare_downloads ENDPOINT BUCKET DIRECTORY KEY…``: the reference of a restore.

It is a loop of ranged GETs of aiobotocore, with which tierd reads too: one GET after the other, each answer written to
a file of the directory. A file is synced at its end. Nothing is checked.
"""

import asyncio
import os
import sys
from pathlib import Path
from typing import Final

import uvloop
from aiobotocore.config import AioConfig
from aiobotocore.session import get_session

PIECE_BYTES: Final = 8 << 20  # of one GET, as tierd's


async def download_all(endpoint: str, bucket: str, directory: Path, keys: list[str]) -> None:
    """Download objects, one after the other."""
    config = AioConfig(
        retries={"total_max_attempts": 1},
        response_checksum_validation="when_required",
        s3={"addressing_style": "path"},
    )
    client_context = get_session().create_client(
        "s3",
        endpoint_url=endpoint,
        region_name="us-east-1",
        aws_access_key_id="tierdtest",
        aws_secret_access_key="tierdtestsecret",
        config=config,
    )
    directory.mkdir(parents=True)
    async with client_context as client:
        for key in keys:
            with (directory / Path(key).name).open("wb", buffering=0) as file:
                size = PIECE_BYTES
                for position in range(0, sys.maxsize, PIECE_BYTES):
                    if position >= size:
                        break
                    wanted = f"bytes={position}-{position + PIECE_BYTES - 1}"
                    answer = await client.get_object(Bucket=bucket, Key=key, Range=wanted)
                    async with answer["Body"] as stream:
                        file.write(await stream.read())
                    size = int(answer["ContentRange"].rpartition("/")[2])
                os.fsync(file.fileno())


if __name__ == "__main__":
    endpoint_url, bucket_name, target, *names = sys.argv[1:]
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(download_all(endpoint_url, bucket_name, Path(target), names))
