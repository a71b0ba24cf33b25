"""Conversion of kio's messages between the versions of one request, so that an answer is written once, with types.

A handler reads the request as its newest version and writes the newest version of the answer. Fields that only one side
has are left out, or get their default.
"""

from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from datetime import timedelta
from functools import cache
from types import NoneType
from typing import Any, Final, TypeVar, cast, get_args, get_origin

from kio.index import load_response_from_request
from kio.schema.errors import ErrorCode
from kio.static.primitive import i32Timedelta
from kio.static.protocol import Entity, RequestPayload, ResponsePayload

M = TypeVar("M", bound=Entity)

NO_THROTTLE: Final = i32Timedelta.parse(timedelta(0))
"""Throttle time of an answer that is not held back."""

_Convert = Callable[[object], object]
_ZEROS: Final[Mapping[str, object]] = {
    "bool": False,
    "string": "",
    "bytes": b"",
    "error_code": ErrorCode.none,
    "timedelta_i32": timedelta(0),
    "timedelta_i64": timedelta(0),
}


def in_version(message: Entity, target: type[M], **added: object) -> M:
    """Return ``message`` as ``target``, another version of the same message.

    Args:
        message: any version.
        target: class of the wanted version.
        added: values of top-level fields that ``target`` has and the class of ``message`` has not.
    """
    if type(message) is target:
        return message
    wanted = {name: value for name, value in added.items() if name in target.__dataclass_fields__}
    return cast("M", _conversion(type(message), target)(message, wanted))


def answer_in_version(request: RequestPayload, answer: ResponsePayload, **added: object) -> ResponsePayload:
    """Return ``answer`` in the version of ``request``; ``added`` as for ``in_version``."""
    return in_version(answer, load_response_from_request(request), **added)


@cache
def _conversion(source: type[Entity], target: type[Entity]) -> Callable[[object, Mapping[str, object]], Entity]:
    has = {field.name: field for field in fields(source)}
    copied: list[tuple[str, _Convert | None]] = []
    filled: dict[str, object] = {}
    for field in fields(target):
        if field.name in has:
            copied.append((field.name, _field_conversion(has[field.name], field)))
        else:
            filled[field.name] = default_of(field)

    def convert(message: object, added: Mapping[str, object]) -> Entity:
        values = dict(filled)
        for name, conversion in copied:
            value = getattr(message, name)
            values[name] = value if conversion is None or value is None else conversion(value)
        values.update(added)
        return target(**values)

    return convert


def _field_conversion(source: Field[Any], target: Field[Any]) -> _Convert | None:
    """Return the conversion of a field's value, None where the value stays as it is."""
    from_type, to_type = item_type(source), item_type(target)
    if not (is_dataclass(from_type) and is_dataclass(to_type)) or from_type is to_type:
        return None
    convert = _conversion(cast("type[Entity]", from_type), cast("type[Entity]", to_type))
    if not is_array(target):
        return lambda value: convert(value, {})
    return lambda values: tuple(convert(value, {}) for value in cast("tuple[object, ...]", values))


def default_of(field: Field[Any]) -> object:
    """Return the value of a field that says nothing: its default, or else null, empty or zero."""
    if field.default is not MISSING:
        return field.default
    if type(None) in get_args(field.type):
        return None
    if is_array(field):
        return ()
    return _ZEROS.get(field.metadata.get("kafka_type", ""), 0)


def _without_none(kind: object) -> object:
    alternatives = [each for each in get_args(kind) if each is not NoneType]
    return alternatives[0] if NoneType in get_args(kind) else kind


def is_array(field: Field[Any]) -> bool:
    """Return True for a field with several items."""
    return get_origin(_without_none(field.type)) is tuple


def item_type(field: Field[Any]) -> object:
    """Return the type of a field, or of the items of an array."""
    kind = _without_none(field.type)
    return get_args(kind)[0] if get_origin(kind) is tuple else kind
