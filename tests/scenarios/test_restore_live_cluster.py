"""Real brokers: topics of the tier in a live cluster, also while the broker and tierd are killed and frozen."""

import json
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import pytest
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as ClientPartition

from tests.cli.test_restore_page import printed_commands
from tests.scenarios.command import TIERD
from tests.scenarios.conftest import MakeInstallation
from tests.scenarios.installation import Installation
from tests.scenarios.log_dirs import copy_writable
from tests.scenarios.oracle import read_oracle
from tests.services.kafka_cluster import KafkaBroker
from tests.services.kafka_records import ConsumedRecord, SentRecord
from tests.services.waiting import wait_until

pytestmark = pytest.mark.service("kafka")

NOW_MS = int(time.time() * 1000)
RATE = 6 << 20  # bytes per second that the target takes from tierd, so that a restore can be interrupted
PARTITIONS = 3
BrokerOf = Callable[[str], KafkaBroker]
Ranges = dict[str, list[dict[str, Any]]]  # lines of the offset map by partition of the source


@pytest.fixture(scope="module")
def broker_of(tmp_path_factory: pytest.TempPathFactory, kafka_jars: Callable[[str], str]) -> Iterator[BrokerOf]:
    """Return a function that starts one broker of a version for all tests."""
    with ExitStack() as running:

        @cache
        def start(version: str) -> KafkaBroker:
            properties = {"message.max.bytes": "2000000"}
            folder = tmp_path_factory.mktemp("kafka")
            return running.enter_context(KafkaBroker(folder, version=kafka_jars(version), properties=properties))

        yield start


def commands_of_the_page(verb: str, places: Mapping[str, str]) -> list[list[str]]:
    """Return the commands of a verb as docs/restore.md prints them, with other places."""

    def elsewhere(argument: str) -> str:
        for printed, place in places.items():
            argument = argument.replace(printed, place)
        return argument

    return [[*map(elsewhere, arguments)] for arguments in printed_commands(verb)]


def read_map(path: str) -> Ranges:
    """Return the lines of an offset map by source partition."""
    ranges: Ranges = {}
    for line in Path(path).read_text().splitlines()[1:]:
        parsed = json.loads(line)
        ranges.setdefault(parsed["source"], []).append(parsed)
    return ranges


def translated(ranges: Sequence[Mapping[str, Any]], offset: int) -> int | None:
    """Return the new offset of a record."""
    found = (each for each in ranges if each["start"] <= offset < each["start"] + each["count"])
    return next((each["new"] + offset - each["start"] for each in found), None)


def content(record: Mapping[str, Any]) -> tuple[object, ...]:
    """Return what a restore keeps of a record."""
    return record["timestamp"], record["key"], record["value"], tuple(map(tuple, record["headers"]))


def assert_restored(
    restored: Sequence[ConsumedRecord], committed: Sequence[Mapping[str, Any]], ranges: Sequence[Mapping[str, Any]]
) -> None:
    """Compare a restored partition with the committed records of its source, up to where the tier ends."""
    end = max(each["start"] + each["count"] for each in ranges)
    wanted = [record for record in committed if record["offset"] < end]
    assert len(wanted) >= 10
    assert [content(record) for record in restored] == [content(record) for record in wanted]
    assert [record["offset"] for record in restored] == [translated(ranges, record["offset"]) for record in wanted]


