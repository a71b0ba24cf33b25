"""A metadata store that fails on demand, each time in a way of a real one."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from enum import Enum
from typing import TypeVar

from tierd.errors import BackendUnavailableError, OutcomeUnknownError
from tierd.metadata import Batch, DeletePrefix, KeyValueStore, Put

_T = TypeVar("_T")


class Fault(Enum):
    """Fault of one call."""

    FAIL = "the store does nothing and raises an error"
    LOSE_ANSWER = "the call takes effect, and its answer is lost"
    DROP_REQUEST = "the request is lost without an answer"
    LAND_LATE = "the call takes effect at land_late(), and its answer is lost"
    HANG = "the call waits for release(), then takes effect"
    BREAK = "the call takes effect and raises an unexpected error"


class FaultyKeyValueStore(KeyValueStore):
    """Another store, with faults for its next calls.

    ``before_apply`` and ``before_scan`` run just before each such call, so that a test may write in between.
    """

    def __init__(self, inner: KeyValueStore) -> None:
        self.inner = inner
        self.apply_faults: deque[Fault | None] = deque()
        self.read_faults: deque[Fault | None] = deque()
        self.batches: list[Batch] = []
        """Every batch that was asked for, whatever became of it."""
        self.hanging = asyncio.Event()
        """Set as soon as a call hangs."""
        self.before_apply: Callable[[], Awaitable[None]] | None = None
        self.before_scan: Callable[[], Awaitable[None]] | None = None
        self._late: list[Batch] = []
        self._released = asyncio.Event()

    @property
    def bytes_written(self) -> int:
        """Return the bytes of keys and values in all batches so far."""
        writes = (write for batch in self.batches for write in batch.writes if not isinstance(write, DeletePrefix))
        return sum(len(write.key) + (len(write.value) if isinstance(write, Put) else 0) for write in writes)

    def release(self) -> None:
        """Let hanging calls continue."""
        self._released.set()

    async def land_late(self) -> list[BaseException | None]:
        """Apply the batches that were held back, in order; return the outcome of each."""
        late, self._late = self._late, []
        return list(await asyncio.gather(*(self.inner.apply(batch) for batch in late), return_exceptions=True))

    async def get(self, key: str) -> bytes | None:
        return await self._read(lambda: self.inner.get(key))

    async def get_many(self, keys: Iterable[str]) -> dict[str, bytes]:
        return await self._read(lambda: self.inner.get_many(keys))

    async def scan(self, prefix: str) -> list[tuple[str, bytes]]:
        if self.before_scan is not None:
            await self.before_scan()
        return await self._read(lambda: self.inner.scan(prefix))

    async def apply(self, batch: Batch) -> None:
        self.batches.append(batch)
        if self.before_apply is not None:
            await self.before_apply()
        match self.apply_faults.popleft() if self.apply_faults else None:
            case None:
                await self.inner.apply(batch)
            case Fault.FAIL:
                raise BackendUnavailableError("refused for a test")
            case Fault.LOSE_ANSWER:
                await self.inner.apply(batch)
                raise OutcomeUnknownError("answer lost for a test")
            case Fault.DROP_REQUEST:
                raise OutcomeUnknownError("request lost for a test")
            case Fault.LAND_LATE:
                self._late.append(batch)
                raise OutcomeUnknownError("request delayed for a test")
            case Fault.HANG:
                await self._hang()
                await self.inner.apply(batch)
            case Fault.BREAK:
                await self.inner.apply(batch)
                raise RuntimeError("broken for a test")

    async def close(self) -> None:
        await self.inner.close()

    async def _read(self, call: Callable[[], Awaitable[_T]]) -> _T:
        match self.read_faults.popleft() if self.read_faults else None:
            case None:
                pass
            case Fault.HANG:
                await self._hang()
            case _:
                raise BackendUnavailableError("refused for a test")
        return await call()

    async def _hang(self) -> None:
        self.hanging.set()
        await self._released.wait()
