"""Capture of log lines in the process of the tests."""

import io
import logging
from collections.abc import Iterator
from contextlib import contextmanager

import structlog

from tierd.telemetry import configure_logging


@contextmanager
def restored_logging() -> Iterator[None]:
    """Restore the configuration of logging and structlog at the end.

    A test that configures logging without it changes what later tests of the same process capture.
    """
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    root.handlers = []  # basicConfig closes the handlers it replaces, and pytest's are still in use
    try:
        yield
    finally:
        root.handlers = handlers
        root.setLevel(level)  # not the attribute: loggers keep what they may log in a cache
        structlog.reset_defaults()


@contextmanager
def captured_log(*, level: str = "debug", format: str = "json") -> Iterator[io.StringIO]:  # noqa: A002 - as configure_logging
    """Yield a stream that gets the log lines of tierd and of the libraries."""
    stream = io.StringIO()
    with restored_logging():
        configure_logging(format=format, level=level, stream=stream)
        yield stream
