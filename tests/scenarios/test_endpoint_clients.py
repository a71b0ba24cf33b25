"""Every client reads golden topics through the endpoint, half of whose copied segments are in the tier alone."""

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.scenarios.endpoint_page import PRINTED_ADDRESS, block
from tests.scenarios.golden_server import AGAINST_BROKER, GoldenServer, golden_broker, golden_server
from tests.scenarios.warm_tierd import WarmTierd
from tests.services.kafka_clients import java_clients
from tests.services.kafka_clients.global_table import read_tables, table_of
from tests.services.kafka_clients.java_tools import JavaTools
from tests.services.kafka_clients.librdkafka import commit_offset, read_partitions
from tests.services.kafka_clients.mirror_maker import MirrorMaker
from tests.services.kafka_clients.reading_clients import NAMES, ReadingClients
from tests.services.kafka_cluster import KafkaCluster
from tests.services.kafka_fixtures import MakeCluster, fetched_or_skip
from tests.services.kafka_streams import require_kafka_streams
from tests.services.waiting import wait_until

pytestmark = pytest.mark.service("kafka")

VERSIONS = ("3.9.2", "4.3.1")
TOPICS = ("plain-mixed", "txn", "many-partitions", "deleted-records", "deleted-all", "logappend")
COPIED_TOPICS = ("txn", "many-partitions")
TOPICS_IN_THE_TIER = ("plain-mixed", "txn-closed")


@pytest.fixture(scope="module")
def clients(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ReadingClients]:
    """Return the clients, which stay warm for the module."""
    with ReadingClients(tmp_path_factory.mktemp("clients")) as found:
        yield found


@pytest.fixture(scope="module", params=VERSIONS)
def server(
    request: pytest.FixtureRequest, golden: Path, tmp_path_factory: pytest.TempPathFactory, warm_tierd: WarmTierd
) -> Iterator[GoldenServer]:
    """Serve the golden log dir of a version."""
    source, folder = golden / f"kafka-{request.param}" / "clean", tmp_path_factory.mktemp("golden-server")
    if AGAINST_BROKER:
        with golden_broker(source / "logdir", source / "oracle", folder, request.param) as broker:
            yield broker
        return
    with golden_server(source / "logdir", source / "oracle", folder, warm_tierd) as tierd:
        assert tierd.delete_local(0.5) >= 5
        yield tierd


@pytest.fixture(params=VERSIONS)
def tools(request: pytest.FixtureRequest, clients: ReadingClients) -> JavaTools:
    """Return the command line tools of a version."""
    found: list[JavaTools] = []
    fetched_or_skip(lambda: found.append(clients.tools(request.param)), f"the tools of Kafka {request.param}")
    return found[0]


@pytest.mark.parametrize("name", NAMES)
def test_client_reads_golden_topics_in_both_isolations(
    name: str, clients: ReadingClients, server: GoldenServer
) -> None:
    fetched_or_skip(lambda: clients.client(name), name)
    for committed in (False, True):
        expected = server.expected(*TOPICS, committed=committed)
        clients.client(name).assert_reads(server.bootstrap, expected, committed=committed)


@pytest.mark.parametrize("server", ["4.3.1"], indirect=True)
def test_cell_of_the_page_counts_in_spark(clients: ReadingClients, server: GoldenServer) -> None:
    """Run it in the session of this file; its topic has another name here."""
    fetched_or_skip(clients.spark, "Spark's source for Kafka")
    expected = server.expected("many-partitions", committed=False)
    cell = block("Spark", "python").replace(PRINTED_ADDRESS, server.bootstrap).replace('"orders"', '"many-partitions"')

    printed = clients.spark().run_cell(cell)

    counts = {int(number): int(count) for number, count in re.findall(r"^\| +(\d+)\| +(\d+)\|", printed, re.MULTILINE)}
    assert counts == {number: len(records) for (_, number), records in expected.items() if records}


