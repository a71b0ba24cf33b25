"""``python -m tests.fuzz.record_requests``: put requests that real clients send into the corpus of their decoder.

A proxy in front of the endpoint of a daemon keeps the longest frame of each client, request and version. The clients
read a golden log dir, are members of groups, and try to write; ``tests/services/install.sh`` has installed them.
"""

import socket
import tempfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import BinaryIO, Final

from tests.fuzz.target import CORPUS
from tests.golden.unpack import golden_root
from tests.scenarios.golden_server import GoldenServer, golden_server
from tests.scenarios.warm_tierd import WarmTierd
from tests.services.kafka_clients import java_clients
from tests.services.kafka_clients.global_table import read_tables
from tests.services.kafka_clients.group_members import GroupMembers, Place, wait_seen
from tests.services.kafka_clients.java_tools import JavaTools
from tests.services.kafka_clients.librdkafka import commit_offset
from tests.services.kafka_clients.mirror_maker import MirrorMaker
from tests.services.kafka_clients.reading_clients import JAVA_CONSOLES, NAMES, ReadingClients
from tests.services.kafka_cluster import KafkaCluster
from tests.services.ports import free_port
from tierd.serve.kafka.wire.api_table import API_TABLE

TARGET: Final = "endpoint-request"
VERSION: Final = "4.3.1"
TOPICS: Final = ("txn-closed", "many-partitions")
GROUP_TOPIC: Final = "many-partitions"
MEMBERS: Final = ("librdkafka", "aiokafka", "franz-go", *JAVA_CONSOLES)


class RequestRecorder:
    """Proxy that keeps requests.

    Attributes:
        client: name of the client that is connected now.
        frames: frames without their sizes, by the names of files.
    """

    def __init__(self, upstream_port: int) -> None:
        """Listen on a loopback port, in threads that end with the process."""
        self.client = ""
        self.frames: dict[str, bytes] = {}
        self.port = free_port()
        self._upstream_port = upstream_port
        self._listener = socket.create_server(("127.0.0.1", self.port))
        threading.Thread(target=self._accept, name="recorder", daemon=True).start()

    def _accept(self) -> None:
        while True:
            client, _ = self._listener.accept()
            server = socket.create_connection(("127.0.0.1", self._upstream_port))
            for relay, source, sink in ((self._requests, client, server), (_answers, server, client)):
                threading.Thread(target=relay, args=(source, sink), name="relay", daemon=True).start()

    def _requests(self, client: socket.socket, server: socket.socket) -> None:
        with suppress(OSError), client.makefile("rb") as source:
            for frame in _frames(source):
                self._keep(frame)
                server.sendall(len(frame).to_bytes(4, "big") + frame)
            server.shutdown(socket.SHUT_WR)

    def _keep(self, frame: bytes) -> None:
        api_key, version = int.from_bytes(frame[:2], "big"), int.from_bytes(frame[2:4], "big")
        if api_key in API_TABLE:  # the server closes the connection of a client that asks for anything else
            name = f"{self.client}_{API_TABLE[api_key].name}_v{version}"
            self.frames[name] = max(self.frames.get(name, b""), frame, key=len)


def _frames(source: BinaryIO) -> Iterator[bytes]:
    while len(size := source.read(4)) == 4:
        yield source.read(int.from_bytes(size, "big"))


def _answers(server: socket.socket, client: socket.socket) -> None:
    with suppress(OSError):
        while answer := server.recv(1 << 16):
            client.sendall(answer)
        client.shutdown(socket.SHUT_WR)


