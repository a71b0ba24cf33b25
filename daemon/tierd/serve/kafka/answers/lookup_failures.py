"""LookupFailures: log lines about partitions that cannot be looked at, however often clients ask."""

import structlog

from tierd.clock import Clock
from tierd.errors import TierError
from tierd.rare_lines import RareLines

_log = structlog.get_logger(__name__)


class LookupFailures:
    """Warnings about failed lookups: ``RareLines`` of a kind and partition."""

    def __init__(self, clock: Clock) -> None:
        """Write lines at times of ``clock``."""
        self._lines = RareLines(clock)

    def failed(self, event: str, partition: str, error: Exception) -> None:
        """Write that a lookup failed or was too slow; a bug is written where its code is chosen."""
        if isinstance(error, TierError | TimeoutError) and self._lines.is_due((event, partition)):
            remedy = error.remedy if isinstance(error, TierError) else ""
            _log.warning(event, partition=partition, error=str(error) or "too slow", remedy=remedy)
