"""View of expiration on a replica, of a broker or of tierd itself, and the log start that it passes to the log."""

from collections.abc import Mapping
from pathlib import Path

from tests.fakes.log_dirs import LogDirWriter, SegmentShape
from tierd.log import identify_directory, scan_partition
from tierd.model import TopicIdPartition, TopicPartition
from tierd.tiering.copy_plan import CopiedThrough
from tierd.tiering.local.broker_state import BrokerOffsets
from tierd.tiering.local.hold import SegmentHold
from tierd.tiering.local.partition_log import PartitionLog
from tierd.tiering.removing.expiring.branch_segments import LocalSegment
from tierd.tiering.removing.expiring.local_view import ReplicaLogView


class FakeOffsets:
    def __init__(self, high_watermark: int | None) -> None:
        self.high_watermark = high_watermark
        self.starts: list[int] = []

    async def offsets(self, log_dir: Path, partition: TopicIdPartition) -> BrokerOffsets:
        return BrokerOffsets(self.high_watermark, None)

    async def high_watermarks(self, log_dir: Path) -> Mapping[TopicPartition, int]:
        raise AssertionError("expiration asks for one partition")

    async def copied_through(self, log_dir: Path, partition: TopicIdPartition, copied: CopiedThrough) -> None:
        raise AssertionError("expiration copies nothing")

    async def raise_log_start(self, log_dir: Path, partition: TopicIdPartition, offset: int) -> None:
        self.starts.append(offset)


def view(tmp_path: Path, offsets: FakeOffsets) -> ReplicaLogView:
    writer = LogDirWriter(tmp_path / "kafka")
    partition = writer.add_partition("orders")
    partition.fill(rolled_segments=2, shape=SegmentShape())
    directory = identify_directory(partition.path)
    assert directory is not None
    hold = SegmentHold(mode="none", hold_dir=tmp_path / "hold", max_bytes=None)
    return ReplicaLogView(PartitionLog(scan_partition(directory), hold), offsets)


async def test_segments_have_sizes_only_on_request(tmp_path: Path) -> None:
    local = view(tmp_path, FakeOffsets(20))
    sized = await local.facts(sizes=True)
    assert [segment.base_offset for segment in sized.segments] == [0, 8, 16]
    assert all(segment.size_bytes > 0 for segment in sized.segments)


async def test_facts_without_sizes_have_the_active_segment_alone(tmp_path: Path) -> None:
    facts = await view(tmp_path, FakeOffsets(20)).facts(sizes=False)
    assert facts.segments == (LocalSegment(base_offset=16, next_base_offset=None, size_bytes=0),)
    assert (facts.log_end_offset, facts.high_watermark) == (20, 20)


async def test_log_of_the_view_ends_at_the_high_watermark_or_at_the_active_segment(tmp_path: Path) -> None:
    offsets = FakeOffsets(20)
    local = view(tmp_path, offsets)
    assert (await local.facts(sizes=False)).log_end_offset == 20
    offsets.high_watermark = 3
    assert (await local.facts(sizes=False)).log_end_offset == 16
    offsets.high_watermark = None
    facts = await local.facts(sizes=False)
    assert (facts.log_end_offset, facts.high_watermark) == (16, None)


async def test_segment_that_vanished_after_the_listing_has_size_zero(tmp_path: Path) -> None:
    local = view(tmp_path, FakeOffsets(20))
    (tmp_path / "kafka" / "orders-0" / f"{0:020d}.log").unlink()
    assert (await local.facts(sizes=True)).segments[0].size_bytes == 0


async def test_new_log_start_is_passed_to_the_log(tmp_path: Path) -> None:
    offsets = FakeOffsets(20)
    await view(tmp_path, offsets).raise_log_start(8)
    assert offsets.starts == [8]
