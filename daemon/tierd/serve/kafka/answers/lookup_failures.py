"""LookupFailures: log lines about partitions that cannot be looked at, however often clients ask."""

from typing import Final

import structlog

from tierd.clock import Clock
from tierd.errors import TierError

_log = structlog.get_logger(__name__)

REPEAT_AFTER_S: Final = 60.0
_MAX_REMEMBERED: Final = 1000


class LookupFailures:
    """Warnings about failed lookups: one of a kind and partition in ``REPEAT_AFTER_S``."""

    def __init__(self, clock: Clock) -> None:
        """Write lines at times of ``clock``."""
        self._clock = clock
        self._written_s: dict[tuple[str, str], float] = {}

    def failed(self, event: str, partition: str, error: Exception) -> None:
        """Write that a lookup failed or was too slow; a bug is written where its code is chosen."""
        if not isinstance(error, TierError | TimeoutError):
            return
        now_s, kind = self._clock.monotonic_s(), (event, partition)
        if now_s - self._written_s.get(kind, -REPEAT_AFTER_S) < REPEAT_AFTER_S:
            return
        self._written_s.pop(kind, None)
        self._written_s[kind] = now_s
        if len(self._written_s) > _MAX_REMEMBERED:
            del self._written_s[next(iter(self._written_s))]
        remedy = error.remedy if isinstance(error, TierError) else ""
        _log.warning(event, partition=partition, error=str(error) or "too slow", remedy=remedy)
