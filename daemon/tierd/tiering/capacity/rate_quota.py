"""RateQuota: bytes per second over a sliding window (KIP-956; remote-tiering 11.1; Kafka: RLMQuotaManager, SimpleRate).

::

    now - 11 windows                                   now
    ├──────┼──────┼──────┼ ... ┼──────┼──────┼──────────┤
    forgotten │<------ span: elapsed since the oldest ->│   rate = recorded / span, span at least one window

Copy and fetch each have one, for the whole broker. A quota decides nothing by itself and never blocks.
"""

from collections import deque

UNLIMITED = 2**63 - 1
DEFAULT_WINDOWS = 11
DEFAULT_WINDOW_S = 1.0


class RateQuota:
    """Rate over the last windows against a limit, which may change at any time and then applies to them, too."""

    def __init__(
        self, limit: float = UNLIMITED, *, windows: int = DEFAULT_WINDOWS, window_s: float = DEFAULT_WINDOW_S
    ) -> None:
        """Remember ``windows`` of ``window_s`` seconds, the current one included; ``limit`` is in bytes per second.

        Raises:
            ValueError: a limit or a window that is not positive.
        """
        if windows < 1 or window_s <= 0:
            raise ValueError(f"{windows} windows of {window_s} s are no history")
        self.windows = windows
        self.window_s = window_s
        self._recorded: deque[list[float]] = deque()  # [begin of the window, bytes], oldest first
        self.set_limit(limit)

    @property
    def limit(self) -> float:
        """Return the limit in bytes per second."""
        return self._limit

    def set_limit(self, limit: float) -> None:
        """Compare the same history with another limit from now on.

        Raises:
            ValueError: the limit is not positive.
        """
        if limit <= 0:
            raise ValueError(f"a quota of {limit} bytes per second lets nothing through")
        self._limit = limit

    def record(self, size_bytes: int, now_s: float) -> None:
        """Count ``size_bytes`` at ``now_s``, monotonic; nothing is checked."""
        self._forget(now_s)
        if not self._recorded or now_s - self._recorded[-1][0] >= self.window_s:
            self._recorded.append([now_s, 0])
        self._recorded[-1][1] += size_bytes

    def rate(self, now_s: float) -> float:
        """Return the observed rate in bytes per second."""
        total, span_s = self._observed(now_s)
        return total / span_s

    def throttle_ms(self, now_s: float) -> int:
        """Return the wait until the rate is at the limit again; 0 when it is not above it."""
        total, span_s = self._observed(now_s)
        return max(0, round((total / self._limit - span_s) * 1000))

    def _observed(self, now_s: float) -> tuple[float, float]:
        self._forget(now_s)
        if not self._recorded:
            return 0, self.window_s
        span_s = max(now_s - self._recorded[0][0], self.window_s)
        return sum(size for _, size in self._recorded), span_s

    def _forget(self, now_s: float) -> None:
        while self._recorded and now_s - self._recorded[0][0] >= self.windows * self.window_s:
            self._recorded.popleft()
