"""Options and arguments that commands share."""

from pathlib import Path
from typing import Annotated

import typer


def _located(path: Path) -> Path:
    """Return the absolute path of a partition directory in its log dir; a link in the log dir is not followed."""
    absolute = Path.cwd() / path
    return absolute.resolve() if path.name in ("", "..") else absolute.parent.resolve() / absolute.name


ConfigOption = Annotated[
    Path,
    typer.Option("--config", metavar="FILE", envvar="TIERD_CONFIG", help="The configuration file.", show_default=True),
]
SocketOption = Annotated[
    Path | None,
    typer.Option(
        "--socket",
        metavar="FILE",
        help="The daemon's control socket. Without it: control.sock in the state_dir of the configuration file.",
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
JsonObjectOption = Annotated[
    bool, typer.Option("--json-object", help="As --json, but always one object, with the list in its items.")
]
AcceptUnauthenticatedOption = Annotated[
    bool,
    typer.Option(
        "--accept-unauthenticated",
        help="With a key ring: believe also objects that no tierd with the ring is proven to have written.",
    ),
]
PartitionArgument = Annotated[
    str, typer.Argument(metavar="TP", help="A partition, named as its directory is: topic-partition.")
]
PartitionsArgument = Annotated[
    list[str] | None, typer.Argument(metavar="TP", help="Partitions, topic-partition each; none means all.")
]
ErasureArgument = Annotated[
    str, typer.Argument(metavar="ID", help="A request to erase keys, as tierd erase list names it.")
]
PartitionDirectory = Annotated[
    Path,
    typer.Argument(
        metavar="DIR",
        help="A partition's directory, LOGDIR/topic-partition.",
        exists=True,
        file_okay=False,
        callback=_located,
    ),
]
NewPartitionDirectory = Annotated[
    Path,
    typer.Argument(
        metavar="DIR",
        help="A partition's directory, LOGDIR/topic-partition; it has to be there unless it is made.",
        file_okay=False,
        callback=_located,
    ),
]

DEFAULT_CONFIG = Path("/etc/tierd/tierd.yaml")
