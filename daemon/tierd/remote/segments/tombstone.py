"""Tombstone: the object that says that a segment is to be deleted, and why (DESIGN 4). A rebuild skips the segment.

JSON of ``format_version`` 1. The first tombstone of a segment stays; a rotation of keys gives it a new tag.
"""

import json
from dataclasses import asdict, dataclass
from typing import Any, Final, Self

from tierd.errors import RemoteFormatError, RemoteIntegrityError
from tierd.json_parsing import parse_json

FORMAT_VERSION = 1
_INT64_MAX: Final = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class Tombstone:
    """Decision to delete a segment: its time, reason and author.

    Attributes:
        reason: a fixed word, such as ``retention-time``.
        delete_after_ms: time before which no object is deleted; until then the decision can be undone.
        detail: in one sentence, for people.
    """

    reason: str
    deleted_at_ms: int
    delete_after_ms: int
    broker_id: int
    detail: str = ""

    def encode(self) -> bytes:
        """Return the JSON form."""
        return (json.dumps({"format_version": FORMAT_VERSION} | asdict(self)) + "\n").encode()

    @classmethod
    def decode(cls, content: bytes, *, key: str) -> Self:
        """Parse the JSON form.

        Raises:
            RemoteFormatError: its ``format_version`` is one that this tierd does not know.
            RemoteIntegrityError: the content is no tombstone.
        """
        try:
            parsed = parse_json(content)
        except ValueError as error:
            raise _damaged(key, content) from error
        if not isinstance(parsed, dict) or "format_version" not in parsed:
            raise _damaged(key, content)
        fields: dict[str, Any] = parsed
        found = fields.pop("format_version")
        if found != FORMAT_VERSION:
            raise RemoteFormatError(
                f"{key}: tombstone has format_version {found!r}, this tierd reads {FORMAT_VERSION}",
                remedy="use the tierd version that wrote it, or a newer one",
            )
        texts: dict[str, Any] = {name: fields.get(name, "") for name in ("reason", "detail")}
        numbers: dict[str, Any] = {name: fields.get(name) for name in ("deleted_at_ms", "delete_after_ms", "broker_id")}
        if any(type(text) is not str for text in texts.values()) or not all(map(_is_number, numbers.values())):
            raise _damaged(key, content)
        return cls(**texts, **numbers)


def _is_number(value: object) -> bool:
    """Return whether ``value`` is an integer that the row of a segment can hold."""
    return type(value) is int and -1 <= value <= _INT64_MAX


def _damaged(key: str, content: bytes) -> RemoteIntegrityError:
    return RemoteIntegrityError(
        f"{key} is no tombstone: {content[:80]!r}",
        remedy="find out who wrote it; while it is there a rebuild ignores the segment",
    )
