"""SocketIntake: what a client sends, read ahead up to a bound, and the moment at which it goes away."""

import asyncio
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from tierd.serve.kafka.connections.connection_errors import PeerGoneError

READ_AHEAD_BYTES: Final = 64 << 10
"""Bytes that are read before they are asked for: later requests of a client that does not wait for answers."""

_scratch: Final = memoryview(bytearray(READ_AHEAD_BYTES))  # of the event loop: each read is consumed at once


class SocketIntake:
    """Bytes of one socket. Clients that go away unseen behind more than the read-ahead are noticed by a later send."""

    def __init__(self, connected: socket.socket, *, decode: Callable[[memoryview], bytes] | None = None) -> None:
        """Read ``connected``, which does not block; ``decode`` makes the client's bytes of what was received."""
        self._socket = connected
        self._decode = decode
        self._buffer = bytearray()
        self._wanted_bytes = 0
        self._waiting: asyncio.Future[None] | None = None
        self._is_reading = False
        self.is_ended = False
        self.on_end: Callable[[], None] | None = None
        """Called once when the client goes away, or the connection is aborted."""

    def __len__(self) -> int:
        """Return the number of bytes that can be taken."""
        return len(self._buffer)

    def start(self) -> None:
        """Begin to read."""
        self._watch()

    async def fill(self, size_bytes: int) -> None:
        """Wait until so many bytes are there; a cancelled call leaves them for the next one.

        Raises:
            PeerGoneError: they will never be there.
        """
        self._wanted_bytes = size_bytes
        while len(self._buffer) < size_bytes:
            if self.is_ended:
                raise PeerGoneError(f"the connection ended after {len(self._buffer)} of {size_bytes} bytes")
            self._watch()
            self._waiting = asyncio.get_running_loop().create_future()
            try:
                await self._waiting
            finally:
                self._waiting = None

    def peek(self, size_bytes: int) -> bytes:
        """Return the first bytes, which stay; they are there."""
        return bytes(self._buffer[:size_bytes])

    def take(self, size_bytes: int, *, skip_bytes: int = 0) -> bytes:
        """Return bytes behind ``skip_bytes`` that are dropped; all are there."""
        end = skip_bytes + size_bytes
        with memoryview(self._buffer) as whole:
            taken = bytes(whole[skip_bytes:end])
        del self._buffer[:end]
        self._wanted_bytes = 0
        if not self.is_ended:
            self._watch()
        return taken

    def put(self, received: memoryview) -> None:
        """Add bytes that the socket received."""
        self._buffer += received if self._decode is None else self._decode(received)
        if len(self._buffer) >= max(self._wanted_bytes, READ_AHEAD_BYTES):
            self._unwatch()
        if len(self._buffer) >= self._wanted_bytes:
            self._wake()

    def end(self) -> None:
        """Note that nothing more comes."""
        if self.is_ended:
            return
        self.is_ended = True
        self._unwatch()
        self._wake()
        if self.on_end is not None:
            self.on_end()

    def close(self) -> None:
        """Stop reading."""
        self.on_end = None
        self.end()

    def _read(self) -> None:
        try:
            count = self._socket.recv_into(_scratch)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            count = 0
        if count:
            self.put(_scratch[:count])
        else:
            self.end()

    def _watch(self) -> None:
        # An ended intake is not watched again: its reader would stay behind, with the descriptor of another connection,
        # at which libuv ends the process.
        if not self._is_reading and not self.is_ended:
            self._is_reading = True
            asyncio.get_running_loop().add_reader(self._socket.fileno(), self._read)

    def _unwatch(self) -> None:
        if self._is_reading:
            self._is_reading = False
            asyncio.get_running_loop().remove_reader(self._socket.fileno())

    def _wake(self) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)


@contextmanager
def cancelled_when_gone(intake: SocketIntake) -> Iterator[None]:
    """Cancel what runs inside when the client goes away.

    Raises:
        PeerGoneError: the client went away.
    """
    task = asyncio.current_task()
    assert task is not None, "connections run in tasks"
    if intake.is_ended:
        raise PeerGoneError("the client went away")
    cancellations = task.cancelling()
    is_gone = False

    def cancel() -> None:
        nonlocal is_gone
        is_gone = True
        task.cancel()

    intake.on_end = cancel
    try:
        yield
    except asyncio.CancelledError:
        if is_gone and task.uncancel() <= cancellations:
            raise PeerGoneError("the client went away meanwhile") from None
        raise
    finally:
        intake.on_end = None
