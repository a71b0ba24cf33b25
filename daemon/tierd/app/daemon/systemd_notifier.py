"""Messages to systemd by sd_notify: readiness, a status line, reloads, the stop, and a watchdog tied to progress."""

import os
import socket
from collections.abc import Callable, Mapping

import structlog

from tierd.clock import Clock
from tierd.control_characters import visible

log = structlog.get_logger()


class SystemdNotifier:
    """Sender of state to the socket in ``NOTIFY_SOCKET``; silent where there is none. Never blocks, never fails."""

    def __init__(self, address: str | None, *, watchdog_s: float | None = None) -> None:
        """Send nothing yet; ``address`` is a path, or a name in the abstract namespace after ``@``."""
        self._address = "\0" + address[1:] if address and address.startswith("@") else address
        self.watchdog_s = watchdog_s if address else None
        """Seconds that systemd waits for a sign of life; None when it does not watch."""

    @property
    def is_heard(self) -> bool:
        """Return True if systemd listens."""
        return self._address is not None

    @classmethod
    def from_environment(cls, env: Mapping[str, str]) -> "SystemdNotifier":
        """Read ``NOTIFY_SOCKET``, ``WATCHDOG_USEC`` and ``WATCHDOG_PID``; a watchdog meant for another pid is none."""
        microseconds = env.get("WATCHDOG_USEC", "")
        meant_for_us = env.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
        watched = meant_for_us and microseconds.isdigit() and int(microseconds) > 0
        return cls(env.get("NOTIFY_SOCKET") or None, watchdog_s=int(microseconds) / 1e6 if watched else None)

    def ready(self, status: str) -> None:
        """Report that the start-up, or a reload, has ended."""
        self._send(f"READY=1\nSTATUS={visible(status)}")

    def status(self, status: str) -> None:
        """Report one line for ``systemctl status``."""
        self._send(f"STATUS={visible(status)}")

    def reloading(self, *, monotonic_s: float) -> None:
        """Report that a reload began; ``monotonic_s`` is CLOCK_MONOTONIC, as Type=notify-reload asks."""
        self._send(f"RELOADING=1\nMONOTONIC_USEC={int(monotonic_s * 1e6)}")

    def stopping(self) -> None:
        """Report that the orderly stop began."""
        self._send("STOPPING=1\nSTATUS=stopping")

    def alive(self) -> None:
        """Feed the watchdog."""
        self._send("WATCHDOG=1")

    def _send(self, state: str) -> None:
        if self._address is None:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as channel:
                channel.setblocking(False)
                channel.sendto(state.encode(), self._address)
        except OSError as error:  # a supervisor that does not listen must not stop the work
            log.warning("systemd_notify_failed", problem=str(error))


async def feed_watchdog(notifier: SystemdNotifier, stalled: Callable[[], str | None], *, clock: Clock) -> None:
    """Feed the watchdog at half its period for as long as ``stalled`` names nothing; runs until cancelled.

    That the event loop runs this function is one half of the proof of progress; ``stalled`` is the other: it names a
    task that makes no progress. Once a task stalls, the silence lets systemd restart the service.
    """
    if notifier.watchdog_s is None:
        return
    reported: str | None = None
    while True:
        culprit = stalled()
        if culprit is None:
            notifier.alive()
        elif culprit != reported:
            log.error("progress_stalled", task=culprit)
        reported = culprit
        await clock.sleep(notifier.watchdog_s / 2)
