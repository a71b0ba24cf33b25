"""Records from lines of input, as the JSON of ``tierd cat --json`` or as text with tabs, and as lines for people."""

from base64 import b64decode
from binascii import Error as Base64Error
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from tierd.control_characters import visible
from tierd.errors import RecordLineError
from tierd.json_parsing import parse_json
from tierd.log import NewRecord, Record

MAX_INT = (1 << 31) - 1
_MAX_LONG = (1 << 63) - 1
_FORM = "one JSON object a line, as tierd cat --json prints them; or give --text"


@dataclass(frozen=True, slots=True)
class InputRecord:
    """A record to append.

    Attributes:
        offset: the offset in the line; None if the line has none.
        leader_epoch: the epoch in the line; None if the line has none.
    """

    record: NewRecord
    offset: int | None = None
    leader_epoch: int | None = None


ParseLine = Callable[[bytes, int, int], InputRecord]
"""Function of a line without its end, its number from 1 on and the wall clock in ms; returns the record."""


def parse_json_line(line: bytes, number: int, now_ms: int) -> InputRecord:
    """Parse a line of ``tierd cat --json``; only ``value`` or ``key`` is required.

    Raises:
        RecordLineError: the line is no such JSON; the message has its number.
    """
    try:
        fields = parse_json(line)
    except ValueError as error:
        raise _fault(number, f"no JSON: {error}") from error
    if not isinstance(fields, dict) or not {"key", "value"} & set(fields):
        raise _fault(number, "no object with a key or a value")
    if fields.get("isControl"):
        raise _fault(number, "a control record, which only a broker writes")
    record = NewRecord(
        _bytes(fields, "key", number),
        _bytes(fields, "value", number),
        _integer(fields, "timestamp", number, low=-1) if fields.get("timestamp") is not None else now_ms,
        _headers(fields.get("headers"), number),
    )
    offset = _integer(fields, "offset", number) if fields.get("offset") is not None else None
    epoch = None
    if fields.get("leaderEpoch") is not None:
        epoch = _integer(fields, "leaderEpoch", number, low=-1, high=MAX_INT)
    return InputRecord(record, offset, epoch)


def parse_text_line(line: bytes, _number: int, now_ms: int) -> InputRecord:
    """Parse key and value with a tab between them; a line without a tab is a value without a key."""
    key, tab, value = line.partition(b"\t")
    return InputRecord(NewRecord(key, value, now_ms) if tab else NewRecord(None, line, now_ms))


def as_text_line(record: Record) -> bytes:
    """Return offset, timestamp, key and value between tabs; no byte of a record can move the cursor or hide a line."""
    fields = (str(record.offset), _time(record.timestamp_ms), _text(record.key), _text(record.value))
    return "\t".join(fields).encode() + b"\n"


def _bytes(fields: dict[str, object], name: str, number: int) -> bytes | None:
    value = fields.get(name)
    if value is None:
        return None
    return _decode(value, name, number)


def _decode(value: object, name: str, number: int) -> bytes:
    if not isinstance(value, str):
        raise _fault(number, f"{name} is neither base64 nor null")
    try:
        return b64decode(value, validate=True)
    except (Base64Error, ValueError) as error:
        raise _fault(number, f"{name} is no base64") from error


def _headers(value: object, number: int) -> tuple[tuple[str, bytes | None], ...]:
    if value is None:
        return ()
    if not isinstance(value, list):
        raise _fault(number, "headers are no list of [name, base64 or null]")
    return tuple(_header(entry, number) for entry in value)


def _header(entry: object, number: int) -> tuple[str, bytes | None]:
    if not isinstance(entry, list) or len(entry) != 2 or not isinstance(entry[0], str):
        raise _fault(number, "headers are no list of [name, base64 or null]")
    name, value = entry
    try:
        name.encode()
    except UnicodeEncodeError as error:
        raise _fault(number, f"the header name {name!r} is no text") from error
    return name, None if value is None else _decode(value, f"header {name}", number)


def _integer(fields: dict[str, object], name: str, number: int, *, low: int = 0, high: int = _MAX_LONG) -> int:
    value = fields[name]
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise _fault(number, f"{name} {value!r} is not possible")
    return value


def _fault(number: int, problem: str) -> RecordLineError:
    return RecordLineError(f"line {number}: {problem}", remedy=f"expected is {_FORM}")


def _time(timestamp_ms: int) -> str:
    try:
        moment = datetime.fromtimestamp(timestamp_ms // 1000, UTC)
    except (OverflowError, ValueError, OSError):  # records may carry any 64-bit number
        return str(timestamp_ms)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{timestamp_ms % 1000:03d}Z" if timestamp_ms >= 0 else str(timestamp_ms)


def _text(data: bytes | None) -> str:
    if data is None:
        return "null"
    return visible(data.decode("utf-8", errors="backslashreplace"))