@pytest.mark.parametrize("version", ["3.9.2", "4.3.1"])
def test_topics_of_every_kind_are_equal_to_the_committed_records_of_their_source(
    version: str, golden: Path, tmp_path: Path, broker_of: BrokerOf, make_installation: MakeInstallation
) -> None:
    log_dir, oracle = tmp_path / "logdir", golden / f"kafka-{version}" / "clean" / "oracle"
    copy_writable(golden / f"kafka-{version}" / "clean" / "logdir", log_dir)
    tierd = make_installation([log_dir])
    assert tierd.ask("copy", "--once").exit_code == 0
    broker = broker_of(version)
    restore = ("restore", "topic", ".*", "--to", broker.bootstrap, "--rename", "txn=txn-restored")

    refused = tierd.ask(*restore)
    result = tierd.ask(*restore, "--hold-retention", "--json")
    again = tierd.ask(*restore, "--hold-retention", "--json")

    assert refused.exit_code == 4
    assert "--hold-retention" in refused.stderr
    assert result.exit_code == 0, result.stderr
    answer = json.loads(result.stdout)
    assert all(each["problem"] == "" for each in answer["restored"])
    ranges = read_map(answer["offset_map"])
    assert len(ranges) >= 8
    partitions = {source: lines[0]["target"].rpartition("-") for source, lines in ranges.items()}
    names = {source: (topic, int(number)) for source, (topic, _, number) in partitions.items()}
    assert names["txn-0"] == ("txn-restored", 0)
    consumed = broker.consume_all(sorted(names.values()), committed=True)
    for source, name in names.items():
        committed = oracle / source / "committed.jsonl.gz"
        everything = committed if committed.exists() else oracle / source / "records.jsonl.gz"
        assert_restored(consumed[name], read_oracle(everything), ranges[source])
    assert again.exit_code == 0, again.stderr
    assert again.json()["records"] == 0
    assert broker.consume_all(sorted(names.values())) == broker.consume_all(sorted(names.values()), committed=True)


def test_records_are_there_once_and_in_order_after_kills_and_pauses_of_tierd_and_of_the_broker(
    tmp_path: Path, broker_of: BrokerOf, make_installation: MakeInstallation
) -> None:
    broker = broker_of("3.9.2")
    fill(broker)
    commit(broker, "billing", {0: 700, 1: broker.end_offset("orders", 1), 2: 252})
    tierd = make_installation(broker.log_dirs, settings={"catalogue": {"interval": "1s"}})
    with tierd.daemon() as daemon:
        daemon.wait_until(lambda: "billing" in tierd.ask("groups").stdout, what="the positions in the catalogue")
    assert tierd.ask("copy", "--once").exit_code == 0
    source = [("orders", partition) for partition in range(PARTITIONS)]
    oracle = broker.consume_all(source, committed=True)
    broker.limit_producer("tierd", bytes_per_second=RATE)
    target = Target(broker)
    journal = tmp_path / "journal"
    places = {"new-kafka:9092": broker.bootstrap, "/var/lib/tierd/restore-orders": str(journal)}
    plan, command = commands_of_the_page("topic", places)

    assert tierd.ask(*plan).exit_code == 0
    with running(tierd, *command) as restore:
        target.wait_grown(restore)
        restore.kill()
    with running(tierd, *command) as restore:
        target.wait_grown(restore)
        broker.kill()
        broker.start()
        target.wait_grown(restore)
        broker.freeze(1)
        restore.kill()  # requests that the broker has not read yet are in its sockets
    broker.thaw(1)
    done = tierd.ask(*command, "--json")

    assert done.exit_code == 0, done.stderr
    ranges = read_map(json.loads(done.stdout)["offset_map"])
    restored = broker.consume_all([("orders-restored", partition) for partition in range(PARTITIONS)])
    for partition in range(PARTITIONS):
        lines = ranges[f"orders-{partition}"]
        assert_restored(restored["orders-restored", partition], oracle["orders", partition], lines)

    assert json.loads(done.stdout)["offset_map"] == str(journal / "offset-map.jsonl")
    plan_of_groups, groups = (each for each in commands_of_the_page("groups", places) if "--map" in each)
    planned = tierd.ask(*plan_of_groups, "--json")
    assert planned.exit_code == 0, planned.stderr
    assert committed_offsets(broker, "billing", "orders-restored") == {}
    with member_of(broker, "billing"):
        in_use = tierd.ask(*groups)
    assert in_use.exit_code == 4, in_use.stderr
    assert "billing" in in_use.stderr
    assert committed_offsets(broker, "billing", "orders-restored") == {}
    done = tierd.ask(*groups, "--json")
    assert done.exit_code == 0, done.stderr
    found = committed_offsets(broker, "billing", "orders-restored")
    assert found[0] == translated(ranges["orders-0"], 700)
    assert found[1] == max(each["new"] + each["count"] for each in ranges["orders-1"])  # lowered to the end
    assert found[2] == first_new_at(ranges["orders-2"], 252)  # an aborted transaction lies there


