"""One request of a command to the daemon of another node, over the control plane of this host's daemon."""

from collections.abc import Sequence
from pathlib import Path

from pydantic import JsonValue

from tierd.cli.asking import ask_daemon
from tierd.cli.output.printing import print_json, print_line
from tierd.model import TopicPartition
from tierd.serve import ASK_PEER, AskPeerRequest


def ask_node(
    node: int,
    verb: str,
    partitions: Sequence[str] | None = None,
    *,
    config: Path,
    socket: Path | None,
    as_json: bool,
) -> None:
    """Send ``verb`` to the daemon of ``node`` and print its answer.

    Raises:
        PartitionNameError: a name that is no partition's.
        DaemonUnreachableError: no daemon answers on this host.
        TierError: the other daemon does not answer, or refuses.
    """
    names = tuple(map(TopicPartition.parse, partitions or ()))
    request = AskPeerRequest(node=node, verb=verb, partitions=names)
    answer = ask_daemon(config, socket, ASK_PEER, request)
    if as_json:
        print_json(answer.answer)
        return
    for line in answer_lines(answer.answer):
        print_line(f"node {answer.node}: {line}")


def answer_lines(answer: JsonValue) -> list[str]:
    """Return an answer as lines for people: a line for each field, or for each item of a list."""
    match answer:
        case dict():
            return [f"{name}: {_text(value)}" for name, value in answer.items()]
        case list():
            return [_text(item) for item in answer]
        case _:
            return [_text(answer)]


def _text(value: JsonValue) -> str:
    match value:
        case dict():
            return ", ".join(f"{name} {_text(inner)}" for name, inner in value.items()) or "none"
        case list():
            return ", ".join(map(_text, value)) or "none"
        case bool():
            return "yes" if value else "no"
        case None:
            return "-"
        case _:
            return str(value)
