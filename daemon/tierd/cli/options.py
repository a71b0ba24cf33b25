"""Options and arguments that commands share."""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer

from tierd.cli.completion import partition_names, topic_names


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
    bool,
    typer.Option(
        "--json-object", help="Print one JSON object with the list in items; all commands with a list have this form."
    ),
]
NodeOption = Annotated[
    int | None,
    typer.Option(
        "--node",
        metavar="N",
        min=0,
        help="Ask the daemon of this node, over MQTT; tierd peers lists the nodes.",
    ),
]
AcceptUnauthenticatedOption = Annotated[
    bool,
    typer.Option(
        "--accept-unauthenticated",
        help="With a key ring: also accept objects without proof that a tierd with the ring wrote them.",
    ),
]
ClusterIdOption = Annotated[
    str | None,
    typer.Option(
        "--cluster-id", metavar="ID", help="Cluster of the tier; default: that of the configuration or the log dirs."
    ),
]
FromBucketOption = Annotated[
    bool,
    typer.Option("--from-bucket", help="Read the metadata from the bucket, although the metadata store may have it."),
]
PartitionArgument = Annotated[
    str,
    typer.Argument(
        metavar="TP",
        help="A partition, with the name of its directory: topic-partition.",
        autocompletion=partition_names,
    ),
]
PartitionsArgument = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="TP", help="Partitions, topic-partition each; none means all.", autocompletion=partition_names
    ),
]
TopicPatternsArgument = Annotated[
    list[str],
    typer.Argument(
        metavar="PATTERN",
        help="Topics whose whole name matches a regular expression.",
        autocompletion=topic_names,
    ),
]
ErasureArgument = Annotated[
    str, typer.Argument(metavar="ID", help="Id of a request to erase keys, from tierd erase list.")
]
PartitionDirectoryArgument = Annotated[
    Path,
    typer.Argument(
        metavar="DIR",
        help="A partition's directory, LOGDIR/topic-partition.",
        exists=True,
        file_okay=False,
        callback=_located,
    ),
]
NewPartitionDirectoryArgument = Annotated[
    Path,
    typer.Argument(
        metavar="DIR",
        help="A partition's directory, LOGDIR/topic-partition; it must exist, unless --create makes it.",
        file_okay=False,
        callback=_located,
    ),
]

DEFAULT_CONFIG = Path("/etc/tierd/tierd.yaml")


def require_patterns(patterns: Iterable[str]) -> None:
    """Require that each of ``patterns`` is a regular expression.

    Raises:
        typer.BadParameter: one is none.
    """
    for pattern in patterns:
        try:
            re.compile(pattern)
        except re.error as error:
            raise typer.BadParameter(f"{pattern!r} is no regular expression: {error}") from error
