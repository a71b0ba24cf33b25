"""Findings of an inspection, yielded one by one, so that any number of files fits in little memory."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

JsonValue = str | int | bool | None | list["JsonValue"]


@dataclass(frozen=True, slots=True)
class FileFound:
    """Begin of a file or directory; the next findings are about it."""

    path: Path
    kind: str
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Decoded:
    """One line of content; the names of the fields are those of Kafka's DumpLogSegments where it has them."""

    kind: str
    fields: Mapping[str, JsonValue]


@dataclass(frozen=True, slots=True)
class Damage:
    """A fault. ``position`` is that of a byte; None when the fault concerns the whole file."""

    path: Path
    position: int | None
    problem: str
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class Note:
    """An unusual fact that is no fault."""

    path: Path
    text: str


InspectionFinding = FileFound | Decoded | Damage | Note
