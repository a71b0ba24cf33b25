"""Abort markers that a broker did not write, as its log says.

After a restart, the transaction coordinator may not know the leader of a partition yet. It takes the partition for a
deleted one, writes no marker into it, and ends the transaction (Kafka: TransactionMarkerChannelManager,
addTxnMarkersToBrokerQueue). The next marker of that producer then decides about these records too, for every consumer:
records that their producer aborted may be committed.
"""

import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.soak.consumer_oracle import Partition

_LINE = re.compile(
    r"^(?P<second>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d),(?P<ms>\d{3}) .*"
    r"Couldn't find leader endpoint for partitions "
    r"Set\((?P<partitions>[^)]*)\) while trying to send transaction markers",
    re.MULTILINE,
)


@dataclass(frozen=True, slots=True)
class LostMarker:
    """Partition without the marker of a transaction, and the moment at which the broker decided so."""

    partition: Partition
    at_ms: int


def lost_markers(node_dir: Path) -> Sequence[LostMarker]:
    """Return the markers that a node did not write in all its processes, by ``server.log*`` of its directory."""
    texts = [path.read_text(errors="replace") for path in sorted(node_dir.glob("server.log*"))]
    return [lost for text in texts for line in _LINE.finditer(text) for lost in _lost(line)]


def _lost(line: re.Match[str]) -> Sequence[LostMarker]:
    second_s = time.mktime(time.strptime(line["second"], "%Y-%m-%d %H:%M:%S"))
    at_ms = int(second_s) * 1000 + int(line["ms"])
    return [LostMarker(_partition(name), at_ms) for name in line["partitions"].split(", ")]


def _partition(name: str) -> Partition:
    topic, _, partition = name.rpartition("-")
    return topic, int(partition)
