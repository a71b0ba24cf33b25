"""FrameConnection: the frames of one TCP or TLS connection, as a protocol of asyncio.

::

    socket ──► head buffer (64 KiB) ──┬── whole frame: copied out of it
                                      └── begin of a larger frame ──► buffer of its own ◄── the rest, from the socket

The rest of a larger frame goes from the socket to its buffer without a copy. The pages of that buffer are the
process's only once bytes arrive, so that a size that a peer merely claims takes no memory.
"""

import asyncio
from collections.abc import Sequence
from typing import Final, Protocol, cast

import numpy as np

from tierd.errors import DamagedMessageError
from tierd.replication.links.frame_memory import FrameMemory
from tierd.replication.links.link_errors import PushLinkLostError
from tierd.replication.model.messages import RecordBytes
from tierd.replication.wire.push_frames import checked_frame_size

HEAD_BUFFER_BYTES: Final = 64 << 10
_SIZE_BYTES: Final = 4
_UNLIMITED: Final = FrameMemory(1 << 62)


class FrameReceiver(Protocol):
    """Owner of a connection."""

    def on_frame(self, frame: memoryview) -> None:
        """Take a frame without its size."""

    def on_end(self) -> None:
        """Take note that nothing more comes; ``failure`` of the connection has the cause."""


