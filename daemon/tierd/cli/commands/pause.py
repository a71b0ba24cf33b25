"""``tierd pause``: live control of the running daemon."""

from tierd.cli.control import tell_daemon
from tierd.cli.options import (
    DEFAULT_CONFIG,
    ConfigOption,
    JsonObjectOption,
    JsonOption,
    PartitionsArgument,
    SocketOption,
)


def pause(
    partitions: PartitionsArgument = None,
    config: ConfigOption = DEFAULT_CONFIG,
    socket: SocketOption = None,
    as_json: JsonOption = False,
    as_object: JsonObjectOption = False,
) -> None:
    """Stop copying partitions, all of them when none is named; a segment under way is finished.

    Example: tierd pause orders-0 orders-1
    """
    tell_daemon("pause", partitions or [], config=config, socket=socket, as_json=as_json, as_object=as_object)
