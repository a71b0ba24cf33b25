"""Wait for real processes: the one place in the tests where real time passes, always with a deadline."""

import select
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

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


class HasDescriptor(Protocol):
    """Stream, pipe or socket that an operating system knows by its descriptor."""

    def fileno(self) -> int: ...


def is_readable(source: HasDescriptor | int, *, deadline_s: float) -> bool:
    """Wait until ``source`` has bytes or its end; return False if it has neither before ``deadline_s``.

    ``select.select`` is banned for this: a test process has more than 1,024 descriptors at times, which it refuses.
    """
    poll = select.poll()
    poll.register(source, select.POLLIN)
    return bool(poll.poll(max(0.0, deadline_s) * 1000))


def is_alive(pid: int) -> bool:
    """Return True unless the process has ended; one that waits for its parent to take note has ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):  # the latter if it goes while it is read
        return False


def wait_until_stopped(pid: int) -> None:
    """Return when no thread of a process runs any more after SIGSTOP.

    The signal is posted to one thread, and only when the kernel schedules that one do the others stop: on a busy host
    they answer requests until then.

    Raises:
        StillWaitingError: threads still run after 30 s.
    """
    wait_until(lambda: is_stopped(pid), what=f"SIGSTOP of process {pid}", deadline_s=30)


def is_stopped(pid: int) -> bool:
    """Return True if every thread of the process is stopped by SIGSTOP."""
    try:
        states = [path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/status")]
    except (FileNotFoundError, ProcessLookupError):  # a thread ends: others still run
        return False
    return bool(states) and all("State:\tT" in state for state in states)
