"""AnswerMemory: a bound on the records in all answers to fetches that were read and not yet sent."""

import asyncio
import weakref
from contextlib import suppress


class AnswerMemory:
    """Budget of bytes. Made on the event loop, which it then belongs to.

    Records stay charged for as long as the view that ``charge`` returns is alive: the answer holds it, and the
    connection that sends the answer. The bound can be exceeded by one batch for each answer that is being read, because
    a read returns one batch at least.

    Attributes:
        cap_bytes: the bound.
        used_bytes: bytes that are reserved or charged.
        freed: set whenever bytes are given back.
    """

    def __init__(self, cap_bytes: int) -> None:
        """Begin with nothing charged."""
        self.cap_bytes = cap_bytes
        self.used_bytes = 0
        self.freed = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    def reserve(self, size_bytes: int) -> int:
        """Reserve up to ``size_bytes`` and return how many; 0 while everything is in use."""
        granted = max(min(size_bytes, self.cap_bytes - self.used_bytes), 0)
        self.used_bytes += granted
        return granted

    def release(self, size_bytes: int) -> None:
        """Give back what was reserved."""
        self.used_bytes -= size_bytes
        self.freed.set()

    def charge(self, data: bytes) -> memoryview:
        """Return a view of ``data``, and charge its size for as long as the view lives."""
        self.used_bytes += len(data)
        view = memoryview(data)
        weakref.finalize(view, self._release_later, len(data)).atexit = False
        return view

    def _release_later(self, size_bytes: int) -> None:
        """Give back the bytes of a view, which may end in any thread."""
        with suppress(RuntimeError):  # the event loop is closed, and the budget with it
            self._loop.call_soon_threadsafe(self.release, size_bytes)
