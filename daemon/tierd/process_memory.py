"""Settings of the memory of a process that moves log pieces of some megabytes: freed pages, and Python's collector."""

import gc
import sys
from typing import Final

_TRIM_THRESHOLD: Final = -1  # of malloc.h
_MMAP_THRESHOLD: Final = -3
_ARENA_MAX: Final = -8


def keep_freed_memory(*, piece_bytes: int, kept_bytes: int, arenas: int) -> None:
    """Have glibc keep the freed memory of log pieces for the next pieces; a libc without ``mallopt`` is left alone.

    To touch a fresh page takes longer than to fill it: with fresh pages, to read a segment took up to 1.8 times as
    long.

    Args:
        piece_bytes: size from which on memory is given back at once.
        kept_bytes: freed memory that each arena keeps at its end.
        arenas: heaps among which the threads of the process are spread.
    """
    import ctypes  # noqa: PLC0415 - commands that end soon do without it

    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_MMAP_THRESHOLD, piece_bytes)
        mallopt(_TRIM_THRESHOLD, kept_bytes)
        mallopt(_ARENA_MAX, arenas)


def collect_rarely(*, allocations: int) -> None:
    """Have Python search for unreachable cycles after so many allocations, and never among the objects that exist now.

    A reader of the tier makes two objects for each batch, none of them in a cycle: with the settings of Python, the
    searches took 8 % of the CPU of the read endpoint. Each large one stopped the process for 100 ms.
    """
    gc.freeze()
    gc.set_threshold(allocations, *gc.get_threshold()[1:])


class ModuleFreeze:
    """Freeze of the objects of imported modules in a process in which another program collects garbage often."""

    def __init__(self) -> None:
        self._modules = 0

    def freeze_new(self) -> None:
        """Leave all objects that exist now out of later collections, if a module was imported since the last call.

        Garbage is collected before. A cycle of objects that is in use now and becomes garbage later stays in memory;
        the number of imports bounds how much.
        """
        if len(sys.modules) != self._modules:
            gc.collect()
            gc.freeze()
            self._modules = len(sys.modules)
