"""LocalSlices: the slices of one local log, each next one found while its client still takes the last one.

::

    read at 100 ──► search ──► slice [100, 164) ──► answer ──► search at 164 begins in a thread
    read at 164 ──► slice [164, 228) is there ──► answer ──► search at 228 begins

A search takes a thread, and its result has to come back to the event loop. Only the first read waits for both.
"""

import asyncio
from collections import OrderedDict
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from tierd.clock import Clock
from tierd.errors import TierError
from tierd.log import KnownPositions, LocalSlice, PartitionScan, find_slice
from tierd.tasks import retrieve

_CAPACITY: Final = 32
_FRESH_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class SliceQuery:
    """Arguments of a search, as ``find_slice`` has them."""

    scan: PartitionScan
    offset: int
    end_offset: int
    max_bytes: int
    at_least_one: bool


@dataclass(frozen=True, slots=True)
class _Ahead:
    """A search that began before its read came."""

    query: SliceQuery
    begun_s: float
    found: "asyncio.Future[LocalSlice | None]"


class LocalSlices:
    """Slices of one partition for any number of readers. It keeps positions and searches, and no file open."""

    def __init__(self, *, clock: Clock) -> None:
        """Search nothing yet; ``clock`` tells the age of a search."""
        self._clock = clock
        self._known = KnownPositions()
        self._ahead: OrderedDict[tuple[int, int], _Ahead] = OrderedDict()  # by first offset and bound on the bytes

    async def find(self, query: SliceQuery, *, is_doubted: bool = False) -> LocalSlice | None:
        """Return what ``find_slice`` finds; with ``is_doubted`` by a search that begins after the call.

        A result that was found ahead is at most a second older than the call. It is used only where a search in the
        same files, up to the present end, would return it as well.

        Raises:
            TierError: as ``find_slice`` raises it.
        """
        ahead = self._ahead.pop((query.offset, query.max_bytes), None)
        found = None if ahead is None or is_doubted else await self._found_ahead(ahead, query)
        if found is None:
            found = await self._begun(query)
        if found is not None and found.size_bytes and found.upper_offset < query.end_offset:
            # In the next round of the loop, behind the answer: a thread would take the interpreter from its encoding.
            following = replace(query, offset=found.upper_offset, at_least_one=True)
            asyncio.get_running_loop().call_soon(self._begin_ahead, following)
        return found

    async def _found_ahead(self, ahead: _Ahead, query: SliceQuery) -> LocalSlice | None:
        """Return the slice that was found ahead; None if it may not be the one that a search finds now."""
        if ahead.query.scan is not query.scan or self._clock.monotonic_s() - ahead.begun_s > _FRESH_S:
            return None
        try:
            found = await ahead.found
        except TierError:  # a search of now tells if the fault is still there
            return None
        if found is None or not found.size_bytes or found.upper_offset > query.end_offset:
            return None
        is_cut_by_end = ahead.query.end_offset != query.end_offset and found.upper_offset >= ahead.query.end_offset
        is_too_large = found.size_bytes > query.max_bytes and not query.at_least_one
        return None if is_cut_by_end or is_too_large else found

    def _begin_ahead(self, query: SliceQuery) -> None:
        found = self._begun(query)
        found.add_done_callback(retrieve)  # perhaps no read comes for it
        self._ahead[query.offset, query.max_bytes] = _Ahead(query, self._clock.monotonic_s(), found)
        if len(self._ahead) > _CAPACITY:
            self._ahead.popitem(last=False)

    def _begun(self, query: SliceQuery) -> "asyncio.Future[LocalSlice | None]":
        search = partial(
            find_slice,
            query.scan,
            query.offset,
            end_offset=query.end_offset,
            max_bytes=query.max_bytes,
            at_least_one=query.at_least_one,
            known=self._known,
        )
        return asyncio.get_running_loop().run_in_executor(None, search)
