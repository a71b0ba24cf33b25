"""Beginning of a command: its settings, and a log that leaves standard output to the answer."""

import os
import sys
from pathlib import Path

from tierd.cli.printing import print_error
from tierd.config import TierdConfig, load_config, load_state_dir
from tierd.errors import TierError, TierErrorCode
from tierd.serve import SOCKET_NAME
from tierd.telemetry import configure_logging


def begin(config: Path, *, secrets: bool = True) -> TierdConfig:
    """Send warnings to standard error in a readable form, and load the configuration.

    Args:
        config: the YAML file.
        secrets: False for a command that only talks to the daemon: credentials of the unit are not in a person's shell.

    Raises:
        ConfigError: every fault of the file.
    """
    log_to_stderr()
    return load_config(config, os.environ, secrets=secrets)


def daemon_state_dir(config: Path, socket: Path | None) -> Path:
    """Return the directory of the daemon's control socket, for commands that only talk to the daemon.

    If the file has other faults, a line on standard error says so. With ``socket`` the file is not read.

    Raises:
        ConfigError: the file cannot be read, or its ``state_dir`` cannot be used.
        TierError: ``socket`` is not a control socket of tierd.
    """
    log_to_stderr()
    if socket is not None:
        if socket.name != SOCKET_NAME:
            raise TierError(
                f"{socket} is no control socket",
                remedy=f"name the file {SOCKET_NAME} in state_dir",
                code=TierErrorCode.CONTROL,
            )
        return socket.absolute().parent
    state_dir, faults = load_state_dir(config, os.environ)
    if faults is not None:
        print_error(f"tierd: {config} has faults, run tierd check-config; the command asks the daemon in {state_dir}")
    return state_dir


def log_to_stderr() -> None:
    """Send warnings to standard error in a readable form; for commands that need no configuration."""
    configure_logging(format="console", level="warning", stream=sys.stderr)
