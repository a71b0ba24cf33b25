"""tierd: tiered storage beside a stock Apache Kafka broker.

The main path: ``cli/main.py``, ``app/engine/compose.py`` (makes the parts), ``app/daemon/daemon.py`` (runs them),
``tiering/remote_log_manager.py`` (does the work of each partition). Rooms import downwards only:
``docs/architecture.md``.
"""

from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tierd.scanning import async_reader as async_reader
    from tierd.scanning import reader as reader

__version__ = version("tierd")

_READERS = ("reader", "async_reader")  # imported when they are asked for: every command imports this module


def __getattr__(name: str) -> object:
    """Return a reader of the tier in Python (PEP 562)."""
    if name not in _READERS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module("tierd.scanning"), name)
