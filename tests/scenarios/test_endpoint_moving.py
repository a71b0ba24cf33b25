"""Clients at the endpoint while the log moves: rolled, deleted, compacted and expired segments under their reads."""

import asyncio
from base64 import b64decode
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from kio.schema.errors import ErrorCode
from kio.schema.fetch.v11.response import PartitionData

from tests.scenarios.broker_steps import let_retention_delete
from tests.scenarios.cluster_traffic import SEGMENT_BYTES, ClusterTraffic, ReplicatedTopic
from tests.scenarios.compaction_lab import KEYS, SEGMENT_RECORDS, CompactionLab
from tests.scenarios.conftest import MakeBroker, MakeInstallation
from tests.scenarios.endpoint_server import endpoint_server
from tests.scenarios.golden_server import AGAINST_BROKER, endpoint_settings
from tests.scenarios.journal import PartitionJournal, assert_agrees, encoded_value
from tests.scenarios.keyed_traffic import Reading, SeenRecord, assert_consistent
from tests.scenarios.load_client import LoadConnection
from tests.scenarios.repeated_reading import RepeatedReading
from tests.scenarios.stores import SpoilableS3
from tests.scenarios.traffic import TopicPlan
from tests.scenarios.warm_tierd import WarmTierd
from tests.services.brief_java import SPARK_CONF
from tests.services.kafka_clients.group_members import GroupMember, GroupMembers, Place, wait_seen
from tests.services.kafka_clients.librdkafka import known_partitions, read_partitions
from tests.services.kafka_clients.partitions import Partition
from tests.services.kafka_clients.reading_clients import ReadingClient, ReadingClients
from tests.services.kafka_cluster import KafkaBroker
from tests.services.kafka_fixtures import fetched_or_skip
from tests.services.kafka_records import SentRecord
from tests.services.ports import free_port
from tests.services.waiting import wait_until

ORDERS = ReplicatedTopic(name="orders", replicas=((1,), (1,)), min_in_sync=1)
PAYMENTS = ReplicatedTopic(name="payments", replicas=((1,),), min_in_sync=1, transactional=True)
PARTITIONS: list[Partition] = [*ORDERS.partitions, *PAYMENTS.partitions]
FOLLOWERS = (
    ("aiokafka", ORDERS),
    ("console-4.3.1", ORDERS),
    ("console-3.9.2", PAYMENTS),
    ("librdkafka", PAYMENTS),
    ("franz-go", PAYMENTS),
)
READERS = (("librdkafka", True), ("franz-go", True), ("kcat", True), ("librdkafka", False))
"""Clients that read again and again, and if each reads committed records alone."""

READERS_OF_THE_TIER = (("librdkafka", True), ("franz-go", False))
DELETED_SEGMENTS = 4
RUN_DEADLINE_S = 240.0
QUICK_RETENTION = {"log.retention.check.interval.ms": "300", "log.initial.task.delay.ms": "300"}
MOVING = {"retention.bytes": str(2 * SEGMENT_BYTES), "file.delete.delay.ms": "60000"}  # the delay is Kafka's default
without_stock_broker = pytest.mark.skipif(AGAINST_BROKER, reason="a broker has no tier")


@pytest.mark.service("kafka")
@pytest.mark.parametrize("version", ["3.9.2", "4.3.1"])
def test_readers_get_each_committed_record_once_while_the_broker_rolls_and_deletes(
    version: str, make_broker: MakeBroker, make_installation: MakeInstallation, tmp_path: Path
) -> None:
    broker = make_broker(version, properties=QUICK_RETENTION)
    # Clients see an end only in an answer without records, so bursts are further apart than the waits of the clients.
    traffic = ClusterTraffic(broker, seed=16, pause_s=0.1)
    with (
        endpoint_server(broker, make_installation) as server,
        ReadingClients(tmp_path) as clients,
        ExitStack() as stack,
    ):
        for topic in (ORDERS, PAYMENTS):
            traffic.create(topic)
            if not AGAINST_BROKER:
                broker.alter_topic(topic.name, MOVING)
        traffic.switch_on(ORDERS, PAYMENTS)
        wait_until(lambda: known_partitions(server.bootstrap) >= {*PARTITIONS}, what="the topics", deadline_s=30)
        followers = [_follower(server.bootstrap, name, topic, tmp_path) for name, topic in FOLLOWERS]
        readers = _readers(clients, server.bootstrap, PARTITIONS, READERS)
        with traffic:
            for follower in followers:
                stack.enter_context(follower)
            stack.enter_context(_running(readers))
            wait_until(lambda: _has_moved(broker), what="the broker to delete segments", deadline_s=240)
            _wait_more(readers, 2)
        for (_, topic), follower in zip(FOLLOWERS, followers, strict=True):
            _assert_follows(follower, topic, traffic)
    for reader in readers:
        for reading in reader.readings:
            for partition, records in reading.items():
                _assert_reading_agrees(reader, records, traffic.journal.of(*partition), partition)
    _assert_has_aborted_records(readers[-1].readings[-1]["payments", 0], traffic.journal.of("payments", 0))


