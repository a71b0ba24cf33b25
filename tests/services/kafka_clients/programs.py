"""Real clients that ``tests/services/install.sh`` installs, and their runs, each with a deadline."""

import os
import shutil
import subprocess
from pathlib import Path

from tests.services.kafka_node import KafkaUnavailableError

RUN_DEADLINE_S = 90.0
_ROOT = Path(__file__).parents[3]
_INSTALL = "run tests/services/install.sh"


def installed_program(name: str) -> str:
    """Return the path of a program of ``install.sh``.

    Raises:
        KafkaUnavailableError: it is not installed.
    """
    found = shutil.which(str(_cache() / "bin" / name)) or shutil.which(name)
    if found is None:
        raise KafkaUnavailableError(f"{name} is not installed: {_INSTALL}")
    return found


def installed_jars(name: str) -> list[Path]:
    """Return the jars of a set of ``install.sh``.

    Raises:
        KafkaUnavailableError: they are not installed.
    """
    found = sorted((_cache() / "jars" / name).glob("*.jar"))
    if not found:
        raise KafkaUnavailableError(f"the jars of {name} are not installed: {_INSTALL}")
    return found


def run_program(command: list[str], *, deadline_s: float = RUN_DEADLINE_S) -> bytes:
    """Run a client to its end and return its standard output; the run has to succeed."""
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=deadline_s, check=False)
    errors = done.stderr.decode(errors="replace")[-3000:]
    assert done.returncode == 0, f"{Path(command[0]).name} ended with {done.returncode}: {errors}"
    return done.stdout


def _cache() -> Path:
    return Path(os.environ.get("TIERD_CACHE", _ROOT / ".cache"))
