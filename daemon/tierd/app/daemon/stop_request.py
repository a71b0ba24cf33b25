"""Stop of the daemon: the first signal asks for an orderly stop, the second for an end at once."""

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable, Iterator

import structlog

log = structlog.get_logger()

AT_ONCE_GRACE_S = 5.0
"""Time in which an end at once may still clean up, such as abort uploads, before the process is ended."""


class StopRequest:
    """Request to stop, set by signals and by parts of the daemon that cannot go on."""

    def __init__(self, *, end_process: Callable[[int], None] = os._exit) -> None:
        """Ask for nothing yet; ``end_process`` takes an exit code, for an end at once that takes too long."""
        self.asked = asyncio.Event()
        self.at_once = asyncio.Event()
        self.reason = ""
        self.exit_code = 0
        self._end_process = end_process

    def ask(self, reason: str, *, exit_code: int = 0) -> None:
        """Ask for an orderly stop; the first reason stays."""
        if not self.asked.is_set():
            self.reason, self.exit_code = reason, exit_code
            self.asked.set()

    def on_signal(self, number: signal.Signals) -> None:
        """Ask for an orderly stop, or, when one is under way, for an end at once."""
        if not self.asked.is_set():
            self.ask(number.name)
            return
        if not self.at_once.is_set():
            self.exit_code = 128 + number
            log.warning("ending_at_once", signal=number.name)
            self.at_once.set()
            asyncio.get_running_loop().call_later(AT_ONCE_GRACE_S, self._end_process, self.exit_code)


@contextlib.contextmanager
def handled_signals(stop: StopRequest, on_reload: Callable[[], None]) -> Iterator[None]:
    """Let SIGTERM and SIGINT stop, and SIGHUP reload, while the context lasts."""
    loop = asyncio.get_running_loop()
    handlers: dict[signal.Signals, Callable[[], None]] = {
        signal.SIGTERM: lambda: stop.on_signal(signal.SIGTERM),
        signal.SIGINT: lambda: stop.on_signal(signal.SIGINT),
        signal.SIGHUP: on_reload,
    }
    for number, handler in handlers.items():
        loop.add_signal_handler(number, handler)
    try:
        yield
    finally:
        for number in handlers:
            loop.remove_signal_handler(number)
