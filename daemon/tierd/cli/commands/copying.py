"""``tierd pause``, ``tierd resume`` and ``tierd sync``: the copies of the running daemon."""

from collections.abc import Sequence
from pathlib import Path

from tierd.cli.asking import ask_daemon
from tierd.cli.options import (
    DEFAULT_CONFIG,
    ConfigOption,
    JsonObjectOption,
    JsonOption,
    NodeOption,
    PartitionsArgument,
    SocketOption,
)
from tierd.cli.output.json_lists import print_list
from tierd.cli.output.printing import print_line
from tierd.cli.peer_requests import ask_node
from tierd.model import TopicPartition
from tierd.serve import PAUSE, RESUME, SYNC, ControlVerb, PartitionNames, PartitionsRequest


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
    _ask(PAUSE, partitions, config=config, socket=socket, as_json=as_json, as_object=as_object, node=node)


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
    _ask(RESUME, partitions, config=config, socket=socket, as_json=as_json, as_object=as_object, node=node)


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
    _ask(SYNC, partitions, config=config, socket=socket, as_json=as_json, as_object=as_object, node=node)


def _ask(
    verb: ControlVerb[PartitionsRequest, PartitionNames],
    partitions: Sequence[str] | None,
    *,
    config: Path,
    socket: Path | None,
    as_json: bool,
    as_object: bool,
    node: int | None,
) -> None:
    """Send ``verb`` for ``partitions``, none means all, and print the partitions that the daemon answers.

    With ``node`` the daemon of that node is asked, over MQTT.

    Raises:
        PartitionNameError: a name that is no partition's.
        DaemonUnreachableError: no daemon answers.
        TierError: the daemon knows no such partition.
    """
    if node is not None:
        ask_node(node, verb.name, partitions, config=config, socket=socket, as_json=as_json or as_object)
        return
    request = PartitionsRequest(partitions=tuple(map(TopicPartition.parse, partitions or ())))
    answer = ask_daemon(config, socket, verb, request)
    if as_json or as_object:
        print_list(answer.to_json(), as_object=as_object)
    else:
        print_line(f"{verb.name}: {', '.join(answer.root) or 'no partitions'}")
