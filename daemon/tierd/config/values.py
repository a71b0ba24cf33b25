"""The types of single values: what YAML may hold for them, and what a fault says."""

import os
import re
from collections.abc import Sequence
from enum import Enum
from functools import lru_cache
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, ValidationInfo

from tierd.config.units import parse_bytes, parse_duration_s

MIB = 1024 * 1024
KEY_PREFIX_MAX_BYTES = 127  # one byte less than Kafka's limit for custom metadata, which begins with a version


class ExpandedText(str):
    """A value that came out of ``${NAME}``: text that may stand for a number or a switch."""

    __slots__ = ()


class Unit(Enum):
    """How the value of a key is written, for the generated reference."""

    DURATION = "duration"
    SIZE = "size"
    RATE = "size per second"
    PATH = "path"
    PATTERN = "regular expression"
    ADDRESS = "host:port"
    URL = "URL"


def _duration(value: object, info: ValidationInfo) -> object:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ValueError("is no duration: write a number and a unit, such as 30s")  # noqa: TRY004 - pydantic needs it
    if isinstance(value, str) or info.context:  # only a file has a context; there a number without a unit is a riddle
        return parse_duration_s(value if isinstance(value, str | int) else str(value))
    return value


def _size_or_unlimited(value: object) -> int | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise ValueError(f"{value!r} is no size: write a number and a unit, such as 4MiB")  # noqa: TRY004 - as above
    return parse_bytes(value)


def _size(value: object) -> int:
    size = _size_or_unlimited(value)
    if size is None:
        raise ValueError("cannot be unlimited: write a size, such as 4MiB")
    return size


def _whole_number(value: object) -> object:
    if isinstance(value, ExpandedText) and re.fullmatch(r"-?\d+", value):
        return int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"{value!r} is no whole number")  # noqa: TRY004 - pydantic turns only ValueError into a fault
    return value


def _switch(value: object) -> object:
    if isinstance(value, ExpandedText) and value.lower() in ("true", "false"):
        return value.lower() == "true"
    if not isinstance(value, bool):
        raise ValueError(f"{value!r} is neither true nor false")  # noqa: TRY004 - pydantic needs it
    return value


def _text(value: object) -> object:
    if not isinstance(value, str):
        raise ValueError(f"{value!r} is no text: put it in quotes")  # noqa: TRY004 - pydantic needs it
    return str(value)


def _path(value: object) -> object:
    if not isinstance(value, str | os.PathLike):
        raise ValueError(f"{value!r} is no path")  # noqa: TRY004 - pydantic turns only ValueError into a fault
    path = Path(value)
    if not path.is_absolute():
        raise ValueError(f"{value} is not absolute: begin it with /, or with ./ if it is beside this file")
    return Path(os.path.normpath(path))


def _mebibytes(value: int) -> int:
    if value % MIB:
        raise ValueError(f"{value} bytes are not a multiple of 1MiB, the block that checksums are taken over")
    return value


def _pattern(value: str) -> str:
    try:
        re.compile(value)
    except re.error as error:
        raise ValueError(f"{value!r} is no regular expression: {error}") from error
    return value


def _key_prefix(value: str) -> str:
    if len(value.encode()) > KEY_PREFIX_MAX_BYTES:
        raise ValueError(f"is {len(value.encode())} bytes long: at most {KEY_PREFIX_MAX_BYTES} fit")
    parts = value.split("/") if value else []
    if not value.isprintable() or any(part in ("", ".", "..") for part in parts):
        raise ValueError(f"{value!r} is no prefix: write it as prod/tier, no slash first, last or twice, no . or ..")
    return value


def split_address(value: str) -> tuple[str, int]:
    """Return host and port of ``host:port`` or ``[v6 address]:port``.

    Raises:
        ValueError: neither form, or a port above 65535.
    """
    match = re.fullmatch(r"(?:\[([0-9A-Fa-f:.%]+)\]|([^\[\]:]+)):(\d{1,5})", value)
    if match is None or int(match[3]) > 65535:
        raise ValueError(f"{value!r} is no address: write host:port, such as 127.0.0.1:9405 or [::]:9405")
    return match[1] or match[2], int(match[3])


def _address(value: object) -> str:
    split_address(str(value))
    return str(value)


def _url(value: str) -> str:
    if not re.fullmatch(r"https?://[^\s/@]+(/[^\s]*)?", value):
        raise ValueError("is no address of a store: write http:// or https:// and a host, without a user or password")
    return value


@lru_cache(maxsize=1024)
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)


def full_match(patterns: Sequence[str], text: str) -> bool:
    """Whether any of ``patterns`` matches the whole of ``text``."""
    return any(_compiled(pattern).fullmatch(text) for pattern in patterns)


Text = Annotated[str, BeforeValidator(_text)]
WholeNumber = Annotated[int, BeforeValidator(_whole_number)]
Switch = Annotated[bool, BeforeValidator(_switch)]
Duration = Annotated[float, BeforeValidator(_duration), Unit.DURATION]
ByteSize = Annotated[int, BeforeValidator(_size), Unit.SIZE]
ByteLimit = Annotated[int | None, BeforeValidator(_size_or_unlimited), Unit.SIZE]
MebibyteSize = Annotated[ByteSize, AfterValidator(_mebibytes)]
Rate = Annotated[int | None, BeforeValidator(_size_or_unlimited), Unit.RATE]
AbsolutePath = Annotated[Path, BeforeValidator(_path), Unit.PATH]
Pattern = Annotated[Text, AfterValidator(_pattern), Unit.PATTERN]
KeyPrefix = Annotated[Text, AfterValidator(_key_prefix)]
Address = Annotated[str, BeforeValidator(_address), Unit.ADDRESS]
Url = Annotated[Text, AfterValidator(_url), Unit.URL]
