"""Findings of an inspection, yielded one by one, so that any number of files fits in little memory."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

JsonValue = str | int | bool | None | list["JsonValue"]


@dataclass(frozen=True, slots=True)
class FileFound:
    """A file or directory begins here; what follows is about it."""

    path: Path
    kind: str
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Decoded:
    """One line of content, its fields named as Kafka's DumpLogSegments names them where it has them."""

    kind: str
    fields: Mapping[str, JsonValue]


@dataclass(frozen=True, slots=True)
class Damage:
    """Something is wrong. ``position`` is a byte's, None when it is about the whole file."""

    path: Path
    position: int | None
    problem: str
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class Note:
    """Something unusual that is not wrong."""

    path: Path
    text: str


Finding = FileFound | Decoded | Damage | Note
