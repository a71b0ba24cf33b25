"""MonotonicGuard: the clock of removals by age, which does not follow a wall clock that has just leapt ahead."""

from typing import Final

import structlog

from tierd.clock import Clock

log = structlog.get_logger()

LEAP_S: Final = 300.0  # what NTP steps in daily life is far less
PATIENCE_S: Final = 3600.0


class MonotonicGuard:
    """``Clock`` that goes on steadily for ``PATIENCE_S`` after the host's wall clock has leapt ahead by ``LEAP_S``.

    A host clock that is years ahead for a moment would expire the tier and end every grace. An operator is given the
    time to correct the clock; a clock that stays where it leapt to is believed afterwards, so that nothing is kept for
    ever. A step back is believed at once: it only keeps more. What a process finds at its start is believed too.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._ahead_ms = self._host_ahead_ms()  # of monotonic time, as believed
        self._leapt_at_s: float | None = None

    def now_ms(self) -> int:
        """Return the wall-clock time as believed, milliseconds since the epoch."""
        now_s, ahead_ms = self._clock.monotonic_s(), self._host_ahead_ms()
        leap_s = (ahead_ms - self._ahead_ms) / 1000
        if leap_s <= LEAP_S:
            self._leapt_at_s, self._ahead_ms = None, ahead_ms
        elif self._leapt_at_s is None:
            self._leapt_at_s = now_s
            log.warning(
                "wall_clock_leapt",
                seconds=round(leap_s),
                believed_in_s=PATIENCE_S,
                remedy="until then nothing more expires by it; if it is wrong, put it right before",
            )
        elif now_s - self._leapt_at_s >= PATIENCE_S:
            self._leapt_at_s, self._ahead_ms = None, ahead_ms
            log.warning("wall_clock_believed", seconds=round(leap_s))
        return round(now_s * 1000) + self._ahead_ms

    def monotonic_s(self) -> float:
        """Return seconds that never go back."""
        return self._clock.monotonic_s()

    async def sleep(self, delay_s: float) -> None:
        """Return after ``delay_s`` seconds."""
        await self._clock.sleep(delay_s)

    def _host_ahead_ms(self) -> int:
        return self._clock.now_ms() - round(self._clock.monotonic_s() * 1000)
