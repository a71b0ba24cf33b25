"""Durations and sizes as people write them: ``30s``, ``1h30m``, ``4MiB``, ``unlimited``, and Kafka's ``-1``."""

import re

_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
_BYTES = {
    "b": 1,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "tb": 10**12,
    "kib": 2**10,
    "mib": 2**20,
    "gib": 2**30,
    "tib": 2**40,
}
_DURATION = re.compile(r"(?:\d+(?:\.\d+)?(?:ms|[smhdw]))+")
_DURATION_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|[smhdw])")
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]*)", re.IGNORECASE)


def parse_duration_s(text: str | int) -> float:
    """Return seconds. Every number carries a unit (ms, s, m, h, d, w), except 0 and Kafka's -1, which stays -1.

    Raises:
        ValueError: not a duration; the message says how to write one.
    """
    written = str(text).strip().lower()
    if written in ("0", "-1"):
        return float(written)
    compact = written.replace(" ", "")
    if not _DURATION.fullmatch(compact):
        raise ValueError(f"{text!r} is no duration: write a number and a unit, such as 500ms, 30s, 15m, 1h30m or 7d")
    return round(sum(float(number) * _SECONDS[unit] for number, unit in _DURATION_PART.findall(compact)), 3)


def parse_bytes(text: str | int) -> int | None:
    """Return bytes, None for ``unlimited`` and Kafka's -1. A bare number is bytes; KiB is 1024 and kB is 1000.

    Raises:
        ValueError: not a size; the message says how to write one.
    """
    written = str(text).strip()
    if written.lower() in ("unlimited", "-1"):
        return None
    match = _SIZE.fullmatch(written)
    factor = _BYTES.get((match[2] or "b").lower()) if match else None
    if match is None or factor is None:
        raise ValueError(f"{text!r} is no size: write a number and a unit, such as 512KiB, 4MiB or 1GB, or unlimited")
    size = float(match[1]) * factor if "." in match[1] else int(match[1]) * factor
    if size != int(size):
        raise ValueError(f"{text!r} is no whole number of bytes")
    return int(size)


def format_duration(seconds: float) -> str:
    """Write ``seconds`` so that ``parse_duration_s`` gives them back, to the millisecond: 90.0 is ``1m30s``."""
    if seconds in (0, -1):
        return str(int(seconds))
    left_ms = round(seconds * 1000)
    parts = []
    for unit, size_ms in (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1)):
        count, left_ms = divmod(left_ms, size_ms)
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts)


def format_bytes(size: int | None) -> str:
    """Write ``size`` so that ``parse_bytes`` gives it back exactly: the largest binary unit that divides it."""
    if size is None:
        return "unlimited"
    for unit in ("TiB", "GiB", "MiB", "KiB"):
        factor = _BYTES[unit.lower()]
        if size >= factor and size % factor == 0:
            return f"{size // factor}{unit}"
    return f"{size}B"
