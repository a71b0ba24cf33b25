"""FakeClock: time that moves only when a test moves it, or when the code under test sleeps."""

import asyncio


class FakeClock:
    """A ``Clock`` for tests: wall-clock and monotonic time advance together; ``sleep`` advances them at once."""

    def __init__(self, *, now_ms: int = 1_700_000_000_000) -> None:
        self._elapsed_s = 0.0
        self._start_ms = now_ms
        self._step_ms = 0
        self.sleeps_s: list[float] = []
        """Every delay that was slept, in order."""

    def now_ms(self) -> int:
        """Return the wall-clock time, milliseconds since the epoch."""
        return self._start_ms + self._step_ms + round(self._elapsed_s * 1000)

    def monotonic_s(self) -> float:
        """Return the seconds since the clock was made."""
        return self._elapsed_s

    async def sleep(self, delay_s: float) -> None:
        """Move time on by ``delay_s`` and let the other tasks run."""
        self.sleeps_s.append(delay_s)
        self.advance(max(0.0, delay_s))
        await asyncio.sleep(0)

    def advance(self, delay_s: float) -> None:
        """Move time on by ``delay_s`` seconds."""
        self._elapsed_s += delay_s

    def step_wall_clock(self, delta_ms: int) -> None:
        """Step the wall clock alone, as an administrator or NTP would; backwards too."""
        self._step_ms += delta_ms
