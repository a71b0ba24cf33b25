"""Inspection of a partition that a real broker has open."""

import pytest

from tests.services.kafka_fixtures import MakeCluster
from tests.services.kafka_records import SentRecord
from tests.services.waiting import wait_until
from tierd.log import Damage, inspect_path

SEGMENT_MS = 1_000
TIMESTAMPS_MS = (10_000, 10_000, 12_000, 14_000)
"""Of the records: the third and the fourth begin a segment."""


@pytest.mark.parametrize("version", ["3.9.2", "4.3.1"])
def test_broker_that_rolls_at_its_log_start_takes_no_snapshot_there(kafka_cluster: MakeCluster, version: str) -> None:
    cluster = kafka_cluster(nodes=1, version=version)
    cluster.create_topic("orders", configs={"segment.ms": str(SEGMENT_MS)})
    with cluster.producer() as producer:
        for offset, timestamp_ms in enumerate(TIMESTAMPS_MS):
            if offset == 2:
                cluster.delete_records("orders", 0, 2)
            producer.send("orders", 0, [SentRecord(key=None, value=b"v", timestamp_ms=timestamp_ms)])
            producer.flush()
    folder = cluster.partition_dir("orders", 0)
    assert folder is not None
    assert cluster.base_offsets("orders", 0) == [0, 2, 3]
    assert [int(path.stem) for path in folder.glob("*.snapshot")] == [3]
    wait_until(  # the broker writes the leader epochs in the background
        lambda: not any(isinstance(each, Damage) for each in inspect_path(folder)),
        what="a partition without damage",
        deadline_s=30,
    )
