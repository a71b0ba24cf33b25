"""Holes, damage, topics that were made anew, and segments that change under a read."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

import tierd
from tests.pipeline.source.small_tier import SmallTier
from tests.scanning.rows import offsets_of
from tierd.errors import BatchTooLargeError, OffsetOutOfRangeError, RemoteIntegrityError, UnknownPartitionError
from tierd.log import Compression, NewRecord, encode_batch
from tierd.scanning.arrow_reader import ArrowReader, Scan
from tierd.scanning.positions import Position


def remote_logs(small: SmallTier) -> list[Path]:
    return sorted(small.installation.store_dir.rglob("*.log"))


def read_up_to_the_failure(scan: Scan, kind: type[Exception], problem: str) -> list[tuple[int, int]]:
    """Return the rows before the failure, which must come."""
    found: list[pa.RecordBatch] = []
    with pytest.raises(kind, match=problem):
        found.extend(scan)
    return offsets_of(pa.Table.from_batches(found))


def lose_local(small: SmallTier) -> None:
    """Delete the rolled segments of ``orders-0`` on the host."""
    for file in small.partition().path.glob("0000000000000000000*.*"):
        file.unlink()
    for file in small.partition().path.glob("00000000000000000020.*"):
        file.unlink()


def test_hole_ends_the_read_behind_the_records_before_it(small: SmallTier, tier: ArrowReader) -> None:
    small.roll()
    small.append(5)
    small.log_dir.write_checkpoints()
    for file in small.partition().path.glob("00000000000000000040.*"):
        file.unlink()  # it was not copied
    lose_local(small)
    scan = tier.scan("orders", partitions=[0])
    rows = read_up_to_the_failure(scan, OffsetOutOfRangeError, "offset 40 is in neither tier")
    assert rows == [(0, n) for n in range(40)]
    assert offsets_of(tier.scan("orders", partitions=[0], start=47).to_table()) == [(0, n) for n in range(47, 52)]


def take_replica_away(small: SmallTier) -> None:
    path = small.partition().path
    shutil.move(path, path.parent.parent / "moved")


def take_log_dir_away(small: SmallTier) -> None:
    shutil.move(small.log_dir.path, small.log_dir.path.parent / "offline")


def cut_log(small: SmallTier) -> None:
    """Cut the active segment as a crash does, before the broker writes its checkpoint anew."""
    log = small.partition().path / "00000000000000000040.log"
    first_bytes = int.from_bytes(log.read_bytes()[8:12], "big") + 12
    os.truncate(log, first_bytes)


def lower_high_watermark(small: SmallTier) -> None:
    (small.log_dir.path / "replication-offset-checkpoint").write_text("0\n1\norders 0 45\n")


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
@pytest.mark.parametrize(
    ("shorten", "end_offset"),
    [(take_replica_away, 40), (take_log_dir_away, 40), (cut_log, 45), (lower_high_watermark, 45)],
)
def test_log_that_is_shorter_than_the_plan_is_an_error_behind_its_records(
    small: SmallTier, tier: ArrowReader, shorten: Callable[[SmallTier], None], end_offset: int, isolation: str
) -> None:
    """The read ended as if it were complete, and an export went on behind records that it had never read."""
    scan = tier.scan("orders", partitions=[0], isolation=isolation)
    shorten(small)
    rows = read_up_to_the_failure(scan, OffsetOutOfRangeError, f"ends at offset {end_offset}, not at 47")
    assert rows == [(0, n) for n in range(end_offset)]


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
def test_log_that_was_cut_back_before_the_plan_is_an_error_behind_its_records(
    small: SmallTier, tier: ArrowReader, isolation: str
) -> None:
    cut_log(small)
    scan = tier.scan("orders", partitions=[0], isolation=isolation)
    rows = read_up_to_the_failure(scan, OffsetOutOfRangeError, "ends at offset 45, not at 47")
    assert rows == [(0, n) for n in range(45)]
    whole = tier.scan("orders", partitions=[0], isolation=isolation, end=45)
    assert offsets_of(whole.to_table()) == [(0, n) for n in range(45)]


def test_records_of_a_log_that_was_cut_back_are_read_from_the_tier(small: SmallTier, tier: ArrowReader) -> None:
    small.partition().cut_back(15)
    (small.log_dir.path / "replication-offset-checkpoint").write_text("0\n2\norders 0 40\norders 1 20\n")
    assert offsets_of(tier.scan("orders", partitions=[0]).to_table()) == [(0, n) for n in range(40)]


def test_end_that_compaction_emptied_on_the_host_is_no_error(small: SmallTier, tier: ArrowReader) -> None:
    small.roll()
    small.log_dir.write_checkpoints()
    scan = tier.scan("orders", partitions=[0])
    cut_log(small)  # the active segment behind it is empty
    assert scan.ranges[0].end_offset == 47
    assert offsets_of(scan.to_table()) == [(0, n) for n in range(45)]


def test_damaged_segment_ends_the_read_behind_the_records_before_it(small: SmallTier, tier: ArrowReader) -> None:
    lose_local(small)
    log = next(each for each in remote_logs(small) if "00000000000000000020" in each.name)
    data = bytearray(log.read_bytes())
    data[-1] ^= 0xFF
    log.write_bytes(data)
    scan = tier.scan("orders", partitions=[0])
    rows = read_up_to_the_failure(scan, RemoteIntegrityError, "chunk 0 is damaged")
    assert rows[:20] == [(0, n) for n in range(20)]
    assert len(rows) < 40
    assert offsets_of(tier.scan("orders", partitions=[0], end=20).to_table()) == rows[:20]


def test_batch_that_unpacks_to_too_much_is_refused_and_its_neighbours_are_read(small: SmallTier) -> None:
    large = encode_batch([NewRecord(b"large", bytes(257 << 20), 5_000)], compression=Compression.ZSTD)
    small.partition().append_batch(large, 1)
    small.append(2)
    small.log_dir.write_checkpoints()
    with tierd.reader(small.installation.config_file) as tier:
        rows = read_up_to_the_failure(tier.scan("orders", partitions=[0]), BatchTooLargeError, "offsets 47 to 47")
        assert rows == [(0, n) for n in range(47)]
        assert offsets_of(tier.scan("orders", partitions=[0], start=48).to_table()) == [(0, 48), (0, 49)]


def test_topic_that_was_made_anew_is_read_by_its_name_and_the_former_by_its_id(
    small: SmallTier, tier: ArrowReader
) -> None:
    (former,) = tier.topics()
    shutil.rmtree(small.partition(number=1).path)
    small.recreate()
    small.append(3)
    small.log_dir.write_checkpoints()
    ids = {topic.topic_id: topic for topic in tier.topics()}
    assert len(ids) == 2
    assert not ids[former.topic_id].is_local
    assert offsets_of(tier.scan("orders").to_table()) == [(0, 0), (0, 1), (0, 2)]
    old = tier.scan("orders", topic_id=former.topic_id).to_table()
    assert offsets_of(old) == [(0, n) for n in range(40)] + [(1, n) for n in range(20)]
    with pytest.raises(UnknownPartitionError, match="a topic orders"):
        tier.scan("orders", topic_id="AAAAAAAAAAAAAAAAAAAAAA")


def test_scan_does_not_read_the_topic_that_took_the_place_of_its_own(small: SmallTier, tier: ArrowReader) -> None:
    scan = tier.scan("orders", partitions=[0], end=40)
    before = scan.to_table()
    small.recreate()
    small.append(45)
    small.log_dir.write_checkpoints()
    assert scan.to_table() == before


def test_partition_that_was_added_to_a_topic_is_in_later_scans(small: SmallTier, tier: ArrowReader) -> None:
    before = tier.scan("orders")
    small.append(2, number=2)
    small.log_dir.write_checkpoints()
    assert [each.partition.partition for each in before.ranges] == [0, 1]
    assert offsets_of(tier.scan("orders", partitions=[2]).to_table()) == [(2, 0), (2, 1)]
    assert [each.partition.partition for each in tier.scan("orders").ranges] == [0, 1, 2]


def test_segments_that_go_from_the_host_under_a_read_are_read_from_the_tier(
    small: SmallTier, tier: ArrowReader
) -> None:
    batches = iter(tier.scan("orders", partitions=[0], end=40, batch_bytes=1 << 10))
    first = next(batches)
    lose_local(small)
    table = pa.Table.from_batches([first, *batches])
    assert offsets_of(table) == [(0, n) for n in range(40)]


@pytest.mark.parametrize(("start", "first"), [("earliest", 3), (3, 3), (17, 17)])
def test_log_start_inside_a_segment_hides_the_records_before_it(
    small: SmallTier, tier: ArrowReader, start: Position, first: int
) -> None:
    (small.log_dir.path / "log-start-offset-checkpoint").write_text("0\n1\norders 0 3\n")
    small.copy_as_it_is()  # records the log start
    lose_local(small)
    assert offsets_of(tier.scan("orders", partitions=[0], start=start).to_table())[0] == (0, first)