def main() -> None:
    """Run every client, and replace its files in the corpus."""
    with tempfile.TemporaryDirectory() as scratch, WarmTierd() as warm, ExitStack() as stack:
        folder, port = Path(scratch), free_port()
        recorder = RequestRecorder(port)
        source = golden_root(folder / "golden") / f"kafka-{VERSION}" / "clean"
        listener = {"listen": f"127.0.0.1:{port}", "advertised": f"127.0.0.1:{recorder.port}"}
        settings = {"kafka": {"listeners": [listener], "groups": {"initial_rebalance_delay": "0s"}}}
        server = stack.enter_context(
            golden_server(source / "logdir", source / "oracle", folder, warm, settings=settings)
        )
        clients = stack.enter_context(ReadingClients(folder))
        bootstrap = f"127.0.0.1:{recorder.port}"
        for name in NAMES:
            recorder.client = name
            for committed in (False, True):
                expected = server.expected(*TOPICS, committed=committed)
                clients.client(name).assert_reads(bootstrap, expected, committed=committed)
        for name in MEMBERS:
            recorder.client = name
            _join(bootstrap, name, server, folder)
        for version in JAVA_CONSOLES.values():
            recorder.client = "librdkafka"
            commit_offset(bootstrap, _group_of_tools(version), GROUP_TOPIC, 1)
            recorder.client = f"tools-{version}"
            _use_tools(clients.tools(version), bootstrap)
            recorder.client = f"streams-{version}"
            read_tables(bootstrap, TOPICS[0], version=version)
        recorder.client = "mirror-maker"
        _mirror(bootstrap, server, folder)
    for name, frame in recorder.frames.items():
        (CORPUS / TARGET).mkdir(exist_ok=True)
        (CORPUS / TARGET / name).write_bytes(frame)
    print(f"{len(recorder.frames)} requests, {sum(map(len, recorder.frames.values()))} bytes")


def _join(bootstrap: str, name: str, server: GoldenServer, folder: Path) -> None:
    """Read a topic as the only member of a group, which commits and leaves."""
    wanted = {
        Place(number, int(str(record["offset"])))
        for (_, number), records in server.expected(GROUP_TOPIC, committed=True).items()
        for record in records
    }
    with GroupMembers(bootstrap, f"group-of-{name}", GROUP_TOPIC, folder).member(name) as member:
        wait_seen([member], wanted)
        member.stop()


def _use_tools(tools: JavaTools, bootstrap: str) -> None:
    """Run each tool of Kafka once, also those that are refused."""
    topic, group = GROUP_TOPIC, _group_of_tools(tools.version)
    for time in ("earliest", "latest", "max-timestamp", "earliest-local", "latest-tiered", "1700000000000"):
        java_clients.get_offsets(tools, bootstrap, topic, time)
    java_clients.perf_test(tools, bootstrap, topic, 1, committed=True)
    java_clients.list_groups(tools, bootstrap)
    java_clients.describe_group(tools, bootstrap, group)
    java_clients.reset_offsets(tools, bootstrap, group, topic, "--to-earliest")
    for change in (("--delete-offsets", "--topic", topic), ("--delete",)):
        tools.run("kafka-consumer-groups", bootstrap, *change, "--group", group)
    java_clients.produce(tools, bootstrap, topic, "refused")
    tools.done("kafka-configs", bootstrap, "--describe", "--topic", topic)
    tools.run("kafka-configs", bootstrap, "--alter", "--topic", topic, "--add-config", "retention.ms=1")
    tools.done("kafka-topics", bootstrap, "--describe", "--topic", topic)
    for change in (("--create",), ("--delete",), ("--alter", "--partitions", "9")):
        tools.run("kafka-topics", bootstrap, *change, "--topic", topic)


def _group_of_tools(version: str) -> str:
    return f"group-of-tools-{version}"


def _mirror(bootstrap: str, server: GoldenServer, folder: Path) -> None:
    """Copy topics into a live cluster."""
    (folder / "live").mkdir()
    counts = {partition: len(records) for partition, records in server.expected(*TOPICS, committed=True).items()}
    with (
        KafkaCluster(folder / "live", nodes=1, version=VERSION, properties={"log.retention.ms": "-1"}) as live,
        MirrorMaker(folder, bootstrap, live.bootstrap, TOPICS, committed=True) as mirror,
    ):
        mirror.wait_copied(counts, live)


if __name__ == "__main__":
    main()
