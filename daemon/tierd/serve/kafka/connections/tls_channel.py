"""TlsChannel: bytes to and from one client under TLS, by OpenSSL in memory over the same socket and intake."""

import socket
import ssl
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from tierd.serve.kafka.connections.channel import OnSent, reset, send_now, writable
from tierd.serve.kafka.connections.connection_errors import ClientFaultError, PeerGoneError
from tierd.serve.kafka.connections.file_slices import FileSlices
from tierd.serve.kafka.connections.socket_intake import READ_AHEAD_BYTES, SocketIntake, cancelled_when_gone
from tierd.serve.kafka.served.served_log import FileSlice

STEP_BYTES: Final = 256 << 10
"""Bytes that are encrypted at a time: the copy that a connection under TLS has in memory."""

_UNASKED_BYTES: Final = 4 << 10  # of answers that OpenSSL makes by itself, such as to one handshake after the other


class TlsChannel:
    """Channel with encryption. Slices of files are read in steps."""

    def __init__(self, connected: socket.socket, slices: FileSlices, context: ssl.SSLContext) -> None:
        """Own ``connected``, which does not block; ``context`` is the server's."""
        self._socket = connected
        self._slices = slices
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._handshake = SocketIntake(connected)
        self.intake = SocketIntake(connected, decode=self._decrypted)

    async def open(self) -> None:
        """Shake hands and begin to read."""
        self._handshake.on_end = self.intake.end
        self._handshake.start()
        try:
            while not await self._shook_hands():
                await self._handshake.fill(1)
                self._incoming.write(self._handshake.take(len(self._handshake)))
        finally:
            self._handshake.close()
        self.intake.start()
        self.intake.put(memoryview(b""))  # requests that came with the last bytes of the handshake

    async def _shook_hands(self) -> bool:
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            return False
        except ssl.SSLError as error:
            raise ClientFaultError(f"no TLS with the client: {error.reason or error}") from error
        finally:
            await self._flush()
        return True

    def certificate(self) -> bytes | None:
        """Return the client's certificate in DER, which TLS has verified; None if it has none."""
        return self._tls.getpeercert(binary_form=True)

    async def send(self, pieces: Sequence[bytes | FileSlice], progress: OnSent) -> None:
        """Send pieces in order, as ``Channel.send`` promises."""
        for piece in pieces:
            size_bytes = piece.size_bytes if isinstance(piece, FileSlice) else len(piece)
            for start in range(0, size_bytes, STEP_BYTES):
                step = await self._step(piece, start)
                self._encrypt(step)
                await self._flush()
                progress(len(step))

    def abort(self) -> None:
        """End the connection at once."""
        reset(self._socket)
        self._handshake.end()
        self.intake.end()

    def close(self) -> None:
        """Tell the client that nothing follows, as far as the socket takes it at once, and close the socket."""
        if not self.intake.is_ended:
            with suppress(ssl.SSLError, PeerGoneError):  # unwrap would wait for the client's last word
                self._tls.unwrap()
            with suppress(PeerGoneError):
                send_now(self._socket, memoryview(self._outgoing.read()))
        self._handshake.close()
        self.intake.close()
        self._socket.close()

    async def _step(self, piece: bytes | FileSlice, start: int) -> memoryview | bytes | bytearray:
        if isinstance(piece, bytes):
            return memoryview(piece)[start : start + STEP_BYTES]
        with cancelled_when_gone(self.intake):  # a disk may hang
            return await self._slices.read(piece, start, STEP_BYTES)

    def _encrypt(self, content: memoryview | bytes | bytearray) -> None:
        rest = memoryview(content)
        try:
            while rest:
                rest = rest[self._tls.write(rest) :]
        except ssl.SSLError as error:
            raise PeerGoneError(f"no TLS with the client: {error.reason or error}") from error

    async def _flush(self) -> None:
        """Send what OpenSSL has for the client."""
        rest = memoryview(self._outgoing.read())
        while rest:
            sent = send_now(self._socket, rest)
            rest = rest[sent:]
            if rest:
                await writable(self._socket)

    def _decrypted(self, received: memoryview) -> bytes:
        self._incoming.write(received)
        content = bytearray()
        try:
            while plain := self._tls.read(READ_AHEAD_BYTES):
                content += plain
        except ssl.SSLWantReadError:
            if self._outgoing.pending <= _UNASKED_BYTES:
                return bytes(content)
        except ssl.SSLError:  # a damaged record, or the client's last word
            pass
        self.intake.end()
        return bytes(content)
