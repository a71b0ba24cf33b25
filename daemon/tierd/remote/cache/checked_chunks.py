"""CheckedChunks: open files of chunks whose content was compared with its checksum a short time ago.

::

    name ──► open and checked within CHECKED_S ──► the file, at once
         └─► otherwise ──► read and compared in a thread, once for all that ask ──► the file

A file is sent to clients without another look at its bytes. A disk may damage them after the check, so that a check
counts for a bounded time. Clients compare the checksum of each batch; until the next check they may get damaged bytes.
"""

import asyncio
import resource
import weakref
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Final

from tierd.clock import Clock
from tierd.open_file import OpenFile
from tierd.tasks import retrieve, wait_all

CHECKED_S: Final = 60.0
"""Time after the begin of a check for which its file is given out."""

MOST_OPEN: Final = 256
"""Files that are open at a time, those included that answers on their way still use."""

_SHARE: Final = 32  # of the limit of descriptors, as of the local segments that are sent: most are for holds and copies

Check = Callable[[], Awaitable[OpenFile | None]]


@dataclass(frozen=True, slots=True)
class _Checked:
    file: OpenFile
    since_s: float


class CheckedChunks:
    """Checked files by the name of their chunk, in order of use. ``close`` it."""

    def __init__(self, *, clock: Clock, most_open: int | None = None) -> None:
        """Open nothing yet.

        Args:
            clock: tells the age of a check.
            most_open: bound on the files that are open; None means ``MOST_OPEN``, or less where descriptors are few.
        """
        descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        self._clock = clock
        self._most_open = min(MOST_OPEN, descriptors // _SHARE) if most_open is None else most_open
        self._checked: OrderedDict[str, _Checked] = OrderedDict()
        self._alive: dict[int, str] = {}  # names of the files that are open, by the identity of the object
        self._checks: dict[str, asyncio.Task[OpenFile | None]] = {}
        self._running: dict[asyncio.Task[OpenFile | None], str] = {}  # also of chunks that were discarded since
        self._sweep: asyncio.TimerHandle | None = None

    @property
    def open(self) -> int:
        """Return the number of files that are open, in use or kept."""
        return len(self._alive)

    @property
    def names(self) -> set[str]:
        """Return the names of the chunks that are kept, being checked, or in use by answers on their way."""
        return {*self._checked, *self._running.values(), *list(self._alive.values())}

    def find(self, name: str) -> OpenFile | None:
        """Return the file of a chunk if its last check is young enough."""
        found = self._checked.get(name)
        if found is None:
            return None
        if found.file.is_doubted or self._is_old(found):
            del self._checked[name]
            return None
        self._checked.move_to_end(name)
        return found.file

    async def check(self, name: str, check: Check) -> OpenFile | None:
        """Return what ``check`` returns, or the check of that chunk that is under way; the file is kept.

        None where the chunk has no good file, was discarded meanwhile, or where too many files are in use. A cancelled
        caller leaves the check to go on.
        """
        return await asyncio.shield(self.begin(name, check))

    def begin(self, name: str, check: Check) -> "asyncio.Task[OpenFile | None]":
        """Begin a check for later callers, unless one of that chunk is under way; return the check."""
        under_way = self._checks.get(name)
        if under_way is None:
            under_way = asyncio.create_task(self._checked_anew(name, check), name=f"check of {name}")
            self._checks[name] = under_way
            self._running[under_way] = name
            under_way.add_done_callback(self._ended)
        return under_way

    def discard(self, names: Iterable[str]) -> None:
        """Forget chunks that are removed; answers on their way still have their files."""
        for name in names:
            self._checked.pop(name, None)
            self._checks.pop(name, None)

    async def close(self) -> None:
        """Wait for the checks under way, and forget all files. A cancellation is raised when all has ended."""
        try:
            await wait_all(self._running)
        finally:
            self._checked.clear()
            if self._sweep is not None:
                self._sweep.cancel()

    async def _checked_anew(self, name: str, check: Check) -> OpenFile | None:
        since_s = self._clock.monotonic_s()
        mine = asyncio.current_task()
        try:
            if not self._has_room():
                return None
            file = await check()
            if file is None or self._checks.get(name) is not mine or not self._has_room():
                return None
            self._checked[name] = _Checked(file, since_s)
            self._alive[id(file)] = name
            weakref.finalize(file, self._alive.pop, id(file), None).atexit = False  # in the thread that drops the file
            self._sweep_later()
            return file
        finally:
            if self._checks.get(name) is mine:
                del self._checks[name]

    def _ended(self, check: "asyncio.Task[OpenFile | None]") -> None:
        self._running.pop(check, None)
        retrieve(check)

    def _has_room(self) -> bool:
        """Make room for one more file: those used longest ago go, unless answers still use them."""
        while len(self._alive) >= self._most_open and self._checked:
            self._checked.popitem(last=False)
        return len(self._alive) < self._most_open

    def _is_old(self, checked: _Checked) -> bool:
        return self._clock.monotonic_s() - checked.since_s > CHECKED_S

    def _sweep_later(self) -> None:
        if self._sweep is None:
            self._sweep = asyncio.get_running_loop().call_later(CHECKED_S, self._close_old)

    def _close_old(self) -> None:
        """Close files whose check counts no more: an open file holds the disk space of an evicted chunk."""
        self._sweep = None
        for name in [name for name, each in self._checked.items() if self._is_old(each)]:
            del self._checked[name]
        if self._checked:
            self._sweep_later()
