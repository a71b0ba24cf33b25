"""RateSeries: throughput and lag of the last day, in memory of a fixed size. Pure: the time is an argument.

::

    slots of a minute, by the monotonic clock     slot 0   slot 1   …   slot 1439
    one array of doubles for each field           (NaN: the daemon took no sample in that minute)

A later minute overwrites the slot of the day before. The arrays never grow: 8 bytes for each slot and field, and
``MEMORY_BYTES`` together.
"""

import math
from array import array
from dataclasses import astuple, dataclass, fields
from typing import Final

SLOT_S: Final = 60
SLOTS: Final = 24 * 60


@dataclass(frozen=True, slots=True, kw_only=True)
class RateSample:
    """Totals since the start of the daemon, and the state of the moment.

    Attributes:
        copied_bytes, fetched_bytes, store_requests: totals; one that falls counts as one that began anew.
        lag_bytes, lag_segments: rolled and not in the tier, of the led partitions together.
        lag_seconds: age of the oldest of these segments.
        unprotected_bytes: neither in the tier nor on a standby.
    """

    copied_bytes: float = 0
    fetched_bytes: float = 0
    store_requests: float = 0
    lag_bytes: float = 0
    lag_segments: float = 0
    lag_seconds: float = 0
    unprotected_bytes: float = 0


TOTALS: Final = ("copied_bytes", "fetched_bytes", "store_requests")
FIELDS: Final = tuple(each.name for each in fields(RateSample))
MEMORY_BYTES: Final = 8 * SLOTS * len(FIELDS)
"""Size of all arrays: 80,640 bytes."""


class RateSeries:
    """One value a minute for each field of ``RateSample``, over a day: rates a second for totals, values for others."""

    def __init__(self) -> None:
        """Have no sample yet."""
        self._values = {name: array("d", [math.nan]) * SLOTS for name in FIELDS}
        self._last: tuple[float, RateSample] | None = None

    def add(self, monotonic_s: float, sample: RateSample) -> None:
        """Take a sample into the slot of its minute; a later sample of the same minute replaces it.

        Rates are of the time since the sample before. Slots without a sample since then become NaN.
        """
        slot = int(monotonic_s // SLOT_S)
        if self._last is not None:
            passed = slot - int(self._last[0] // SLOT_S)
            for skipped in range(slot - min(passed, SLOTS) + 1, slot + 1):
                self._put(skipped, dict.fromkeys(FIELDS, math.nan))
        values = dict(zip(FIELDS, map(float, astuple(sample)), strict=True))
        values |= dict.fromkeys(TOTALS, math.nan) if self._last is None else _rates(self._last, monotonic_s, sample)
        self._put(slot, values)
        self._last = (monotonic_s, sample)

    def values(self, name: str) -> list[float]:
        """Return the values of a field, oldest first, one a minute up to the last sample; NaN for a missing one."""
        if self._last is None:
            return []
        next_slot = (int(self._last[0] // SLOT_S) + 1) % SLOTS
        ring = self._values[name]
        return [*ring[next_slot:], *ring[:next_slot]]

    @property
    def memory_bytes(self) -> int:
        """Return the size of what is kept."""
        return sum(ring.itemsize * len(ring) for ring in self._values.values())

    def _put(self, slot: int, values: dict[str, float]) -> None:
        for name, value in values.items():
            self._values[name][slot % SLOTS] = value


def _rates(last: tuple[float, RateSample], monotonic_s: float, sample: RateSample) -> dict[str, float]:
    passed_s = monotonic_s - last[0]
    if passed_s <= 0:
        return dict.fromkeys(TOTALS, math.nan)
    grown = {name: getattr(sample, name) - getattr(last[1], name) for name in TOTALS}
    return {name: (growth if growth >= 0 else getattr(sample, name)) / passed_s for name, growth in grown.items()}
