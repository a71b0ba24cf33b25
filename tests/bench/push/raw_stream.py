"""Reference of push replication: the same bytes over a plain loopback connection, written to a file.

Program ``python -m tests.bench.push.raw_stream FILE``: prints its port; receives one connection; ends with it.
"""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter


def receive(file: Path) -> None:
    """Write what one sender sends, one batch a call; a byte in answer tells that all is written."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        print(server.getsockname()[1], flush=True)
        connected, _ = server.accept()
    with connected, file.open("wb", buffering=0) as written:
        size_bytes, batch_bytes = json.loads(connected.makefile("rb", buffering=0).readline())
        buffer = memoryview(bytearray(batch_bytes))
        while size_bytes:
            filled = connected.recv_into(buffer, min(size_bytes, batch_bytes), socket.MSG_WAITALL)
            os.write(written.fileno(), buffer[:filled])
            size_bytes -= filled
        connected.sendall(b"\0")


def raw_bytes_per_s(file: Path, batches: Sequence[bytes]) -> float:
    """Send batches to a receiver in a process of its own; return the bytes per second until all are in the file."""
    command = [sys.executable, "-m", "tests.bench.push.raw_stream", str(file)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as receiver:
        assert receiver.stdout is not None
        port = int(receiver.stdout.readline())
        with socket.create_connection(("127.0.0.1", port)) as connected:
            size_bytes = sum(map(len, batches))
            connected.sendall(json.dumps([size_bytes, len(batches[0])]).encode() + b"\n")
            begun_s = perf_counter()
            for batch in batches:
                connected.sendall(batch)
            assert connected.recv(1) == b"\0"
            took_s = perf_counter() - begun_s
    assert file.stat().st_size == size_bytes
    file.unlink()
    return size_bytes / took_s


if __name__ == "__main__":
    receive(Path(sys.argv[1]))
