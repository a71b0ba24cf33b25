"""One request from pause, resume or sync to the running daemon."""

from collections.abc import Sequence
from pathlib import Path

from tierd.cli.asking import ask_daemon
from tierd.cli.json_lists import print_list
from tierd.cli.peer_requests import ask_node
from tierd.cli.printing import print_line
from tierd.model import TopicPartition
from tierd.serve import ControlVerb, PartitionNames, PartitionsRequest


def ask_about_partitions(
    verb: ControlVerb[PartitionsRequest, PartitionNames],
    partitions: Sequence[str] | None,
    *,
    config: Path,
    socket: Path | None,
    as_json: bool,
    as_object: bool,
    node: int | None = None,
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
