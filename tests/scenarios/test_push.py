"""Push replication of daemons beside a real broker: what the broker writes is on another host a moment later."""

import asyncio
from pathlib import Path

import pytest

from tests.fakes.eventually import eventually
from tests.scenarios.conftest import MakeBroker, MakeInstallation
from tests.scenarios.push_hosts import PushHosts, batches_in, cluster_id_of, copies_of
from tests.scenarios.traffic import TopicPlan, Traffic
from tests.services.kafka_cluster import KafkaBroker

pytestmark = pytest.mark.service("kafka")

TOPICS = (TopicPlan(name="plain", partitions=2), TopicPlan(name="transactional", transactional=True))


@pytest.mark.spec("push-replication 2.14")
async def test_standby_has_the_batches_of_the_broker_before_and_after_new_traffic(
    tmp_path: Path, make_broker: MakeBroker, make_installation: MakeInstallation
) -> None:
    broker = await asyncio.to_thread(make_broker)
    traffic = Traffic(broker, TOPICS, seed=11)
    await asyncio.to_thread(traffic.create_topics)
    await asyncio.to_thread(lambda: traffic.fill(rolled_segments=2))
    hosts = PushHosts()
    leader = make_installation(broker.log_dirs, name="leader", settings=hosts.leader())
    standby = make_installation([], name="standby", settings=hosts.standby(tmp_path / "standby", cluster_id_of(broker)))

    with leader.daemon(), standby.daemon():
        await same_batches(broker, copies_of(standby))
        await asyncio.to_thread(lambda: Traffic(broker, TOPICS, seed=12).fill(rolled_segments=3))
        await same_batches(broker, copies_of(standby))


async def same_batches(broker: KafkaBroker, copies: Path) -> None:
    """Return when the copies have the batches of the broker's partitions, byte for byte."""
    names = [name for topic in TOPICS for name in topic.partition_names]

    def is_same() -> bool:
        written = {name: batches_in(broker.log_dirs[0] / name) for name in names}  # markers come after the commit
        return all(written.values()) and {name: batches_in(copies / name) for name in names} == written

    await eventually(is_same, what=f"the batches of {names} in {copies}", deadline_s=60)
