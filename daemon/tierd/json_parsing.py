"""parse_json: JSON from outside to plain values. Every text that it refuses is a ValueError, whatever is wrong with it.

Refused beside what is no JSON in UTF-8: more than ``MAX_DEPTH`` levels, which would end the interpreter's recursion
here or where the value is encoded again; ``NaN`` and infinite numbers, which other parsers do not take; integers of
more digits than Python converts; one half of a surrogate pair, which no UTF-8 has; and more values than the caller
expects, for a value of two bytes of text takes some fifty times as much memory.
"""

import json
import math
import re
from collections.abc import Iterable
from typing import Final, NoReturn

MAX_DEPTH: Final = 128
"""Levels of objects and lists inside one another; no text that tierd writes has ten."""
MAX_VALUES: Final = 1_000_000
"""Values of one text; the manifest of the largest segment has some twenty thousand."""

_NO_BRACKETS: Final = bytes(set(range(256)) - set(b"[]{}"))
_EMPTY_PAIR: Final = re.compile(rb"\[\]|\{\}")
_SURROGATE: Final = re.compile(r"\\u[dD][89a-fA-F]")


def parse_json(content: bytes | str, *, unique_names: bool = False, max_values: int = MAX_VALUES) -> object:
    """Return the value of a JSON text.

    Args:
        content: the whole text; bytes are UTF-8, and may begin with a byte order mark.
        unique_names: refuse an object in which a name stands twice; otherwise the last one counts.
        max_values: how many values the text has at most, counted by commas and opening brackets.

    Raises:
        ValueError: the text is refused; says why.
    """
    text = content if isinstance(content, str) else content.decode("utf-8-sig")
    brackets = text.count("[") + text.count("{")
    if brackets + text.count(",") > max_values:
        raise ValueError(f"it has more than {max_values} values")
    try:
        value: object = (_UNIQUE if unique_names else _DECODER).decode(text)
    except RecursionError as error:
        raise _too_deep() from error
    if brackets > MAX_DEPTH:
        _require_shallow(text, value)
    if "\\u" in text and _SURROGATE.search(text):
        _require_whole_characters(value)
    return value


def parse_json_object(text: str) -> dict[str, object]:
    """Return the object of a text that is one JSON object and nothing else, not even white space; the fast way.

    Raises:
        ValueError: the text is refused; says why.
    """
    if not text.startswith("{"):
        raise ValueError("not a JSON object")
    try:
        value, end = _RAW_DECODE(text)
    except RecursionError as error:
        raise _too_deep() from error
    if end != len(text):
        raise ValueError("something follows the JSON object")
    if text.count("[") + text.count("{") > MAX_DEPTH:
        _require_shallow(text, value)
    parsed: dict[str, object] = value
    return parsed


def _require_shallow(text: str, value: object) -> None:
    """Raise unless ``value``, which was parsed from ``text``, has at most ``MAX_DEPTH`` levels.

    Raises:
        ValueError: the value has more.
    """
    if not _is_surely_shallow(text) and _has_more_levels(value):
        raise _too_deep()


def _require_whole_characters(value: object) -> None:
    """Raise where a text in ``value`` is written with one half of a surrogate pair.

    Raises:
        ValueError: the value cannot be written in UTF-8.
    """
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        raise ValueError("it has half of a character, an escaped surrogate without the other one") from error


def _is_surely_shallow(text: str) -> bool:
    """Return whether the brackets alone pair off within the limit; brackets in strings may hide that they do."""
    left = text.encode(errors="replace").translate(None, _NO_BRACKETS)
    for _ in range(MAX_DEPTH):
        if not left:
            return True
        shorter = _EMPTY_PAIR.sub(b"", left)
        if len(shorter) == len(left):
            return False
        left = shorter
    return not left


def _has_more_levels(value: object) -> bool:
    level = [value]
    for _ in range(MAX_DEPTH + 1):
        level = [child for each in level for child in _children(each)]
        if not level:
            return False
    return True


def _children(value: object) -> Iterable[object]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


def _too_deep() -> ValueError:
    return ValueError(f"it is nested too deeply: more than {MAX_DEPTH} levels")


def _no_number(text: str) -> NoReturn:
    raise ValueError(f"{text[:40]} is no number of JSON")


def _finite(text: str) -> float:
    number = float(text)
    return number if math.isfinite(number) else _no_number(text)


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """Return a JSON object in which no name stands twice: two parsers might choose differently."""
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise ValueError("a name stands twice in one object")
    return fields


_DECODER: Final = json.JSONDecoder(parse_constant=_no_number, parse_float=_finite)
_UNIQUE: Final = json.JSONDecoder(parse_constant=_no_number, parse_float=_finite, object_pairs_hook=_unique)
_RAW_DECODE: Final = _DECODER.raw_decode  # json.loads looks for white space, twice per row
