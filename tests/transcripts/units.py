"""Words of transcripts for times, sizes, offsets and leader epochs, and the values that they stand for."""

import re
from typing import Final

from tierd.model import Lineage, OffsetRange

_MS: Final = {"d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1000, "ms": 1}
_BYTES: Final = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
UNLIMITED: Final = "none"
NOW_MS: Final = 1_700_000_000_000


def parse_duration(text: str) -> int:
    """Return the milliseconds of ``7d`` or ``500ms``."""
    return _parse(text, _MS)


def parse_size(text: str) -> int:
    """Return the bytes of ``100MiB``."""
    return _parse(text, _BYTES)


def parse_offsets(text: str) -> OffsetRange:
    """Return the offsets of ``0-99``, both inclusive."""
    first, _, last = text.partition("-")
    return OffsetRange(int(first), int(last))


def parse_epochs(text: str) -> Lineage:
    """Return the lineage of ``0@0,3@150``: each leader epoch at its first offset."""
    pairs = (entry.split("@") for entry in text.split(",") if entry)
    return Lineage.of((int(epoch), int(offset)) for epoch, offset in pairs)


def show_duration(duration_ms: int) -> str:
    """Return ``1d 12h`` for the milliseconds of that."""
    words = []
    for unit, unit_ms in _MS.items():
        count, duration_ms = divmod(duration_ms, unit_ms)
        words += [f"{count}{unit}"] if count else []
    return " ".join(words) or "0s"


def show_offsets(offsets: OffsetRange) -> str:
    """Return ``0-99``."""
    return f"{offsets.start}-{offsets.end}"


def _parse(text: str, units: dict[str, int]) -> int:
    match = re.fullmatch(r"(\d+)([A-Za-z]+)", text)
    if match is None or match[2] not in units:
        raise ValueError(f"{text!r} is not a number and one of {', '.join(units)}")
    return int(match[1]) * units[match[2]]
