"""Beginning of a command: its settings, and a log that leaves standard output to the answer."""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import tierd.config
from tierd.telemetry import configure_logging

# The schema of the whole file takes longer than the answer of a command that needs a part of the file.
if TYPE_CHECKING:
    from tierd.app import HostLogs, HostMetadata
    from tierd.config import TierdConfig


def begin(config: Path, *, secrets: bool = True) -> "TierdConfig":
    """Send warnings to standard error in a readable form, and load the configuration.

    Args:
        config: the YAML file.
        secrets: False for a command that only talks to the daemon: credentials of the unit are not in a person's shell.

    Raises:
        ConfigError: every fault of the file.
    """
    log_to_stderr()
    return tierd.config.load_config(config, os.environ, secrets=secrets)


def begin_with_metadata(config: Path) -> "HostMetadata":
    """Send warnings to standard error, and load the part of the configuration that rows of the metadata need.

    Raises:
        ConfigError: that part is wrong; every fault of the file.
    """
    from tierd.app import HostMetadata  # noqa: PLC0415 - most commands need more, or nothing of it

    log_to_stderr()
    return HostMetadata(tierd.config.load_part(config, os.environ, tierd.config.HostSettings), config)


def begin_with_logs(config: Path) -> "HostLogs":
    """Send warnings to standard error, and load the part of the configuration that names local and remote segments.

    Raises:
        ConfigError: that part is wrong; every fault of the file.
    """
    from tierd.app import HostLogs  # noqa: PLC0415 - as above

    log_to_stderr()
    return HostLogs(tierd.config.load_part(config, os.environ, tierd.config.TieredLogSettings), config)


def log_to_stderr() -> None:
    """Send warnings to standard error in a readable form; for commands that need no configuration."""
    configure_logging(format="console", level="warning", stream=sys.stderr)
