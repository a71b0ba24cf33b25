"""Topics with ``preallocate=true``: zeros behind the data of an active segment are free space, and no damage."""

import time
from pathlib import Path
from random import Random

import pytest

from tests.scenarios.broker_steps import assert_reads_back, consume_all, rolled_through
from tests.scenarios.conftest import MakeBroker, MakeInstallation
from tests.scenarios.installation import Installation
from tests.scenarios.oracle import assert_same_records
from tests.scenarios.traffic import TopicPlan, Traffic
from tests.scenarios.warm_tierd import WarmTierd
from tests.services.kafka_cluster import KafkaBroker
from tests.services.kafka_records import random_records
from tests.services.waiting import wait_until

pytestmark = pytest.mark.service("kafka")

ROOM = {"preallocate": "true"}
TOPICS = (
    TopicPlan(name="plain", configs=ROOM),
    TopicPlan(name="packed", configs=ROOM, codec="zstd", segment_bytes=256 << 10),
    TopicPlan(name="transactional", configs=ROOM, transactional=True),
)
HIGH_WATERMARKS = {"replica.high.watermark.checkpoint.interval.ms": "500"}


@pytest.mark.parametrize("version", ["3.9.2", "4.3.1"])
def test_preallocated_topics_are_copied_and_read_with_zeros_behind_their_data(
    version: str, make_broker: MakeBroker, make_installation: MakeInstallation, warm_tierd: WarmTierd
) -> None:
    broker = make_broker(version, properties=HIGH_WATERMARKS)
    traffic = Traffic(broker, TOPICS, seed=12)
    tierd = make_installation(broker.log_dirs)
    with tierd.daemon() as daemon:
        traffic.create_topics()
        with traffic:
            for _ in range(5):  # beside the producers: a batch may be half written at any moment
                _assert_readable(tierd, warm_tierd, broker.log_dirs[0])
        traffic.fill(rolled_segments=2)

        with broker.producer(transactional_id="left-open") as producer:
            producer.begin_transaction()
            records = random_records(Random(1), 3, now_ms=int(time.time() * 1000))
            producer.send("transactional", 0, records)
            producer.flush()
            _wait_checkpointed(broker, "transactional", committed=False)
            daemon.wait_copied(rolled_through(broker, TOPICS))
            assert_reads_back(tierd, consume_all(broker, TOPICS))
            producer.end_transaction(commit=False)

        for topic in TOPICS:
            _wait_checkpointed(broker, topic.name, committed=True)
        oracle = consume_all(broker, TOPICS)
        assert_reads_back(tierd, oracle)
        for topic in TOPICS:
            active = broker.partition_dir(topic.name, 0)
            assert active is not None
            newest = max(active.glob("*.log"))
            assert newest.stat().st_size == topic.segment_bytes, "the broker preallocates space"
            read = warm_tierd.run("log", "read", str(active), "--json")
            assert read.exit_code == 0, read.output
            assert_same_records(read.json_lines(), oracle[f"{topic.name}-0"][0], what=topic.name)
            last = oracle[f"{topic.name}-0"][0][-1]
            for answer in (
                tierd.ask("explain", f"{topic.name}-0", str(last["offset"])),
                tierd.ask("offsets", f"{topic.name}-0", "--time", str(last["timestamp"])),
                warm_tierd.run("inspect", str(active), "--deep"),
            ):
                assert answer.exit_code == 0, answer.output


def _assert_readable(tierd: Installation, warm_tierd: WarmTierd, log_dir: Path) -> None:
    for topic in TOPICS:
        for options in ((), ("--committed",)):
            offsets = [record["offset"] for record in tierd.cat(f"{topic.name}-0", *options)]
            assert offsets == sorted(set(offsets))
        directory = log_dir / f"{topic.name}-0"
        if directory.exists():
            answer = warm_tierd.run("log", "read", str(directory), "--json")
            assert answer.exit_code == 0, answer.output


def _wait_checkpointed(broker: KafkaBroker, topic: str, *, committed: bool) -> None:
    """Return when the checkpoint has the high watermark; with ``committed`` when no transaction is open below it."""

    def expected() -> str:
        return f"{topic} 0 {broker.end_offset(topic, 0, committed=committed)}"

    def checkpointed() -> list[str]:
        return (broker.log_dirs[0] / "replication-offset-checkpoint").read_text().splitlines()

    wait_until(
        lambda: expected() in checkpointed(),
        what=f"the end of {topic}-0 in the high watermark checkpoint",
        deadline_s=60,
        last_seen=lambda: f"expected {expected()!r} in {checkpointed()}",
    )
