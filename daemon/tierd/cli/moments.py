"""Times as people write and read them on the command line."""

from datetime import UTC, datetime

import typer

from tierd.config import parse_duration_s


def timestamp_ms_of(text: str) -> int:
    """Parse milliseconds since the epoch, or ISO 8601; a time without a zone is UTC, as ``tierd cat`` prints it.

    Raises:
        typer.BadParameter: the text is neither, or the time is before 1970.
    """
    try:
        timestamp_ms = int(text) if text.lstrip("-").isdecimal() else _of_iso(text)
    except ValueError:
        raise typer.BadParameter(
            f"{text!r} is no time: give 2024-05-01T12:00:00Z, or milliseconds since 1970"
        ) from None
    if timestamp_ms < 0:
        raise typer.BadParameter(f"{text!r} is before 1970")
    return timestamp_ms


def duration_s_of(text: str, option: str) -> float:
    """Parse a duration such as ``2h`` that a person gave to ``option``; a negative one stands for no end.

    Raises:
        typer.BadParameter: the text is no duration.
    """
    try:
        return parse_duration_s(text)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint=option) from error


def utc_text(timestamp_ms: int) -> str:
    """Return a time as tables show it, to the second; in milliseconds where no calendar has it."""
    try:
        return datetime.fromtimestamp(timestamp_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (ValueError, OverflowError, OSError):  # a timestamp of a producer may be any number, as of microseconds
        return f"{timestamp_ms} ms"


def _of_iso(text: str) -> int:
    moment = datetime.fromisoformat(text)
    aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return round(aware.timestamp() * 1000)
