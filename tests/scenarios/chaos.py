"""Faults of a cluster with a tierd beside each broker. Each action returns when the cluster leads again."""

import signal
from collections.abc import Callable
from random import Random

from tests.scenarios.cluster_lab import NODES, ClusterLab
from tests.scenarios.cluster_traffic import ReplicatedTopic
from tests.scenarios.tier_audit import orphans, read_rows
from tests.services.waiting import wait_until
from tierd.metadata import PartitionView
from tierd.model import RemoteLogSegmentState

ORDERS = ReplicatedTopic(name="orders", replicas=((1, 2, 3), (2, 3, 1), (3, 1, 2)))
PAYMENTS = ReplicatedTopic(name="payments", replicas=((2, 3, 1),), transactional=True)
ROAMING = ReplicatedTopic(name="roaming", replicas=((1, 2),), min_in_sync=1)
DROPPED = ReplicatedTopic(name="dropped", replicas=((3, 1, 2),))
KEPT = ReplicatedTopic(name="kept", replicas=((2, 1, 3),))
RISKY = ReplicatedTopic(name="risky", replicas=((1, 2),), min_in_sync=1)
BUSY = (ORDERS, PAYMENTS, ROAMING)
BUSY_PARTITIONS = [partition for topic in BUSY for partition in topic.partitions]

Action = Callable[[ClusterLab, Random], None]


def kill_broker(lab: ClusterLab, random: Random) -> None:
    """SIGKILL a broker that leads, let others lead, start the broker again."""
    topic, partition = random.choice(ORDERS.partitions)
    node = lab.wait_led(topic, partition, by=NODES)
    lab.cluster.kill(node)
    lab.wait_led(topic, partition, by=set(NODES) - {node})
    lab.cluster.start(node)
    lab.wait_in_sync(BUSY_PARTITIONS)


def kill_host(lab: ClusterLab, random: Random) -> None:
    """SIGKILL broker and daemon of a host at once; start the daemon first."""
    node = random.choice(NODES)
    lab.daemons[node].kill()
    lab.cluster.kill(node)
    lab.daemons[node].start()
    lab.cluster.start(node)
    lab.daemons[node].wait_ready(deadline_s=60)
    lab.wait_in_sync(BUSY_PARTITIONS)


def kill_daemon(lab: ClusterLab, random: Random) -> None:
    """SIGKILL a daemon, and again as soon as it is ready."""
    node = random.choice(NODES)
    for _ in range(2):
        lab.restart_daemon(node)


def freeze_daemon(lab: ClusterLab, random: Random) -> None:
    """SIGSTOP a daemon while the broker beside it rolls segments and loses its leaderships; then let it continue."""
    topic, partition = random.choice(ORDERS.partitions)
    node = lab.wait_led(topic, partition, by=NODES)
    lab.daemons[node].send_signal(signal.SIGSTOP)
    lab.wait_rolled(topic, partition, segments=2)
    lab.reassign(topic, partition, [*(other for other in NODES if other != node), node])
    lab.wait_led(topic, partition, by=set(NODES) - {node})
    lab.wait_rolled(topic, partition, segments=2)
    lab.daemons[node].send_signal(signal.SIGCONT)


def move_leaders(lab: ClusterLab, random: Random) -> None:
    """Make the first replica of a new order the leader of every partition."""
    for topic, partition in ORDERS.partitions:
        order = random.sample(NODES, len(NODES))
        lab.reassign(topic, partition, order)
        lab.wait_led(topic, partition, by=[order[0]])


def move_replicas(lab: ClusterLab, random: Random) -> None:
    """Move a partition to two brokers, one of them without a replica, and away from one that may lead it."""
    here = lab.cluster.replicas(ROAMING.name, 0)
    newcomer = random.choice([node for node in NODES if node not in here])
    staying = random.choice(sorted(here))
    lab.reassign(ROAMING.name, 0, [newcomer, staying])
    lab.wait_led(ROAMING.name, 0, by=[newcomer])
    leaving = next(iter(here - {staying}))
    wait_until(
        lambda: lab.cluster.partition_dir(ROAMING.name, 0, node=leaving) is None,
        what="the old replica to go",
        deadline_s=60,
    )


def delete_records(lab: ClusterLab, random: Random) -> None:
    """Delete the first third of the records that a partition has in the tier."""
    topic, partition = random.choice(ORDERS.partitions)
    start = lab.log_starts.get((topic, partition), 0)
    lab.wait_copied([(topic, partition)])
    end = lab.cluster.leader_base_offsets(topic, partition)[-1]
    before = start + (end - start) // 3
    lab.cluster.delete_records(topic, partition, before)
    lab.log_starts[topic, partition] = before


def local_retention(lab: ClusterLab, random: Random) -> None:
    """Let the brokers delete the rolled segments of a topic, copied or not."""
    topic = random.choice(BUSY)
    rolled = {each: lab.cluster.leader_base_offsets(*each)[-1] for each in topic.partitions}
    lab.cluster.alter_topic(topic.name, {"retention.bytes": "1"})
    for each, base in rolled.items():
        wait_until(
            lambda e=each, b=base: lab.cluster.leader_base_offsets(*e)[0] >= b,  # type: ignore[misc]  # defaults bind the loop's values
            what=f"the brokers to delete {each} before {base}",
            deadline_s=60,
            interval_s=0.2,
        )
    lab.cluster.alter_topic(topic.name, {"retention.bytes": "-1"})


