"""RawClient: one connection to a real broker, on which kio's messages of any version are asked."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Self

from kio.index import load_response_from_request
from kio.schema.errors import ErrorCode
from kio.schema.sasl_authenticate.v2 import SaslAuthenticateRequest, SaslAuthenticateResponse
from kio.schema.sasl_handshake.v1 import SaslHandshakeRequest, SaslHandshakeResponse
from kio.static.protocol import RequestPayload, ResponsePayload

from tests.serve.kafka.kio_messages import frame, sized
from tierd.control.kafka_framing import decoded

_DEADLINE_S = 30.0
_CORRELATION_ID_BYTES = 4


class RawClient:
    """A connection; ``logged_in`` opens it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    @asynccontextmanager
    async def logged_in(cls, address: str, *, user: str, password: str) -> AsyncIterator[Self]:
        """Open a connection and log in by user and password."""
        host, _, port = address.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        try:
            client = cls(reader, writer)
            await client._log_in(f"\0{user}\0{password}".encode())
            yield client
        finally:
            writer.close()
            await writer.wait_closed()

    async def _log_in(self, token: bytes) -> None:
        handshake = await self.ask(SaslHandshakeRequest(mechanism="PLAIN"))
        assert isinstance(handshake, SaslHandshakeResponse)
        assert handshake.error_code is ErrorCode.none
        login = await self.ask(SaslAuthenticateRequest(auth_bytes=token))
        assert isinstance(login, SaslAuthenticateResponse)
        assert login.error_code is ErrorCode.none, login.error_message

    async def ask(self, request: RequestPayload) -> ResponsePayload:
        """Return the broker's answer."""
        async with asyncio.timeout(_DEADLINE_S):
            self._writer.write(sized(frame(request)))
            size_bytes = int.from_bytes(await self._reader.readexactly(4), "big")
            content = await self._reader.readexactly(size_bytes)
        return decoded(load_response_from_request(request), content[_CORRELATION_ID_BYTES:])
