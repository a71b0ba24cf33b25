"""Three real brokers: the records of a time range sent into their cluster, while leaders, store and tierd fail."""

import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from random import Random

import pytest
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as ClientPartition

from tests.scenarios.command import TIERD
from tests.scenarios.conftest import MakeInstallation
from tests.scenarios.installation import Installation
from tests.scenarios.stores import SpoilableS3
from tests.scenarios.test_restore_live_cluster import content, read_map, translated
from tests.services.kafka_cluster import KafkaCluster
from tests.services.kafka_fixtures import MakeCluster
from tests.services.kafka_records import SentRecord
from tests.services.waiting import wait_until

pytestmark = [pytest.mark.service("kafka"), pytest.mark.service("s3")]

NODES = (1, 2, 3)
PARTITIONS = 6  # two of each kind: plain, compressed, transactional
SOURCE = [("orders", number) for number in range(PARTITIONS)]
RESTORED = [("orders-restored", number) for number in range(PARTITIONS)]
BURST = 100
VALUE_BYTES = 250
STEP_BYTES = 100_000
SLOW, FAST = 8 << 10, 16 << 20  # bytes per second that each broker takes from tierd
SLOW_STORE_KB = 32  # a second, for each connection


class Filling:
    """Producers of all kinds; aborts every third transaction."""

    def __init__(self, cluster: KafkaCluster, stack: ExitStack) -> None:
        self._cluster = cluster
        self._random = Random(21)
        self._rounds = 0
        self._producers = [
            stack.enter_context(cluster.producer()),
            stack.enter_context(cluster.producer(codec="lz4", idempotent=True)),
            stack.enter_context(cluster.producer(transactional_id="filler")),
        ]

    def send(self, rounds: int) -> int:
        """Send rounds of records to every partition.

        Returns:
            A moment in milliseconds: every record and marker has an earlier time, and the next one a later one.
        """
        for _ in range(rounds):
            self._rounds += 1
            for partition in SOURCE:
                self._send_to(partition)
            for producer in self._producers[:2]:
                producer.flush()
        decided = self._rounds * (BURST + 1)
        wait_until(
            lambda: all(self._cluster.end_offset(*each) == decided for each in SOURCE[4:]),
            what="the markers of all transactions",
            deadline_s=60,
        )
        moment_ms = int(time.time() * 1000) + 1
        wait_until(lambda: time.time() * 1000 > moment_ms + 1, what="the next millisecond", deadline_s=5)
        return moment_ms

    def _send_to(self, partition: tuple[str, int]) -> None:
        producer = self._producers[partition[1] // 2]
        now_ms = int(time.time() * 1000)
        records = [
            SentRecord(key=b"%d" % number, value=self._random.randbytes(VALUE_BYTES), timestamp_ms=now_ms)
            for number in range(BURST)
        ]
        if partition not in SOURCE[4:]:
            producer.send(*partition, records)
            return
        with producer.transaction(commit=self._rounds % 3 != 1):
            producer.send(*partition, records)


def fill(cluster: KafkaCluster) -> tuple[int, int]:
    """Write about 1 MB into each partition; return two moments, with most of it between them."""
    configs = {"min.insync.replicas": "2"}
    cluster.create_topic("orders", replicas=[NODES] * PARTITIONS, configs=configs, segment_bytes=128 << 10)
    with ExitStack() as stack:
        filling = Filling(cluster, stack)
        from_ms = filling.send(4)
        to_ms = filling.send(24)
        filling.send(12)
    return from_ms, to_ms


def first_since(cluster: KafkaCluster, at_ms: int) -> list[int]:
    """Return the first offset of each source partition with a time not before ``at_ms``, by the brokers."""
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "asks", "log_level": 2})
    try:
        found = consumer.offsets_for_times([ClientPartition(*each, at_ms) for each in SOURCE], timeout=30)
    finally:
        consumer.close()
    return [int(each.offset) for each in sorted(found, key=lambda each: each.partition)]


def tier_of(cluster: KafkaCluster, make_installation: MakeInstallation, s3: SpoilableS3) -> Installation:
    """Copy the topic into a tier, with a catalogue that has the topic as the cluster describes it."""
    kafka = {"source": "kafka", "kafka": {"bootstrap_servers": [cluster.address(1)], "refresh": "500ms"}}
    tierd = make_installation(
        cluster.log_dirs_of(1),
        remote=s3.remote(connect_timeout="10s", read_timeout="30s"),  # a busy machine is no outage
        settings={"leadership": kafka, "catalogue": {"interval": "1s"}},
    )
    rolled = {f"orders-{number}": cluster.leader_base_offsets("orders", number)[-1] - 1 for number in range(PARTITIONS)}
    with tierd.daemon() as daemon:
        daemon.wait_copied(rolled)
        daemon.wait_until(
            lambda: any("/catalogue/topics/orders-" in key for key in s3.admin.keys(s3.bucket)), what="the topic"
        )
    return tierd


