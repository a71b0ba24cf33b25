"""``tierd run``: the daemon."""

import os
import sys
from pathlib import Path

import typer

from tierd.app import run_daemon, run_in_loop
from tierd.cli.options import DEFAULT_CONFIG, ConfigOption
from tierd.config import load_config
from tierd.telemetry import configure_logging


def run(config: ConfigOption = DEFAULT_CONFIG) -> None:
    """Run the daemon in the foreground until SIGTERM or Ctrl-C; SIGHUP reloads the configuration.

    The first signal lets running copies end, for at most shutdown_timeout; a second one ends at once.

    Example: tierd run --config /etc/tierd/tierd.yaml
    """
    run_foreground(config)


def run_foreground(config_file: Path) -> None:
    """Run the daemon on ``config_file`` and exit with its code.

    Raises:
        TierError: it could not start.
        Exit: it ended otherwise than well.
    """
    config = load_config(config_file, os.environ)
    configure_logging(format=config.logging.format, level=config.logging.level, stream=sys.stderr)
    exit_code = run_in_loop(run_daemon(config, config_file, os.environ))
    if exit_code:
        raise typer.Exit(exit_code)
