"""Leadership moves between brokers, in order and by the loss of a host: the standby follows each leader."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from random import Random

import pytest

from tests.scenarios.command import run_tierd
from tests.scenarios.conftest import MakeInstallation
from tests.scenarios.installation import Daemon
from tests.scenarios.journal import Journal, assert_agrees
from tests.scenarios.lost_disks import CLUSTER_ID
from tests.scenarios.push_hosts import PushHosts, batches_in, copies_of
from tests.services.kafka_cluster import KafkaCluster
from tests.services.kafka_fixtures import MakeCluster
from tests.services.kafka_journalled import JournalledProducer
from tests.services.kafka_records import SentRecord
from tests.services.waiting import wait_until
from tierd.log import read_lineage

pytestmark = pytest.mark.service("kafka")

TOPIC = "moved"
STANDBY = 3
_DEADLINE_S = 120.0


@pytest.mark.spec("push-replication F5")
@pytest.mark.spec("push-replication F16")
def test_standby_follows_leaders_that_move_and_die(
    tmp_path: Path, kafka_cluster: MakeCluster, make_installation: MakeInstallation
) -> None:
    cluster = kafka_cluster(nodes=3, version="4.3.1")
    cluster.create_topic(TOPIC, replicas=((1, 2),), segment_bytes=16_384)
    hosts, journal = PushHosts(STANDBY), Journal()
    standby = make_installation([], name="standby", settings=hosts.standby(tmp_path / "standby", CLUSTER_ID, STANDBY))
    copy = copies_of(standby) / f"{TOPIC}-0"
    hosted = {STANDBY: standby}

    def said() -> str:
        return "\n".join(f"node {node}: {each.ask('status').output}" for node, each in hosted.items())

    with ExitStack() as stack:
        leaders: dict[int, Daemon] = {}
        for node in (1, 2):
            settings = hosts.leader(node, standbys=[STANDBY]) | {
                "leadership": {"source": "kafka", "kafka": {"bootstrap_servers": cluster.bootstrap.split(",")}}
            }
            beside = make_installation(cluster.log_dirs_of(node), name=f"leader-{node}", settings=settings)
            hosted[node] = beside
            leaders[node] = beside.daemon()
            leaders[node].start()
            stack.callback(_end, leaders[node])
        stack.enter_context(standby.daemon())
        stack.enter_context(_sending(cluster, journal))
        _wait_copied(cluster, copy, leader=1, said=said)

        cluster.reassign(TOPIC, 0, [2, 1])
        cluster.elect_preferred(TOPIC, 0)
        _wait_copied(cluster, copy, leader=2, said=said)

        leaders[2].kill()
        cluster.kill(2)
        _wait_copied(cluster, copy, leader=1, said=said)

    assert len(read_lineage(copy).entries) >= 3
    records = run_tierd("log", "read", str(copy), "--committed", "--json").json_lines()
    known = journal.of(TOPIC, 0)
    assert_agrees(records, known, start=0, end=max(known.acknowledged) + 1, what=TOPIC)


def _wait_copied(cluster: KafkaCluster, copy: Path, *, leader: int, said: Callable[[], str]) -> None:
    """Wait until ``leader`` leads and the copy has what it writes from then on, byte for byte; ``said`` is shown."""
    wait_until(lambda: cluster.leader(TOPIC, 0) == leader, what=f"node {leader} to lead", deadline_s=_DEADLINE_S)
    directory = cluster.partition_dir(TOPIC, 0, node=leader)
    assert directory is not None
    wanted = max(batches_in(directory), default=0) + 1

    def is_copied() -> bool:
        with suppress(FileNotFoundError, ValueError):
            copied = batches_in(copy)
            led = batches_in(directory)
            both = [offset for offset in copied if offset <= max(copied) - 1 and offset in led]
            return max(copied) > wanted and all(copied[offset] == led[offset] for offset in both)
        return False

    what = f"the copy of what node {leader} writes"
    wait_until(is_copied, what=what, deadline_s=_DEADLINE_S, interval_s=0.2, last_seen=said)


@contextmanager
def _sending(cluster: KafkaCluster, journal: Journal) -> Iterator[None]:
    end, random = threading.Event(), Random(7)

    def send() -> None:
        producer = JournalledProducer(cluster.bootstrap)
        for number in range(1_000_000):
            if end.wait(0.02):
                return
            value = f"{number} {random.randbytes(60).hex()}".encode()
            sent = producer.send(TOPIC, 0, [SentRecord(key=None, value=value, timestamp_ms=int(time.time() * 1000))])
            journal.acknowledge(TOPIC, 0, sent.acknowledged)
            journal.doubt(TOPIC, 0, sent.failed)

    thread = threading.Thread(target=send, name="sender", daemon=True)
    thread.start()
    try:
        yield
    finally:
        end.set()
        thread.join(_DEADLINE_S)


def _end(daemon: Daemon) -> None:
    if daemon.is_running:
        daemon.kill()
