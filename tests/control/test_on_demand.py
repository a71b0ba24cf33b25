"""Import of the room without the protocol of Kafka, which is loaded on demand."""

import subprocess
import sys

import pytest

import tierd.control


def test_protocol_is_not_imported_by_commands_and_a_daemon_without_a_cluster() -> None:
    code = (
        "import sys, tierd.cli, tierd.app.daemon.daemon\n"
        "print([name for name in sys.modules if name.startswith('kio')])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert run.stdout.strip() == "[]"


@pytest.mark.parametrize("name", tierd.control.__all__)
def test_every_public_name_can_be_imported(name: str) -> None:
    assert getattr(tierd.control, name).__name__ == name


def test_unknown_name_of_the_room_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="Leaders"):
        tierd.control.Leaders  # noqa: B018 - the missing name is the test
