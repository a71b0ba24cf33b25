"""Sources of topics: brokers and log dirs; versions of a topic as both see it."""

from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest
from kio.schema.errors import ErrorCode

from tests.control.connecting import plaintext
from tests.fakes.clock import FakeClock
from tests.fakes.kafka_broker import CLUSTER_ID, ScriptedBroker
from tests.restore.catalogue.offsets_log import OffsetsLog
from tierd.control import ClusterTopics
from tierd.errors import KafkaError
from tierd.log import DirectoryKind, PartitionDirectory, PartitionScan
from tierd.model import EpochEntry, Lineage, TopicIdPartition, TopicPartition
from tierd.restore.catalogue.catalogue_objects import CataloguedTopic
from tierd.restore.catalogue.local_partitions import LocalPartition, LocalPartitions
from tierd.restore.catalogue.topic_sources import MAX_VERSIONS, BrokerTopics, LogDirTopics, versions_with

ORDERS, PAYMENTS, OFFSETS = UUID(int=1), UUID(int=2), UUID(int=3)
NAMES = {ORDERS: "orders", PAYMENTS: "payments", OFFSETS: "__consumer_offsets"}


def local(*partitions: tuple[UUID, int], epoch: int | None = 4) -> dict[TopicIdPartition, LocalPartition]:
    """Return empty local partitions of the topics in ``NAMES``."""
    lineage = Lineage() if epoch is None else Lineage((EpochEntry(epoch, 0),))
    found = {}
    for topic_id, number in partitions:
        name = TopicPartition(NAMES[topic_id], number)
        directory = PartitionDirectory(Path("/data") / str(name), name, topic_id, DirectoryKind.CURRENT, 1)
        found[directory.partition] = LocalPartition(PartitionScan(directory, (), (), lineage, -1), 0, None)
    return found


def partition(topic_id: UUID, number: int) -> TopicIdPartition:
    return TopicIdPartition(topic_id, NAMES[topic_id], number)


async def test_log_dirs_tell_of_the_partitions_that_the_configuration_names_as_led() -> None:
    source = LogDirTopics(leads=lambda each: each.partition != 2, node_id=7, clock=FakeClock())
    found = local((ORDERS, 0), (ORDERS, 1), (ORDERS, 2), (OFFSETS, 0)) | local((PAYMENTS, 0), epoch=None)
    survey = await source.survey(found)
    assert survey.led == {partition(ORDERS, 0): 4, partition(ORDERS, 1): 4, partition(OFFSETS, 0): 4}
    (topic,) = survey.topics
    assert (topic.name, topic.partition_count, topic.assignment) == ("orders", 2, {0: (7,), 1: (7,)})
    assert (topic.replication_factor, topic.config, topic.is_from_cluster) == (0, {}, False)


async def test_brokers_tell_leaders_replicas_and_changed_settings() -> None:
    broker = ScriptedBroker(
        topics={ORDERS: {0: (1, 5), 1: (2, 6)}, PAYMENTS: {0: (2, 1)}, OFFSETS: {0: (1, 9), 1: (1, 9)}},
        configs={"orders": {"retention.ms": "1"}},
    )
    async with broker.listening() as address:
        clock = FakeClock()
        source = BrokerTopics(ClusterTopics(plaintext(address), cluster_id=CLUSTER_ID), node_id=1, clock=clock)
        found = local((ORDERS, 0), (ORDERS, 1), (PAYMENTS, 0), (OFFSETS, 0))
        survey = await source.survey(found)
        assert survey.led == {partition(ORDERS, 0): 5, partition(OFFSETS, 0): 9}
        (topic,) = survey.topics
        assert (topic.name, topic.partition_count, topic.replication_factor) == ("orders", 2, 3)
        assert (topic.config, topic.assignment) == ({"retention.ms": "1"}, {0: (1, 2, 3), 1: (1, 2, 3)})
        assert survey.problem == ""
        assert (await source.survey(found)).topics == ()
        clock.advance(301)
        assert len((await source.survey(found)).topics) == 1


async def test_brokers_tell_the_settings_in_force_that_a_restore_needs() -> None:
    broker = ScriptedBroker(
        topics={ORDERS: {0: (1, 5)}},
        configs={"orders": {"retention.ms": "1", "segment.bytes": "7"}},
        defaults={"retention.ms": "604800000", "cleanup.policy": "delete", "max.message.bytes": "9"},
    )
    async with broker.listening() as address:
        source = BrokerTopics(ClusterTopics(plaintext(address), cluster_id=CLUSTER_ID), node_id=1, clock=FakeClock())
        (topic,) = (await source.survey(local((ORDERS, 0)))).topics
    assert topic.config == {"retention.ms": "1", "segment.bytes": "7"}
    assert topic.effective == {"retention.ms": "1", "cleanup.policy": "delete"}


