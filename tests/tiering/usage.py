"""Resources of a process, and their growth from day to day."""

import asyncio
import ctypes
import gc
import os
import sys
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Collection, Mapping, Sequence, Sized
from itertools import combinations
from pathlib import Path
from statistics import median

from tests.fakes import lasting_objects
from tierd.app.daemon.task_supervisor import REST

# How many of a kind are left over from the last scans is chance: one reading may have so many more than another. A
# leak at each event of a day leaves more than ten more every day, which the slope over all days shows.
PARTS_ALLOWED = 150
PARTS_A_DAY = 10
TASKS_ALLOWED = 5
RESTS_ALLOWED = 60  # each is two tasks; a leak at each event leaves a hundred within the days that are compared
DESCRIPTORS_ALLOWED = 3
OBJECTS_ALLOWED = 1.03  # times as many

# Growth of a day. Two readings compare the garbage and the steps of two days; the median slope over all pairs of days
# shows the growth of every day. Allocated memory shows it best: resident memory has freed pages, too.
BLOCKS_A_DAY = 1_000
BYTES_A_DAY = 300_000
RESIDENT_A_DAY = 0.0075  # of the resident memory on the settled day

_ALLOWED = {"tasks": TASKS_ALLOWED, "rests": RESTS_ALLOWED, "descriptors": DESCRIPTORS_ALLOWED}
_COLLECTIONS = frozenset({dict, list, set, deque, tuple, frozenset, OrderedDict, defaultdict, Counter})


class _MallocInfo(ctypes.Structure):
    """``struct mallinfo2`` of glibc 2.33 and later; over all arenas."""

    _fields_ = [
        (name, ctypes.c_size_t)
        for name in (
            "arena",
            "ordblks",
            "smblks",
            "hblks",
            "hblkhd",
            "usmblks",
            "fsmblks",
            "uordblks",
            "fordblks",
            "top",
        )
    ]


class Usage:
    """Resources of the process at this moment, after a collection of unreachable objects.

    Attributes:
        tasks: all but rests.
        rests: timed waits of partition tasks. Their number at one moment is chance.
        allocated_blocks: blocks of the allocator of Python, for small objects.
        allocated_bytes: bytes of the allocator of C, for large objects and libraries.
        parts: instances of each class of tierd, and the sizes of each kind of their collections.
    """

    def __init__(self) -> None:
        gc.collect()
        objects = gc.get_objects()
        names = Counter(task.get_name() for task in asyncio.all_tasks())
        self.rests = names.pop(REST, 0)
        self.tasks = names.total()
        self.descriptors = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
        self.objects = len(objects) + lasting_objects.count
        self.parts = _parts([*objects, *lasting_objects.instances])
        del objects
        self.allocated_blocks = sys.getallocatedblocks()
        self.allocated_bytes = _allocated_bytes()
        self.resident_bytes = int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def __str__(self) -> str:
        megabytes = f"{self.allocated_bytes / 1e6:.2f} MB, {self.resident_bytes / 1e6:.1f} MB resident"
        return (
            f"{self.tasks} tasks and {self.rests} rests, {self.descriptors} descriptors, {self.objects} objects, "
            f"{self.allocated_blocks} blocks, {megabytes}, {sum(self.parts.values())} parts"
        )

    def assert_no_more_than(self, settled: "Usage", *, marks: Counter[str]) -> None:
        """Fail if this usage exceeds the settled day by more than chance.

        ``marks`` are parts that may stay for good, by their names.
        """
        for name, allowed in _ALLOWED.items():
            value, before = getattr(self, name), getattr(settled, name)
            assert value <= before + allowed, f"{value} {name}, {before} on the settled day, {allowed} more are allowed"
        grown = {
            name: (settled.parts[name], count)
            for name, count in self.parts.items()
            if count > settled.parts[name] + marks[name] + PARTS_ALLOWED
        }
        assert not grown, f"more than on the settled day: {grown}"
        assert self.objects <= settled.objects * OBJECTS_ALLOWED, f"{self.objects} objects of {settled.objects}"


def assert_steady(
    days: Sequence[Usage], *, marks_a_day: Mapping[str, int] | None = None, filling: Collection[str] = ()
) -> None:
    """Fail if memory or parts grow every day; ``days`` are in order, the settled one first.

    ``marks_a_day`` are parts that stay for good; classes of ``filling`` are those of caches, which fill up over days.
    """
    settled, marks = days[0], marks_a_day or {}
    for name in set().union(*(day.parts for day in days)):
        if name.partition(".")[0] in filling:
            continue
        counts: list[float] = [day.parts[name] for day in days]
        growth, expected = median_slope(counts), marks.get(name, 0) + PARTS_A_DAY
        assert growth <= expected, f"{name} grow by {growth:,.0f} a day, {expected:,.0f} are allowed: {counts}"
    allowed = {
        "allocated_blocks": BLOCKS_A_DAY,
        "allocated_bytes": BYTES_A_DAY,
        "resident_bytes": RESIDENT_A_DAY * settled.resident_bytes,
    }
    for name, most in allowed.items():
        values = [getattr(day, name) for day in days]
        slope = median_slope(values)
        assert slope <= most, f"{name} grows by {slope:,.0f} a day, {most:,.0f} are allowed: {values}"


def median_slope(values: Sequence[float]) -> float:
    """Return the median slope over all pairs of ``values``, one a day: neither a peak nor a step moves it far."""
    slopes = [(later - earlier) / (j - i) for (i, earlier), (j, later) in combinations(enumerate(values), 2)]
    return median(slopes)


def _allocated_bytes() -> int:
    mallinfo2 = ctypes.CDLL(None).mallinfo2
    mallinfo2.restype = _MallocInfo
    info = mallinfo2()
    return int(info.uordblks) + int(info.hblkhd)


def _parts(objects: list[object]) -> Counter[str]:
    """Return the instances of each class of tierd, and the total size of each kind of their collections."""
    kinds = Counter(map(type, objects))
    ours = {kind for kind in kinds if str(kind.__module__).startswith("tierd.")}
    counts = Counter({kind.__qualname__: kinds[kind] for kind in ours})
    changeable = {kind: _slots(kind) for kind in ours if not _is_frozen(kind)}
    for each in objects:
        slots = changeable.get(type(each))
        if slots is None:
            continue
        fields = [(name, getattr(each, name, None)) for name in slots]
        fields += getattr(each, "__dict__", {}).items()
        for name, value in fields:
            if type(value) in _COLLECTIONS and value:  # few are: everything else costs no call
                assert isinstance(value, Sized)
                counts[f"{type(each).__qualname__}.{name}"] += len(value)
    return counts


def _is_frozen(kind: type) -> bool:
    """Return True if instances of the class never grow: then their number is sufficient."""
    parameters = getattr(kind, "__dataclass_params__", None)
    return issubclass(kind, tuple) or (parameters is not None and parameters.frozen)


def _slots(kind: type) -> tuple[str, ...]:
    return tuple(name for base in kind.__mro__ for name in getattr(base, "__slots__", ()))
