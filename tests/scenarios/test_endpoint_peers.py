"""Three brokers with a daemon beside each, whose endpoints are one cluster: clients survive the loss of any of them."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from tests.scenarios.cluster_lab import NODES, ClusterLab
from tests.scenarios.cluster_traffic import ReplicatedTopic
from tests.scenarios.conftest import MakeClusterLab
from tests.scenarios.golden_server import endpoint_settings
from tests.services.kafka_clients.group_members import GroupMember, GroupMembers, Place, wait_seen
from tests.services.kafka_clients.librdkafka import committed_offsets, known_partitions
from tests.services.kafka_fixtures import fetched_or_skip
from tests.services.ports import free_port
from tests.services.waiting import wait_until

pytestmark = [pytest.mark.service("kafka"), pytest.mark.service("s3"), pytest.mark.service("redis")]

ORDERS = ReplicatedTopic(name="orders", replicas=((1, 2, 3), (2, 3, 1), (3, 1, 2), (1, 3, 2)))
CLIENTS = ("librdkafka", "aiokafka", "franz-go", "console-4.3.1")  # each gets one partition
GROUP = "buyers"


@pytest.fixture
def ports() -> dict[int, int]:
    """Return the port of each endpoint."""
    return {node: free_port() for node in NODES}


@pytest.fixture
def lab(make_cluster_lab: MakeClusterLab, redis_url: str, ports: dict[int, int]) -> Iterator[ClusterLab]:
    """Run the cluster, with endpoints that know of each other."""
    lab = make_cluster_lab({"backend": "redis", "redis": {"url": redis_url}})
    for node in NODES:
        peers = [{"node_id": peer, "address": f"127.0.0.1:{ports[peer]}"} for peer in NODES if peer != node]
        lab.hosts[node].configure(endpoint_settings(ports[node]))
        lab.hosts[node].configure({"kafka": {"node_id": node, "peers": peers}})
    with lab:
        yield lab


def test_group_continues_when_one_endpoint_after_the_other_is_killed(
    lab: ClusterLab, ports: dict[int, int], tmp_path: Path
) -> None:
    bootstrap = ",".join(f"127.0.0.1:{port}" for port in ports.values())
    lab.traffic.create(ORDERS)
    for node in NODES:
        wait_until(
            lambda address=f"127.0.0.1:{ports[node]}": known_partitions(address) >= {*ORDERS.partitions},  # type: ignore[misc]
            what=f"endpoint {node} to know the topic",
            deadline_s=60,
        )
    wait_until(lambda: _leaders(bootstrap) == _leaders(lab.cluster.bootstrap), what="the leaders", deadline_s=60)
    made = GroupMembers(bootstrap, GROUP, ORDERS.name, tmp_path)
    with ExitStack() as stack:
        members: list[GroupMember] = []
        for name in CLIENTS:
            fetched_or_skip(lambda name=name: members.append(made.member(name)), name)  # type: ignore[misc]
        for member in members:
            stack.enter_context(member)
        _read_more_until_each_reads(lab, members)
        for node in NODES:
            lab.daemons[node].kill()
            _read_more(lab, members)
            lab.daemons[node].start()
            lab.daemons[node].wait_ready()
        # The console consumer commits from time to time, and not before it prints.
        wait_until(lambda: _is_committed(lab, bootstrap), what="the commits of all members", deadline_s=60)
        for member in members:
            member.stop()
        before = _sent(lab)
        fresh = stack.enter_context(made.member("franz-go"))
        _read_more(lab, [fresh], known=before)
        assert not before & set(fresh.seen()), "what the group had committed was read again"


def _read_more(
    lab: ClusterLab, members: list[GroupMember], *, known: frozenset[Place] | set[Place] = frozenset()
) -> None:
    """Send records to every partition, and wait until the members together have all records but ``known``."""
    lab.traffic.fill(ORDERS, rolled_segments=1)
    wait_seen(members, _sent(lab) - known, deadline_s=90)


def _read_more_until_each_reads(lab: ClusterLab, members: list[GroupMember]) -> None:
    """Send records until every member has read some: each has a partition then, which no other member reads."""

    def each_reads() -> bool:
        before = [len(member.seen()) for member in members]
        _read_more(lab, members)
        return all(len(member.seen()) > count for member, count in zip(members, before, strict=True))

    wait_until(each_reads, what="each member to be assigned a partition", deadline_s=60)


def _is_committed(lab: ClusterLab, bootstrap: str) -> bool:
    """Return True if the group has committed the ends of all partitions."""
    ends = {(ORDERS.name, place.partition): place.offset + 1 for place in sorted(_sent(lab))}
    return committed_offsets(bootstrap, GROUP, ORDERS.partitions) == ends


def _sent(lab: ClusterLab) -> set[Place]:
    return {
        Place(number, offset)
        for name, number in ORDERS.partitions
        for offset in lab.traffic.journal.of(name, number).acknowledged
    }


def _leaders(bootstrap: str) -> dict[int, int]:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 2})
    partitions = admin.list_topics(ORDERS.name, timeout=20).topics[ORDERS.name].partitions
    return {number: partition.leader for number, partition in partitions.items()}