def fill(broker: KafkaBroker) -> None:
    """Write a plain, a compressed and a transactional partition of about 12 MB each."""
    random = Random(11)
    broker.create_topic("orders", partitions=PARTITIONS, segment_bytes=2 << 20)
    values = [random.randbytes(4000) for _ in range(16)]

    def records(count: int) -> Iterator[SentRecord]:
        for number in range(count):
            yield SentRecord(key=b"%d" % number, value=values[number % 16], timestamp_ms=NOW_MS + number)

    with broker.producer() as plain, broker.producer(codec="lz4", idempotent=True) as compressed:
        plain.send("orders", 0, records(3000))
        compressed.send("orders", 1, records(3000))
    with broker.producer(transactional_id="filler") as producer:
        for round_ in range(12):
            with producer.transaction(commit=round_ % 3 != 1):
                producer.send("orders", 2, records(250))


class Target:
    """Growth of the restored topic, by its files: they are asked often."""

    def __init__(self, broker: KafkaBroker) -> None:
        self._log_dirs = broker.log_dirs

    def wait_grown(self, restore: "subprocess.Popen[str]") -> None:
        """Return once a restore has added more bytes than an earlier one may have left in flight."""
        before = self._size()
        wait_until(lambda: self._size() > before + (2 << 20), what="the restored topic to grow", deadline_s=90)
        assert restore.poll() is None, "the restore ended before it could be interrupted"

    def _size(self) -> int:
        files = (path for log_dir in self._log_dirs for path in log_dir.glob("orders-restored-*/*.log"))
        return sum(path.stat().st_size for path in files)


@contextmanager
def running(tierd: Installation, *arguments: str) -> "Iterator[subprocess.Popen[str]]":
    """Run a restore in the background; it has ended at the end of the block."""
    process = subprocess.Popen([str(TIERD), *arguments, "--config", str(tierd.config_file)], text=True)
    try:
        yield process
        process.wait(60)  # it was killed
    finally:
        process.kill()
        process.wait()


def first_new_at(ranges: Sequence[Mapping[str, Any]], offset: int) -> int:
    """Return the new offset of the first restored record at or above ``offset``."""
    following = next(each for each in ranges if each["start"] + each["count"] > offset)
    new: int = following["new"] + max(0, offset - following["start"])
    return new


@contextmanager
def member_of(broker: KafkaBroker, group: str) -> Iterator[None]:
    """Run a member of a group."""
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": group, "enable.auto.commit": False})
    consumer.subscribe(["orders-restored"])
    wait_until(lambda: consumer.poll(0.5) is None and bool(consumer.assignment()), what="the member", deadline_s=60)
    yield
    consumer.close()


def commit(broker: KafkaBroker, group: str, offsets: Mapping[int, int]) -> None:
    """Commit positions of a group in the source."""
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": group, "enable.auto.commit": False})
    consumer.commit(
        offsets=[ClientPartition("orders", partition, offset) for partition, offset in offsets.items()],
        asynchronous=False,
    )
    consumer.close()


def committed_offsets(broker: KafkaBroker, group: str, topic: str) -> dict[int, int]:
    """Return the positions of a group."""
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": group, "enable.auto.commit": False})
    found = consumer.committed([ClientPartition(topic, partition) for partition in range(PARTITIONS)], timeout=30)
    consumer.close()
    return {each.partition: each.offset for each in found if each.offset >= 0}
