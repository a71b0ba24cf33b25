"""Report of an outage of a service: once, first and with its time, in every output of the daemon; and its end."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.fakes.log_dirs import LogDirWriter, write_log_dir
from tests.scenarios.conftest import MakeInstallation
from tests.scenarios.installation import Daemon, Installation
from tests.scenarios.stores import SpoilableS3
from tests.services.faulty_path import FaultyPath
from tests.services.redis import through

PARTITION = "orders-0"
RECOVERY_DEADLINE_S = 60.0


@pytest.fixture
def log_dir(tmp_path: Path) -> LogDirWriter:
    return write_log_dir(tmp_path / "kafka", partitions=1, rolled_segments=1, topic="orders")


def outages(daemon: Daemon) -> dict[str, dict[str, Any]]:
    return {outage["service"]: outage for outage in daemon.status()["outages"]}


def events(daemon: Daemon, name: str) -> list[dict[str, Any]]:
    lines = daemon.log_file.read_text().splitlines()
    return [event for event in map(json.loads, lines) if event["event"] == name]


def assert_reported_everywhere(tierd: Installation, daemon: Daemon, service: str, headline: str) -> None:
    """Check that every output names the outage once, and that the daemon is alive and not ready."""
    assert daemon.is_alive()
    assert not daemon.is_ready()
    ready, page, shown = daemon.get("/readyz"), daemon.get("/"), tierd.ask("status")
    assert shown.exit_code == 0, shown.output
    for said in (ready, page, shown.stdout):
        assert said.count(headline) == 1, said
    assert ready.startswith(headline)
    assert headline in shown.stdout.splitlines()[1], shown.stdout
    status = daemon.status()
    assert status["ready"] is False
    assert [each["service"] for each in status["outages"]] == [service]
    assert daemon.metrics()[f'tierd_service_unreachable_seconds{{service="{service}"}}'] > 0
    assert [event["service"] for event in events(daemon, "service_unreachable")] == [service]


def lose_store(daemon: Daemon, log_dir: LogDirWriter, store: SpoilableS3) -> None:
    """Disable the object store while a segment is due, and wait for the outage."""
    daemon.wait_copied({PARTITION: 7})
    store.path.disable()
    log_dir.roll()
    daemon.wait_until(lambda: "object_store" in outages(daemon), what="the outage")


def assert_over(daemon: Daemon, service: str) -> None:
    daemon.wait_until(daemon.is_ready, what="the daemon to be ready again", deadline_s=RECOVERY_DEADLINE_S)
    assert daemon.status()["outages"] == []
    assert daemon.metrics()[f'tierd_service_unreachable_seconds{{service="{service}"}}'] == 0
    assert [event["service"] for event in events(daemon, "service_reachable_again")] == [service]


@pytest.mark.service("s3")
@pytest.mark.service("toxiproxy")
def test_outage_of_the_object_store_is_in_every_output_until_it_answers(
    log_dir: LogDirWriter, make_installation: MakeInstallation, spoilable_s3: SpoilableS3
) -> None:
    tierd = make_installation([log_dir.path], remote=spoilable_s3.remote())
    with tierd.daemon() as daemon:
        lose_store(daemon, log_dir, spoilable_s3)
        assert_reported_everywhere(tierd, daemon, "object_store", "object store unreachable since 20")
        spoilable_s3.path.enable()
        assert_over(daemon, "object_store")
        daemon.wait_copied({PARTITION: 11}, deadline_s=RECOVERY_DEADLINE_S)


@pytest.mark.service("s3")
@pytest.mark.service("toxiproxy")
def test_outage_ends_without_other_calls_to_the_store(
    log_dir: LogDirWriter, make_installation: MakeInstallation, spoilable_s3: SpoilableS3
) -> None:
    tierd = make_installation([log_dir.path], remote=spoilable_s3.remote())
    with tierd.daemon() as daemon:
        lose_store(daemon, log_dir, spoilable_s3)
        tierd.configure({"topics": {"exclude": ["orders"]}})
        daemon.reload()
        daemon.wait_until(lambda: daemon.partition(PARTITION) is None, what="the last work to go")
        spoilable_s3.path.enable()
        assert_over(daemon, "object_store")


@pytest.mark.service("redis")
@pytest.mark.service("toxiproxy")
def test_outage_of_the_metadata_store_is_in_every_output_until_it_answers(
    log_dir: LogDirWriter,
    make_installation: MakeInstallation,
    redis_url: str,
    faulty_path_to: Callable[[str], FaultyPath],
) -> None:
    path = faulty_path_to(urlsplit(redis_url).netloc.rpartition("@")[2])
    tierd = make_installation(
        [log_dir.path],
        settings={
            "metadata": {"backend": "redis", "timeout": "2s", "redis": {"url": through(redis_url, path.address)}}
        },
    )
    with tierd.daemon() as daemon:
        daemon.wait_copied({PARTITION: 7})
        path.disable()
        log_dir.roll()
        daemon.wait_until(lambda: "metadata_store" in outages(daemon), what="the outage")
        assert_reported_everywhere(tierd, daemon, "metadata_store", "metadata store unreachable since 20")
        path.enable()
        assert_over(daemon, "metadata_store")
        daemon.wait_copied({PARTITION: 11}, deadline_s=RECOVERY_DEADLINE_S)


def test_outage_of_kafka_is_in_every_output(log_dir: LogDirWriter, make_installation: MakeInstallation) -> None:
    tierd = make_installation(
        [log_dir.path],
        settings={"leadership": {"source": "kafka", "kafka": {"bootstrap_servers": ["127.0.0.1:1"]}}},
    )
    daemon = tierd.daemon()
    daemon.start()
    try:
        daemon.wait_until(daemon.is_alive, what="the daemon to listen")
        daemon.wait_until(lambda: "kafka" in outages(daemon), what="the outage")
        assert_reported_everywhere(tierd, daemon, "kafka", "Kafka unreachable since 20")
        assert "127.0.0.1:1" in outages(daemon)["kafka"]["problem"]
    finally:
        daemon.kill()


def test_high_watermark_of_a_quarantined_partition_is_updated(
    log_dir: LogDirWriter, make_installation: MakeInstallation
) -> None:
    (writer,) = log_dir.partitions.values()
    (writer.path / f"{0:020d}.log").write_bytes(bytes(100))
    log_dir.add_partition("fine").append([b"x"])
    log_dir.write_checkpoints()
    tierd = make_installation([log_dir.path])
    with tierd.daemon() as daemon:
        daemon.wait_until(
            lambda: (daemon.partition(PARTITION) or {})["state"] == "quarantined", what="the partition set aside"
        )
        writer.append([b"x"])
        log_dir.write_checkpoints()
        seen = daemon.partition(PARTITION)
        assert seen is not None
        assert (seen["state"], seen["high_watermark"]) == ("quarantined", writer.end_offset)
        shown = tierd.ask("status").stdout
    head, *lines = shown[shown.index("partition ") :].splitlines()
    assert head.split()[-1] == "why"
    rows = [line.split()[0] for line in lines if not line.startswith(" ")]  # the last column may go on in the next line
    assert "; run tierd inspect" in " ".join(shown.split()), "the remedy is behind the error"
    assert rows == [PARTITION, "fine-0"], "a partition that needs a person is listed first"


@pytest.mark.parametrize(
    ("content", "is_told"),
    [
        ("state_dir: {state_dir}\nlog_dirs: [", True),
        ("state_dir: {state_dir}\ncopyy: 1\n", False),  # a question to the daemon reads state_dir alone
    ],
)
def test_daemon_is_reachable_while_its_configuration_file_has_faults(
    log_dir: LogDirWriter, make_installation: MakeInstallation, content: str, *, is_told: bool
) -> None:
    tierd = make_installation([log_dir.path])
    with tierd.daemon():
        tierd.config_file.write_text(content.format(state_dir=tierd.state_dir))
        for arguments in (["status"], ["pause", PARTITION], ["resume", PARTITION], ["sync", PARTITION]):
            ended = tierd.ask(*arguments)
            assert ended.exit_code == 0, ended.output
            assert PARTITION in ended.stdout
            assert ("run tierd check-config" in ended.stderr) == is_told


def test_daemon_is_reachable_by_its_socket_alone(log_dir: LogDirWriter, make_installation: MakeInstallation) -> None:
    tierd = make_installation([log_dir.path])
    with tierd.daemon():
        tierd.config_file.unlink()
        assert tierd.ask("status").exit_code == 2
        for verb in ("status", "pause", "resume", "sync"):
            ended = tierd.ask(verb, "--socket", str(tierd.state_dir / "control.sock"))
            assert ended.exit_code == 0, ended.output
            assert PARTITION in ended.stdout
        refused = tierd.ask("status", "--socket", str(tierd.state_dir / "metadata.db"))
        assert refused.exit_code == 1
        assert "control.sock" in refused.stderr


def test_missing_log_dir_is_named_at_the_start_and_in_the_status(
    log_dir: LogDirWriter, make_installation: MakeInstallation, tmp_path: Path
) -> None:
    alone = make_installation([tmp_path / "missing"], name="alone")
    for arguments in (["run"], ["copy", "--once"]):
        ended = alone.ask(*arguments)
        assert ended.exit_code == 2, ended.output
        assert f"{tmp_path / 'missing'} does not exist" in ended.stderr
        assert "cluster_id" not in ended.stderr
    tierd = make_installation([log_dir.path, tmp_path / "missing"])
    with tierd.daemon() as daemon:
        told = f"log dir {tmp_path / 'missing'} is offline"
        assert told in tierd.ask("status").stdout
        assert told in daemon.get("/")


def test_own_log_has_metrics_and_events_that_name_it(
    log_dir: LogDirWriter, make_installation: MakeInstallation
) -> None:
    tierd = make_installation([log_dir.path], settings={"log_dirs": [{"path": str(log_dir.path), "owner": "tierd"}]})
    (writer,) = log_dir.partitions.values()
    with tierd.daemon() as daemon:
        shown = daemon.metrics()
        own = '{partition="0",topic="orders"}'
        assert shown[f"tierd_log_end_offset{own}"] == writer.end_offset
        assert shown[f"tierd_num_log_segments{own}"] == len(list(writer.path.glob("*.log")))
        assert shown[f"tierd_log_size_bytes{own}"] == sum(log.stat().st_size for log in writer.path.glob("*.log"))
        (loaded,) = events(daemon, "log_loaded")
        assert (loaded["partition"], loaded["log_dir"]) == (PARTITION, str(log_dir.path))
