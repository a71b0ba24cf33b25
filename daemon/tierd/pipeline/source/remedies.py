"""Remedies in tracebacks: Spark shows only the traceback of an error."""

from collections.abc import Iterator
from contextlib import contextmanager

from tierd.errors import TierError


@contextmanager
def with_remedy() -> Iterator[None]:
    """Add the remedy of a ``TierError`` to its notes, which a traceback shows."""
    try:
        yield
    except TierError as error:
        if error.remedy and error.remedy not in getattr(error, "__notes__", ()):
            error.add_note(error.remedy)
        raise
