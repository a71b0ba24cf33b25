"""GrowthWatch: active log files under inotify MODIFY, as a set of the files that grew or shrank.

``LogDirWatcher`` tells of names and never of appends. Here an event carries no name, so that a thousand events are read
with one call. inotify tells of writes through a descriptor, as a broker appends; of writes to mapped files it does not.
"""

import asyncio
import ctypes
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_LIBC: Final = ctypes.CDLL(None, use_errno=True)
_MODIFY: Final = 0x0002
_IGNORED: Final = 0x8000
_OVERFLOWED: Final = 0x4000
_EVENT_BYTES: Final = 16  # wd i32, mask u32, cookie u32, length of the name u32; the watch of a file gives no name
_READ_BYTES: Final = 4096 * _EVENT_BYTES
_READS_AT_ONCE: Final = 8


@dataclass(frozen=True, slots=True)
class GrownFiles:
    """Watches with an event since the last call.

    Attributes:
        gone: watches that the kernel has ended, since the file is gone.
        is_incomplete: events were lost: any file may have changed.
    """

    changed: frozenset[int]
    gone: frozenset[int]
    is_incomplete: bool = False


class GrowthWatch:
    """One inotify instance. ``wait`` has one caller."""

    def __init__(self) -> None:
        """Open the instance.

        Raises:
            OSError: the user has too many of them, or too many files are open.
        """
        self._fd = _checked(_LIBC.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC), None)

    def add(self, path: Path) -> int:
        """Watch a file; return the number of the watch. The number is the same for the same file.

        Raises:
            OSError: the file is not there, or ENOSPC: ``fs.inotify.max_user_watches`` is reached.
        """
        return _checked(_LIBC.inotify_add_watch(self._fd, os.fsencode(path), ctypes.c_uint32(_MODIFY)), path)

    def remove(self, watch: int) -> None:
        """Stop watching; a watch that has ended is no error."""
        _LIBC.inotify_rm_watch(self._fd, watch)

    async def wait(self) -> None:
        """Return as soon as there are events."""
        loop, readable = asyncio.get_running_loop(), asyncio.Event()
        loop.add_reader(self._fd, readable.set)
        try:
            await readable.wait()
        finally:
            loop.remove_reader(self._fd)

    def take(self) -> GrownFiles:
        """Return what happened since the last call. Events that are left over wait for the next call."""
        changed: set[int] = set()
        gone: set[int] = set()
        is_incomplete = False
        for _ in range(_READS_AT_ONCE):
            try:
                events = memoryview(os.read(self._fd, _READ_BYTES))
            except BlockingIOError:
                break
            watches, masks = events.cast("i")[::4].tolist(), events.cast("I")[1::4].tolist()
            changed.update(watches)
            if any(mask != _MODIFY for mask in set(masks)):
                gone.update(watch for watch, mask in zip(watches, masks, strict=True) if mask & _IGNORED)
                is_incomplete = is_incomplete or any(mask & _OVERFLOWED for mask in masks)
        return GrownFiles(frozenset(changed - gone), frozenset(gone), is_incomplete)

    def close(self) -> None:
        """Close the instance, and end its watches."""
        os.close(self._fd)


def _checked(result: int, path: Path | None) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), str(path) if path else None)
    return result
