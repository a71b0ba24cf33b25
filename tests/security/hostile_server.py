"""Servers that fail a client in ways in which it may repeat its own input: refused, silent, echoing."""

import asyncio
import contextlib
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final, Literal, TypeAlias

Behaviour: TypeAlias = Literal[
    "refuses", "never accepts", "never answers", "forbids", "refuses request", "is no server"
]

QUICK: Final[tuple[Behaviour, ...]] = ("refuses", "forbids", "refuses request", "is no server")
SLOW: Final[tuple[Behaviour, ...]] = ("never accepts", "never answers")
_SSL_REQUEST: Final = (80877103).to_bytes(4, "big")
_STATUS: Final = {"forbids": "403 Forbidden", "refuses request": "400 Bad Request"}


@asynccontextmanager
async def hostile_server(behaviour: Behaviour) -> AsyncIterator[str]:
    """Run one on a free port of this host; yield host and port."""
    if behaviour in {"refuses", "never accepts"}:
        with contextlib.ExitStack() as resources:
            yield _unwilling(behaviour, resources)
        return
    released = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            received = await reader.read(1 << 16)
            if behaviour == "never answers":
                await released.wait()
                return
            if _is_postgres(received) and behaviour in _STATUS:
                received = await _password_of_postgres(received, reader, writer)
            writer.write(_answer(behaviour, received))
            with contextlib.suppress(ConnectionError):
                await writer.drain()
        except ConnectionError:
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        released.set()
        server.close()
        await server.wait_closed()


def _unwilling(behaviour: Behaviour, resources: contextlib.ExitStack) -> str:
    """Return a port without a server, or one whose queue of connections is full."""
    listener = resources.enter_context(socket.socket())
    listener.bind(("127.0.0.1", 0))
    address: tuple[str, int] = listener.getsockname()
    if behaviour == "never accepts":
        listener.listen(0)
        for _ in range(4):
            waiting = resources.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(address)
    return f"{address[0]}:{address[1]}"


def _answer(behaviour: Behaviour, received: bytes) -> bytes:
    if behaviour == "is no server":
        return received
    text = received.decode(errors="replace")
    if received[:1] == b"*":  # Redis
        return f"-ERR unknown command: {text!r}\r\n".encode()
    if received[:1] == b"p":  # a password request of PostgreSQL
        fields = b"".join([b"SFATAL\0", b"C28P01\0", b"Mrefused: ", received[5:], b"Dsent: ", received[5:], b"\0"])
        return b"E" + (len(fields) + 4).to_bytes(4, "big") + fields
    body = json.dumps({"error": {"message": f"<Error><Code>Refused</Code><Message>{text}</Message></Error>"}})
    if b"x-amz" in received.lower() or b"x-ms" in received.lower():
        body = f"<Error><Code>Refused</Code><Message>{text.replace('<', '').replace('&', '&amp;')}</Message></Error>"
    head = f"HTTP/1.1 {_STATUS[behaviour]}\r\nContent-Length: {len(body.encode())}\r\nConnection: close\r\n"
    return f"{head}Content-Type: application/xml\r\n\r\n{body}".encode()


def _is_postgres(received: bytes) -> bool:
    return received[4:8] in {_SSL_REQUEST, b"\0\3\0\0"}


async def _password_of_postgres(received: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
    """Refuse TLS, ask for the password in the clear, and return the message that holds it."""
    if received[4:8] == _SSL_REQUEST:
        writer.write(b"N")
        await reader.read(1 << 16)
    writer.write(b"R" + (8).to_bytes(4, "big") + (3).to_bytes(4, "big"))
    return await reader.read(1 << 16)
