"""``tierd pause``: stop the copies of the running daemon."""

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
from tierd.serve import PAUSE


def pause(
    partitions: PartitionsArgument = None,
    *,
    config: ConfigOption = DEFAULT_CONFIG,
    socket: SocketOption = None,
    node: NodeOption = None,
    as_json: JsonOption = False,
    as_object: JsonObjectOption = False,
) -> None:
    """Stop copying partitions; without names, all partitions. A copy under way is finished.

    Example: tierd pause orders-0 orders-1
    """
    ask_about_partitions(
        PAUSE, partitions, config=config, socket=socket, as_json=as_json, as_object=as_object, node=node
    )
