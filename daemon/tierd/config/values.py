"""The types of single values: their forms in YAML, and the texts of their faults."""

import base64
import os
import re
from collections.abc import Sequence
from enum import Enum
from functools import lru_cache
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, SecretStr, ValidationInfo

from tierd.config.document import ExpandedText
from tierd.config.units import parse_bytes, parse_duration_s

MIB = 1024 * 1024
_KAFKA_WORDS: dict[str, int | str] = {"-1": -1, "-2": -2, "from-broker": "from-broker"}
KEY_PREFIX_MAX_BYTES = 127  # one byte less than Kafka's limit for custom metadata, which begins with a version


class Unit(Enum):
    """Notation of a key's value, for the generated reference."""

    DURATION = "duration"
    SIZE = "size"
    RATE = "size per second"
    PATH = "path"
    PATTERN = "regular expression"
    ADDRESS = "host:port"
    URL = "URL"
    RETENTION = "duration or -1"
    RETENTION_SIZE = "size or -1"


class WrittenPath:
    """Mark of a path that tierd writes at; such a path lies in no log dir."""


def shown(value: object) -> str:
    """Return the text of ``value`` for a fault: scalars and lists of scalars as they are.

    A mapping, and a list that holds more than scalars, is named and not repeated, since secrets may be in it.
    """
    match value:
        case None:
            return "nothing"
        case dict():
            return "a mapping"
        case list() if any(isinstance(item, dict | list) for item in value):
            return "a list"
        case _:
            return repr(value)


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
        raise ValueError(f"{shown(value)} is no size: write a number and a unit, such as 4MiB")  # noqa: TRY004 - as above
    return parse_bytes(value)


def _size(value: object) -> int:
    size = _size_or_unlimited(value)
    if size is None:
        raise ValueError("cannot be unlimited: write a size, such as 4MiB")
    return size


def _kept_ms(value: object, info: ValidationInfo) -> object:
    """Return a duration in milliseconds, or Kafka's -1 (for ever) and -2 (as the total); ``from-broker`` stays text."""
    if str(value) in _KAFKA_WORDS:
        return _KAFKA_WORDS[str(value)]
    if isinstance(value, int) and not isinstance(value, bool) and not info.context:
        return value
    return round(float(str(_duration(value, info))) * 1000)


def _kept_bytes(value: object) -> object:
    """Return a size in bytes, or Kafka's -1 (without limit) and -2 (as the total); ``from-broker`` stays text."""
    if str(value) in _KAFKA_WORDS:
        return _KAFKA_WORDS[str(value)]
    size = _size_or_unlimited(value)
    return -1 if size is None else size


def _at_least(lowest: int) -> AfterValidator:
    def check(value: int | str) -> int | str:
        if isinstance(value, int) and value < lowest:
            raise ValueError(f"{value} is too low: the least is {lowest}")
        return value

    return AfterValidator(check)


def _tags(value: object) -> object:
    if not isinstance(value, dict) or not all(isinstance(item, str) for pair in value.items() for item in pair):
        raise ValueError("is no set of tags: write name: value, both as text")
    if len(value) > 10:
        raise ValueError(f"has {len(value)} tags: an object may have 10")
    return dict(value)


def _base64_key(value: SecretStr) -> SecretStr:
    try:
        size = len(base64.b64decode(value.get_secret_value(), validate=True))
    except ValueError as error:
        raise ValueError("is no base64: make one with openssl rand -base64 32") from error
    if size != 32:
        raise ValueError(f"is a key of {size} bytes, not 32: make one with openssl rand -base64 32")
    return value


def _proxy(value: str) -> str:
    if not re.fullmatch(r"https?://[^\s/]+/?", value):
        raise ValueError("is no address of a proxy: write http:// or https://, a host and a port")
    return value


def _whole_number(value: object) -> object:
    if isinstance(value, ExpandedText) and re.fullmatch(r"-?\d+", value):
        return int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"{shown(value)} is no whole number")  # noqa: TRY004 - pydantic turns only ValueError into a fault
    return value


def _ratio(value: object) -> object:
    if isinstance(value, ExpandedText):
        value = float(value)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise ValueError(f"{shown(value)} is no share: write a number from 0 to 1, such as 0.5")
    return float(value)


def _switch(value: object) -> object:
    if isinstance(value, ExpandedText) and value.lower() in ("true", "false"):
        return value.lower() == "true"
    if not isinstance(value, bool):
        raise ValueError(f"{shown(value)} is neither true nor false")  # noqa: TRY004 - pydantic needs it
    return value


def _text(value: object) -> object:
    if not isinstance(value, str):
        raise ValueError(f"{shown(value)} is no text: put it in quotes")  # noqa: TRY004 - pydantic needs it
    return str(value)


