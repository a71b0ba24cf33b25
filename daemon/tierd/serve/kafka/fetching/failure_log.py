"""FailureLog: log lines about partitions that cannot be read, however often clients ask."""

from typing import Final

import structlog

from tierd.clock import Clock
from tierd.errors import OffsetOutOfRangeError, TierError
from tierd.rare_lines import REPEAT_AFTER_S, RareLines
from tierd.serve.kafka.fetching.fetch_part import FetchPart
from tierd.serve.kafka.served.served_log import LogBounds

_log = structlog.get_logger(__name__)

BEYOND_END_S: Final = 30.0
"""A client that has waited so long behind the end of a log waits for no checkpoint of a broker."""
_MAX_REMEMBERED: Final = 1000


class FailureLog:
    """Warnings about failed reads: ``RareLines`` of a kind and partition."""

    def __init__(self, clock: Clock) -> None:
        """Write lines at times of ``clock``."""
        self._clock = clock
        self._lines = RareLines(clock)
        self._beyond_s: dict[tuple[object, int], tuple[float, float]] = {}
        """Times at which a place was seen first and last; the place that was not seen for longest is the first one."""

    def failed(self, part: FetchPart, error: TierError) -> None:
        """Write that a read failed; the client is answered an error and asks again."""
        self._write("kafka_fetch_failed", part, error)

    def hole(self, part: FetchPart, error: OffsetOutOfRangeError) -> None:
        """Write that offsets inside the log are neither local nor in the tier, so that the client cannot go on."""
        self._write("kafka_fetch_found_hole", part, error)

    def beyond_end(self, part: FetchPart, bounds: LogBounds) -> None:
        """Take note that a client waits behind the end of a log, and write it if the client has waited for long."""
        now_s, place = self._clock.monotonic_s(), (part.key, part.wanted.offset)
        while self._beyond_s and now_s - next(iter(self._beyond_s.values()))[1] >= REPEAT_AFTER_S:
            del self._beyond_s[next(iter(self._beyond_s))]
        first_s, _ = self._beyond_s.pop(place, (now_s, now_s))
        self._beyond_s[place] = first_s, now_s
        if len(self._beyond_s) > _MAX_REMEMBERED:
            del self._beyond_s[next(iter(self._beyond_s))]
        if now_s - first_s >= BEYOND_END_S:
            partition = part.served.partition if part.served else part.key
            error = OffsetOutOfRangeError(
                f"{partition}: a client waits for offset {part.wanted.offset}, and the log ends at "
                f"{bounds.high_watermark}: the topic was made anew, or its log was cut back",
                remedy="if the records of that position are gone, reset the offsets of its group",
            )
            self._write("kafka_fetch_beyond_end", part, error)

    def _write(self, event: str, part: FetchPart, error: TierError) -> None:
        partition = part.served.partition if part.served else part.key
        if self._lines.is_due((event, partition)):
            at = part.wanted.offset
            _log.warning(event, partition=str(partition), offset=at, error=str(error), remedy=error.remedy)