ACTIONS: tuple[Action, ...] = (
    kill_broker,
    kill_host,
    kill_daemon,
    freeze_daemon,
    move_leaders,
    move_replicas,
    delete_records,
    local_retention,
)


def delete_and_recreate(lab: ClusterLab, *topics: ReplicatedTopic) -> None:
    """Fill topics, delete each while the daemon of its leader is down, and create others under their names."""
    for topic in topics:
        lab.traffic.create(topic)
        lab.traffic.fill(topic, rolled_segments=2)
        lab.wait_copied(topic.partitions)
        lab.traffic.journal.forget(topic.name)
        lab.old_topics[topic.name] = lab.cluster.topic_id(topic.name)
    for topic in topics:
        owner = lab.wait_led(topic.name, 0, by=NODES)
        lab.daemons[
            owner
        ].kill()  # only this daemon may begin to remove the tier, and it is down while the topic is deleted
        lab.cluster.delete_topic(topic.name)
        for name, partition in topic.partitions:
            wait_until(
                lambda n=name, p=partition: lab.cluster.partition_dir(n, p) is None,  # type: ignore[misc]  # defaults bind the loop's values
                what=f"the directories of {name} to go",
                deadline_s=30,
            )
        lab.traffic.create(topic)
        lab.daemons[owner].start()
        lab.traffic.fill(topic, rolled_segments=2)
        lab.daemons[owner].wait_ready(deadline_s=60)


def pause_a_copying_leader(lab: ClusterLab, topic: str, partition: int) -> None:
    """Pause a host in the middle of a copy until another leads and has copied; then wake its daemon first.

    The daemon still takes itself for the leader, since its broker is paused. The metadata store refuses its writes, and
    it changes no row of the partition.
    """
    node = lab.wait_led(topic, partition, by=NODES)
    lab.restart_daemon(node)
    lab.paths[node].add("latency", "upstream", latency=3_000)
    topic_id = lab.cluster.topic_id(topic)

    def view() -> PartitionView:
        found = read_rows(lab.hosts[node]).of(topic_id, partition)
        assert found is not None, f"{topic}-{partition} has no rows"
        return found

    def begun_here() -> bool:
        return any(row.state is _STARTED and row.broker_id == node for row in view().list())

    wait_until(begun_here, what=f"host {node} to begin a copy", deadline_s=60, interval_s=0.2)
    lab.freeze_host(node)
    lab.paths[node].remove("latency", "upstream")
    lab.wait_led(topic, partition, by=set(NODES) - {node})
    lab.wait_rolled(topic, partition, segments=2)
    lab.wait_copied([(topic, partition)])
    wait_until(lambda: not begun_here(), what="the new leader to sweep the copy", deadline_s=60, interval_s=0.2)
    claimed, written = view().claim, written_by(view(), node)
    fenced = lab.daemons[node].metrics  # counted once the daemon is awake

    lab.thaw_daemon(node)

    wait_until(
        lambda: fenced()["tierd_metadata_fenced_writes_total"] >= 1,
        what=f"host {node} to be fenced",
        deadline_s=30,
        last_seen=lab.daemons[node].log_tail,
        interval_s=0.2,
    )
    now = view()
    assert claimed is not None
    assert claimed.broker_id != node
    assert now.claim == claimed, f"{topic}-{partition}: {claimed} became {now.claim}"
    assert written_by(now, node) == written, f"{topic}-{partition}: a fenced writer changed rows"
    # Killed before that, it would leave objects without a row, which only tierd repair-tier removes.
    wait_until(lambda: not orphans(lab), what="the fenced writer to remove its objects", deadline_s=60, interval_s=0.2)
    lab.thaw_host(node)
    lab.wait_in_sync(BUSY_PARTITIONS)


_STARTED = RemoteLogSegmentState.COPY_SEGMENT_STARTED


def written_by(view: PartitionView, node: int) -> set[tuple[str, str]]:
    """Return the segments whose last state a broker wrote, with that state."""
    return {(str(row.segment), row.state.name) for row in view.list() if row.broker_id == node}


def elect_unclean(lab: ClusterLab) -> None:
    """Lose records that only a dead leader had, some of them in the tier, and write others at their offsets."""
    name = RISKY.name
    lab.traffic.create(RISKY)
    lab.traffic.fill(RISKY, rolled_segments=2)
    lab.wait_in_sync(RISKY.partitions)
    lab.wait_copied(RISKY.partitions)
    committed = lab.cluster.consume_all([(name, 0)])[name, 0]
    lab.cluster.kill(2)
    wait_until(lambda: lab.cluster.in_sync(name, 0) == {1}, what="a leader alone", deadline_s=30)
    lab.traffic.fill(RISKY, rolled_segments=3)
    lab.wait_copied(RISKY.partitions)
    lost = lab.cluster.end_offset(name, 0)
    lab.cluster.kill(1)
    lab.cluster.start(2)
    lab.wait_led(name, 0, by=[-1])  # the new controller needs a while to notice the death of the leader
    lab.cluster.elect_unclean(name, 0)
    lab.wait_led(name, 0, by=[2])
    assert lab.cluster.end_offset(name, 0) < lost, "no record was lost"
    lab.traffic.begin_anew()
    lab.traffic.fill(RISKY, rolled_segments=2)
    lab.cluster.start(1)
    lab.wait_in_sync(RISKY.partitions)
    now = lab.cluster.consume_all([(name, 0)])[name, 0]
    assert now[: len(committed)] == committed
