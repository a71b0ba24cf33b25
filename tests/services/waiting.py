"""Wait for real processes: the one place in the tests where real time passes, always with a deadline."""

import time
from collections.abc import Callable

POLL_INTERVAL_S = 0.02


class StillWaitingError(AssertionError):
    """Condition that did not hold before its deadline; the message names it and the last state seen."""


def wait_until(
    condition: Callable[[], bool],
    *,
    what: str,
    deadline_s: float,
    last_seen: Callable[[], object] = lambda: "",
    interval_s: float = POLL_INTERVAL_S,
) -> None:
    """Return when ``condition`` holds.

    Raises:
        StillWaitingError: it did not hold within ``deadline_s``; ``last_seen`` is asked once, for the message.
    """
    end_s = time.monotonic() + deadline_s
    while not condition():
        if time.monotonic() > end_s:
            raise StillWaitingError(f"waited {deadline_s:g} s for {what}; {last_seen()}".rstrip("; "))
        time.sleep(interval_s)
