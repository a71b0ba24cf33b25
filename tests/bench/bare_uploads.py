"""Program ``python -m tests.bench.bare_uploads ENDPOINT BUCKET FILE…``: the reference as a process of its own."""

import asyncio
import sys
from pathlib import Path

import uvloop

from tests.bench.bare_s3 import bare_upload


async def upload_all(endpoint: str, bucket: str, files: list[Path]) -> None:
    """Upload the files one after the other, as tierd copies the segments of one partition."""
    for file in files:
        await bare_upload(endpoint, bucket, file.name, file)


if __name__ == "__main__":
    endpoint_url, bucket_name, *names = sys.argv[1:]
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(upload_all(endpoint_url, bucket_name, [Path(name) for name in names]))
