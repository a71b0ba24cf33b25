"""ManualClock: time that only a test moves; a sleeping task continues when its time has come."""

import asyncio


class ManualClock:
    """A ``Clock`` for tests of periodic work, which would never rest on a clock that its own sleep moves."""

    def __init__(self, *, now_ms: int = 1_700_000_000_000) -> None:
        self._start_ms = now_ms
        self._elapsed_s = 0.0
        self._sleepers: list[tuple[float, asyncio.Future[None]]] = []

    @property
    def sleeping(self) -> int:
        """Return the number of sleeping tasks."""
        return sum(not wake.done() for _, wake in self._sleepers)

    def now_ms(self) -> int:
        """Return the wall-clock time, milliseconds since the epoch."""
        return self._start_ms + round(self._elapsed_s * 1000)

    def step_wall_clock(self, delta_ms: int) -> None:
        """Step the wall clock alone, as an administrator or NTP would; backwards too. Sleeping tasks keep sleeping."""
        self._start_ms += delta_ms

    def monotonic_s(self) -> float:
        """Return the seconds since the clock was made."""
        return self._elapsed_s

    async def sleep(self, delay_s: float) -> None:
        """Wait until a test has moved the time on by ``delay_s``."""
        wake = asyncio.get_running_loop().create_future()
        self._sleepers.append((self._elapsed_s + delay_s, wake))
        await wake

    def advance(self, delay_s: float) -> None:
        """Move time on and wake the tasks whose time has come."""
        self._elapsed_s += delay_s
        due = [entry for entry in self._sleepers if entry[0] <= self._elapsed_s]
        self._sleepers = [entry for entry in self._sleepers if entry[0] > self._elapsed_s]
        for _, wake in due:
            if not wake.done():
                wake.set_result(None)
