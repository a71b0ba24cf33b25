"""``tierd run``: the daemon."""

import os
import sys
from pathlib import Path

import typer

from tierd.app import Deployment, run_daemon, run_in_loop
from tierd.cli.options import DEFAULT_CONFIG, ConfigOption
from tierd.config import load_config
from tierd.telemetry import configure_logging


def run(config: ConfigOption = DEFAULT_CONFIG) -> None:
    """Run the daemon in the foreground until SIGTERM or Ctrl-C; SIGHUP reloads the configuration.

    After the first signal, running copies may end, for at most shutdown_timeout. A second signal ends them at once.

    Example: tierd run --config /etc/tierd/tierd.yaml
    """
    run_foreground(config)


def run_foreground(config_file: Path) -> None:
    """Run the daemon on ``config_file`` and exit with its code.

    Raises:
        TierError: the daemon could not start.
        Exit: the exit code is not 0.
    """
    config = load_config(config_file, os.environ)
    configure_logging(format=config.logging.format, level=config.logging.level, stream=sys.stderr)
    exit_code = run_in_loop(run_daemon(Deployment(config, config_file), os.environ))
    if exit_code:
        raise typer.Exit(exit_code)
