"""``tierd sync``: have the running daemon look at partitions now."""

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
from tierd.serve import SYNC


def sync(
    partitions: PartitionsArgument = None,
    *,
    config: ConfigOption = DEFAULT_CONFIG,
    socket: SocketOption = None,
    node: NodeOption = None,
    as_json: JsonOption = False,
    as_object: JsonObjectOption = False,
) -> None:
    """Run a pass over partitions now instead of at the next event, also over quarantined partitions.

    Example: tierd sync orders-0
    """
    ask_about_partitions(
        SYNC, partitions, config=config, socket=socket, as_json=as_json, as_object=as_object, node=node
    )
