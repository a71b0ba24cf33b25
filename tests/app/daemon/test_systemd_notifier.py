import asyncio
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from tests.fakes.clock import FakeClock
from tierd.app.daemon.systemd_notifier import SystemdNotifier, feed_watchdog


@pytest.fixture
def channel(tmp_path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
        channel.bind(str(tmp_path / "notify"))
        channel.setblocking(False)
        yield channel


def received(channel: socket.socket) -> list[str]:
    messages = []
    try:
        while True:
            messages.append(channel.recv(4096).decode())
    except BlockingIOError:
        return messages


def notifier(channel: socket.socket, **env: str) -> SystemdNotifier:
    return SystemdNotifier.from_environment({"NOTIFY_SOCKET": channel.getsockname(), **env})


def test_every_state_is_sent_in_the_format_of_systemd(channel: socket.socket) -> None:
    systemd = notifier(channel)
    systemd.status("loading")
    systemd.ready("4 partitions")
    systemd.reloading(monotonic_s=1.5)
    systemd.alive()
    systemd.stopping()
    assert received(channel) == [
        "STATUS=loading",
        "READY=1\nSTATUS=4 partitions",
        "RELOADING=1\nMONOTONIC_USEC=1500000",
        "WATCHDOG=1",
        "STOPPING=1\nSTATUS=stopping",
    ]


def test_abstract_socket_address_is_supported() -> None:
    name = f"tierd-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
        channel.bind("\0" + name)
        SystemdNotifier.from_environment({"NOTIFY_SOCKET": "@" + name}).alive()
        assert channel.recv(64) == b"WATCHDOG=1"


def test_notifier_without_systemd_sends_no_message() -> None:
    systemd = SystemdNotifier.from_environment({"WATCHDOG_USEC": "1000000"})
    systemd.ready("fine")
    assert systemd.watchdog_s is None


def test_missing_socket_is_logged_and_no_failure(tmp_path: Path) -> None:
    with capture_logs() as logs:
        SystemdNotifier(str(tmp_path / "absent")).alive()
    assert [entry["event"] for entry in logs] == ["systemd_notify_failed"]


@pytest.mark.parametrize(
    ("env", "watchdog_s"),
    [
        ({}, None),
        ({"WATCHDOG_USEC": "0"}, None),
        ({"WATCHDOG_USEC": "junk"}, None),
        ({"WATCHDOG_USEC": "20000000"}, 20.0),
        ({"WATCHDOG_USEC": "20000000", "WATCHDOG_PID": "1"}, None),
        ({"WATCHDOG_USEC": "20000000", "WATCHDOG_PID": str(os.getpid())}, 20.0),
    ],
)
def test_watchdog_is_enabled_only_for_the_process_that_systemd_names(
    env: dict[str, str], watchdog_s: float | None
) -> None:
    assert SystemdNotifier.from_environment({"NOTIFY_SOCKET": "/run/x", **env}).watchdog_s == watchdog_s


async def test_watchdog_is_notified_at_half_its_period_while_there_is_progress(channel: socket.socket) -> None:
    clock = FakeClock()
    verdicts = iter([None, None, "copy a-0", "copy a-0", None])

    def stalled() -> str | None:
        try:
            return next(verdicts)
        except StopIteration:
            raise asyncio.CancelledError from None

    systemd = notifier(channel, WATCHDOG_USEC="20000000")
    with capture_logs() as logs, pytest.raises(asyncio.CancelledError):
        await feed_watchdog(systemd, stalled, clock=clock)
    assert received(channel) == ["WATCHDOG=1"] * 3
    assert set(clock.sleeps_s) == {10.0}
    assert [entry["task"] for entry in logs if entry["event"] == "progress_stalled"] == ["copy a-0"]
