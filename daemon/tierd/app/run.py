"""Entry to the daemon, which imports the daemon only when it runs: other commands share the importing module."""

from collections.abc import Mapping
from pathlib import Path

from tierd.config import TierdConfig


async def run_daemon(config: TierdConfig, config_file: Path, env: Mapping[str, str]) -> int:
    """Run the daemon until a signal or a fault ends it, and return the exit code.

    Raises:
        TierError: it could not start: state dir in use, metadata damaged, tier of another store, address taken.
    """
    # Its HTTP server takes longer to import than most commands take to run.
    from tierd.app.daemon.daemon import run_until_stopped  # noqa: PLC0415

    return await run_until_stopped(config, config_file, env)
