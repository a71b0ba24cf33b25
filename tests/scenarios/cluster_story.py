"""Story of three brokers with a tierd each, one metadata store and one bucket: the tier is whole after any faults.

Each metadata store has a file of tests of its own, so that two processes share the stories.
"""

from random import Random

from tests.scenarios.chaos import (
    ACTIONS,
    BUSY,
    BUSY_PARTITIONS,
    DROPPED,
    KEPT,
    ORDERS,
    RISKY,
    delete_and_recreate,
    elect_unclean,
    pause_a_copying_leader,
)
from tests.scenarios.cluster_lab import NODES, ClusterLab
from tests.scenarios.tier_audit import (
    assert_host_reads,
    assert_no_bugs,
    assert_verified,
    assert_whole,
    read_rows,
    wait_quiet,
)
from tests.services.kafka_groups import ConsumerGroups
from tests.services.waiting import wait_until

SEED = 7


def assert_survives_faults(lab: ClusterLab) -> None:
    """Disturb brokers and daemons at random, and check that no record is lost and no orphan is left."""
    random = Random(SEED)
    with lab:
        for topic in BUSY:
            lab.traffic.create(topic)
        lab.traffic.switch_on(*BUSY)
        delete_and_recreate(lab, DROPPED, KEPT)
        pause_a_copying_leader(lab, ORDERS.name, 0)
        for action in random.sample(ACTIONS, len(ACTIONS)):
            action(lab, random)
        elect_unclean(lab)
        lab.traffic.stop()

        everything = [*BUSY_PARTITIONS, *DROPPED.partitions, *KEPT.partitions, *RISKY.partitions]
        lab.wait_in_sync(everything)
        lab.wait_copied(everything)
        wait_gone(lab, DROPPED.name)
        wait_quiet(lab)
        assert read_rows(lab.hosts[1]).diverged_topics() <= {RISKY.name}

        assert_whole(lab, [*BUSY_PARTITIONS, *DROPPED.partitions, *KEPT.partitions])
        survived = lab.cluster.consume_all(RISKY.partitions, committed=True)
        for node in NODES:
            assert_host_reads(lab, node, RISKY.name, 0, survived[RISKY.name, 0], journalled=False)
        kept = read_rows(lab.hosts[1]).of(lab.old_topics[KEPT.name], 0)
        assert kept is not None
        assert kept.list()
        assert_verified(lab.hosts.values())
        assert_one_identity(lab)
        assert_groups_outlive_their_coordinator(lab)
        assert_no_bugs(lab)


def wait_gone(lab: ClusterLab, topic: str) -> None:
    """Wait until no object and no row is left of the tier of a deleted topic."""
    topic_id = lab.old_topics[topic]

    def is_gone() -> bool:
        rows = read_rows(lab.hosts[1]).of(topic_id, 0)
        return rows is None or rows.list() == ()

    wait_until(is_gone, what=f"the tier of the deleted {topic}", deadline_s=90, interval_s=0.5)


def assert_one_identity(lab: ClusterLab) -> None:
    """Check that one of three daemons claimed the empty bucket and store, for all of them."""
    keys = lab.s3.admin.keys(lab.s3.bucket)
    assert len([key for key in keys if key.endswith("tierd.json")]) == 1
    assert all(daemon.is_ready() for daemon in lab.daemons.values())


def assert_groups_outlive_their_coordinator(lab: ClusterLab) -> None:
    """Check that the catalogue has the commits of a coordinator that is killed, and then those of the next one."""
    consumers = ConsumerGroups(lab.cluster)
    for offset in (5, 7):
        consumers.commit("readers", {(ORDERS.name, 0): offset})
        coordinator = lab.cluster.leader("__consumer_offsets", 0)
        assert {key: committed for key, (committed, _) in consumers.described().items()} == {
            ("readers", ORDERS.name, 0): offset
        }
        wait_catalogued(lab, offset)
        if offset == 5:
            lab.cluster.kill(coordinator)
    lab.cluster.start(*(set(NODES) - set(lab.cluster.running)))


def wait_catalogued(lab: ClusterLab, offset: int) -> None:
    """Wait until the catalogue has ``offset`` as the only commit."""
    expected = {("readers", ORDERS.name, 0): offset}
    wait_until(
        lambda: catalogued_offsets(lab) == expected,
        what=f"offset {offset} in the catalogue",
        deadline_s=60,
        last_seen=lambda: catalogued_offsets(lab),
        interval_s=0.5,
    )


def catalogued_offsets(lab: ClusterLab) -> dict[tuple[str, str, int], int]:
    """Return the committed offsets in the catalogue, by group, topic and partition."""
    shown = lab.hosts[1].ask("groups", "--json")
    assert shown.exit_code == 0, shown.output
    return {(row["group"], row["topic"], row["partition"]): row["offset"] for row in shown.json()}
