"""tierd serve: the tier for Kafka clients, by a process without a daemon and a broker."""

import shutil
import signal

import pytest
from confluent_kafka import Consumer, KafkaError, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.cli.conftest import ROLLED_THROUGH
from tests.fakes.log_dirs import CLUSTER_ID, LogDirWriter
from tests.scenarios.installation import Installation
from tests.scenarios.warm_tierd import WarmTierd
from tests.services.kafka_clients import aiokafka_client
from tests.services.kafka_clients.librdkafka import commit_offset, read_partitions
from tests.services.ports import free_port

ORDERS = [("orders", 0)]
IN_TIER = list(range(ROLLED_THROUGH + 1))
FROM_BUCKET = ("--from-bucket", "--cluster-id", CLUSTER_ID)


@pytest.fixture
def archived(copied: Installation, log_dir: LogDirWriter) -> Installation:
    """Return the installation of a host that has no log dir, whose listener takes every client."""
    shutil.rmtree(log_dir.path)
    copied.configure({"cluster_id": CLUSTER_ID, "kafka": {"listeners": [f"PLAINTEXT://127.0.0.1:{free_port()}"]}})
    return copied


def bootstrap(tierd: Installation) -> str:
    (listener,) = tierd.settings["kafka"]["listeners"]
    return str(listener).rpartition("/")[2]


def offsets_read(tierd: Installation) -> list[int]:
    return [record["offset"] for record in read_partitions(bootstrap(tierd), ORDERS)["orders", 0]]


@pytest.mark.parametrize("options", [(), FROM_BUCKET], ids=["metadata store", "bucket"])
def test_archive_is_read_to_its_end(archived: Installation, options: tuple[str, ...]) -> None:
    with archived.daemon(verb=("serve", "--archive", *options)) as daemon:
        assert offsets_read(archived) == IN_TIER
        endpoint = daemon.status()["endpoint"]
        assert list(endpoint["listeners"]) == ["PLAINTEXT"]
        assert f"read endpoint: {endpoint['topics']} topics" in archived.ask("status").stdout
        requests = [name for name in daemon.metrics() if name.startswith("tierd_endpoint_requests_total")]
        assert any('request="Fetch"' in name for name in requests)


def test_groups_keep_their_commits_in_the_metadata_store(archived: Installation) -> None:
    for _ in range(2):
        with archived.daemon(verb=("serve", "--archive")) as daemon:
            consumer = Consumer({"bootstrap.servers": bootstrap(archived), "group.id": "readers"})
            (found,) = consumer.committed([TopicPartition("orders", 0)], timeout=30)
            consumer.close()
            commit_offset(bootstrap(archived), "readers", "orders", 5)
            assert daemon.status()["endpoint"]["groups"]["readers"]["lag"] == len(IN_TIER) - 5
    assert found.offset == 5


def test_groups_are_refused_where_the_metadata_store_cannot_be_written(archived: Installation) -> None:
    dsn = f"postgresql://nobody@127.0.0.1:{free_port()}/none"
    archived.configure({"metadata": {"backend": "postgres", "postgres": {"dsn": dsn}}})
    with archived.daemon(verb=("serve", "--archive", *FROM_BUCKET)) as daemon:
        assert "groups_refused" in daemon.log_file.read_text()
        found = aiokafka_client.read(bootstrap(archived), {("orders", 0): len(IN_TIER)}, committed=False)
        assert [record["offset"] for record in found["orders", 0]] == IN_TIER
        consumer = Consumer({"bootstrap.servers": bootstrap(archived), "group.id": "readers"})
        consumer.subscribe(["orders"])
        message = consumer.poll(60)
        consumer.close()
        assert message is not None
        error = message.error()
        assert error is not None
        assert error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED


def test_segments_of_a_log_dir_are_served_beside_the_tier(copied: Installation, log_dir: LogDirWriter) -> None:
    for base in (0, 4):
        for file in (log_dir.path / "orders-0").glob(f"{base:020d}.*"):
            file.unlink()
    copied.configure({"kafka": {"listeners": [f"PLAINTEXT://127.0.0.1:{free_port()}"]}})
    with copied.daemon(verb=("serve", "--archive")) as daemon:
        assert offsets_read(copied) == list(range(16))
        assert daemon.status()["endpoint"]["topics"] == 2


def test_changed_quarantine_counts_after_a_reload_and_other_keys_wait(archived: Installation) -> None:
    with archived.daemon(verb=("serve", "--archive")) as daemon:
        archived.configure({"kafka": {"quarantine": {"principals": ["User:.*"]}}, "topics": {"exclude": ["orders"]}})
        daemon.reload()
        assert archived.ask("endpoint", "release", "--json").json()["principals"] == ["User:.*"]
        assert "config_needs_restart" in daemon.log_tail()
        archived.configure({"topics": {"nonsense": 1}})
        daemon.send_signal(signal.SIGHUP)
        daemon.wait_until(lambda: "config_reload_failed" in daemon.log_tail(), what="the refusal of the file")
        assert offsets_read(archived) == IN_TIER


def test_listener_of_the_command_line_replaces_those_of_the_file(archived: Installation) -> None:
    other = f"127.0.0.1:{free_port()}"
    with archived.daemon(verb=("serve", "--listen", f"PLAINTEXT://{other}")):
        topics = AdminClient({"bootstrap.servers": other, "log_level": 2}).list_topics(timeout=30).topics
        assert "orders" in topics


def test_address_in_use_ends_the_process(archived: Installation, log_dir: LogDirWriter, warm: WarmTierd) -> None:
    beside = Installation(
        archived.root / "beside",
        [log_dir.path],
        remote=archived.settings["remote"],
        settings={"kafka": archived.settings["kafka"]},
    )
    with archived.daemon(verb=("serve",)):
        ended = warm.run("serve", *FROM_BUCKET, "--config", str(beside.config_file))
    assert ended.exit_code == 1, ended.output
    assert bootstrap(archived) in ended.output


def test_second_process_with_the_same_state_dir_is_refused(archived: Installation) -> None:
    with archived.daemon(verb=("serve",)):
        ended = archived.ask("serve")
        assert ended.exit_code == 4
        assert str(archived.state_dir) in ended.output


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ((), "no listener"),
        (("--listen", "nonsense"), "--listen"),
        (("--listen", "PLAINTEXT://0.0.0.0:9192"), "--listen"),
    ],
)
def test_process_without_a_usable_listener_does_not_begin(
    tierd: Installation, arguments: tuple[str, ...], told: str
) -> None:
    ended = tierd.tierd("serve", *arguments)
    assert ended.exit_code == 2, ended.output
    assert told in ended.output


def test_help_has_examples(warm: WarmTierd) -> None:
    ended = warm.run("serve", "--help")
    assert ended.exit_code == 0
    assert "tierd serve --listen PLAINTEXT://127.0.0.1:9192 --archive --from-bucket" in " ".join(ended.stdout.split())
