"""Timestamp searches in a broker's log, compared with a search through every record."""

from pathlib import Path
from uuid import uuid4

import pytest

from tests.fakes.log_dirs import PartitionWriter
from tierd.log import PartitionScan, first_since, identify_directory, max_timestamp, scan_partition
from tierd.model import TimestampOffset, TopicPartition

TIMES = [50, 20, 90, 90, 30, 10, 70, 100, 60, 100, 40, 5]
"""Of offsets 0 to 11, out of order, three records a segment."""


@pytest.fixture(params=["indexed", "without time indexes"])
def scan(tmp_path: Path, request: pytest.FixtureRequest) -> PartitionScan:
    writer = PartitionWriter(tmp_path, TopicPartition("orders", 0), topic_id=uuid4(), leader_epoch=3)
    for offset, timestamp_ms in enumerate(TIMES):
        if offset and offset % 3 == 0:
            writer.roll()
        writer.append([b"value"], timestamp_ms=timestamp_ms)
    if request.param != "indexed":
        for index in writer.path.glob("*.timeindex"):
            index.unlink()
    directory = identify_directory(writer.path)
    assert directory is not None
    return scan_partition(directory)


@pytest.mark.parametrize("start", [0, 4, 8, 11])
@pytest.mark.parametrize("end", [0, 5, 10, 12])
def test_lookup_finds_the_first_record_at_or_after_a_timestamp(scan: PartitionScan, start: int, end: int) -> None:
    for timestamp_ms in range(0, 110, 5):
        fitting = [offset for offset in range(start, end) if TIMES[offset] >= timestamp_ms]
        expected = TimestampOffset(TIMES[fitting[0]], fitting[0], 3) if fitting else None
        assert first_since(scan, timestamp_ms, start=start, end=end) == expected


@pytest.mark.parametrize("end", range(13))
def test_largest_timestamp_is_found_at_its_first_record(scan: PartitionScan, end: int) -> None:
    largest = max(TIMES[:end], default=None)
    expected = None if largest is None else TimestampOffset(largest, TIMES.index(largest), 3)
    assert max_timestamp(scan, end=end) == expected