def _readers(
    clients: ReadingClients, bootstrap: str, partitions: list[Partition], chosen: tuple[tuple[str, bool], ...]
) -> list[RepeatedReading]:
    """Return readers by the names of clients and the isolations, not started."""
    made: list[ReadingClient] = []
    for name, _ in chosen:
        fetched_or_skip(lambda name=name: made.append(clients.client(name)), name)  # type: ignore[misc]
    wanted = dict.fromkeys(partitions, 0)
    return [
        RepeatedReading(client, bootstrap, wanted, committed=committed)
        for client, (_, committed) in zip(made, chosen, strict=True)
    ]


def _follower(bootstrap: str, name: str, topic: ReplicatedTopic, folder: Path) -> GroupMember:
    """Return the only member of a group, which reads a topic from its start as it grows."""
    (folder / name).mkdir()
    made: list[GroupMember] = []
    members = GroupMembers(bootstrap, f"follower-{name}", topic.name, folder / name)
    fetched_or_skip(lambda: made.append(members.member(name)), name)
    return made[0]


def _has_moved(broker: KafkaBroker) -> bool:
    """Return True if the broker has rolled many segments of each partition, and has deleted them if it may."""
    starts = [broker.base_offsets(*partition) for partition in PARTITIONS]
    if AGAINST_BROKER:
        return all(len(bases) > DELETED_SEGMENTS for bases in starts)
    return all(bases[0] >= 25 * DELETED_SEGMENTS for bases in starts)


def _assert_follows(follower: GroupMember, topic: ReplicatedTopic, traffic: ClusterTraffic) -> None:
    """Fail unless a follower has read every acknowledged record, in order, and no other."""
    wanted = {
        Place(number, o) for name, number in topic.partitions for o in traffic.journal.of(name, number).acknowledged
    }
    wait_seen([follower], wanted)
    for _, number in topic.partitions:
        offsets = [place.offset for place in follower.seen() if place.partition == number]
        assert offsets == sorted(place.offset for place in wanted if place.partition == number), follower.name


def _assert_reading_agrees(
    reader: RepeatedReading, records: list[dict[str, Any]], journal: PartitionJournal, partition: Partition
) -> None:
    """Fail unless a reading has every record of its isolation as far as it goes, once, in order, and no other."""
    what = f"{partition} by {reader.name}{' committed' if reader.committed else ''}"
    assert not journal.in_doubt, "nothing happens to the broker in this story"
    offsets = [record["offset"] for record in records]
    end = offsets[-1] + 1 if offsets else 0
    if reader.name == "kcat":  # which shows headers as one text
        assert offsets == sorted(offset for offset in journal.acknowledged if offset < end), what
    elif reader.committed:
        assert_agrees(records, journal, start=0, end=end, what=what)
    else:
        assert_agrees(records, replace(journal, in_doubt=_aborted(journal)), start=0, end=end, what=what)
        longest = 2 if partition in PAYMENTS.partitions else 1  # a marker, and no other, is between two transactions
        assert all(after - before <= longest for before, after in pairwise([-1, *offsets])), what


def _assert_has_aborted_records(records: list[dict[str, Any]], journal: PartitionJournal) -> None:
    assert _aborted(journal) & {record["value"] for record in records}, "a reading of everything has no aborted record"


def _aborted(journal: PartitionJournal) -> set[str]:
    """Return the values of the records of transactions that were aborted."""
    return {encoded_value(record) for transaction in journal.aborted for record in transaction.records}


@without_stock_broker
@pytest.mark.service("kafka")
@pytest.mark.service("s3")
@pytest.mark.parametrize("version", ["3.9.2", "4.3.1"])
def test_reader_is_not_sent_past_segments_that_are_not_in_the_tier_yet(
    version: str, make_broker: MakeBroker, make_installation: MakeInstallation, spoilable_s3: SpoilableS3
) -> None:
    broker = make_broker(version, properties=QUICK_RETENTION)
    traffic = ClusterTraffic(broker, seed=16)
    with endpoint_server(broker, make_installation, remote=spoilable_s3.remote()) as server:
        assert server.daemon is not None
        spoilable_s3.path.disable()
        traffic.create(PAYMENTS)
        traffic.fill(PAYMENTS, rolled_segments=3)
        server.daemon.wait_until(
            lambda: server.daemon.metrics()["tierd_hold_segments"] >= 3, what="the hold of the rolled segments"
        )
        let_retention_delete(broker, [TopicPlan(name="payments")])

        answer = asyncio.run(_first_answer(server.bootstrap))
        spoilable_s3.path.enable()
        read = read_partitions(server.bootstrap, [("payments", 0)])["payments", 0]

    assert answer.error_code is not ErrorCode.offset_out_of_range, "a client would begin behind these records"
    assert not answer.records
    assert [record["offset"] for record in read] == sorted(traffic.journal.of("payments", 0).acknowledged)


