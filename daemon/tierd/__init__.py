"""tierd: tiered storage beside a stock Apache Kafka broker.

The main path: ``cli/main.py``, ``app/engine/compose.py`` (makes the parts), ``app/daemon/daemon.py`` (runs them),
``tiering/remote_log_manager.py`` (does the work of each partition). Rooms import downwards only:
``docs/architecture.md``.
"""

from importlib.metadata import version

__version__ = version("tierd")
