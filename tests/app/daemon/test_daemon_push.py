"""DaemonPush of a daemon whose configuration has no push replication."""

import subprocess
import sys

from tierd.app.daemon.daemon_push import DaemonPush


async def test_push_that_is_off_does_nothing() -> None:
    off = DaemonPush(None)
    await off.run()
    off.follow()
    off.stop()
    assert (off.not_ready, off.facts(), off.use(), off.at_risk()) == ("", {}, None, {})


def test_daemon_without_push_does_not_import_its_rooms() -> None:
    code = "import sys, tierd.app.daemon.daemon; print([m for m in sys.modules if m.startswith('tierd.replication')])"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    assert result.stdout.strip() == "[]"
