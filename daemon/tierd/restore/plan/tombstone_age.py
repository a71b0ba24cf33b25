"""Ages at which a reader of a compacted log may have missed tombstones (changelog-restore 3.4).

A cleaner removes a value as soon as it sees the tombstone, and the tombstone ``delete.retention.ms`` after that. A
reader that took the value, and comes to the place of the tombstone later than that, keeps a key that was deleted.
"""

from collections.abc import Mapping
from typing import Final

DELETE_RETENTION_MS: Final = 86_400_000
"""Kafka's default of ``delete.retention.ms``."""

_MARGIN_MS: Final = 3_600_000  # the clocks of brokers and of this host differ, and a cleaning takes its time
_SHORTEST_MS: Final = 60_000


def delete_retention_ms_of(settings: Mapping[str, str]) -> int:
    """Return ``delete.retention.ms`` of a topic with these settings."""
    text = settings.get("delete.retention.ms", "")
    return int(text) if text.isdecimal() else DELETE_RETENTION_MS


def longest_pause_ms(delete_retention_ms: int) -> int:
    """Return the longest age of an earlier run from which a restore may go on, in milliseconds."""
    return max(delete_retention_ms - _MARGIN_MS, 0)


def longest_read_ms(delete_retention_ms: int) -> int:
    """Return the longest time that a restore may take without reaching the end of the log, in milliseconds.

    It is never 0: with a shorter ``delete.retention.ms`` no restore would end.
    """
    return max(delete_retention_ms - _MARGIN_MS, delete_retention_ms // 2, _SHORTEST_MS)
