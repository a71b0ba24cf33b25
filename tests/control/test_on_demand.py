"""The room without Kafka's protocol, which is imported only where it is spoken."""

import subprocess
import sys

import pytest

import tierd.control


def test_commands_and_a_daemon_without_a_cluster_do_not_pay_for_the_protocol() -> None:
    code = (
        "import sys, tierd.cli, tierd.app.daemon.daemon\n"
        "print([name for name in sys.modules if name.startswith('kio')])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert run.stdout.strip() == "[]"


@pytest.mark.parametrize("name", tierd.control.__all__)
def test_every_public_name_is_there(name: str) -> None:
    assert getattr(tierd.control, name).__name__ == name


def test_no_other_name_is() -> None:
    with pytest.raises(AttributeError, match="Leaders"):
        tierd.control.Leaders  # noqa: B018 - that it is not there is the test
