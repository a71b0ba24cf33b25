"""Quarantine: what is held, what a person lets go, and the file between two processes."""

import io
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fakes.clock import FakeClock
from tests.fakes.log_capture import captured_log
from tierd.config import EndpointQuarantineSettings
from tierd.errors import StateDirError
from tierd.serve.kafka.access.quarantine import HeldClients, Quarantine, QuarantineRelease, held_clients, read_release

SETTINGS = EndpointQuarantineSettings(listeners=("RESTORED",), principals=("User:app-.*",))
ALL = HeldClients(("RESTORED",), ("User:app-.*",))


def quarantine(path: Path, settings: EndpointQuarantineSettings = SETTINGS) -> Quarantine:
    """Return the quarantine of a process that starts now."""
    return Quarantine(lambda: settings, path, release=read_release(path), clock=FakeClock(now_ms=1_700_000_000_000))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "endpoint-quarantine.json"


@pytest.fixture
def log_text() -> Iterator[io.StringIO]:
    with captured_log() as stream:
        yield stream


@pytest.mark.parametrize(
    ("listener", "principal", "is_held"),
    [
        ("RESTORED", "User:ANONYMOUS", True),
        ("PLAINTEXT", "User:app-1", True),
        ("PLAINTEXT", "User:app-\n1", True),  # as a certificate may name it
        ("PLAINTEXT", "User:etl", False),
        ("PLAINTEXT", "User:my-app-1", False),
        ("restored", "User:etl", False),
    ],
)
def test_clients_of_a_listener_and_principals_are_held(
    path: Path, listener: str, principal: str, is_held: bool
) -> None:
    assert quarantine(path).is_held(listener=listener, principal=principal) == is_held


def test_quarantine_without_settings_holds_no_client(path: Path) -> None:
    free = quarantine(path, EndpointQuarantineSettings())

    assert not free.held
    assert not free.is_held(listener="RESTORED", principal="User:app-1")


async def test_release_lets_everything_go_also_after_a_restart(path: Path) -> None:
    running = quarantine(path)

    assert await running.release(by="ops") == ALL
    assert not running.is_held(listener="RESTORED", principal="User:app-1")
    assert not quarantine(path).held
    assert read_release(path) == QuarantineRelease(
        listeners=("RESTORED",), principals=("User:app-.*",), released_at_ms=1_700_000_000_000, by="ops"
    )
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


async def test_hold_begins_the_quarantine_again_also_after_a_restart(path: Path) -> None:
    running = quarantine(path)
    await running.release()

    assert await running.hold() == ALL
    assert quarantine(path).held == ALL


async def test_listener_that_is_configured_later_is_held_despite_an_earlier_release(path: Path) -> None:
    await quarantine(path).release()

    later = EndpointQuarantineSettings(listeners=("RESTORED", "SECOND"), principals=("User:app-.*", "User:b"))

    assert quarantine(path, later).held == HeldClients(("SECOND",), ("User:b",))


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b'{"listeners": "RESTORED"}', b'{"format": "1"}', b'{"other": 1}', b"\xff"]
)
async def test_damaged_file_holds_everything_and_is_named(path: Path, content: bytes, log_text: io.StringIO) -> None:
    path.write_bytes(content)

    assert quarantine(path).held == ALL
    assert "quarantine_file_unusable" in log_text.getvalue()
    await quarantine(path).release()
    assert not quarantine(path).held


def test_link_or_pipe_in_the_place_of_the_file_holds_everything(path: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_text(QuarantineRelease(listeners=("RESTORED",), principals=("User:app-.*",)).model_dump_json())
    path.symlink_to(other)
    assert quarantine(path).held == ALL
    path.unlink()
    os.mkfifo(path)

    assert quarantine(path).held == ALL


async def test_release_that_cannot_be_written_lets_nobody_go(tmp_path: Path) -> None:
    running = quarantine(tmp_path / "missing" / "file.json")

    with pytest.raises(StateDirError, match="cannot be written"):
        await running.release()

    assert running.held == ALL


def test_held_clients_are_those_that_are_configured_and_not_released() -> None:
    release = QuarantineRelease(listeners=("RESTORED", "GONE"))

    assert held_clients(SETTINGS, release) == HeldClients((), ("User:app-.*",))
    assert not HeldClients()
