"""What pause, resume and sync share: one request to the running daemon."""

import json
from collections.abc import Sequence
from pathlib import Path

from tierd.app import run_in_loop
from tierd.cli.session import begin
from tierd.model import TopicPartition
from tierd.serve import request


def tell_daemon(verb: str, partitions: Sequence[str], *, config: Path, as_json: bool) -> None:
    """Send ``verb`` for ``partitions`` (none: all) and print which ones it was carried out for.

    Raises:
        PartitionNameError: a name that is no partition's.
        DaemonUnreachableError: no daemon answers.
        ControlError: the daemon knows no such partition.
    """
    names = [str(TopicPartition.parse(name)) for name in partitions]
    answer = run_in_loop(request(begin(config, secrets=False).state_dir, verb, names))
    if as_json:
        print(json.dumps(answer))
    elif isinstance(answer, list):
        print(f"{verb}: {', '.join(map(str, answer)) or 'no partitions'}")
