"""Restores of single topics into a real broker: cuts, undecided transactions, failures, settings, groups."""

import shlex
from collections.abc import AsyncGenerator, Mapping
from dataclasses import replace
from pathlib import Path
from uuid import UUID, uuid4

import pytest

from tests.log.logs import lead, lead_marker, records
from tests.restore.live_cluster.restoring import Restoring, copied, plan_of
from tests.restore.log_dir.lab import closed, new_log
from tests.services.kafka_cluster import KafkaCluster
from tests.services.kafka_records import SentRecord
from tierd.control.kafka_messages import describe_changed_topic_configs
from tierd.errors import (
    CorruptRecordError,
    KafkaError,
    RefusedError,
    RemoteResourceNotFoundError,
    RetriableRemoteStorageError,
)
from tierd.log import Producer
from tierd.model import IndexType, RemoteLogSegmentMetadata, TopicIdPartition, TopicPartition, uuid_to_text
from tierd.remote import SegmentStorage
from tierd.restore.catalogue.catalogue_objects import CommittedPosition
from tierd.restore.live_cluster.group_restore import PositionChange, log_bounds, plan_positions, set_positions
from tierd.restore.live_cluster.target_cluster import TargetCluster
from tierd.restore.plan.topic_retention import HELD_SETTINGS, hold_command, lift_command

pytestmark = pytest.mark.service("kafka")


async def test_topic_that_exists_is_refused_and_stays_as_it_is(
    restoring: Restoring, cluster: KafkaCluster, tmp_path: Path
) -> None:
    cluster.create_topic(restoring.name)
    with pytest.raises(RefusedError, match="has a topic") as refused:
        await restoring.run(plan_of(restoring, await copied(restoring, tmp_path)))
    assert "--rename" in refused.value.remedy
    assert cluster.end_offset(restoring.name, 0) == 0


async def test_topic_whose_broker_stamps_records_is_refused(
    restoring: Restoring, cluster: KafkaCluster, tmp_path: Path
) -> None:
    cluster.create_topic(restoring.name, configs={"message.timestamp.type": "LogAppendTime"})
    with pytest.raises(RefusedError, match="LogAppendTime"):
        await restoring.run(plan_of(restoring, await copied(restoring, tmp_path)), may_exist=True)


async def test_setting_that_the_target_does_not_know_is_named(restoring: Restoring, tmp_path: Path) -> None:
    with pytest.raises(KafkaError, match="invalid_config"):
        await restoring.run(plan_of(restoring, await copied(restoring, tmp_path)), config={"no.such.key": "1"})


async def test_settings_of_the_catalogue_are_in_force_once_the_topic_is_complete(
    restoring: Restoring, cluster: KafkaCluster, tmp_path: Path
) -> None:
    wanted = {"message.timestamp.type": "LogAppendTime", "compression.type": "gzip"}
    plan = plan_of(restoring, await copied(restoring, tmp_path))

    assert (await restoring.run(plan, config=wanted)).problem is None

    restored = cluster.consume_all([(restoring.name, 0)])[restoring.name, 0]
    assert {record["timestampType"] for record in restored} == {"CreateTime"}
    with cluster.producer() as producer:
        producer.send(restoring.name, 0, [SentRecord(key=b"new", value=b"x", timestamp_ms=1)])
    newest = cluster.consume_all([(restoring.name, 0)])[restoring.name, 0][-1]
    assert newest["timestampType"] == "LogAppendTime"


async def test_restore_ends_where_a_transaction_is_not_decided_in_the_tier(
    restoring: Restoring, cluster: KafkaCluster, tmp_path: Path
) -> None:
    log = new_log(tmp_path / "source")
    lead(log, records(3, producer=Producer(7, 0, 0), transactional=True))
    lead_marker(log, 7, commit=True)
    log.roll(now_ms=1)
    lead(log, records(2, producer=Producer(7, 0, 3), transactional=True))  # 4, 5: decided in the last segment
    lead(log, records(2, producer=Producer(8, 0, 0), transactional=True))  # 6, 7: aborted
    log.roll(now_ms=2)
    lead(log, records(1))  # 8
    lead_marker(log, 8, commit=False)  # 9
    lead(log, records(2, producer=Producer(9, 0, 0), transactional=True))  # 10, 11: open in the tier
    lead_marker(log, 7, commit=True)  # 12
    lead(log, records(1))  # 13
    log.roll(now_ms=3)
    segments = await restoring.lab.copy(closed(log))

    assert (await restoring.run(plan_of(restoring, segments))).problem is None

    assert restoring.ranges() == [(0, 3, 0), (4, 2, 3), (8, 1, 5)]
    assert cluster.end_offset(restoring.name, 0) == 6


