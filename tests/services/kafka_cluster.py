"""Real Kafka clusters for tests, and the real clients that fill and read them; confluent-kafka ends here.

Start them from the main thread: the kernel ends them together with the thread that started them.
"""

import base64
import json
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self
from uuid import UUID

from confluent_kafka import (
    Consumer,
    ElectionType,
    KafkaError,
    KafkaException,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # public, yet not declared as exported
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    PartitionMetadata,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from tests.services.kafka_clients.librdkafka import read_partitions
from tests.services.kafka_node import KafkaNode, KafkaUnavailableError, free_ports, require_kafka
from tests.services.kafka_producer import CLIENT_DEADLINE_S, RecordProducer
from tests.services.kafka_records import ConsumedRecord
from tests.services.ports import free_port
from tests.services.waiting import POLL_INTERVAL_S, wait_until

__all__ = [
    "CODECS",
    "KafkaBroker",
    "KafkaCluster",
    "KafkaUnavailableError",
    "RecordProducer",
    "require_kafka",
]

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
_CONFIGS = "kafka.admin.ConfigCommand"
_REASSIGN = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
_REPLICATED = {
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
    "share.coordinator.state.topic.replication.factor": "3",
}


class KafkaCluster:
    """Nodes 1 to ``nodes``, each broker and controller, in a folder and on ports of their own; a context manager.

    Attributes:
        bootstrap: addresses of every node, for clients.
        listeners: address of each extra listener of node 1, by name.
    """

    def __init__(
        self,
        lab_dir: Path,
        *,
        nodes: int = 3,
        version: str = "3.9.2",
        log_dir_count: int = 1,
        properties: Mapping[str, str] | None = None,
        extra_listeners: Mapping[str, str] | None = None,
        has_own_controller: bool = False,
    ) -> None:
        """Prepare the cluster.

        ``properties`` are of every broker; ``extra_listeners`` map a name to a protocol. With ``has_own_controller``
        one more process is the only controller, and the nodes are brokers alone.
        """
        self.version = version
        self._lab_dir = lab_dir
        first_port = free_ports(nodes)
        self._controller = self._own_controller(nodes, first_port, properties or {}) if has_own_controller else None
        voters = f"{nodes + 1}@127.0.0.1:{self._controller_port}" if has_own_controller else ""
        self.listeners: dict[str, str] = {}
        self._nodes = {
            number: KafkaNode(
                lab_dir,
                number,
                version=version,
                nodes=nodes,
                first_port=first_port,
                log_dirs=[self._data_dir(lab_dir, number, nodes, n) for n in range(1, log_dir_count + 1)],
                properties=(_REPLICATED if nodes >= 3 else {})
                | self._listening(first_port + 10 * (number - 1), extra_listeners or {})
                | (_broker_alone(first_port + 10 * (number - 1), voters) if has_own_controller else {})
                | dict(properties or {}),
            )
            for number in range(1, nodes + 1)
        }
        self.bootstrap = ",".join(node.address for node in self._nodes.values())
        self._frozen: set[int] = set()

    def _own_controller(self, nodes: int, first_port: int, properties: Mapping[str, str]) -> KafkaNode:
        """Return the node that is the only controller."""
        self._controller_port = free_port()
        address = f"CONTROLLER://127.0.0.1:{self._controller_port}"
        return KafkaNode(
            self._lab_dir,
            nodes + 1,
            version=self.version,
            nodes=nodes + 1,
            first_port=first_port,
            log_dirs=[self._lab_dir / "controller-data"],
            properties={
                "process.roles": "controller",
                "controller.quorum.voters": f"{nodes + 1}@127.0.0.1:{self._controller_port}",
                "listeners": address,
                "advertised.listeners": address,
            }
            | dict(properties),
        )

    @staticmethod
    def _data_dir(lab_dir: Path, number: int, nodes: int, n: int) -> Path:
        return lab_dir / f"data-{n}" if nodes == 1 else lab_dir / f"node{number}" / f"data-{n}"

    def _listening(self, port: int, extra: Mapping[str, str]) -> dict[str, str]:
        """Return the properties of the extra listeners of the node on ``port``."""
        if not extra:
            return {}
        addresses = {name: f"127.0.0.1:{free_port()}" for name in extra}
        self.listeners = self.listeners or addresses
        clients = ",".join(f"{name}://{address}" for name, address in addresses.items())
        own = f"CLIENT://127.0.0.1:{port}"
        protocols = {"CLIENT": "PLAINTEXT", "CONTROLLER": "PLAINTEXT"} | dict(extra)
        return {
            "listeners": f"{own},CONTROLLER://127.0.0.1:{port + 1},{clients}",
            "advertised.listeners": f"{own},{clients}",
            "listener.security.protocol.map": ",".join(f"{name}:{kind}" for name, kind in protocols.items()),
        }

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill(*self.running)
        if self._controller is not None and self._controller.is_running:
            self._controller.signal(signal.SIGKILL)
            self._controller.wait_ended()

    # ---------------------------------------------------------------- the processes

    @property
    def running(self) -> list[int]:
        """Return the numbers of the running nodes, with frozen ones."""
        return [number for number, node in self._nodes.items() if node.is_running]

    def address(self, node: int) -> str:
        """Return host and port of the plain listener of a node."""
        return self._nodes[node].address

    def pid(self, node: int) -> int:
        """Return the process id of a running node."""
        return self._nodes[node].pid

    def node_dir(self, node: int) -> Path:
        """Return the directory with the settings and the output of a node."""
        return self._lab_dir / f"node{node}"

    def log_dirs_of(self, node: int) -> tuple[Path, ...]:
        """Return the ``log.dirs`` of the node."""
        return self._nodes[node].log_dirs

    def start(self, *nodes: int) -> None:
        """Format the storage once, start the nodes, all by default, and return when each serves."""
        chosen = [self._nodes[number] for number in nodes or self._nodes]
        if self._controller is not None and not self._controller.is_running:
            chosen.insert(0, self._controller)
        for node in chosen:
            node.format()
        for node in chosen:
            node.launch()
        for node in chosen:
            node.wait_started()

    def stop(self, *nodes: int) -> None:
        """Stop nodes cleanly: leaders move first, checkpoints are written, indexes trimmed."""
        self._end(signal.SIGTERM, nodes)

    def kill(self, *nodes: int) -> None:
        """End nodes as a power cut does."""
        self._end(signal.SIGKILL, nodes)

    def freeze(self, node: int) -> None:
        """Stop a node; when this returns, connections are open without answers."""
        self._nodes[node].freeze()
        self._frozen.add(node)

    def thaw(self, node: int) -> None:
        """Let a frozen node continue."""
        self._nodes[node].signal(signal.SIGCONT)
        self._frozen.discard(node)

    def _end(self, number: signal.Signals, nodes: Sequence[int]) -> None:
        chosen = [self._nodes[node] for node in nodes or self.running]
        self._frozen -= {node.number for node in chosen}
        for node in chosen:
            node.signal(number)
        for node in chosen:
            node.wait_ended()

    def run_tool(self, name: str, *arguments: str) -> str:
        """Run a tool of Kafka against the first running node and return its output."""
        return self._nodes[self.running[0]].run_tool(name, *arguments)

    def quorum_leader(self) -> int:
        """Return the controller that leads the metadata quorum, as the first running node knows it; -1 without one."""
        described = self.run_tool("MetadataQuorumCommand", "describe", "--status")
        return next(int(line.split()[1]) for line in described.splitlines() if line.startswith("LeaderId:"))

    # ---------------------------------------------------------------- topics

    def create_topic(
        self,
        name: str,
        *,
        partitions: int = 1,
        configs: Mapping[str, str] | None = None,
        segment_bytes: int | None = None,
        replicas: Sequence[Sequence[int]] | None = None,
    ) -> None:
        """Create a topic with unlimited retention; ``segment_bytes`` may be tiny on any version.

        ``replicas``: the nodes of each partition, the preferred leader first; by default every node has every one.
        """
        settings = {"retention.ms": "-1", "file.delete.delay.ms": "500"} | dict(configs or {})
        if segment_bytes is not None:
            # Kafka 4 refuses less than 1 MiB under the public name.
            internal = "" if self.version.startswith("3.") else "internal."
            settings[f"{internal}segment.bytes"] = str(segment_bytes)
        if replicas is None:
            topic = NewTopic(name, partitions, replication_factor=len(self._nodes), config=settings)
        else:
            topic = NewTopic(name, len(replicas), replica_assignment=[list(each) for each in replicas], config=settings)
        if not self._try_to_create(topic):
            wait_until(
                lambda: self._try_to_create(topic, may_exist=True),
                what=f"a request for {name} that librdkafka does not drop",
                deadline_s=CLIENT_DEADLINE_S,
            )
        wait_until(
            lambda: all(self.partition_dir(name, p) is not None for p in range(topic.num_partitions)),
            what=f"the directories of {name}",
            deadline_s=CLIENT_DEADLINE_S,
        )

    def _try_to_create(self, topic: NewTopic, *, may_exist: bool = False) -> bool:
        """Return False if librdkafka dropped the request together with its handle of the bootstrap server."""
        admin = self._admin()  # a client that nothing refers to ends its requests
        admin.list_topics(timeout=CLIENT_DEADLINE_S)  # handles of bootstrap servers go once the brokers are known
        try:
            admin.create_topics([topic])[topic.topic].result(CLIENT_DEADLINE_S)
        except KafkaException as error:
            if error.args[0].code() == KafkaError._DESTROY_BROKER:
                return False
            if not may_exist or error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise
        return True

    def alter_topic(self, name: str, configs: Mapping[str, str]) -> None:
        """Set some settings of a topic, and keep the others."""
        entries = [
            ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET) for key, value in configs.items()
        ]
        resource = ConfigResource(ResourceType.TOPIC, name, incremental_configs=entries)
        admin = self._admin()
        for done in admin.incremental_alter_configs([resource]).values():
            done.result(CLIENT_DEADLINE_S)

    def limit_producer(self, client_id: str, *, bytes_per_second: int) -> None:
        """Set the quota of a client id for records that it sends."""
        quota = f"producer_byte_rate={bytes_per_second}"
        whose = ("--entity-type", "clients", "--entity-name", client_id)
        self._nodes[self.running[0]].run_tool(_CONFIGS, "--alter", "--add-config", quota, *whose)

    def add_partitions(self, name: str, total: int) -> None:
        """Grow a topic to ``total`` partitions."""
        admin = self._admin()
        admin.create_partitions([NewPartitions(name, total)])[name].result(CLIENT_DEADLINE_S)

    def delete_topic(self, name: str) -> None:
        """Delete a topic; its directories are renamed ``-delete`` at once and removed later."""
        admin = self._admin()
        admin.delete_topics([name])[name].result(CLIENT_DEADLINE_S)

    def topic_id(self, name: str) -> UUID:
        """Return the id of the topic with this name, once the broker that is asked knows the topic.

        Directories have the id too, but only after a flush.
        """
        admin, found = self._admin(), list[UUID]()

        def is_known() -> bool:
            try:
                described = admin.describe_topics(TopicCollection([name]))[name].result(CLIENT_DEADLINE_S)
            except KafkaException as error:
                if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                    raise
                return False
            found.append(UUID(bytes=base64.urlsafe_b64decode(f"{described.topic_id}==")))
            return True

        wait_until(is_known, what=f"a broker that knows {name}", deadline_s=CLIENT_DEADLINE_S)
        return found[0]

    def leader(self, topic: str, partition: int) -> int:
        """Return the leader of a partition, -1 for none."""
        return int(self._described(topic, partition).leader)

    def in_sync(self, topic: str, partition: int) -> set[int]:
        """Return the nodes whose replica of a partition is in sync."""
        return set(self._described(topic, partition).isrs)

    def replicas(self, topic: str, partition: int) -> set[int]:
        """Return the nodes of a partition, with those that it is moving to or from."""
        return set(self._described(topic, partition).replicas)

    def _described(self, topic: str, partition: int) -> PartitionMetadata:
        """Return the description of a partition by a node, as soon as the node knows it: a new node may not yet."""
        found: list[PartitionMetadata] = []

        def look() -> bool:
            admin = self._admin()
            known = admin.list_topics(topic, timeout=CLIENT_DEADLINE_S).topics[topic].partitions
            found[:] = [known[partition]] if partition in known else []
            return bool(found)

        wait_until(look, what=f"a node that knows of {topic}-{partition}", deadline_s=CLIENT_DEADLINE_S)
        return found[0]

    def elect_preferred(self, topic: str, partition: int) -> None:
        """Make the first replica the leader again."""
        admin = self._admin()
        admin.elect_leaders(ElectionType.PREFERRED, [TopicPartition(topic, partition)]).result(CLIENT_DEADLINE_S)

    def elect_unclean(self, topic: str, partition: int) -> None:
        """Make any replica alive the leader, even with missing records."""
        admin = self._admin()
        admin.elect_leaders(ElectionType.UNCLEAN, [TopicPartition(topic, partition)]).result(CLIENT_DEADLINE_S)

    def reassign(self, topic: str, partition: int, replicas: Sequence[int], *, log_dir: Path | None = None) -> None:
        """Begin to move a partition to these nodes, the preferred leader first, or on them to another log dir."""
        self.reassign_all([(topic, partition)], replicas, log_dir=log_dir)

    def reassign_all(
        self, partitions: Sequence[tuple[str, int]], replicas: Sequence[int], *, log_dir: Path | None = None
    ) -> None:
        """Begin to move all these partitions to the same nodes, with one run of the tool."""
        log_dirs = {} if log_dir is None else {"log_dirs": [str(log_dir)] * len(replicas)}
        moves = [
            {"topic": topic, "partition": partition, "replicas": [*replicas], **log_dirs}
            for topic, partition in partitions
        ]
        plan = self._lab_dir / "reassign.json"
        plan.write_text(json.dumps({"version": 1, "partitions": moves}))
        node = self._nodes[next(number for number in self.running if number not in self._frozen)]
        node.run_tool(_REASSIGN, "--reassignment-json-file", str(plan), "--execute")

    def delete_records(self, topic: str, partition: int, before: int) -> None:
        """Move the log start offset to ``before``."""
        admin = self._admin()
        for done in admin.delete_records([TopicPartition(topic, partition, before)]).values():
            done.result(CLIENT_DEADLINE_S)

    def add_scram_user(self, name: str, password: str) -> None:
        """Give a user a password for both SCRAM mechanisms."""
        mechanisms = (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512)
        changes = [
            UserScramCredentialUpsertion(name, ScramCredentialInfo(each, 4096), password.encode())
            for each in mechanisms
        ]
        admin = self._admin()
        # One change of a user at a time: two in one request are refused as a duplicate.
        for change in changes:
            for done in admin.alter_user_scram_credentials([change]).values():
                done.result(CLIENT_DEADLINE_S)

    def allow(self, user: str, topic: str, operations: Sequence[str]) -> None:
        """Grant rights on a topic, with the names of ``AclOperation``."""
        admin = self._admin()
        grants = [
            AclBinding(
                ResourceType.TOPIC,
                topic,
                ResourcePatternType.LITERAL,
                f"User:{user}",
                "*",
                AclOperation[operation],
                AclPermissionType.ALLOW,
            )
            for operation in operations
        ]
        for done in admin.create_acls(grants).values():
            done.result(CLIENT_DEADLINE_S)

    def partition_dir(self, topic: str, partition: int, *, node: int | None = None) -> Path | None:
        """Return the current directory of a partition on any node, or on the given one; None without one."""
        nodes = self._nodes.values() if node is None else [self._nodes[node]]
        found = [log_dir / f"{topic}-{partition}" for each in nodes for log_dir in each.log_dirs]
        return next((path for path in found if path.is_dir()), None)

    def base_offsets(self, topic: str, partition: int) -> list[int]:
        """Return the base offsets of the local segments, ascending, without those renamed for deletion."""
        directory = self.partition_dir(topic, partition)
        return sorted(int(log.stem) for log in directory.glob("*.log")) if directory else []

    def leader_base_offsets(self, topic: str, partition: int) -> list[int]:
        """Return the base offsets of the segments of the leader, ascending, once the partition has a leader."""
        found: list[int] = []

        def look() -> bool:
            leader = self.leader(topic, partition)
            directory = self.partition_dir(topic, partition, node=leader) if leader in self._nodes else None
            found[:] = sorted(int(log.stem) for log in directory.glob("*.log")) if directory else []
            return bool(found)

        wait_until(look, what=f"a leader of {topic}-{partition}", deadline_s=CLIENT_DEADLINE_S)
        return found

    def _admin(self) -> AdminClient:
        # A new client each time: a client kept over a restart of the broker asks with an old leader epoch. Callers keep
        # it in a variable until the answer has arrived: a dropped client cancels its calls.
        answering = [number for number in self._nodes if number in self.running and number not in self._frozen]
        servers = ",".join(self._nodes[number].address for number in answering) or self.bootstrap
        return AdminClient({"bootstrap.servers": servers, "socket.timeout.ms": 10_000, "log_level": 2})

    # ---------------------------------------------------------------- records

    @contextmanager
    def producer(
        self, *, codec: str = "none", idempotent: bool = False, transactional_id: str | None = None
    ) -> Iterator[RecordProducer]:
        """Run a real producer; its records are flushed at the end."""
        producer = RecordProducer(self.bootstrap, codec=codec, idempotent=idempotent, transactional_id=transactional_id)
        yield producer
        producer.flush()

    def consume_all(
        self, partitions: Sequence[tuple[str, int]], *, committed: bool = False
    ) -> dict[tuple[str, int], list[ConsumedRecord]]:
        """Return the records that a real consumer gets of each (topic, partition), from its start to its end.

        Args:
            partitions: at least one.
            committed: only committed records, to the last stable offset.
        """
        return read_partitions(self.bootstrap, partitions, committed=committed)

    def end_offset(self, topic: str, partition: int, *, committed: bool = False) -> int:
        """Return the high watermark, exclusive; with ``committed`` the last stable offset.

        A broker that does not lead the partition yet is asked again.
        """
        consumer = Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": "tierd-oracle",
                "isolation.level": "read_committed" if committed else "read_uncommitted",
                "log_level": 2,
            }
        )
        end_s = time.monotonic() + CLIENT_DEADLINE_S
        try:
            while True:
                try:
                    marks = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=CLIENT_DEADLINE_S)
                except KafkaException as error:
                    if error.args[0].code() != KafkaError.NOT_LEADER_FOR_PARTITION or time.monotonic() > end_s:
                        raise
                    time.sleep(POLL_INTERVAL_S)
                else:
                    assert marks is not None, "the broker answered"
                    return int(marks[1])
        finally:
            consumer.close()


def _broker_alone(port: int, voters: str) -> dict[str, str]:
    """Return the properties of a broker that is no controller."""
    return {
        "process.roles": "broker",
        "controller.quorum.voters": voters,
        "listeners": f"CLIENT://127.0.0.1:{port}",
    }


class KafkaBroker(KafkaCluster):
    """Cluster of one node."""

    def __init__(
        self,
        lab_dir: Path,
        *,
        version: str = "3.9.2",
        log_dir_count: int = 1,
        properties: Mapping[str, str] | None = None,
        extra_listeners: Mapping[str, str] | None = None,
        has_own_controller: bool = False,
    ) -> None:
        super().__init__(
            lab_dir,
            nodes=1,
            version=version,
            log_dir_count=log_dir_count,
            properties=properties,
            extra_listeners=extra_listeners,
            has_own_controller=has_own_controller,
        )
        self.log_dirs = self.log_dirs_of(1)
