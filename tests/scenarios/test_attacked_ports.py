"""Daemon with few descriptors whose ports a local user attacks: it continues to copy and hold."""

import os
import resource
import selectors
import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest

from tests.fakes.log_dirs import LogDirWriter, SegmentShape, write_log_dir
from tests.scenarios.command import TIERD
from tests.scenarios.conftest import MakeInstallation
from tests.scenarios.golden_server import endpoint_settings
from tests.scenarios.installation import Daemon, Installation
from tests.scenarios.load_client import fetch_frame
from tests.services.ports import free_port

SHAPE = SegmentShape(batches=4, records_per_batch=5, value_bytes=100)
SEGMENT_RECORDS = 20
LIMIT = 200  # descriptors of the daemon
CONNECTIONS = 3 * LIMIT

Connect = Callable[[], socket.socket]


@pytest.fixture
def log_dir(tmp_path: Path) -> LogDirWriter:
    return write_log_dir(tmp_path / "kafka", partitions=1, rolled_segments=2, shape=SHAPE)


@pytest.fixture
def tierd(log_dir: LogDirWriter, make_installation: MakeInstallation) -> Installation:
    return make_installation([log_dir.path], settings={"hold": {"mode": "descriptor"}})


@pytest.fixture(autouse=True)
def _descriptors_of_attacker() -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (before[1], before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def limited(tierd: Installation) -> Daemon:
    return tierd.daemon(command=("prlimit", f"--nofile={LIMIT}:{LIMIT}", str(TIERD)))


def to_http(tierd: Installation) -> Connect:
    host, _, port = tierd.http.rpartition(":")
    return to_address(host, int(port))


def to_address(host: str, port: int) -> Connect:
    def connect() -> socket.socket:
        attacker = socket.socket()
        attacker.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        attacker.setblocking(False)
        attacker.connect_ex((host, port))
        return attacker

    return connect


def to_control(tierd: Installation) -> Connect:
    def connect() -> socket.socket:
        attacker = socket.socket(socket.AF_UNIX)
        attacker.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", 10, 0))
        attacker.connect(str(tierd.state_dir / "control.sock"))  # waits while the backlog is full
        attacker.setblocking(False)
        return attacker

    return connect


@contextmanager
def attacked(connect: Connect, payload: bytes) -> Iterator[None]:
    """Open many connections, send ``payload`` on each, read nothing, and keep them open."""
    with ExitStack() as stack, selectors.DefaultSelector() as selector:
        attackers = [stack.enter_context(connect()) for _ in range(CONNECTIONS)]
        for attacker in attackers:
            selector.register(attacker, selectors.EVENT_WRITE)
        while waiting := selector.select(timeout=1.0):
            for key, _ in waiting:
                selector.unregister(key.fileobj)
                _send(key.fileobj, payload)
        yield


def _send(attacker: object, payload: bytes) -> None:
    assert isinstance(attacker, socket.socket)
    with suppress(OSError):  # the daemon has cut the connection
        attacker.send(payload)


HTTP_ATTACKS = {
    "idle": b"",
    "slow-header": b"GET /status HTTP/1.1\r\nHost: x\r\nX-Slow: ",
    "slow-body": b"GET /status HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\nx",
    "reads-nothing": b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n" * 400,
}


@pytest.mark.parametrize("attack", HTTP_ATTACKS)
def test_daemon_copies_and_holds_under_attack_on_http_port(
    tierd: Installation, log_dir: LogDirWriter, attack: str
) -> None:
    with limited(tierd) as daemon:
        daemon.wait_copied({"synthetic-0": 2 * SEGMENT_RECORDS - 1})
        with attacked(to_http(tierd), HTTP_ATTACKS[attack]):
            _requires_copies(tierd, daemon, log_dir)
            _requires_hold(tierd, daemon, log_dir)


def test_daemon_copies_under_attack_on_control_socket(tierd: Installation, log_dir: LogDirWriter) -> None:
    with limited(tierd) as daemon:
        daemon.wait_copied({"synthetic-0": 2 * SEGMENT_RECORDS - 1})
        with attacked(to_control(tierd), b'{"command": "status"}\n' * 100):
            _requires_copies(tierd, daemon, log_dir)


KAFKA_ATTACKS = {
    "idle": b"",
    "slow-request": b"\0\0\1\0\0\3",
    "reads-nothing": fetch_frame("synthetic", 0, 0, max_bytes=1 << 20, max_wait_s=0.0) * 400,
    "waits-for-records": fetch_frame("synthetic", 0, 2 * SEGMENT_RECORDS, max_bytes=1 << 20, max_wait_s=300.0),
}


@pytest.mark.parametrize("attack", KAFKA_ATTACKS)
def test_daemon_copies_and_holds_under_attack_on_read_endpoint(
    tierd: Installation, log_dir: LogDirWriter, attack: str
) -> None:
    port = free_port()
    tierd.configure(endpoint_settings(port))
    with limited(tierd) as daemon:
        daemon.wait_copied({"synthetic-0": 2 * SEGMENT_RECORDS - 1})
        with attacked(to_address("127.0.0.1", port), KAFKA_ATTACKS[attack]):
            _requires_copies(tierd, daemon, log_dir)
            _requires_hold(tierd, daemon, log_dir)


def _requires_hold(tierd: Installation, daemon: Daemon, log_dir: LogDirWriter) -> None:
    """Roll a segment above the high watermark, and wait until the daemon has its files open."""
    (partition,) = log_dir.partitions.values()
    partition.append_batch(SHAPE.batch(), 5, times=4)
    partition.roll()

    def is_held() -> bool:
        status = tierd.ask("status", "--json").json()
        return bool(status["hold"]["segments"] == 1 and status["hold"]["unheld_segments"] == 0)

    daemon.wait_until(is_held, what="the hold during the attack")


def _requires_copies(tierd: Installation, daemon: Daemon, log_dir: LogDirWriter) -> None:
    """Roll segments, and wait until the tier has them; the daemon reserves some descriptors for itself."""
    (partition,) = log_dir.partitions.values()
    for _ in range(3):
        partition.append_batch(SHAPE.batch(), 5, times=4)
        partition.roll()
    log_dir.write_checkpoints()
    daemon.wait_until(lambda: tierd.frontier("synthetic-0") >= 5 * SEGMENT_RECORDS - 1, what="copies during the attack")
    assert len(os.listdir(f"/proc/{daemon.pid}/fd")) < 3 * LIMIT // 4  # noqa: PTH208 - only names are needed
    assert "Too many open files" not in daemon.log_file.read_text()
