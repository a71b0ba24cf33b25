"""Settings of Spark as a file for the owner alone, since arguments show in the list of processes."""

import os
from collections.abc import Mapping
from pathlib import Path


def write_properties(path: Path, settings: Mapping[str, str]) -> None:
    """Write ``settings`` as Java's properties, for ``spark-submit --properties-file``. Blocking.

    Raises:
        OSError: the file cannot be written.
    """
    lines = "".join(f"{_escaped(name)}={_escaped(value)}\n" for name, value in settings.items())
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        file.write(lines)


def _escaped(text: str) -> str:
    """Escape text for Java's properties: ASCII, with the characters escaped that separate or continue lines."""
    escaped = "".join(f"\\{c}" if c in "\\:=#! " else c for c in text)
    escaped = escaped.replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t")
    return "".join(c if c.isascii() else "".join(f"\\u{unit:04x}" for unit in _utf16(c)) for c in escaped)


def _utf16(character: str) -> list[int]:
    encoded = character.encode("utf-16-be")
    return [int.from_bytes(encoded[at : at + 2], "big") for at in range(0, len(encoded), 2)]
