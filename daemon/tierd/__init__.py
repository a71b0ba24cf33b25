"""tierd: tiered storage beside a stock Apache Kafka broker.

The main path: ``cli/main.py``, ``app/compose.py`` (what exists), ``app/supervise.py`` (what runs),
``tiering/remote_log_manager.py`` (what is done for one partition). Rooms import downwards only:
``docs/architecture.md``.
"""

from importlib.metadata import version

__version__ = version("tierd")
