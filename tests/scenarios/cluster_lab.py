"""Three brokers of one cluster, a tierd beside each, one metadata store and one bucket for all."""

import signal
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self
from uuid import UUID

from tests.scenarios.cluster_traffic import ClusterTraffic
from tests.scenarios.installation import Installation, Settings
from tests.scenarios.stores import SpoilableS3
from tests.scenarios.warm_tierd import WarmTierd
from tests.services.faulty_path import FaultyPath
from tests.services.kafka_cluster import KafkaCluster
from tests.services.waiting import wait_until

NODES = (1, 2, 3)
SETTLE_DEADLINE_S = 90.0


class ClusterLab:
    """Cluster, daemons, stores and traffic; a context manager in which all of them run."""

    def __init__(
        self,
        root: Path,
        cluster: KafkaCluster,
        *,
        metadata: Settings,
        s3: SpoilableS3,
        own_paths: Mapping[int, FaultyPath],
        warm: WarmTierd,
        seed: int,
    ) -> None:
        """Prepare the lab; ``own_paths`` is the way of each host to the bucket."""
        self.cluster = cluster
        self.s3 = s3
        self.paths = dict(own_paths)
        self.traffic = ClusterTraffic(cluster, seed=seed)
        self.hosts = {
            node: Installation(
                root / f"tierd-{node}",
                cluster.log_dirs_of(node),
                remote=self._remote(own_paths[node]),
                settings=self._settings(node, metadata),
                warm=warm,
            )
            for node in NODES
        }
        self.daemons = {node: host.daemon() for node, host in self.hosts.items()}
        self.log_starts: dict[tuple[str, int], int] = {}
        self.old_topics: dict[str, UUID] = {}
        self._frozen: set[int] = set()
        self._stack = ExitStack()

    def _remote(self, path: FaultyPath) -> Settings:
        section = self.s3.remote()
        return section | {"s3": section["s3"] | {"endpoint_url": path.endpoint_url, "read_timeout": "10s"}}

    def _settings(self, node: int, metadata: Settings) -> Settings:
        kafka = {"bootstrap_servers": [self.cluster.address(node)], "refresh": "500ms", "request_timeout": "20s"}
        return {
            "metadata": metadata,
            "leadership": {"source": "kafka", "kafka": kafka},
            "topics": {"overrides": [{"match": "dropped", "delete_with_topic": True}]},
            "copy": {"dangling_grace": "2s"},
            "expire": {"interval": "1s", "grace": "1s"},
            "catalogue": {"interval": "1s"},
        }

    # ---------------------------------------------------------------- running

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            stack.callback(self._kill_all)
            for daemon in self.daemons.values():  # all at once, on an empty bucket and an empty store
                daemon.start()
            for daemon in self.daemons.values():
                daemon.wait_ready()
            stack.enter_context(self.traffic)
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            self.thaw_all()
        self._stack.__exit__(kind, error, trace)

    def thaw_all(self) -> None:
        """Let all frozen processes continue."""
        for node in list(self._frozen):
            self.thaw_host(node)

    def _kill_all(self) -> None:
        for daemon in self.daemons.values():
            if daemon.is_running:
                daemon.kill()

    # ---------------------------------------------------------------- hosts

    def freeze_host(self, node: int) -> None:
        """Stop broker and daemon of a host at once, as a virtual machine that is paused."""
        self.daemons[node].send_signal(signal.SIGSTOP)
        self.cluster.freeze(node)
        self._frozen.add(node)

    def thaw_daemon(self, node: int) -> None:
        """Let the daemon of a host continue, and not yet its broker."""
        self.daemons[node].send_signal(signal.SIGCONT)

    def thaw_host(self, node: int) -> None:
        """Let broker and daemon of a host continue."""
        self._frozen.discard(node)
        self.daemons[node].send_signal(signal.SIGCONT)
        self.cluster.thaw(node)

    def restart_daemon(self, node: int) -> None:
        """SIGKILL the daemon and start it again."""
        self.daemons[node].kill()
        self.daemons[node].start()
        self.daemons[node].wait_ready()

    def restart_broker(self, node: int) -> None:
        """SIGKILL the broker, wait until others lead its partitions, and start it again."""
        self.cluster.kill(node)
        self.cluster.start(node)

    # ---------------------------------------------------------------- waiting

    def wait_led(self, topic: str, partition: int, *, by: Iterable[int]) -> int:
        """Wait until one of these nodes leads a partition; return the node."""
        nodes = frozenset(by)
        wait_until(
            lambda: self.cluster.leader(topic, partition) in nodes,
            what=f"{topic}-{partition} to be led by {sorted(nodes)}",
            deadline_s=SETTLE_DEADLINE_S,
            interval_s=0.2,
        )
        return self.cluster.leader(topic, partition)

    def wait_in_sync(self, partitions: Iterable[tuple[str, int]]) -> None:
        """Wait until all replicas of these partitions are in sync."""
        for topic, partition in partitions:
            wait_until(
                lambda t=topic, p=partition: self.cluster.in_sync(t, p) == self.cluster.replicas(t, p),  # type: ignore[misc]  # defaults bind the loop's values
                what=f"{topic}-{partition} to be in sync",
                deadline_s=SETTLE_DEADLINE_S,
                interval_s=0.2,
            )

    def reassign(self, topic: str, partition: int, replicas: Sequence[int]) -> None:
        """Move a partition to these nodes, and let the first of them lead once it is in sync."""
        self.cluster.reassign(topic, partition, replicas)
        wait_until(
            lambda: (
                self.cluster.replicas(topic, partition) == set(replicas)
                and replicas[0] in self.cluster.in_sync(topic, partition)
            ),
            what=f"{topic}-{partition} to be on {list(replicas)}",
            deadline_s=SETTLE_DEADLINE_S,
            interval_s=0.2,
        )
        if self.cluster.leader(topic, partition) != replicas[0]:
            self.cluster.elect_preferred(topic, partition)

    def wait_rolled(self, topic: str, partition: int, *, segments: int) -> None:
        """Wait until the traffic has rolled so many segments more."""
        for _ in range(segments):
            base = self.cluster.leader_base_offsets(topic, partition)[-1]
            wait_until(
                lambda b=base: self.cluster.leader_base_offsets(topic, partition)[-1] > b,  # type: ignore[misc]  # defaults bind the loop's values
                what=f"{topic}-{partition} to roll",
                deadline_s=SETTLE_DEADLINE_S,
                interval_s=0.1,
            )

    def wait_copied(self, partitions: Sequence[tuple[str, int]]) -> None:
        """Wait until the tier has all segments that the leaders have rolled by now."""
        for topic, partition in partitions:
            rolled = self.cluster.leader_base_offsets(topic, partition)[-1] - 1
            self.wait_copied_through(topic, partition, rolled)

    def wait_copied_through(self, topic: str, partition: int, offset: int) -> None:
        """Wait until the leader of the partition reports the offset as copied."""
        name = f"{topic}-{partition}"

        def is_copied() -> bool:
            leader = self.cluster.leader(topic, partition)
            entry = self.daemons[leader].partition(name) if leader in self.daemons else None
            return entry is not None and entry["role"] == "leader" and int(entry["copied_through"]) >= offset

        wait_until(
            is_copied,
            what=f"{name} in the tier through {offset}",
            deadline_s=SETTLE_DEADLINE_S,
            last_seen=lambda: {n: d.partition(name) for n, d in self.daemons.items() if n not in self._frozen},
            interval_s=0.2,
        )

    def entry(self, node: int, topic: str, partition: int) -> Mapping[str, object]:
        """Return the status entry of a partition in a daemon."""
        entry = self.daemons[node].partition(f"{topic}-{partition}")
        assert entry is not None, f"host {node} does not know {topic}-{partition}"
        return entry

    def errors(self, node: int) -> list[str]:
        """Return the lines in the log of a daemon that are errors, or no log lines at all."""
        lines = self.daemons[node].log_file.read_text(errors="replace").splitlines()
        return [line for line in lines if not line.startswith("{") or '"level": "error"' in line]
