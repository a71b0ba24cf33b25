"""The lines that the command line prints. Of its modules only this one, and ``display`` for tables, write to a stream.

Lines contain names of topics, keys of objects, paths and texts of errors, which strangers choose. Control characters
are shown as their escapes (``visible``), and markup has no effect. JSON is exact data and has its own escapes.
"""

import contextlib
import json
import os
import sys
import traceback
from collections.abc import Iterator
from types import TracebackType

from tierd.control_characters import visible
from tierd.errors import StateDirError
from tierd.masking import Masking


def prepare_streams() -> None:
    """Print characters outside the encoding as escapes, and the traceback of a bug as plain text without secrets."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")
    sys.excepthook = _print_traceback


@contextlib.contextmanager
def standard_output() -> Iterator[None]:
    """Write to standard output within; a full or failing disk behind it ends the command with a cause and a remedy.

    Raises:
        StateDirError: it cannot be written; what is left in its buffer is dropped.
        BrokenPipeError: its reader has closed the pipe.
    """
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        drop_output()
        raise StateDirError(
            f"standard output cannot be written: {error.strerror or error}",
            remedy="make room where it goes, then run the command again",
        ) from error


def drop_output() -> None:
    """Drop what is left in the buffer of standard output. Without this, Python would fail again at its exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def flush_output() -> None:
    """Write what is left in the buffer of standard output.

    Raises:
        StateDirError, BrokenPipeError: as ``standard_output``.
    """
    with standard_output():
        sys.stdout.flush()


def print_line(text: str, *, flush: bool = False) -> None:
    """Print one line to standard output; a line end in ``text`` is shown as its escape."""
    with standard_output():
        print(visible(text), flush=flush)


def print_error(text: str) -> None:
    """Print one line to standard error, at once."""
    print(visible(text), file=sys.stderr, flush=True)


def json_text(value: object, *, indent: int | None = None) -> str:
    """Return a value as JSON: the same data, in ASCII without any control character but the line ends of ``indent``."""
    return json.dumps(value, indent=indent).replace("\x7f", "\\u007f")


def print_json(value: object, *, indent: int | None = None, flush: bool = False) -> None:
    """Print a value as ``json_text`` gives it, and a line end."""
    with standard_output():
        print(json_text(value, indent=indent), flush=flush)


def print_exactly(*texts: str, flush: bool = False) -> None:
    """Write parts of a document unchanged, such as an export: JSON lines, without control characters."""
    with standard_output():
        for text in texts:
            sys.stdout.write(text)
        if flush:
            sys.stdout.flush()


def print_bytes(data: bytes) -> None:
    """Write whole lines whose control characters are escaped already, such as the lines of ``records`` and exports."""
    with standard_output():
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()


def _print_traceback(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Print the bug that ended the process; its text may contain any character."""
    del kind, trace
    for text in traceback.format_exception(Masking().error(error)):
        for line in text.splitlines():
            print_error(line)