def _path(value: object) -> object:
    if not isinstance(value, str | os.PathLike):
        raise ValueError(f"{shown(value)} is no path")  # noqa: TRY004 - pydantic turns only ValueError into a fault
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


def is_local_host(host: str) -> bool:
    """Return True for this host: no name, the path of a socket, localhost, or a loopback address."""
    if host in {"", "localhost"} or host.startswith("/"):
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def _address(value: object) -> str:
    if isinstance(value, dict | list) or value is None:
        raise ValueError(f"{shown(value)} is no address: write host:port, such as 127.0.0.1:9405 or [::]:9405")
    split_address(str(value))
    return str(value)


def broker_address(value: object) -> str:
    """Return ``value`` if it is ``host:port`` with a port that clients can use.

    Raises:
        ValueError: it is not.
    """
    try:
        if isinstance(value, str) and split_address(value)[1] > 0:
            return str(value)
    except ValueError:
        pass  # the error below has a broker's address as its example
    raise ValueError(f"{shown(value)} is no address of a broker: write host:port, such as kafka-1.example.com:9092")


def _url(value: str) -> str:
    if not re.fullmatch(r"https?://[^\s/@]+(/[^\s]*)?", value):
        raise ValueError("is no address of a store: write http:// or https:// and a host, without a user or password")
    return value


@lru_cache(maxsize=1024)
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.DOTALL)  # else a line break in the name of a principal would escape quotas and holds


def full_match(patterns: Sequence[str], text: str) -> bool:
    """Return True if any of ``patterns`` matches the whole of ``text``."""
    return any(_compiled(pattern).fullmatch(text) for pattern in patterns)


Text = Annotated[str, BeforeValidator(_text)]
WholeNumber = Annotated[int, BeforeValidator(_whole_number)]
Switch = Annotated[bool, BeforeValidator(_switch)]
Ratio = Annotated[float, BeforeValidator(_ratio)]
Duration = Annotated[float, BeforeValidator(_duration), Unit.DURATION]
ByteSize = Annotated[int, BeforeValidator(_size), Unit.SIZE]
ByteLimit = Annotated[int | None, BeforeValidator(_size_or_unlimited), Unit.SIZE]
MebibyteSize = Annotated[ByteSize, AfterValidator(_mebibytes)]
Rate = Annotated[int | None, BeforeValidator(_size_or_unlimited), Unit.RATE]
AbsolutePath = Annotated[Path, BeforeValidator(_path), Unit.PATH]
OwnPath = Annotated[Path, BeforeValidator(_path), Unit.PATH, WrittenPath()]
Pattern = Annotated[Text, AfterValidator(_pattern), Unit.PATTERN]
KeyPrefix = Annotated[Text, AfterValidator(_key_prefix)]
Address = Annotated[str, BeforeValidator(_address), Unit.ADDRESS]
HostPort = Annotated[str, BeforeValidator(broker_address), Unit.ADDRESS]
Url = Annotated[Text, AfterValidator(_url), Unit.URL]
ProxyUrl = Annotated[SecretStr, AfterValidator(lambda value: SecretStr(_proxy(value.get_secret_value())))]
RetentionMs = Annotated[int | Literal["from-broker"], BeforeValidator(_kept_ms), _at_least(-1), Unit.RETENTION]
RetentionBytes = Annotated[
    int | Literal["from-broker"], BeforeValidator(_kept_bytes), _at_least(-1), Unit.RETENTION_SIZE
]
LocalRetentionMs = Annotated[int | Literal["from-broker"], BeforeValidator(_kept_ms), _at_least(-2), Unit.RETENTION]
LocalRetentionBytes = Annotated[
    int | Literal["from-broker"], BeforeValidator(_kept_bytes), _at_least(-2), Unit.RETENTION_SIZE
]
SegmentBytes = Annotated[
    int | Literal["from-broker"], BeforeValidator(_kept_bytes), _at_least(1024), Unit.RETENTION_SIZE
]
Milliseconds = Annotated[int, BeforeValidator(_kept_ms), _at_least(0), Unit.RETENTION]
MillisecondsOrNone = Annotated[int, BeforeValidator(_kept_ms), _at_least(-1), Unit.RETENTION]
PositionBytes = Annotated[int, BeforeValidator(_kept_bytes), _at_least(0), Unit.RETENTION_SIZE]
LagMs = Annotated[int, BeforeValidator(_kept_ms), _at_least(-1), Unit.RETENTION]
LagBytes = Annotated[int, BeforeValidator(_kept_bytes), _at_least(-1), Unit.RETENTION_SIZE]
Tags = Annotated[dict[str, str], BeforeValidator(_tags)]
Base64Key = Annotated[SecretStr, AfterValidator(_base64_key)]
