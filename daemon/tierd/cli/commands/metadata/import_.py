"""``tierd metadata import``: fill an empty metadata store from an export."""

from pathlib import Path
from typing import Annotated

import typer

from tierd.app import Deployment, import_metadata, run_in_loop
from tierd.cli.options import DEFAULT_CONFIG, ConfigOption
from tierd.cli.printing import print_line
from tierd.cli.progress_line import progress_line
from tierd.cli.session import begin


def import_(
    file: Annotated[
        Path,
        typer.Argument(metavar="FILE", help="A file that tierd metadata export wrote.", exists=True, dir_okay=False),
    ],
    config: ConfigOption = DEFAULT_CONFIG,
) -> None:
    """Fill the configured, empty metadata store from an export of another store of any kind.

    The whole file is checked first, and every partition is read back after it was written. After an interruption, run
    the same command again. A store that is not empty is refused with exit code 4. Stop the daemons of both stores
    first.

    Example: tierd metadata import metadata.jsonl --config postgres.yaml
    """
    deployment = Deployment(begin(config), config)
    with progress_line("importing") as report_progress:
        counts = run_in_loop(import_metadata(deployment, file, tell=report_progress))
    before = f", {counts.present} of them were there already" if counts.present else ""
    print_line(f"{counts.partitions} partitions with {counts.rows} rows imported{before}")
