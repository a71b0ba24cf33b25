"""Sizes as people read them."""


def human_size(size_bytes: float) -> str:
    """Return a size with one decimal in the largest unit that fits: ``34.4 KiB``."""
    size, units = float(size_bytes), iter(("KiB", "MiB", "GiB", "TiB", "PiB"))
    unit = "B"
    while size >= 1024 and (larger := next(units, "")):
        size, unit = size / 1024, larger
    return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
