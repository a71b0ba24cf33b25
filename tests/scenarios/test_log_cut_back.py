"""Broker that is killed, loses copied records that were not flushed, and writes the same offsets again."""

import os
from pathlib import Path

import pytest

from tests.scenarios.broker_steps import assert_reads_back, consume_all, let_retention_delete, rolled_through
from tests.scenarios.conftest import MakeBroker, MakeInstallation
from tests.scenarios.installation import Installation
from tests.scenarios.traffic import TopicPlan, Traffic
from tests.services.kafka_cluster import KafkaBroker
from tierd.log import iter_batches, read_lineage

pytestmark = pytest.mark.service("kafka")

TOPICS = (
    TopicPlan(name="plain"),
    TopicPlan(name="transactional", transactional=True),
    TopicPlan(name="room", configs={"preallocate": "true"}),
)
SETTINGS = {"replica.high.watermark.checkpoint.interval.ms": "500"}


@pytest.mark.parametrize("is_beside", [True, False], ids=["tierd-runs", "tierd-is-down"])
@pytest.mark.parametrize("version", ["3.9.2", "4.3.1"])
def test_tier_serves_the_records_that_a_consumer_reads_after_a_log_was_cut_back(
    version: str, *, is_beside: bool, make_broker: MakeBroker, make_installation: MakeInstallation
) -> None:
    broker = make_broker(version, properties=SETTINGS)
    traffic = Traffic(broker, TOPICS, seed=33)
    traffic.create_topics()
    tierd = make_installation(broker.log_dirs)
    daemon = tierd.daemon()
    daemon.start()
    daemon.wait_ready()
    try:
        traffic.fill(rolled_segments=6)
        daemon.wait_copied(rolled_through(broker, TOPICS))
        if not is_beside:
            daemon.stop()
        epochs = [read_lineage(_directory(broker, topic)) for topic in TOPICS]
        copied = {topic.name: tierd.frontier(f"{topic.name}-0") for topic in TOPICS}

        broker.kill(1)
        for topic in TOPICS:
            _lose_unflushed(_directory(broker, topic))
        (broker.log_dirs[0] / "recovery-point-offset-checkpoint").write_text("0\n0\n")  # nothing was flushed
        broker.start(1)
        for topic in TOPICS:
            assert broker.end_offset(topic.name, 0) <= copied[topic.name], "copied records were lost"
        grown = Traffic(broker, TOPICS, seed=34)
        grown.fill(rolled_segments=9)
        if version == "3.9.2":
            assert [read_lineage(_directory(broker, topic)) for topic in TOPICS] == epochs, (
                "the broker keeps its leader epoch"
            )
        if not is_beside:
            daemon.start()
            daemon.wait_ready()

        oracle = consume_all(broker, TOPICS)
        if version == "3.9.2":
            daemon.wait_until(lambda: all(_is_ended(tierd, topic) for topic in TOPICS), what="the end of what was lost")
        daemon.wait_copied(rolled_through(broker, TOPICS))
        assert_reads_back(tierd, oracle)
        let_retention_delete(broker, TOPICS)
        assert_reads_back(tierd, oracle)
    finally:
        daemon.stop()
    verified = tierd.ask("verify", "--deep")
    assert verified.exit_code == 0, verified.output


def _directory(broker: KafkaBroker, topic: TopicPlan) -> Path:
    directory = broker.partition_dir(topic.name, 0)
    assert directory is not None
    return directory


def _lose_unflushed(directory: Path) -> None:
    """Cut a log in the middle of its segments, within a batch, as a lost page cache does."""
    logs = sorted(directory.glob("*.log"))
    torn, *later = logs[3:]
    batches = list(iter_batches(torn.read_bytes(), name=str(torn)))
    os.truncate(torn, batches[len(batches) // 2].position + 7)
    for log in later[:-1]:
        os.truncate(log, 0)
    for file in directory.glob(f"{later[-1].stem}.*"):
        file.unlink()


def _is_ended(tierd: Installation, topic: TopicPlan) -> bool:
    return any(each["state"] == "DELETE_SEGMENT_STARTED" for each in tierd.segments(f"{topic.name}-0"))
