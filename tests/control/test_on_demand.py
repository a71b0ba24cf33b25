"""Import of the room without the protocol of Kafka, which is loaded on demand."""

import subprocess
import sys


def test_protocol_is_not_imported_by_commands_and_a_daemon_without_a_cluster() -> None:
    code = (
        "import sys, tierd.cli, tierd.app.daemon.daemon\n"
        "print([name for name in sys.modules if name.startswith('kio')])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert run.stdout.strip() == "[]"
