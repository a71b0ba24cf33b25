"""Golden log dir that clients read through the endpoint of tierd, while its copied local segments go away."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.golden.unpack import read_lines, read_offsets
from tests.scenarios.installation import Installation, Settings
from tests.scenarios.log_dirs import base_offsets, copy_writable, delete_copied_segments, partition_dirs
from tests.scenarios.warm_tierd import WarmTierd
from tests.services.kafka_clients.partitions import Partition
from tests.services.kafka_clients.reading_clients import Expected
from tests.services.kafka_cluster import KafkaBroker
from tests.services.ports import free_port

AGAINST_BROKER: Final = os.environ.get("TIERD_CLIENTS_AGAINST") == "broker"
"""True to read the same golden log dirs from a stock broker: what the tests expect of tierd holds there too."""


def endpoint_settings(port: int) -> Settings:
    """Return the section of an endpoint on a loopback port, whose groups begin at once."""
    return {"kafka": {"listeners": [f"PLAINTEXT://127.0.0.1:{port}"], "groups": {"initial_rebalance_delay": "0s"}}}


@dataclass(frozen=True, slots=True)
class GoldenServer:
    """Address of a server of golden partitions, with what consumers of the broker have read of them.

    Attributes:
        copied_through: last offset in the tier, by partition, -1 for none.
    """

    bootstrap: str
    log_dir: Path
    oracle: Path
    copied_through: dict[Partition, int]

    @property
    def partitions(self) -> list[Partition]:
        """Return the partitions that have an oracle."""
        names = [directory.name for directory in partition_dirs(self.log_dir)]
        return [partition_of(name) for name in names if (self.oracle / name / "records.jsonl.gz").exists()]

    def expected(self, *topics: str, committed: bool) -> Expected:
        """Return the records that a client has to read of every partition, or of those of some topics."""
        chosen = [(topic, number) for topic, number in self.partitions if not topics or topic in topics]
        return {partition: self._records(partition, committed=committed) for partition in chosen}

    def _records(self, partition: Partition, *, committed: bool) -> list[dict[str, object]]:
        folder = self.oracle / "{}-{}".format(*partition)
        file = folder / "committed.jsonl.gz"
        return [dict(each) for each in read_lines(file if committed and file.exists() else folder / "records.jsonl.gz")]

    def offsets(self, topic: str, partition: int) -> dict[str, int]:
        """Return ``logStartOffset``, ``highWatermark`` and ``lastStableOffset`` as the broker listed them."""
        return read_offsets(self.oracle / f"{topic}-{partition}")

    def local_start(self, topic: str, partition: int) -> int:
        """Return the base offset of the first local segment."""
        return base_offsets(self.log_dir / f"{topic}-{partition}")[0]

    def delete_local(self, share: float) -> int:
        """Delete a share of the rolled local segments that are copied, the oldest first; return how many."""
        deleted = 0
        for topic, number in self.partitions:
            directory = self.log_dir / f"{topic}-{number}"
            bases = base_offsets(directory)
            end = bases[round(share * (len(bases) - 1))] - 1
            deleted += delete_copied_segments(
                directory, copied_through=min(end, self.copied_through.get((topic, number), -1))
            )
        return deleted


def partition_of(name: str) -> Partition:
    """Return topic and number of the name of a directory."""
    topic, _, number = name.rpartition("-")
    return topic, int(number)


@contextmanager
def golden_server(
    log_dir: Path, oracle: Path, folder: Path, warm: WarmTierd, *, settings: Settings | None = None
) -> Iterator[GoldenServer]:
    """Serve a copy of a golden log dir with the daemon, when all its rolled segments are in the tier.

    ``settings`` replace those of an endpoint with one plain listener.
    """
    copy = folder / "logdir"
    copy_writable(log_dir, copy)
    port = free_port()
    tierd = Installation(folder / "tierd", [copy], settings=settings or endpoint_settings(port), warm=warm)
    copied = tierd.ask("copy", "--once")
    assert copied.exit_code == 0, copied.output
    with tierd.daemon() as daemon:
        listed = daemon.status()["partitions"]
        frontier = {partition_of(entry["partition"]): int(entry["copied_through"]) for entry in listed}
        yield GoldenServer(f"127.0.0.1:{port}", copy, oracle, frontier)


@contextmanager
def golden_broker(log_dir: Path, oracle: Path, folder: Path, version: str) -> Iterator[GoldenServer]:
    """Serve a copy of a golden log dir that has the metadata of its cluster with a stock broker of the same version."""
    copy = folder / "kafka" / "data-1"
    copy_writable(log_dir, copy)
    shutil.rmtree(copy / "__transaction_state-0")  # or the broker would end the transaction that is open in the oracle
    with KafkaBroker(folder / "kafka", version=version) as broker:
        yield GoldenServer(broker.bootstrap, copy, oracle, {})
