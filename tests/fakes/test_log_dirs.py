"""Synthetic log dirs, read by the log room, which is itself tested with Kafka's own files."""

import struct
from itertools import islice
from pathlib import Path

from tests.fakes.log_dirs import CLUSTER_ID, LogDirWriter, SegmentShape, write_log_dir
from tierd.log import (
    check_segment,
    iter_batches,
    list_log_dir,
    read_meta_properties,
    read_offset_checkpoint,
    scan_partition,
)


def test_every_rolled_segment_passes_the_check_that_precedes_a_copy(tmp_path: Path) -> None:
    shape = SegmentShape(batches=40, records_per_batch=3, value_bytes=500)
    log_dir = write_log_dir(tmp_path, partitions=2, rolled_segments=3, shape=shape)

    listing = list_log_dir(log_dir.path)

    assert [str(directory.topic_partition) for directory in listing.partitions] == ["synthetic-0", "synthetic-1"]
    for directory in listing.partitions:
        scan = scan_partition(directory)
        assert len(scan.segments) == 4
        for segment in scan.segments[:-1]:
            check = check_segment(
                segment.log, base_offset=segment.base_offset, next_base_offset=segment.next_base_offset
            )
            assert (check.batch_count, check.record_count) == (40, 120)
            assert segment.producer_snapshot is not None


def test_every_index_entry_points_at_the_batch_that_ends_with_its_offset(tmp_path: Path) -> None:
    shape = SegmentShape(batches=40, records_per_batch=3, value_bytes=500)
    write_log_dir(tmp_path, partitions=1, rolled_segments=2, shape=shape)
    base_offset = 120
    segment = tmp_path / "synthetic-0" / f"{base_offset:020d}.log"

    entries = list(struct.iter_unpack(">ii", segment.with_suffix(".index").read_bytes()))

    content = segment.read_bytes()
    assert len(entries) > 10
    for relative_offset, position in entries:
        (batch,) = islice(iter_batches(content[position:], name="indexed"), 1)
        assert batch.last_offset == base_offset + relative_offset


def test_written_checkpoints_and_identity_are_read(tmp_path: Path) -> None:
    log_dir = LogDirWriter(tmp_path)
    partition = log_dir.add_partition("orders", 3, leader_epoch=5)
    partition.append([b"a", None])
    partition.begin_epoch(6)
    log_dir.write_checkpoints()

    identity = read_meta_properties(tmp_path)
    assert identity is not None
    assert identity.cluster_id == CLUSTER_ID
    assert read_offset_checkpoint(tmp_path / "replication-offset-checkpoint") == {partition.partition: 2}
    (directory,) = list_log_dir(tmp_path).partitions
    assert directory.topic_id == partition.topic_id
    lineage = scan_partition(directory).lineage
    assert [(entry.epoch, entry.start_offset) for entry in lineage.entries] == [(5, 0), (6, 2)]
