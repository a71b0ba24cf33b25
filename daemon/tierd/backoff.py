"""Backoff: how long to wait after failures in a row (remote-tiering 11.4; Kafka: ExponentialBackoff)."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

_MOST_DOUBLINGS: Final = 62  # far above any cap, far below a float's end


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """Doubling waits with a cap and jitter, so that a thousand partitions do not return in one moment.

    Attributes:
        base_s: the wait after the first failure.
        cap_s: the longest wait, before jitter.
        jitter: a wait is stretched or shortened by at most this part of itself; from 0 to below 1.
    """

    base_s: float = 0.5
    cap_s: float = 30.0
    jitter: float = 0.2

    def delay_s(self, failures: int, *, random: Callable[[], float]) -> float:
        """Return the wait after the given count of consecutive failures, at least 1; ``random`` is in [0, 1).

        The result lies within ``jitter`` of ``min(cap_s, base_s * 2 ** (failures - 1))``, to either side.
        """
        doublings = min(failures - 1, _MOST_DOUBLINGS)
        return min(self.cap_s, self.base_s * 2.0**doublings) * (1 + self.jitter * (2 * random() - 1))
