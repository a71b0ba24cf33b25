"""Beginning of a command: its settings, and a log that leaves standard output to the answer."""

import os
import sys
from pathlib import Path

from tierd.config import TierdConfig, load_config
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


def log_to_stderr() -> None:
    """Send warnings to standard error in a readable form; for commands that need no configuration."""
    configure_logging(format="console", level="warning", stream=sys.stderr)