async def test_cut_in_the_middle_leaves_out_what_is_undecided_there(restoring: Restoring, tmp_path: Path) -> None:
    log = new_log(tmp_path / "source")
    lead(log, records(2))  # 0, 1
    log.roll(now_ms=1)
    lead(log, records(3, producer=Producer(7, 0, 0), transactional=True))  # 2 to 4
    lead(log, records(2))  # 5, 6
    lead_marker(log, 7, commit=True)  # 7
    lead(log, records(2))
    log.roll(now_ms=2)
    segments = await restoring.lab.copy(closed(log))

    assert (await restoring.run(plan_of(restoring, segments, end_offset=7))).problem is None

    assert restoring.ranges() == [(0, 2, 0)]


async def test_start_in_the_middle_takes_the_rest_of_the_batch(
    restoring: Restoring, cluster: KafkaCluster, tmp_path: Path
) -> None:
    plan = replace(plan_of(restoring, await copied(restoring, tmp_path)), log_start_offset=27)

    assert (await restoring.run(plan)).problem is None

    assert restoring.ranges() == [(27, 33, 0)]
    assert cluster.end_offset(restoring.name, 0) == 33


async def test_large_batches_are_sent_in_parts_that_the_topic_takes(
    restoring: Restoring, cluster: KafkaCluster, tmp_path: Path
) -> None:
    log = new_log(tmp_path / "source")
    lead(log, records(50, value=b"v" * 100))
    lead(log, records(1, value=b"w" * 900))
    log.roll(now_ms=1)
    segments = await restoring.lab.copy(closed(log))

    outcome = await restoring.run(plan_of(restoring, segments), config={"max.message.bytes": "800"})
    assert isinstance(outcome.problem, KafkaError)
    assert "message_too_large" in str(outcome.problem)
    cluster.alter_topic(restoring.name, {"max.message.bytes": "2000"})
    assert (await restoring.run(plan_of(restoring, segments), config={"max.message.bytes": "800"})).problem is None

    assert restoring.ranges() == [(0, 51, 0)]
    assert cluster.end_offset(restoring.name, 0) == 51


