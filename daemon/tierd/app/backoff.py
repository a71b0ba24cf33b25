"""How long a quarantined partition waits before it is tried again."""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Backoff:
    """Doubling waits with a cap and jitter, so that a thousand partitions do not return in one moment."""

    base_s: float = 1.0
    cap_s: float = 300.0
    jitter: float = 0.2  # invariant: 0 <= jitter < 1

    def delay_s(self, failures: int, *, random: Callable[[], float]) -> float:
        """Return the wait after the given count of consecutive failures, at least 1; ``random`` is in [0, 1).

        The result lies within ``jitter`` of ``min(cap_s, base_s * 2 ** (failures - 1))``, to either side.
        """
        doublings = min(failures - 1, 62)  # far above any cap, far below a float's end
        return min(self.cap_s, self.base_s * 2.0**doublings) * (1 + self.jitter * (2 * random() - 1))
