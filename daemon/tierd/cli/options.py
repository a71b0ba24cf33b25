"""Options and arguments that commands share."""

from pathlib import Path
from typing import Annotated

import typer

ConfigOption = Annotated[
    Path,
    typer.Option("--config", metavar="FILE", envvar="TIERD_CONFIG", help="The configuration file.", show_default=True),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
PartitionArgument = Annotated[
    str, typer.Argument(metavar="TP", help="A partition, named as its directory is: topic-partition.")
]
PartitionsArgument = Annotated[
    list[str] | None, typer.Argument(metavar="[TP]...", help="Partitions, topic-partition each; none means all.")
]

DEFAULT_CONFIG = Path("/etc/tierd/tierd.yaml")
