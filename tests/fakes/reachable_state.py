"""Objects that a part of the process keeps: what grows without a bound shows in their numbers."""

import asyncio
import gc
from collections import Counter
from collections.abc import Iterable
from threading import Thread
from types import AsyncGeneratorType, CoroutineType, FrameType, FunctionType, GeneratorType, ModuleType

_NOT_STATE = (
    asyncio.AbstractEventLoop,
    asyncio.Task,
    AsyncGeneratorType,
    CoroutineType,
    FrameType,
    GeneratorType,
    ModuleType,
    Thread,  # of a pool, which starts them as they are needed, up to its bound
    type,
)


def reachable_state(roots: Iterable[object], *, beside: tuple[type, ...] = ()) -> Counter[str]:
    """Return the number of containers and instances that can be reached from ``roots``, by the name of their type.

    Classes, modules, tasks, threads, and instances of ``beside`` are left out, with everything that only they reach.
    """
    left_out = (*_NOT_STATE, *beside)
    seen: dict[int, object] = {}
    open_ends = list(roots)
    while open_ends:
        found = open_ends.pop()
        if id(found) in seen or isinstance(found, left_out) or not gc.is_tracked(found):
            continue
        seen[id(found)] = found
        inside = (found.__closure__, found.__defaults__) if isinstance(found, FunctionType) else (found,)
        open_ends += gc.get_referents(*inside)
    return Counter(type(each).__name__ for each in seen.values())