class Restore:
    """Restore that runs in the background, of which each run appends to a log.

    Attributes:
        command: the command, without the program.
    """

    def __init__(self, tierd: Installation, cluster: KafkaCluster, log: Path, command: tuple[str, ...]) -> None:
        self.command = command
        self._tierd = tierd
        self._log_dirs = [path for node in NODES for path in cluster.log_dirs_of(node)]
        self._log = log

    @contextmanager
    def running(self) -> "Iterator[subprocess.Popen[bytes]]":
        """Run it until the block kills it."""
        with self._log.open("ab") as log:
            arguments = [str(TIERD), *self.command, "--config", str(self._tierd.config_file)]
            process = subprocess.Popen(arguments, stdout=log, stderr=log)
        try:
            yield process
            process.wait(60)
        finally:
            process.kill()
            process.wait()

    def wait_grown(self, process: "subprocess.Popen[bytes]") -> None:
        """Return once the target has grown; the restore must still run then."""
        before = self._size()
        wait_until(
            lambda: self._size() > before + STEP_BYTES,
            what="the restored topic to grow",
            deadline_s=240,
            last_seen=self.log_tail,
            interval_s=0.2,
        )
        assert process.poll() is None, f"the restore ended before it could be interrupted: {self.log_tail()}"

    def wait_logged(self, event: str) -> None:
        """Return once a run has logged an event."""
        wait_until(
            lambda: event in self._log.read_text(errors="replace"),
            what=event,
            deadline_s=60,
            last_seen=self.log_tail,
            interval_s=0.2,
        )

    def log_tail(self) -> str:
        """Return the end of what the runs have printed."""
        return self._log.read_text(errors="replace")[-3000:]

    def _size(self) -> int:
        """Return the size of the largest replica of each partition, in sum."""
        sizes = [
            max(
                sum(log.stat().st_size for log in (log_dir / f"{topic}-{number}").glob("*.log"))
                for log_dir in self._log_dirs
            )
            for topic, number in RESTORED
        ]
        return sum(sizes)


def lead_elsewhere(cluster: KafkaCluster, partition: tuple[str, int], node: int) -> None:
    """Wait until another node leads a partition."""
    wait_until(
        lambda: cluster.leader(*partition) not in {node, -1}, what="another leader", deadline_s=90, interval_s=0.2
    )


def move_leaders(cluster: KafkaCluster) -> None:
    """Make another replica the leader of two partitions."""
    for partition in RESTORED[:2]:
        before = cluster.leader(*partition)
        order = [*(node for node in NODES if node != before), before]
        cluster.reassign(*partition, order)
        wait_until(lambda p=partition: cluster.in_sync(*p) == set(NODES), what="all in sync", deadline_s=90)  # type: ignore[misc]  # the default binds the loop's value
        if cluster.leader(*partition) == before:
            cluster.elect_preferred(*partition)
        lead_elsewhere(cluster, partition, before)


def test_records_of_a_time_range_are_there_once_and_in_order_after_faults_of_brokers_store_and_tierd(
    tmp_path: Path, kafka_cluster: MakeCluster, make_installation: MakeInstallation, spoilable_s3: SpoilableS3
) -> None:
    cluster = kafka_cluster(nodes=3, version="4.3.1")
    from_ms, to_ms = fill(cluster)
    starts, ends = first_since(cluster, from_ms), first_since(cluster, to_ms)
    oracle = cluster.consume_all(SOURCE, committed=True)
    tierd = tier_of(cluster, make_installation, spoilable_s3)
    cluster.limit_producer("tierd", bytes_per_second=SLOW)
    to = ("--to", cluster.bootstrap, "--rename", "orders=orders-restored", "--journal", str(tmp_path / "journal"))
    times = ("--from-time", str(from_ms), "--to-time", str(to_ms), "--by-timestamp")
    restore = Restore(tierd, cluster, tmp_path / "restore.log", ("restore", "topic", "orders", *to, *times))

    spoilable_s3.path.add("bandwidth", rate=SLOW_STORE_KB)
    with restore.running() as process:
        restore.wait_grown(process)
        spoilable_s3.path.disable()
        restore.wait_logged("tier_waits")
        spoilable_s3.path.enable()
        spoilable_s3.path.remove("bandwidth")
        restore.wait_grown(process)
        process.kill()
    with restore.running() as process:
        restore.wait_grown(process)
        leader = cluster.leader(*RESTORED[0])
        process.send_signal(signal.SIGSTOP)
        cluster.kill(leader)
        lead_elsewhere(cluster, RESTORED[0], leader)
        process.send_signal(signal.SIGCONT)
        restore.wait_grown(process)
        cluster.start(leader)
        move_leaders(cluster)
        restore.wait_grown(process)
        leader = cluster.leader(*RESTORED[3])
        cluster.freeze(leader)
        lead_elsewhere(cluster, RESTORED[3], leader)
        restore.wait_grown(process)
        process.kill()
        cluster.thaw(leader)
    cluster.limit_producer("tierd", bytes_per_second=FAST)
    done = tierd.ask(*restore.command, "--json")

    assert done.exit_code == 0, done.stderr
    ranges = read_map(str(tmp_path / "journal" / "offset-map.jsonl"))
    restored = cluster.consume_all(RESTORED)
    for number, (start, end) in enumerate(zip(starts, ends, strict=True)):
        wanted = [record for record in oracle[SOURCE[number]] if start <= record["offset"] < end]
        found, lines = restored[RESTORED[number]], ranges[f"orders-{number}"]
        assert len(wanted) >= 15 * BURST
        assert [content(record) for record in found] == [content(record) for record in wanted], number
        assert [record["offset"] for record in found] == [translated(lines, record["offset"]) for record in wanted]
    assert_made_from_the_catalogue(cluster)


def assert_made_from_the_catalogue(cluster: KafkaCluster) -> None:
    """Assert that the topic has the partitions, the replicas and the settings of its source."""
    assert all(cluster.replicas(*each) == set(NODES) for each in RESTORED)
    assert cluster.partition_dir("orders-restored", PARTITIONS) is None
    segments: Mapping[int, int] = {number: len(cluster.leader_base_offsets(*RESTORED[number])) for number in range(2)}
    assert min(segments.values()) >= 3, "segments are larger than those of the source"
