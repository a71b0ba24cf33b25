"""ManagerSettings: what a manager needs from outside for whatever it does to a log."""

from collections.abc import Callable
from dataclasses import dataclass

from tierd.clock import Clock
from tierd.log.partition.unified_log import UnifiedLog
from tierd.log.records.log_config import LogConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class ManagerSettings:
    """The same for every log dir of a manager.

    Attributes:
        config_for: the settings of a topic.
        is_stray: asked at the start whether a current log should not be here; it is renamed and set aside then.
        clock: for all that is stamped or due.
        random_int: for jitter.
        new_id: 32 hex digits, others every time.
        threads_per_dir: how many logs of a log dir are loaded at once.
        file_delete_delay_ms: how long a ``-delete`` directory is kept.
    """

    config_for: Callable[[str], LogConfig]
    is_stray: Callable[[UnifiedLog], bool]
    clock: Clock
    random_int: Callable[[], int]
    new_id: Callable[[], str]
    threads_per_dir: int
    file_delete_delay_ms: int
