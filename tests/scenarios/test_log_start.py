"""Real broker, a deletion request and a lost segment: a rebuilt tier serves the same records as the broker."""

import pytest

from tests.scenarios.conftest import MakeInstallation
from tests.services.kafka_fixtures import MakeCluster
from tests.services.kafka_records import SentRecord
from tests.services.waiting import wait_until

pytestmark = pytest.mark.service("kafka")

VALUE = b"v" * 300
SEGMENT_BYTES = 900  # two batches of one such record


def test_rebuilt_tier_keeps_deletion_requests_and_copies_missing_segments(
    kafka_cluster: MakeCluster, make_installation: MakeInstallation
) -> None:
    cluster = kafka_cluster(nodes=1)
    tierd = make_installation(cluster.log_dirs_of(1))

    def produce(topic: str, count: int) -> None:
        with cluster.producer() as producer:
            for _ in range(count):
                producer.send(topic, 0, [SentRecord(key=None, value=VALUE, timestamp_ms=1_700_000_000_000)])
                producer.flush()

    def offsets(topic: str) -> list[int]:
        return [record["offset"] for record in tierd.cat(f"{topic}-0")]

    for topic in ("deleted", "lost"):
        cluster.create_topic(topic, segment_bytes=SEGMENT_BYTES)
        produce(topic, 7)
    with tierd.daemon() as daemon:
        daemon.wait_copied({"deleted-0": 5, "lost-0": 5})
        cluster.delete_records("deleted", 0, 3)
        daemon.wait_until(lambda: list(tierd.store_dir.rglob("deleted-*/0/log-start.json")), what="the log start")

    lost = list(tierd.store_dir.rglob(f"lost-*/0/{0:020d}-*"))
    assert len(lost) == 3
    for file in lost:
        file.unlink()
    for file in tierd.state_dir.glob("metadata.db*"):
        file.unlink()
    rebuilt = tierd.ask("rebuild-metadata")
    assert rebuilt.exit_code == 0, rebuilt.output
    cluster.stop(1)
    cluster.start(1)  # the next leadership has another epoch
    for topic in ("deleted", "lost"):
        produce(topic, 2)

    with tierd.daemon() as daemon:
        daemon.wait_copied({"deleted-0": 7, "lost-0": 7})
        wait_until(
            lambda: [s["start_offset"] for s in tierd.segments("lost-0")] == [0, 2, 4, 6],
            what="the first segment to be copied again",
            deadline_s=60,
            last_seen=lambda: tierd.segments("lost-0"),
        )
        wait_until(
            lambda: (offsets("deleted"), offsets("lost")) == ([*range(3, 9)], [*range(9)]),
            what="both topics to be read as the broker has them",
            deadline_s=60,
            last_seen=lambda: (offsets("deleted"), offsets("lost")),
        )
        assert tierd.ask("explain", "deleted-0", "2", "--json").json()["place"] == "expired"
        assert tierd.ask("explain", "lost-0", "0", "--json").json()["place"] == "both"
    verified = tierd.ask("verify", "--deep")
    assert verified.exit_code == 0, verified.output
