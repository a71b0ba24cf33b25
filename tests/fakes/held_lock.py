"""held_lock: the lock of a log dir, held by another process as a running broker holds it."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

_HOLD: Final = """
import fcntl, sys
file = open(sys.argv[1], "w")
fcntl.lockf(file, fcntl.LOCK_EX)
print("held", flush=True)
sys.stdin.read()
"""


@contextmanager
def held_lock(log_dir: Path) -> Iterator["subprocess.Popen[bytes]"]:
    """Hold ``.lock`` of a log dir until the block ends; the process that holds it ends with its input."""
    lock = log_dir / ".lock"
    lock.touch()
    with subprocess.Popen([sys.executable, "-c", _HOLD, str(lock)], stdin=-1, stdout=-1) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        yield process
        process.communicate()
