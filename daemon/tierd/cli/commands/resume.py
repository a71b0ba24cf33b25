"""``tierd resume``: let the running daemon copy again."""

from tierd.cli.control import ask_about_partitions
from tierd.cli.options import (
    DEFAULT_CONFIG,
    ConfigOption,
    JsonObjectOption,
    JsonOption,
    NodeOption,
    PartitionsArgument,
    SocketOption,
)
from tierd.serve import RESUME


def resume(
    partitions: PartitionsArgument = None,
    *,
    config: ConfigOption = DEFAULT_CONFIG,
    socket: SocketOption = None,
    node: NodeOption = None,
    as_json: JsonOption = False,
    as_object: JsonObjectOption = False,
) -> None:
    """Copy paused partitions again; without names, all partitions.

    Example: tierd resume
    """
    ask_about_partitions(
        RESUME, partitions, config=config, socket=socket, as_json=as_json, as_object=as_object, node=node
    )
