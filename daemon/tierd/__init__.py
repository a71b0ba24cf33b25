"""tierd: tiered storage beside a stock Apache Kafka broker.

The main path: ``cli/main.py``, ``app/compose.py`` (what exists), ``app/supervise.py`` (what runs),
``tiering/manager.py`` (what is done for one partition). Rooms import downwards only; see ``docs/architecture.md``.
"""

from importlib.metadata import version

__version__ = version("tierd")
