"""A metadata value of any kind as bytes: a format byte, then a compact JSON object; and its fields, checked."""

import json
from collections.abc import Callable, Mapping
from typing import Final, NoReturn, TypeVar

from tierd.errors import MetadataDecodeError
from tierd.json_parsing import parse_json_object

FORMAT: Final = 1
INT64_MAX: Final = 2**63 - 1
_FORMAT_BYTE: Final = bytes([FORMAT])
_encode_json: Final = json.JSONEncoder(separators=(",", ":")).encode
_T = TypeVar("_T")


def unknown_fields(body: dict[str, object], known: frozenset[str]) -> Mapping[str, object]:
    """Return the fields that only a later tierd knows."""
    return {} if body.keys() <= known else {name: value for name, value in body.items() if name not in known}


def int_field(body: dict[str, object], name: str) -> int:
    """Return the field ``name``, an integer of 64 bits, -1 or more.

    Raises:
        KeyError: there is no such field.
        ValueError: the field is no such integer.
    """
    value = body[name]
    if type(value) is int and -1 <= value <= INT64_MAX:
        return value
    return refuse(f"{name} is {value!r}, not an integer of 64 bits")


def text_field(body: dict[str, object], name: str) -> str:
    """Return the field ``name``, a text.

    Raises:
        KeyError: there is no such field.
        ValueError: the field is no text.
    """
    value = body[name]
    return value if isinstance(value, str) else refuse(f"{name} is {value!r}, not a text")


def refuse(problem: str) -> NoReturn:
    """Refuse a value that cannot be understood.

    Raises:
        ValueError: always; ``decoded_value`` names the key.
    """
    raise ValueError(problem)


def encode_value(body: Mapping[str, object]) -> bytes:
    """Encode the format byte and the fields."""
    return _FORMAT_BYTE + _encode_json(body).encode()


def decoded_value(key: str, value: bytes, convert: Callable[[dict[str, object]], _T]) -> _T:
    """Return the result of ``convert`` for the fields of the value stored under ``key``.

    Raises:
        MetadataDecodeError: of another format, no JSON object, or refused by ``convert``; names the key.
    """
    if value[:1] != _FORMAT_BYTE:
        found = f"format {value[0]}" if value else "an empty value"
        raise MetadataDecodeError(
            f"{key}: {found}, this tierd reads format {FORMAT}",
            remedy="upgrade tierd if a later one wrote this store, otherwise restore the store from a backup",
        )
    try:
        return convert(parse_json_object(value[1:].decode()))
    except KeyError as error:
        problem = f"the field {error} is missing"
    except (ValueError, TypeError) as error:
        problem = str(error) or type(error).__name__
    raise MetadataDecodeError(f"{key}: {problem}", remedy="restore the metadata store from a backup")
