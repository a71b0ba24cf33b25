"""Channel: bytes to and from one client over a socket, in the clear; tls_channel.py has the same under TLS.

::

    socket ──► SocketIntake: reads ahead, up to READ_AHEAD_BYTES ──► receive
    send: pieces in memory by sendmsg, slices of files by sendfile ──► socket

A channel reads all the time, even while its request is answered: so a client that goes away is noticed then.
"""

import asyncio
import socket
import struct
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from tierd.serve.kafka.connections.connection_errors import PeerGoneError
from tierd.serve.kafka.connections.file_slices import MOST_AT_ONCE_BYTES, FileSlices
from tierd.serve.kafka.connections.socket_intake import SocketIntake, cancelled_when_gone
from tierd.serve.kafka.served.served_log import FileSlice

_MAX_BUFFERS: Final = 512  # of one sendmsg; the kernel takes 1024
_RESET: Final = struct.pack("ii", 1, 0)  # struct linger: closing drops what the client has not taken

OnSent = Callable[[int], None]
"""Called with a number of bytes that the socket has taken."""


class Channel(Protocol):
    """Bytes of one connection. After a ``PeerGoneError`` only ``close`` may be called."""

    @property
    def intake(self) -> SocketIntake:
        """Return what the client sends."""

    async def open(self) -> None:
        """Begin to read.

        Raises:
            PeerGoneError: the client went away.
            ClientFaultError: the client speaks no TLS that this listener accepts.
        """

    def certificate(self) -> bytes | None:
        """Return the client's certificate in DER, which TLS has verified; None if it has none."""

    async def send(self, pieces: Sequence[bytes | FileSlice], progress: OnSent) -> None:
        """Send pieces in order, and return when the socket has taken all. A cancelled call has sent some of them.

        Raises:
            PeerGoneError: the client went away, or the channel was aborted.
            SegmentChangedError: the file of a slice is gone or another one; the channel has to be aborted.
            OSError: a file cannot be read; the channel has to be aborted.
        """

    def abort(self) -> None:
        """End the connection at once: all calls that wait raise PeerGoneError, and what was not taken is dropped."""

    def close(self) -> None:
        """Close the socket; what was sent before still arrives, unless the channel was aborted."""


class PlainChannel:
    """Channel without encryption."""

    def __init__(self, connected: socket.socket, slices: FileSlices) -> None:
        """Own ``connected``, which does not block."""
        self._socket = connected
        self._slices = slices
        self.intake = SocketIntake(connected)

    async def open(self) -> None:
        """Begin to read; returns at once."""
        self.intake.start()

    def certificate(self) -> None:
        """Return None: there are no certificates without TLS."""

    async def send(self, pieces: Sequence[bytes | FileSlice], progress: OnSent) -> None:
        """Send pieces in order, as ``Channel.send`` promises."""
        in_memory: list[memoryview] = []
        for piece in pieces:
            if isinstance(piece, bytes):
                if piece:
                    in_memory.append(memoryview(piece))
                continue
            if in_memory:
                await self._send_buffers(in_memory, progress, socket.MSG_MORE)
                in_memory = []
            await self._send_slice(piece, progress)
        if in_memory:
            await self._send_buffers(in_memory, progress, 0)

    def abort(self) -> None:
        """End the connection at once."""
        reset(self._socket)
        self.intake.end()

    def close(self) -> None:
        """Close the socket."""
        self.intake.close()
        self._socket.close()

    async def _send_buffers(self, buffers: list[memoryview], progress: OnSent, flags: int) -> None:
        while buffers:
            sent = _sent(self._socket, buffers[:_MAX_BUFFERS], flags)
            if sent:
                progress(sent)
                _drop(buffers, sent)
            if buffers:
                await writable(self._socket)

    async def _send_slice(self, piece: FileSlice, progress: OnSent) -> None:
        sent = 0
        while sent < piece.size_bytes:
            pushed = self._slices.push_cached(self._socket, piece, sent)
            has_room = pushed == MOST_AT_ONCE_BYTES
            if pushed is None:
                with cancelled_when_gone(self.intake):  # a disk may hang
                    pushed = await self._slices.push(self._socket, piece, sent)
            sent += pushed
            progress(pushed)
            if sent < piece.size_bytes:
                await (asyncio.sleep(0) if has_room else writable(self._socket))


async def writable(connected: socket.socket) -> None:
    """Wait until a socket takes bytes again, or was aborted."""
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()
    loop.add_writer(connected.fileno(), _settle, ready)
    try:
        await ready
    finally:
        loop.remove_writer(connected.fileno())


def send_now(connected: socket.socket, content: memoryview) -> int:
    """Send what the socket takes at once; 0 if it takes nothing.

    Raises:
        PeerGoneError: the client went away.
    """
    return _sent(connected, [content], 0)


def reset(connected: socket.socket) -> None:
    """Make a socket drop what its peer has not taken, and fail in every call from now on."""
    try:
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        connected.shutdown(socket.SHUT_RDWR)
    except OSError:  # the client has reset it before
        return


def _settle(ready: "asyncio.Future[None]") -> None:
    if not ready.done():
        ready.set_result(None)


def _sent(connected: socket.socket, buffers: Sequence[memoryview], flags: int) -> int:
    try:
        return connected.sendmsg(buffers, (), flags | socket.MSG_NOSIGNAL)
    except (BlockingIOError, InterruptedError):
        return 0
    except OSError as error:
        raise PeerGoneError(error.strerror or "the client went away") from error


def _drop(buffers: list[memoryview], sent: int) -> None:
    """Remove the first ``sent`` bytes."""
    done = 0
    while done < len(buffers) and sent >= len(buffers[done]):
        sent -= len(buffers[done])
        done += 1
    del buffers[:done]
    if sent:
        buffers[0] = buffers[0][sent:]
