"""Three real brokers with a tierd each, one metadata store, one bucket: the tier is whole after any faults."""

from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

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
from tests.scenarios.installation import Settings
from tests.scenarios.stores import SpoilableS3
from tests.scenarios.tier_audit import (
    assert_host_reads,
    assert_no_bugs,
    assert_verified,
    assert_whole,
    read_rows,
    wait_quiet,
)
from tests.scenarios.warm_tierd import WarmTierd
from tests.services.faulty_path import FaultyPath
from tests.services.kafka_fixtures import MakeCluster
from tests.services.waiting import wait_until

pytestmark = [pytest.mark.service("kafka"), pytest.mark.service("s3")]


@pytest.fixture(params=["postgres", "redis"])
def shared_metadata(request: pytest.FixtureRequest) -> Settings:
    """Return the ``metadata`` section of a store that several brokers share."""
    if request.param == "postgres":
        return {"backend": "postgres", "postgres": {"dsn": request.getfixturevalue("postgres_dsn")}}
    return {"backend": "redis", "redis": {"url": request.getfixturevalue("redis_url")}}


@pytest.fixture
def own_paths(spoilable_s3: SpoilableS3, faulty_path_to: Callable[[str], FaultyPath]) -> dict[int, FaultyPath]:
    """Return the way of each host to the bucket."""
    return {node: faulty_path_to(spoilable_s3.service.endpoint_url) for node in NODES}


@pytest.fixture
def lab(  # noqa: PLR0917 - fixtures
    tmp_path: Path,
    kafka_cluster: MakeCluster,
    shared_metadata: Settings,
    spoilable_s3: SpoilableS3,
    own_paths: dict[int, FaultyPath],
    warm_tierd: WarmTierd,
) -> ClusterLab:
    """Start the cluster, and not yet the daemons."""
    return ClusterLab(
        tmp_path,
        kafka_cluster(nodes=3, version="4.3.1"),
        metadata=shared_metadata,
        s3=spoilable_s3,
        own_paths=own_paths,
        warm=warm_tierd,
        seed=7,
    )


@pytest.mark.spec("remote-tiering 257")
def test_random_faults_of_brokers_and_daemons_lose_no_record_and_leave_no_orphan(lab: ClusterLab) -> None:
    random = Random(7)
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

        assert_whole(lab, [*BUSY_PARTITIONS, *DROPPED.partitions, *KEPT.partitions])
        survived = lab.cluster.consume_all(RISKY.partitions, committed=True)
        for node in NODES:
            assert_host_reads(lab, node, RISKY.name, 0, survived[RISKY.name, 0], journalled=False)
        kept = read_rows(lab.hosts[1]).of(lab.old_topics[KEPT.name], 0)
        assert kept is not None
        assert kept.list()
        assert_verified(lab.hosts.values())
        assert_one_identity(lab)
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
