"""tierd: tiered storage beside a stock Apache Kafka broker.

The main path: ``cli/main.py``, ``app/engine/compose.py`` (makes the parts), ``app/daemon/daemon.py`` (runs them),
``tiering/remote_log_manager.py`` (does the work of each partition). Rooms import downwards only:
``docs/architecture.md``.
"""

from typing import TYPE_CHECKING

from tierd.on_demand import exports_on_demand

if TYPE_CHECKING:
    from tierd.scanning import async_reader as async_reader
    from tierd.scanning import reader as reader
    from tierd.version import __version__ as __version__
else:
    __getattr__ = exports_on_demand(__name__)
