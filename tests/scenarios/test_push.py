"""Push replication of daemons beside a real broker: what the broker writes is on another host a moment later."""

import asyncio
import json
from pathlib import Path

import pytest

from tests.fakes.eventually import eventually
from tests.scenarios.conftest import MakeBroker, MakeInstallation
from tests.scenarios.installation import Daemon, Installation
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

    with leader.daemon() as led, standby.daemon():
        await same_batches(broker, copies_of(standby))
        await asyncio.to_thread(lambda: Traffic(broker, TOPICS, seed=12).fill(rolled_segments=3))
        await same_batches(broker, copies_of(standby))
        assert "push: 3 partitions to nodes 2" in leader.ask("status").output
        assert "standby: 3 copies" in standby.ask("status").output

        leader.configure({"push": {"enabled": False}})
        led.reload()
        assert "push: switched off" in leader.ask("status").output
        led.wait_until(lambda: led.metrics()['tierd_push_active_sessions{peer="2"}'] == 0, what="the end of sessions")


@pytest.mark.spec("push-replication F12", "push-replication F13")
async def test_topic_that_the_cluster_has_deleted_is_deleted_on_the_standby_and_a_newer_one_takes_its_place(
    tmp_path: Path, make_broker: MakeBroker, make_installation: MakeInstallation
) -> None:
    broker = await asyncio.to_thread(make_broker)
    topics = (TopicPlan(name="plain", configs={"retention.ms": "77777777", "file.delete.delay.ms": "1000"}),)
    traffic = Traffic(broker, topics, seed=21)
    await asyncio.to_thread(traffic.create_topics)
    await asyncio.to_thread(lambda: traffic.fill(rolled_segments=1))
    hosts = PushHosts()
    by_cluster = {
        "leadership": {"source": "kafka", "kafka": {"bootstrap_servers": [broker.address(1)], "refresh": "1s"}}
    }
    leader = make_installation(broker.log_dirs, name="leader", settings={**hosts.leader(), **by_cluster})
    standby = make_installation([], name="standby", settings=hosts.standby(tmp_path / "s", cluster_id_of(broker)))
    former = copies_of(standby) / "plain-0" / "partition.metadata"

    with leader.daemon() as led, standby.daemon() as kept:
        kept.wait_until(lambda: copy_modes(kept) == {"plain-0": "push"}, what="a session")
        led.wait_until(lambda: why_not_pushed(led) == [""], what="the leader's status to have the session")
        kept.wait_until(lambda: settings_of(standby, "plain").get("retention.ms") == "77777777", what="the settings")
        first = former.read_text()

        await asyncio.to_thread(lambda: broker.delete_topic("plain"))
        kept.wait_until(lambda: not former.exists(), what="the end of the copy", deadline_s=120)

        await asyncio.to_thread(Traffic(broker, topics, seed=22).create_topics)
        await asyncio.to_thread(lambda: Traffic(broker, topics, seed=22).fill(rolled_segments=1))
        kept.wait_until(lambda: copy_modes(kept) == {"plain-0": "push"}, what="a session of the newer topic")
        assert former.read_text() != first
        led.wait_until(lambda: led.metrics()["tierd_unprotected_max_bytes"] == 0, what="all to be protected")


def settings_of(standby: Installation, topic: str) -> dict[str, str]:
    """Return the settings that the copies of a topic follow, as the standby remembers them."""
    memory: dict[str, dict[str, dict[str, str]]] = json.loads((standby.state_dir / "push-standby.json").read_text())
    return memory["topics"].get(topic, {})


def why_not_pushed(daemon: Daemon) -> list[str]:
    """Return what a leader says of each standby of each partition; its status is up to a second old."""
    partitions = daemon.status()["push"]["leader"]["partitions"]
    return [standby["why_not_pushed"] for each in partitions for standby in each["standbys"]]


def copy_modes(daemon: Daemon) -> dict[str, str]:
    """Return the mode of each copy of a standby."""
    return {each["partition"]: each["mode"] for each in daemon.status()["push"]["standby"]["partitions"]}


async def same_batches(broker: KafkaBroker, copies: Path) -> None:
    """Return when the copies have the batches of the broker's partitions, byte for byte."""
    names = [name for topic in TOPICS for name in topic.partition_names]

    def is_same() -> bool:
        written = {name: batches_in(broker.log_dirs[0] / name) for name in names}  # markers come after the commit
        return all(written.values()) and {name: batches_in(copies / name) for name in names} == written

    await eventually(is_same, what=f"the batches of {names} in {copies}", deadline_s=60)
