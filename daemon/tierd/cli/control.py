"""What pause, resume and sync share: one request to the running daemon."""

from collections.abc import Sequence
from pathlib import Path
from typing import cast

from pydantic import JsonValue

from tierd.app import run_in_loop
from tierd.cli.json_lists import print_list
from tierd.cli.printing import print_line
from tierd.cli.session import daemon_state_dir
from tierd.model import TopicPartition
from tierd.serve import request


def tell_daemon(
    verb: str, partitions: Sequence[str], *, config: Path, socket: Path | None, as_json: bool, as_object: bool
) -> None:
    """Send ``verb`` for ``partitions`` (none: all) and print which ones it was carried out for.

    Raises:
        PartitionNameError: a name that is no partition's.
        DaemonUnreachableError: no daemon answers.
        ControlError: the daemon knows no such partition.
    """
    names = [str(TopicPartition.parse(name)) for name in partitions]
    answer = run_in_loop(request(daemon_state_dir(config, socket), verb, names))
    if as_json or as_object:
        print_list(cast("list[JsonValue]", answer), as_object=as_object)
    elif isinstance(answer, list):
        print_line(f"{verb}: {', '.join(map(str, answer)) or 'no partitions'}")