class FrameConnection(asyncio.BufferedProtocol):
    """Protocol of one connection. Made on the event loop.

    Attributes:
        max_frame_bytes: larger frames end the connection; the owner sets it when it knows the peer.
        failure: cause of the end; None before it, and after an orderly one.
    """

    def __init__(self, receiver: FrameReceiver, *, max_frame_bytes: int, memory: FrameMemory = _UNLIMITED) -> None:
        """Wait for the transport."""
        self._receiver = receiver
        self._memory = memory
        self._head = memoryview(bytearray(HEAD_BUFFER_BYTES))
        self._begin = self._end = 0
        self._frame: memoryview | None = None
        self._filled_bytes = 0
        self._wanted_bytes = 0  # of a frame that waits for memory
        self._is_held = self._is_paused = False
        self._transport: asyncio.Transport | None = None
        self._writable = asyncio.Event()
        self._writable.set()
        self._closed = asyncio.Event()
        self.max_frame_bytes = max_frame_bytes
        self.failure: Exception | None = None

    @property
    def transport(self) -> asyncio.Transport:
        """Return the transport, which is there."""
        assert self._transport is not None, "the transport was made"
        return self._transport

    @property
    def is_made(self) -> bool:
        """Return True if there is a transport, or was one."""
        return self._transport is not None

    @property
    def is_closed(self) -> bool:
        """Return True if nothing more comes."""
        return self._closed.is_set()

    @property
    def is_open(self) -> bool:
        """Return True if bytes can be sent."""
        return self._transport is not None and not self._transport.is_closing()

    def send(self, pieces: Sequence[RecordBytes]) -> None:
        """Send the pieces of a frame. The transport keeps what the peer has not taken, without a copy.

        Raises:
            PushLinkLostError: the connection has ended.
        """
        if not self.is_open:
            raise PushLinkLostError(f"the connection has ended: {self.failure or 'the peer closed it'}")
        self.transport.writelines(pieces)

    async def drained(self) -> None:
        """Wait until the peer has taken most of what was sent.

        Raises:
            PushLinkLostError: the connection has ended.
        """
        await self._writable.wait()
        if self._closed.is_set():
            raise PushLinkLostError(f"the connection has ended: {self.failure or 'the peer closed it'}")

    def hold(self) -> None:
        """Read no more frames for now."""
        self._is_held = True
        self._pause_or_resume()

    def resume(self) -> None:
        """Read frames again."""
        if self._is_held:
            self._is_held = False
            self._read_frames()

    def fail(self, error: Exception) -> None:
        """End the connection for ``error``, at once."""
        if self.failure is None and not self._closed.is_set():
            self.failure = error
        self.abort()

    def abort(self) -> None:
        """End the connection at once; bytes that the peer has not taken are dropped."""
        if self._transport is not None:
            self._transport.abort()

    async def finish(self, timeout_s: float) -> None:
        """End the connection after the peer has taken what was sent, or after ``timeout_s``."""
        if self._transport is not None:
            self._transport.close()
            try:
                async with asyncio.timeout(timeout_s):
                    await self._closed.wait()
            except TimeoutError:
                self.abort()

    async def wait_closed(self) -> None:
        """Wait until the transport holds nothing any more. It has to have been made."""
        await self._closed.wait()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self._transport = cast("asyncio.Transport", transport)  # those of uvloop and of TLS have another base
        self._pause_or_resume()

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the place for the next bytes."""
        if self._frame is not None:
            return self._frame[self._filled_bytes :]
        if self._begin:
            left = self._end - self._begin
            self._head[:left] = bytes(self._head[self._begin : self._end])
            self._begin, self._end = 0, left
        return self._head[self._end :]

    def buffer_updated(self, nbytes: int) -> None:
        """Take note of bytes in the buffer."""
        if self._frame is None:
            self._end += nbytes
            self._read_frames()
            return
        self._filled_bytes += nbytes
        if self._filled_bytes == len(self._frame):
            frame, self._frame = self._frame, None
            self._receiver.on_frame(frame.toreadonly())
            self._read_frames()

    def eof_received(self) -> bool:
        """Close the connection: an answer would have no reader."""
        return False

    def pause_writing(self) -> None:
        """Let the owner wait."""
        self._writable.clear()

    def resume_writing(self) -> None:
        """Let the owner go on."""
        self._writable.set()

    def connection_lost(self, exc: Exception | None) -> None:
        """Give everything back, and tell the owner."""
        if self.failure is None:
            self.failure = exc
        self._memory.abandon(self._granted)
        if self._frame is not None:
            self._memory.give_back(len(self._frame))
            self._frame = None
        self._wanted_bytes = 0
        self._closed.set()
        self._writable.set()
        self._receiver.on_end()

    def _read_frames(self) -> None:
        """Hand over the frames of the head buffer, and begin the one that is not whole."""
        try:
            while not self._is_held and not self._wanted_bytes and self._next_frame():
                pass
        except DamagedMessageError as error:
            self.fail(error)
            return
        self._pause_or_resume()

    def _next_frame(self) -> bool:
        if self._frame is not None or self._end - self._begin < _SIZE_BYTES or self._closed.is_set():
            return False
        body = self._begin + _SIZE_BYTES
        size_bytes = checked_frame_size(bytes(self._head[self._begin : body]), max_bytes=self.max_frame_bytes)
        if self._end - body >= size_bytes:
            self._begin = body + size_bytes
            self._receiver.on_frame(memoryview(bytes(self._head[body : self._begin])))
            return True
        if size_bytes > HEAD_BUFFER_BYTES - _SIZE_BYTES:
            self._begin_frame(size_bytes)
        return False

    def _begin_frame(self, size_bytes: int) -> None:
        if not self._memory.take(size_bytes, self._granted):
            self._wanted_bytes = size_bytes
            return
        self._fill_frame(size_bytes)

    def _granted(self) -> None:
        size_bytes, self._wanted_bytes = self._wanted_bytes, 0
        self._fill_frame(size_bytes)
        self._pause_or_resume()

    def _fill_frame(self, size_bytes: int) -> None:
        frame = np.empty(size_bytes, np.uint8).data
        begun = self._head[self._begin + _SIZE_BYTES : self._end]
        frame[: len(begun)] = begun
        self._frame, self._filled_bytes = frame, len(begun)
        self._begin = self._end = 0

    def _pause_or_resume(self) -> None:
        if self._transport is None or self._transport.is_closing():
            return
        is_paused = self._is_held or bool(self._wanted_bytes)
        if is_paused and not self._is_paused:
            self._transport.pause_reading()
        elif self._is_paused and not is_paused:
            self._transport.resume_reading()
        self._is_paused = is_paused
