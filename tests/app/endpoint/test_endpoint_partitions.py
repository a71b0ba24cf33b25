"""EndpointPartitions: the cluster of one endpoint over a session of tierd, a store and peers."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

import pytest

from tests.app.endpoint.consuming import offsets
from tests.app.endpoint.hosts import EndpointHost, endpoint_host
from tests.fakes.eventually import eventually
from tests.fakes.key_value_store import Fault, FaultyKeyValueStore
from tests.fakes.log_dirs import LogDirWriter, PartitionWriter, SegmentShape
from tests.tiering.setups import CLUSTER_ID, Session, Tier, delete_segment
from tierd.app.endpoint.endpoint_partitions import EndpointIdentity, EndpointPartitions, Knowledge
from tierd.app.endpoint.endpoint_peers import EndpointPeers
from tierd.app.endpoint.replica_inventory import DaemonReplicas
from tierd.app.endpoint.stored_partitions import StoredPartitions
from tierd.config import EndpointPeerSettings
from tierd.control import Leadership, Role
from tierd.metadata import MemoryKeyValueStore, MetadataKeyFactory
from tierd.model import TopicIdPartition
from tierd.serve import EndpointNode

LISTENER = "PLAINTEXT"
OWN = EndpointNode(1, "one.example", 9192, "rack-a")


@dataclass
class Setup:
    """One host with the topic ``orders`` of two partitions, both copied."""

    log_dir: LogDirWriter
    writers: list[PartitionWriter]
    session: Session
    host: EndpointHost
    rows: FaultyKeyValueStore
    partitions: EndpointPartitions

    def partition(self, number: int) -> TopicIdPartition:
        return TopicIdPartition(self.writers[number].topic_id, "orders", number)

    def leader_of(self, number: int) -> tuple[int, int]:
        served = self.partitions.cluster(LISTENER).topics["orders"].partitions[number]
        return served.leader_id, served.leader_epoch


@contextlib.asynccontextmanager
async def opened(
    tmp_path: Path,
    *,
    peers: tuple[EndpointPeerSettings, ...] = (),
    wants: Callable[[str], bool] = lambda _: True,
) -> AsyncIterator[Setup]:
    log_dir = LogDirWriter(tmp_path / "kafka")
    topic_id = UUID(int=77)
    writers = [log_dir.add_partition("orders", number, topic_id=topic_id) for number in range(2)]
    for writer in writers:
        writer.fill(rolled_segments=2, shape=SegmentShape())
    log_dir.write_checkpoints()
    rows = FaultyKeyValueStore(MemoryKeyValueStore())
    session = Tier(tmp_path, [log_dir.path], rows=rows).session()
    assert [outcome.error for outcome in (await session.copy_once()).values()] == [None, None]
    async with endpoint_host(session) as host:
        keys = MetadataKeyFactory(CLUSTER_ID)
        partitions = EndpointPartitions(
            EndpointIdentity(cluster_id="cluster-tierd", node_id=1, broker_id=1, rack="rack-a"),
            Knowledge(
                replicas=DaemonReplicas(session.tiering.replicas, broker_id=1, leads=lambda _: True),
                stored=StoredPartitions(rows, keys, host.views, wants=wants, clock=host.clock),
                leaders=None,
                peers=EndpointPeers(peers, listener=LISTENER, clock=host.clock),
                settings_of=lambda topic: {},
            ),
            host.parts,
            host.fetches,
            clock=host.clock,
        )
        await partitions.prepare()
        partitions.listen_at({LISTENER: ("one.example", 9192)})
        yield Setup(log_dir, writers, session, host, rows, partitions)


@pytest.fixture
async def setup(tmp_path: Path) -> AsyncIterator[Setup]:
    async with opened(tmp_path) as setup:
        yield setup


@contextlib.asynccontextmanager
async def running(setup: Setup) -> AsyncIterator[Callable[[float], "asyncio.Future[None]"]]:
    """Run the partitions; yield a function that lets time pass."""
    run = asyncio.create_task(setup.partitions.run())

    async def passing(seconds: float) -> None:
        await eventually(lambda: setup.host.clock.sleeping > 1, what="the loops")
        setup.host.clock.advance(seconds)
        await eventually(lambda: setup.host.clock.sleeping > 1, what="the loops again")

    try:
        yield lambda seconds: asyncio.ensure_future(passing(seconds))
    finally:
        run.cancel()
        await asyncio.wait({run})


class TestCluster:
    async def test_cluster_names_the_endpoint_and_the_topics(self, setup: Setup) -> None:
        cluster = setup.partitions.cluster(LISTENER)
        assert (cluster.cluster_id, cluster.node_id, cluster.nodes) == ("cluster-tierd", 1, (OWN,))
        assert [each.partition for each in cluster.topics["orders"].partitions] == [
            setup.partition(0),
            setup.partition(1),
        ]
        assert [setup.leader_of(number) for number in range(2)] == [(1, 0), (1, 0)]

    async def test_cluster_is_the_same_object_while_nothing_changed(self, setup: Setup) -> None:
        first = setup.partitions.cluster(LISTENER)
        setup.partitions.rebuild()
        assert setup.partitions.cluster(LISTENER) is first

    async def test_partition_that_the_host_has_lost_is_served_from_the_tier(self, setup: Setup) -> None:
        log = setup.partitions.log(setup.partition(0))
        assert log is not None
        assert len(await offsets(log)) == 20
        setup.session.tiering.replicas.remove(setup.partition(0))
        setup.host.session.metadata.stop(setup.partition(0))
        setup.partitions.rebuild()
        assert len(await offsets(log)) == 16
        assert not (await log.bounds()).is_end_known

    async def test_partition_that_is_not_served_has_no_log(self, setup: Setup) -> None:
        assert setup.partitions.log(TopicIdPartition(UUID(int=1), "orders", 0)) is None
        assert setup.partitions.log(setup.partition(0)) is setup.partitions.log(setup.partition(0))

    async def test_topic_that_is_not_wanted_is_not_served_from_the_store(self, tmp_path: Path) -> None:
        async with opened(tmp_path, wants=lambda _: False) as setup:
            for number in range(2):
                setup.session.tiering.replicas.remove(setup.partition(number))
            setup.partitions.rebuild()
            assert setup.partitions.cluster(LISTENER).topics == {}


class TestChanges:
    async def test_new_leader_is_shown_within_a_second(self, setup: Setup) -> None:
        (replica, _) = sorted(setup.session.tiering.replicas.all(), key=lambda each: each.local.partition.partition)
        async with running(setup) as passing:
            setup.session.tiering.replicas.assign(replica, Leadership(setup.partition(0), 5, Role.LEADER))
            await passing(1)
            await eventually(lambda: setup.leader_of(0) == (1, 5), what="the epoch")

    async def test_store_that_does_not_answer_leaves_the_cluster_as_it_is(self, setup: Setup) -> None:
        async with running(setup) as passing:
            before = setup.partitions.cluster(LISTENER)
            setup.rows.read_faults.extend([Fault.FAIL] * 4)
            await passing(60)
            assert setup.partitions.cluster(LISTENER) is before

    async def test_partition_that_another_host_claims_appears(self, setup: Setup) -> None:
        other = setup.session.tier.session(broker_id=2)
        partition = TopicIdPartition(UUID(int=78), "payments", 3)
        async with running(setup) as passing:
            await other.metadata.become_leader(partition, 9)
            await passing(10)
            await passing(1)
            await eventually(lambda: "payments" in setup.partitions.topics, what="the topic")
        (served,) = setup.partitions.topics["payments"].partitions
        assert (served.partition, served.leader_id, served.leader_epoch) == (partition, 1, 9)


class TestPeers:
    async def test_live_peer_leads_what_its_broker_leads_and_a_lost_one_does_not(self, tmp_path: Path) -> None:
        server = await asyncio.start_server(lambda _reader, writer: writer.close(), "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        peer = EndpointPeerSettings(node_id=2, address=f"127.0.0.1:{port}")
        async with opened(tmp_path, peers=(peer,)) as setup:
            for number in range(2):
                setup.session.tiering.replicas.remove(setup.partition(number))
            other = setup.session.tier.session(broker_id=2)
            await other.metadata.become_leader(setup.partition(0), 4)
            await setup.partitions.prepare()
            cluster = setup.partitions.cluster(LISTENER)
            assert cluster.nodes == (OWN, EndpointNode(2, "127.0.0.1", port))
            assert setup.leader_of(0) == (2, 4)
            server.close()
            await server.wait_closed()
            async with running(setup) as passing:
                for _ in range(3):
                    await passing(2)
                await passing(1)
                await eventually(lambda: setup.leader_of(0) == (1, 4), what="the loss of the peer")
            assert setup.partitions.cluster(LISTENER).nodes == (OWN,)


async def test_deleted_segments_of_a_led_partition_are_read_from_the_tier(setup: Setup) -> None:
    log = setup.partitions.log(setup.partition(1))
    assert log is not None
    for base in (0, 8):
        delete_segment(setup.writers[1].path, base)
    assert len(await offsets(log)) == 20