async def test_store_that_is_away_before_the_first_record_is_asked_again(
    restoring: Restoring, cluster: KafkaCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = plan_of(restoring, await copied(restoring, tmp_path))
    fetch_index, failures = SegmentStorage.fetch_index, iter((1, 2))

    async def away_twice(storage: SegmentStorage, metadata: RemoteLogSegmentMetadata, kind: IndexType) -> bytes:
        if next(failures, None) is not None:
            raise RetriableRemoteStorageError("the store is away", remedy="wait")
        return await fetch_index(storage, metadata, kind)

    monkeypatch.setattr(SegmentStorage, "fetch_index", away_twice)

    assert (await restoring.run(plan)).problem is None

    assert next(failures, None) is None
    assert restoring.ranges() == [(0, 60, 0)]
    assert cluster.end_offset(restoring.name, 0) == 60


async def test_missing_segment_fails_its_partition_behind_what_was_before(
    restoring: Restoring, cluster: KafkaCluster, tmp_path: Path
) -> None:
    segments = await copied(restoring, tmp_path)
    gone = replace(segments[1], segment=replace(segments[1].segment, id=uuid4()))
    plan = plan_of(restoring, [segments[0], gone, segments[2]])

    outcome = await restoring.run(plan)

    assert isinstance(outcome.problem, RemoteResourceNotFoundError)
    assert uuid_to_text(gone.segment.id) in str(outcome.problem)
    restored = cluster.consume_all([(restoring.name, 0)])[restoring.name, 0]
    assert [record["offset"] for record in restored] == list(range(len(restored)))
    assert len(restored) <= 20


async def test_damaged_segment_fails_its_partition_and_no_record_of_it_is_sent(
    restoring: Restoring, cluster: KafkaCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    segments = await copied(restoring, tmp_path)
    storage, plain = restoring.lab.storage, restoring.lab.storage.stream_log_segment

    async def damaged(
        metadata: RemoteLogSegmentMetadata, start_position: int, end_position: int | None = None
    ) -> AsyncGenerator[bytes, None]:
        async for piece in plain(metadata, start_position, end_position):
            data = bytearray(piece)
            data[70] ^= metadata == segments[1]  # in the first batch, behind its header
            yield bytes(data)

    monkeypatch.setattr(storage, "stream_log_segment", damaged)

    outcome = await restoring.run(plan_of(restoring, segments))

    assert isinstance(outcome.problem, CorruptRecordError)
    assert uuid_to_text(segments[1].segment.id) in str(outcome.problem)
    restored = cluster.consume_all([(restoring.name, 0)])[restoring.name, 0]
    assert [record["offset"] for record in restored] == list(range(len(restored)))
    assert len(restored) <= 20


async def test_topic_with_fewer_partitions_than_the_source_is_refused(
    restoring: Restoring, cluster: KafkaCluster, tmp_path: Path
) -> None:
    cluster.create_topic(restoring.name, partitions=2)
    source = TopicIdPartition(UUID(int=7), "orders", 2)  # the source has got more partitions since
    plan = replace(plan_of(restoring, await copied(restoring, tmp_path)), partition=source)

    with pytest.raises(RefusedError, match="has 2 partitions, the restore needs 3") as refused:
        await restoring.run(plan, may_exist=True)

    assert "add partitions" in refused.value.remedy
    assert [cluster.end_offset(restoring.name, number) for number in range(2)] == [0, 0]


async def test_positions_of_groups_are_set_within_the_bounds_of_the_target(
    target: TargetCluster, cluster: KafkaCluster
) -> None:
    topic, group = f"kept-{uuid4().hex[:8]}", f"group-{uuid4().hex[:8]}"
    cluster.create_topic(topic, partitions=2)
    with cluster.producer() as producer:
        producer.send(topic, 0, [SentRecord(key=b"k", value=b"v", timestamp_ms=1)] * 10)
        producer.send(topic, 1, [SentRecord(key=b"k", value=b"v", timestamp_ms=1)] * 10)
    cluster.delete_records(topic, 1, 4)
    names = [TopicPartition(topic, 0), TopicPartition(topic, 1), TopicPartition("missing", 0)]
    groups = {
        group: {
            names[0]: CommittedPosition(offset=99, leader_epoch=3, metadata="note", committed_ms=1),
            names[1]: CommittedPosition(offset=2, leader_epoch=3, metadata="", committed_ms=1),
            names[2]: CommittedPosition(offset=2, leader_epoch=3, metadata="", committed_ms=1),
        }
    }
    bounds = await log_bounds(target, names)
    assert bounds == {names[0]: (0, 10), names[1]: (4, 10)}
    planned = plan_positions(groups, None, bounds)
    assert {each.source: (each.change, each.new_offset) for each in planned} == {
        names[0]: (PositionChange.LOWERED, 10),
        names[1]: (PositionChange.RAISED, 4),
        names[2]: (PositionChange.SKIPPED, -1),
    }

    outcomes = await set_positions(target, planned)

    assert [(each.group, each.problem) for each in outcomes] == [(group, None)]
    assert await set_positions(target, planned) == outcomes  # again: the same


async def test_commands_that_a_plan_prints_hold_and_lift_the_retention(
    target: TargetCluster, cluster: KafkaCluster
) -> None:
    name = f"held-{uuid4().hex[:8]}"
    cluster.create_topic(name, configs={"retention.ms": "86400000"})

    async def settings() -> Mapping[str, str]:
        (topic,) = await target.ask(describe_changed_topic_configs([name]))
        return {key: value for key, value in (topic.settings or {}).items() if key in HELD_SETTINGS}

    before = await settings()
    run_printed(cluster, hold_command(name, cluster.bootstrap))
    assert await settings() == HELD_SETTINGS
    run_printed(cluster, lift_command(name, {"retention.bytes": None, **before}, cluster.bootstrap))
    assert await settings() == before == {"retention.ms": "86400000"}


def run_printed(cluster: KafkaCluster, command: str) -> None:
    """Run a command of ``kafka-configs.sh`` as it is printed."""
    program, option, _, *arguments = shlex.split(command)
    assert (program, option) == ("kafka-configs.sh", "--bootstrap-server")
    cluster.run_tool("kafka.admin.ConfigCommand", *arguments)