def test_perf_test_reads_every_record(tools: JavaTools, server: GoldenServer) -> None:
    for committed in (False, True):
        for topic in ("txn", "many-partitions"):
            count = sum(map(len, server.expected(topic, committed=committed).values()))
            read = java_clients.perf_test(tools, server.bootstrap, topic, count, committed=committed)
            assert read == count, (topic, committed)


def test_get_offsets_prints_the_bounds_that_the_broker_listed(tools: JavaTools, server: GoldenServer) -> None:
    for topic in TOPICS:
        found = {
            time: java_clients.get_offsets(tools, server.bootstrap, topic, time) for time in ("-1", "-2", "-4", "-5")
        }
        for number in [number for name, number in server.partitions if name == topic]:
            oracle = server.offsets(topic, number)
            assert found["-2"][number] == oracle["logStartOffset"], topic
            assert found["-1"][number] == oracle["highWatermark"], topic
            assert found["-4"][number] == max(oracle["logStartOffset"], server.local_start(topic, number)), topic
            assert found["-5"].get(number, -1) == server.copied_through.get((topic, number), -1), topic


def test_get_offsets_finds_the_first_record_of_a_time(tools: JavaTools, server: GoldenServer) -> None:
    records = server.expected("plain-mixed", committed=False)["plain-mixed", 0]
    for place in (0, len(records) // 3, len(records) - 1):
        time_ms = int(str(records[place]["timestamp"]))
        first = next(record for record in records if int(str(record["timestamp"])) >= time_ms)
        found = java_clients.get_offsets(tools, server.bootstrap, "plain-mixed", str(time_ms))
        assert found == {0: first["offset"]}, time_ms


def test_groups_tool_describes_resets_and_deletes_a_group(tools: JavaTools, server: GoldenServer) -> None:
    topic, group = "plain-mixed", f"readers-of-{tools.version}"
    records = server.expected(topic, committed=False)[topic, 0]
    bounds = server.offsets(topic, 0)
    middle = records[len(records) // 2]
    commit_offset(server.bootstrap, group, topic, 7)
    end = bounds["highWatermark"]

    def committed() -> int:
        ((_, (offset, log_end)),) = java_clients.describe_group(tools, server.bootstrap, group).items()
        assert log_end == end
        return offset

    assert group in java_clients.list_groups(tools, server.bootstrap)
    assert committed() == 7
    java_clients.reset_offsets(tools, server.bootstrap, group, topic, "--shift-by", "5")
    assert committed() == 12
    java_clients.reset_offsets(tools, server.bootstrap, group, topic, "--to-latest")
    assert committed() == end
    time = datetime.fromtimestamp(int(str(middle["timestamp"])) / 1000, UTC).isoformat(timespec="milliseconds")
    java_clients.reset_offsets(tools, server.bootstrap, group, topic, "--to-datetime", time.replace("+00:00", "Z"))
    first = next(each for each in records if int(str(each["timestamp"])) >= int(str(middle["timestamp"])))
    assert committed() == first["offset"]
    java_clients.reset_offsets(tools, server.bootstrap, group, topic, "--to-earliest")
    assert committed() == bounds["logStartOffset"]
    java_clients.delete_group(tools, server.bootstrap, group)
    assert group not in java_clients.list_groups(tools, server.bootstrap)


@pytest.mark.skipif(AGAINST_BROKER, reason="a broker takes the record")
def test_console_producer_is_refused_and_says_so(tools: JavaTools, server: GoldenServer) -> None:
    result = java_clients.produce(tools, server.bootstrap, "plain-mixed", "refused")

    assert "authoriz" in result.errors.lower(), result.errors
    assert java_clients.get_offsets(tools, server.bootstrap, "plain-mixed", "latest") == {
        0: server.offsets("plain-mixed", 0)["highWatermark"]
    }


def test_topics_and_configs_tools_describe_a_topic(tools: JavaTools, server: GoldenServer) -> None:
    described = tools.done("kafka-topics", server.bootstrap, "--describe", "--topic", "many-partitions")
    partitions = [line.split() for line in described.lines if line.startswith("\tTopic:")]
    assert [row[row.index("Partition:") + 1] for row in partitions] == ["0", "1", "2"]
    assert all(int(row[row.index("Leader:") + 1]) >= 0 for row in partitions)
    configured = tools.done("kafka-configs", server.bootstrap, "--describe", "--topic", "many-partitions")
    assert "many-partitions" in configured.output.decode()


@pytest.mark.skipif(AGAINST_BROKER, reason="a broker makes the topic")
def test_topics_tool_is_refused_to_create_and_to_delete_a_topic(tools: JavaTools, server: GoldenServer) -> None:
    for change in ("--create", "--delete"):
        result = tools.run("kafka-topics", server.bootstrap, change, "--topic", "single")
        assert result.exit_code != 0, change
        assert "authoriz" in (result.output.decode() + result.errors).lower(), result.errors
    assert java_clients.get_offsets(tools, server.bootstrap, "single", "latest") == {0: 1}


@pytest.mark.parametrize("version", VERSIONS)
def test_global_table_of_kafka_streams_has_the_last_value_of_each_key_in_both_isolations(
    version: str, server: GoldenServer
) -> None:
    fetched_or_skip(lambda: require_kafka_streams(version), "Kafka Streams")

    tables = read_tables(server.bootstrap, "txn-closed", version=version)

    for committed, table in tables.items():
        assert table == table_of(server.expected("txn-closed", committed=committed)["txn-closed", 0]), committed
        assert len(table) > 20
    assert tables[False] != tables[True]


@pytest.mark.parametrize(("server", "committed"), [("3.9.2", False), ("4.3.1", True)], indirect=["server"])
def test_mirror_maker_copies_records_and_groups_into_a_live_cluster(
    committed: bool, server: GoldenServer, kafka_cluster: MakeCluster, tmp_path: Path
) -> None:
    # The daemon has no connection to a broker and knows no settings of topics: copies have the retention of the target.
    live = kafka_cluster(nodes=1, version="4.3.1", properties={"log.retention.ms": "-1"})
    expected = server.expected(*COPIED_TOPICS, committed=committed)
    commit_offset(server.bootstrap, "mirrored", "many-partitions", 1)
    mirrors: list[MirrorMaker] = []
    fetched_or_skip(
        lambda: mirrors.append(
            MirrorMaker(tmp_path, server.bootstrap, live.bootstrap, COPIED_TOPICS, committed=committed)
        ),
        "MirrorMaker",
    )
    with mirrors[0] as mirror:
        mirror.wait_copied({partition: len(records) for partition, records in expected.items()}, live)
        wait_until(lambda: "mirrored" in _groups(live), what="the group in the live cluster", deadline_s=30)

    copies = read_partitions(live.bootstrap, [(f"tier.{topic}", number) for topic, number in expected])

    fields = ("timestamp", "key", "value", "headers")
    for (topic, number), records in expected.items():
        copied = [[record[field] for field in fields] for record in map(dict, copies[f"tier.{topic}", number])]
        assert copied == [[record[field] for field in fields] for record in records], topic


@pytest.mark.skipif(AGAINST_BROKER, reason="a broker has no tier")
@pytest.mark.parametrize("name", NAMES)
def test_client_reads_golden_topics_whose_copied_local_segments_are_all_gone(
    name: str, clients: ReadingClients, server: GoldenServer
) -> None:
    """It is the last test of this file: the tests above have half of these segments."""
    fetched_or_skip(lambda: clients.client(name), name)
    server.delete_local(1.0)
    for topic, number in server.expected(*TOPICS_IN_THE_TIER, committed=False):
        assert server.local_start(topic, number) == server.copied_through[topic, number] + 1 > 0

    for committed in (False, True):
        expected = server.expected(*TOPICS_IN_THE_TIER, committed=committed)
        clients.client(name).assert_reads(server.bootstrap, expected, committed=committed)


def _groups(live: KafkaCluster) -> str:
    return live.run_tool("org.apache.kafka.tools.consumer.group.ConsumerGroupCommand", "--list")
