"""The log: one event a line, as JSON or for people, with masks for texts that look like secrets."""

import contextlib
import logging
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TextIO, cast

import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

from tierd.control_characters import visible
from tierd.masking import MASK, masked

_TRACEBACKS = frozenset({"exception", "stack"})
_SECRET_KEY = re.compile(
    r"secret|password|passwd|token|credential|authorization|access_key|private_key|data_key", re.IGNORECASE
)


def configure_logging(*, format: str, level: str, stream: TextIO) -> None:  # noqa: A002 - the key in the file
    """Write structlog events, and what libraries log, to ``stream``; a second call replaces the first.

    Args:
        format: ``json``, an object a line with ``timestamp``, ``level`` and ``event``; or ``console``, for people.
        level: ``debug``, ``info``, ``warning`` or ``error``. Libraries log from warning on, or
            from ``error`` on with ``error``; with ``debug`` they log everything.
        stream: destination of the lines; colours only when it is a terminal. Lines that it cannot take are lost.
    """
    lines = cast("TextIO", _LossyStream(stream))
    number = logging.getLevelNamesMapping()[level.upper()]
    shared: list[Processor] = [structlog.contextvars.merge_contextvars, structlog.processors.add_log_level, _timestamp]
    renderer = _renderer(format, colors=stream.isatty())
    structlog.configure(
        processors=[*shared, structlog.processors.format_exc_info, mask_secrets, renderer],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=structlog.WriteLoggerFactory(lines),
        cache_logger_on_first_use=False,  # a reload may change the level
    )
    handler = logging.StreamHandler(lines)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[*shared, structlog.stdlib.add_logger_name],
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                structlog.processors.format_exc_info,
                mask_secrets,
                renderer,
            ],
        )
    )
    logging.basicConfig(
        handlers=[handler], level=number if level == "debug" else max(number, logging.WARNING), force=True
    )


class _LossyStream:
    """A stream for log lines that ignores ``OSError``: a full disk, or a reader that left, must not end the work."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        with contextlib.suppress(OSError):
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        with contextlib.suppress(OSError):
            self._stream.flush()


def mask_secrets(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Replace values under secret-sounding keys, and secrets inside texts, at any depth.

    Errors of tierd are masked before they come here (``tierd.masking``); this masks the texts of libraries.
    Time, level and event come first in the line.
    """
    ordered = {key: event[key] for key in ("timestamp", "level", "event") if key in event} | dict(event)
    return {key: _masked(key, value) for key, value in ordered.items()}


def _masked(key: str, value: object) -> object:
    if _SECRET_KEY.search(key) and value is not None and not isinstance(value, bool | int | float):
        return MASK
    match value:
        case str():
            return masked(value)
        case BaseException():
            return masked(str(value))
        case Mapping():
            return {name: _masked(str(name), item) for name, item in value.items()}
        case list() | tuple():
            return [_masked("", item) for item in value]
        case _:
            return value


def _visible(event: EventDict) -> EventDict:
    """Show control characters of every text as their escapes; a traceback keeps its lines."""
    shown: EventDict = {}
    for key, value in event.items():
        if key in _TRACEBACKS:
            shown[key] = "\n".join(map(visible, str(value).split("\n")))
        else:
            is_plain = not isinstance(value, str) and repr(value).isprintable()
            shown[visible(key)] = value if is_plain else visible(value if isinstance(value, str) else repr(value))
    return shown


def _timestamp(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    event["timestamp"] = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return event


def _renderer(format: str, *, colors: bool) -> Processor:  # noqa: A002 - the key in the file
    if format == "console":
        renderer = structlog.dev.ConsoleRenderer(colors=colors, exception_formatter=structlog.dev.plain_traceback)
        return lambda logger, method, event: renderer(logger, method, _visible(event))
    return structlog.processors.JSONRenderer(sort_keys=False, default=str)
