"""Guard of the decoder: every length in a message is checked against its bytes, by the message's own schema.

The native decoder allocates as much as an array's length claims, and a failed allocation ends the process: four wrong
bytes from any program at the other end would end the daemon. This module knows the shapes of the encoding only, for
answers of brokers and for requests of clients.

The other side may send tagged fields that are newer than the schema (KIP-482). The decoder refuses them, so they are
cut out.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import Field, fields, is_dataclass
from functools import cache
from types import NoneType
from typing import Any, ClassVar, Final, NamedTuple, Protocol, get_args, get_origin

from tierd.errors import DamagedMessageError

Skip = Callable[["_Walked", int], int]
"""Maps the position of a value to the position behind it, which may be behind the end. Always returns."""

_SIZES: Final = {
    "bool": 1,
    "int8": 1,
    "int16": 2,
    "error_code": 2,
    "uint16": 2,
    "int32": 4,
    "timedelta_i32": 4,
    "int64": 8,
    "timedelta_i64": 8,
    "datetime_i64": 8,
    "uuid": 16,
}


_NULL_MESSAGE: Final = 0xFF  # -1, as the decoder tests it


class MessageType(Protocol):
    """Attributes of every generated message class."""

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]  # as typeshed declares any dataclass
    __flexible__: ClassVar[bool]


class _Walked(bytes):
    """A message, with edits: sections of tagged fields to be replaced by the same without unknown fields."""

    edits: list[tuple[int, int, bytes]]  # ascending, and apart from each other
    items: int


class SoundMessage(NamedTuple):
    """Bytes that may be decoded.

    Attributes:
        content: all bytes, without unknown tagged fields behind the start of the message.
        items: elements of all arrays, which the decoded message has in memory.
    """

    content: bytes
    items: int


def require_sound(message: type[MessageType], content: bytes, start: int) -> SoundMessage:
    """Return ``content`` without unknown tagged fields, when every length of a ``message`` at ``start`` fits into it.

    Raises:
        DamagedMessageError: a length does not fit; these bytes must not be decoded.
    """
    walked = _Walked(content)
    walked.edits, walked.items = [], 0
    try:
        end = _message_skip(message)(walked, start)
    except IndexError:
        end = len(content) + 1
    if end > len(content):
        raise DamagedMessageError(
            f"{message.__name__} of {len(content) - start} bytes is damaged: its lengths do not fit"
        )
    return SoundMessage(_edited(content, walked.edits) if walked.edits else content, walked.items)


def _edited(content: bytes, edits: Sequence[tuple[int, int, bytes]]) -> bytes:
    pieces, at = list[bytes](), 0
    for begin, end, instead in edits:
        pieces += (content[at:begin], instead)
        at = end
    return b"".join([*pieces, content[at:]])


@cache
def _message_skip(message: type[MessageType]) -> Skip:
    flexible = message.__flexible__
    steps: list[Skip | int] = []
    tagged: dict[int, Skip] = {}
    for field in fields(message):
        if "tag" in field.metadata:
            tagged[field.metadata["tag"]] = _as_skip(_field_step(field, flexible=flexible))
        else:
            is_client_id = (message.__name__, field.name) == ("RequestHeader", "client_id")
            _add(steps, _field_step(field, flexible=flexible and not is_client_id))  # RequestHeader.json
    if flexible:
        steps.append(_tags_skip(tagged))
    if len(steps) == 1:
        return _as_skip(steps[0])

    def skip(content: _Walked, at: int) -> int:
        for step in steps:
            at = at + step if isinstance(step, int) else step(content, at)
        return at

    return skip


def _add(steps: list[Skip | int], step: Skip | int) -> None:
    """Append a step; neighbouring values of fixed size are one."""
    if isinstance(step, int) and steps and isinstance(steps[-1], int):
        steps[-1] += step
    else:
        steps.append(step)


def _as_skip(step: Skip | int) -> Skip:
    return step if not isinstance(step, int) else lambda _, at: at + step


def _field_step(field: Field[Any], *, flexible: bool) -> Skip | int:
    kind = _without_none(field.type)
    if get_origin(kind) is not tuple:
        step = _value_step(kind, field.metadata, flexible=flexible)
        may_be_null = kind is not field.type and isinstance(kind, type) and is_dataclass(kind)
        return _nullable_message_skip(_as_skip(step)) if may_be_null else step
    item = _value_step(get_args(kind)[0], field.metadata, flexible=flexible)
    return _array_skip(item, flexible=flexible, may_be_null=kind is not field.type)


def _value_step(kind: object, metadata: Mapping[str, str], *, flexible: bool) -> Skip | int:
    if isinstance(kind, type) and is_dataclass(kind):
        return _message_skip(kind)
    kafka_type = metadata["kafka_type"]
    if kafka_type in {"string", "bytes", "records"}:
        return _compact_text_end if flexible else _legacy_end(2 if kafka_type == "string" else 4)
    return _SIZES[kafka_type]


def _without_none(kind: object) -> object:
    alternatives = [each for each in get_args(kind) if each is not NoneType]
    return alternatives[0] if get_args(kind) and NoneType in get_args(kind) else kind


def _array_skip(item: Skip | int, *, flexible: bool, may_be_null: bool) -> Skip:
    def skip(content: _Walked, at: int) -> int:
        count, at = _compact_count(content, at) if flexible else _legacy_count(content, at, 4)
        if count < 0:
            if not may_be_null:
                raise IndexError  # the decoder would return None for a field that is declared as a tuple
            return at
        content.items += count
        if isinstance(item, int):
            return at + count * item
        for _ in range(count):
            at = item(content, at)
            if at > len(content):
                return at
        return at

    return skip


def _nullable_message_skip(message: Skip) -> Skip:
    """Return the step over a message behind a byte that says whether it is there (KIP-893)."""
    return lambda content, at: at + 1 if content[at] == _NULL_MESSAGE else message(content, at + 1)


def _compact_text_end(content: bytes, at: int) -> int:
    count, at = _compact_count(content, at)
    return at + max(count, 0)


def _legacy_end(width: int) -> Skip:
    def skip(content: _Walked, at: int) -> int:
        count, at = _legacy_count(content, at, width)
        return at + max(count, 0)

    return skip


def _tags_skip(known: Mapping[int, Skip]) -> Skip:
    def skip(content: _Walked, at: int) -> int:
        if content[at] == 0:
            return at + 1
        begin, kept = at, list[bytes]()
        count, at = _varint(content, at)
        for _ in range(count):
            field_at = at
            tag, at = _varint(content, at)
            size, at = _varint(content, at)
            end = at + size
            if tag in known and not _fits(known[tag], content, at, end):
                return len(content) + 1
            if end > len(content):
                return end
            if tag in known:
                kept.append(content[field_at:end])
            at = end
        if len(kept) > len(known):
            return len(content) + 1  # a tag is there twice
        if len(kept) < count:
            content.edits.append((begin, at, bytes([len(kept)]) + b"".join(kept)))
        return at

    return skip


def _fits(skip: Skip, content: _Walked, at: int, end: int) -> bool:
    """Return True if a known tagged field ends by ``end`` and has no unknown field, which would change its size."""
    edits = len(content.edits)
    return skip(content, at) <= min(end, len(content)) and len(content.edits) == edits


def _compact_count(content: bytes, at: int) -> tuple[int, int]:
    count, at = _varint(content, at)
    return count - 1, at  # -1 stands for null


def _legacy_count(content: bytes, at: int, width: int) -> tuple[int, int]:
    if at + width > len(content):
        raise IndexError
    return int.from_bytes(content[at : at + width], "big", signed=True), at + width  # -1 stands for null


def _varint(content: bytes, at: int) -> tuple[int, int]:
    byte = content[at]
    if byte < 0x80:
        return byte, at + 1
    value, shift = byte & 0x7F, 7
    while True:
        at += 1
        byte = content[at]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at + 1
        shift += 7
        if shift > 28:
            raise IndexError