async def test_new_topic_is_told_at_once_and_the_others_when_they_are_due() -> None:
    broker = ScriptedBroker(
        topics={ORDERS: {0: (1, 5)}, PAYMENTS: {0: (1, 1)}}, configs={"orders": {}, "payments": {"a": "b"}}
    )
    async with broker.listening() as address:
        source = BrokerTopics(ClusterTopics(plaintext(address), cluster_id=CLUSTER_ID), node_id=1, clock=FakeClock())
        assert [each.name for each in (await source.survey(local((ORDERS, 0)))).topics] == ["orders"]
        (topic,) = (await source.survey(local((ORDERS, 0), (PAYMENTS, 0)))).topics
        assert (topic.name, topic.config) == ("payments", {"a": "b"})
        assert (await source.survey(local((ORDERS, 0), (PAYMENTS, 0)))).topics == ()


async def test_topic_that_the_brokers_do_not_tell_of_is_a_problem_and_a_deleted_one_is_none() -> None:
    broker = ScriptedBroker(topics={OFFSETS: ErrorCode.topic_authorization_failed, ORDERS: {0: (1, 5)}})
    async with broker.listening() as address:
        cluster = ClusterTopics(plaintext(address), cluster_id=CLUSTER_ID)
        source = BrokerTopics(cluster, node_id=1, clock=FakeClock())
        assert (await source.survey(local((PAYMENTS, 0)))).problem == ""
        source = BrokerTopics(cluster, node_id=1, clock=FakeClock())
        survey = await source.survey(local((OFFSETS, 0), (ORDERS, 0)))
        assert survey.led == {partition(ORDERS, 0): 5}
        assert survey.problem == (
            "the brokers do not tell the leaders of __consumer_offsets: topic_authorization_failed"
        )


async def test_brokers_that_do_not_answer_are_an_error() -> None:
    broker = ScriptedBroker(spoil=lambda _: None)
    async with broker.listening() as address:
        cluster = ClusterTopics(plaintext(address, request_timeout_s=0.3), cluster_id=CLUSTER_ID)
        with pytest.raises(KafkaError):
            await BrokerTopics(cluster, node_id=1, clock=FakeClock()).survey(local((ORDERS, 0)))


def seen(**changes: object) -> CataloguedTopic:
    topic = CataloguedTopic(
        name="orders",
        topic_id=ORDERS,
        partition_count=2,
        replication_factor=3,
        config={},
        assignment={0: (1, 2)},
        observed_ms=100,
    )
    return replace(topic, **changes)  # type: ignore[arg-type]  # any fields


def test_topic_that_has_not_changed_makes_no_version() -> None:
    assert versions_with((seen(),), seen(observed_ms=200)) is None


def test_changed_topic_is_the_newest_version_even_where_the_clock_stepped_back() -> None:
    changed = seen(partition_count=3, observed_ms=50)
    assert versions_with((seen(),), changed) == (seen(), replace(changed, observed_ms=100))


def test_versions_beyond_the_limit_leave_the_oldest_out() -> None:
    stored = tuple(seen(partition_count=number + 1, observed_ms=number) for number in range(MAX_VERSIONS))
    versions = versions_with(stored, seen(partition_count=1000, observed_ms=1000))
    assert versions is not None
    assert versions[:-1] == stored[1:]


def test_node_that_asks_no_broker_adds_its_partitions_to_those_of_others() -> None:
    here = seen(is_from_cluster=False, replication_factor=0, partition_count=2, assignment={1: (1,)})
    other = seen(is_from_cluster=False, replication_factor=0, partition_count=4, assignment={3: (2,)})
    versions = versions_with((here,), other)
    assert versions is not None
    assert (versions[-1].partition_count, versions[-1].assignment) == (4, {1: (1,), 3: (2,)})
    assert versions_with(versions, here) is None


def test_node_that_asks_no_broker_changes_nothing_that_a_broker_said() -> None:
    assert versions_with((seen(),), seen(is_from_cluster=False, partition_count=9)) is None


def test_only_tiered_topics_and_consumer_offsets_are_found(tmp_path: Path) -> None:
    OffsetsLog(tmp_path)
    for name in ("orders-0", "other-0"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "partition.metadata").write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAABw")
    found = LocalPartitions([tmp_path], wants=lambda topic: topic == "orders").find()
    assert sorted(each.topic for each in found) == ["__consumer_offsets", "orders"]