async def _first_answer(bootstrap: str) -> PartitionData:
    host, _, port = bootstrap.rpartition(":")
    async with await LoadConnection.opened(host, int(port)) as connection:
        return await connection.fetch("payments", 0, 0, max_bytes=1 << 20, max_wait_s=0.5)


@without_stock_broker
def test_each_reading_of_a_compacted_topic_has_the_latest_record_of_every_key(
    tmp_path: Path, warm_tierd: WarmTierd
) -> None:
    segments = 8
    lab = CompactionLab(tmp_path, warm_tierd)
    lab.fill("orders", segments=segments)
    port = free_port()
    lab.tierd.configure({**endpoint_settings(port), "pipeline": {"spark_conf": SPARK_CONF}})
    with lab.tierd.daemon() as daemon, ReadingClients(tmp_path) as clients:
        lab.let_local_go(daemon)
        readers = _readers(clients, f"127.0.0.1:{port}", [("orders", 0)], READERS_OF_THE_TIER)
        with _running(readers):
            _wait_more(readers, 1)
            compacted = lab.tierd.tierd("compact", "--once", deadline_s=RUN_DEADLINE_S)
            assert compacted.exit_code == 0, compacted.output
            daemon.wait_until(lambda: lab.objects() == lab.readable(), what="the replaced segments to be deleted")
            _wait_more(readers, 2)
    journal = {
        n: SentRecord(key=b"%d" % (n % KEYS), value=b"value %d" % n, timestamp_ms=n)
        for n in range(segments * SEGMENT_RECORDS)
    }
    for reader in readers:
        for reading in reader.readings:
            assert_consistent(Reading(reader.name, _seen(reading["orders", 0]), len(journal)), journal)
        assert len(reader.readings[-1]["orders", 0]) == KEYS, reader.name


@without_stock_broker
def test_readings_begin_at_the_log_start_while_segments_expire(tmp_path: Path, warm_tierd: WarmTierd) -> None:
    segments = 12
    lab = CompactionLab(tmp_path, warm_tierd)
    lab.fill("orders", segments=segments)
    port = free_port()
    lab.tierd.configure({**endpoint_settings(port), "topics": {"defaults": {"cleanup_policy": "delete"}}})
    with lab.tierd.daemon() as daemon, ReadingClients(tmp_path) as clients:
        lab.let_local_go(daemon)
        size_bytes = sum(segment["size_bytes"] for segment in lab.tierd.segments("orders-0"))
        readers = _readers(clients, f"127.0.0.1:{port}", [("orders", 0)], READERS_OF_THE_TIER)
        with _running(readers):
            _wait_more(readers, 1)
            for kept in (9, 6, 3):
                retention = {"retention_bytes": size_bytes * kept // segments}
                lab.tierd.configure({"topics": {"defaults": retention}})
                daemon.reload()
                daemon.wait_until(partial(_keeps_at_most, lab, kept), what=f"{kept} segments", deadline_s=60)
            _wait_more(readers, 1)
    for reader in readers:
        for reading in reader.readings:
            _assert_whole_from_a_log_start([record["offset"] for record in reading["orders", 0]], segments)
        assert len(reader.readings[0]["orders", 0]) == segments * SEGMENT_RECORDS, reader.name
        assert len(reader.readings[-1]["orders", 0]) <= 3 * SEGMENT_RECORDS, reader.name


@contextmanager
def _running(readers: list[RepeatedReading]) -> Iterator[None]:
    """Run readers until the context ends."""
    with ExitStack() as stack:
        for reader in readers:
            stack.enter_context(reader)
        yield


def _wait_more(readers: list[RepeatedReading], count: int) -> None:
    """Wait until each reader has begun and ended so many further readings."""
    for reader in readers:
        reader.wait_more(count)


def _keeps_at_most(lab: CompactionLab, segments: int) -> bool:
    return len(lab.tierd.segments("orders-0")) <= segments


def _assert_whole_from_a_log_start(offsets: list[int], segments: int) -> None:
    """Fail unless a reading goes to the end, and every step in it ends where a segment begins: at a new log start."""
    assert offsets, "a segment is left"
    assert offsets[-1] == segments * SEGMENT_RECORDS - 1
    assert offsets[0] % SEGMENT_RECORDS == 0
    for before, after in pairwise(offsets):
        assert after == before + 1 or (after > before and after % SEGMENT_RECORDS == 0), (before, after)


def _seen(records: list[dict[str, object]]) -> list[SeenRecord]:
    return [
        SeenRecord(int(str(record["offset"])), _bytes(record["key"]), _bytes(record["value"])) for record in records
    ]


def _bytes(text: object) -> bytes | None:
    return None if text is None else b64decode(str(text))
