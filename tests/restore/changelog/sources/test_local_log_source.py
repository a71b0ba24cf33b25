"""LocalLogSource: changelogs in partition directories of this host (changelog-restore 3.2)."""

from pathlib import Path

import pytest

from tests.fakes.remote_segments import PARTITION
from tests.log.logs import NOW_MS, TransactionalProducers, lead, rows
from tests.restore.changelog.sources.changelog_fixtures import (
    COMMITTED,
    NAME,
    UNCOMMITTED,
    local_log,
    offsets_of,
    read_rest,
    transactional_log,
    write_counted,
)
from tierd.errors import UnknownPartitionError
from tierd.log import LOG_START_OFFSET_CHECKPOINT, REPLICATION_OFFSET_CHECKPOINT, LogConfig, opened_partition
from tierd.model import TopicPartition
from tierd.restore.catalogue.catalogue_objects import CommittedPosition
from tierd.restore.changelog.changelog_errors import ChangelogRangeError, CorruptSourceError, RestoreError
from tierd.restore.changelog.sources.local_log_source import LocalEnd, LocalLogSource

DAY_MS = 86_400_000


def source_of(log_dir: Path, *, is_compacted: bool = False, end: LocalEnd = LocalEnd.HIGH_WATERMARK) -> LocalLogSource:
    return LocalLogSource([log_dir], delete_retention=lambda _: DAY_MS if is_compacted else None, end=end)


def delete_files(directory: Path, base_offset: int) -> None:
    for file in directory.glob(f"{base_offset:020d}.*"):
        file.unlink()


async def test_every_record_of_rolled_and_active_segments_is_read_in_order(tmp_path: Path) -> None:
    log_dir = local_log(tmp_path, [(0, 20), (20, 37)])
    write_counted(log_dir.partitions[NAME], [(37, 40)])
    log_dir.write_checkpoints()
    source = source_of(tmp_path)

    assert await source.list_partitions() == {NAME}
    assert [await source.end_offset(NAME, each) for each in (UNCOMMITTED, COMMITTED)] == [40, 40]
    assert (await source.identity(NAME)).topic_id == PARTITION.topic_id
    found, end = await read_rest(source, max_bytes=100)
    assert found == [(n, b"v%d" % n) for n in range(40)]
    assert end == 40
    assert await offsets_of(source, 18) == list(range(18, 40))


async def test_records_above_the_high_watermark_are_read_only_from_the_only_copy(tmp_path: Path) -> None:
    local_log(tmp_path, [(0, 20)])
    (tmp_path / REPLICATION_OFFSET_CHECKPOINT).write_text(f"0\n1\n{NAME.topic} {NAME.partition} 15\n")

    assert await offsets_of(source_of(tmp_path)) == list(range(15))
    assert await offsets_of(source_of(tmp_path, end=LocalEnd.LOG_END)) == list(range(20))


async def test_high_watermark_above_a_log_that_a_power_cut_has_shortened_is_not_the_end(tmp_path: Path) -> None:
    local_log(tmp_path, [(0, 20)])
    (tmp_path / REPLICATION_OFFSET_CHECKPOINT).write_text(f"0\n1\n{NAME.topic} {NAME.partition} 30\n")
    source = source_of(tmp_path)
    assert await source.end_offset(NAME, UNCOMMITTED) == 20
    assert await offsets_of(source) == list(range(20))


async def test_log_without_a_high_watermark_is_refused_until_the_broker_has_written_it(tmp_path: Path) -> None:
    local_log(tmp_path, [(0, 20)])
    (tmp_path / REPLICATION_OFFSET_CHECKPOINT).unlink()
    with pytest.raises(CorruptSourceError, match="no high watermark"):
        await source_of(tmp_path).end_offset(NAME, UNCOMMITTED)
    assert await source_of(tmp_path, end=LocalEnd.LOG_END).end_offset(NAME, UNCOMMITTED) == 20


async def test_log_start_of_the_checkpoint_is_the_earliest_offset(tmp_path: Path) -> None:
    local_log(tmp_path, [(0, 20)])
    (tmp_path / LOG_START_OFFSET_CHECKPOINT).write_text(f"0\n1\n{NAME.topic} {NAME.partition} 7\n")
    source = source_of(tmp_path)
    assert await source.earliest_offset(NAME) == 7
    with pytest.raises(ChangelogRangeError):
        await source.read(NAME, 6, max_bytes=1, isolation=UNCOMMITTED)
    assert await offsets_of(source, 7) == list(range(7, 20))


async def test_records_that_are_appended_later_are_read_by_the_next_reads(tmp_path: Path) -> None:
    log_dir = local_log(tmp_path, [(0, 20)])
    source = source_of(tmp_path)
    assert await offsets_of(source) == list(range(20))
    write_counted(log_dir.partitions[NAME], [(20, 30)])
    log_dir.write_checkpoints()
    assert await offsets_of(source, 20) == list(range(20, 30))


async def test_segments_that_retention_deletes_under_a_read_are_out_of_range(tmp_path: Path) -> None:
    local_log(tmp_path, [(0, 20), (20, 40)])
    source = source_of(tmp_path)
    assert await source.earliest_offset(NAME) == 0
    delete_files(tmp_path / str(NAME), 0)
    with pytest.raises(ChangelogRangeError) as refused:
        await source.read(NAME, 0, max_bytes=1, isolation=UNCOMMITTED)
    assert refused.value.earliest_offset == 20


@pytest.mark.spec("changelog-restore 48")
async def test_hole_between_local_segments_is_an_error_unless_the_topic_is_compacted(tmp_path: Path) -> None:
    local_log(tmp_path, [(0, 20), (20, 40), (40, 60)])
    delete_files(tmp_path / str(NAME), 20)

    with pytest.raises(CorruptSourceError, match=r"offsets 20 to 39 are missing"):
        await offsets_of(source_of(tmp_path))
    assert await offsets_of(source_of(tmp_path, is_compacted=True)) == [*range(20), *range(40, 60)]


@pytest.mark.spec("changelog-restore 53")
async def test_flipped_bit_in_a_local_segment_is_damage_that_names_file_and_position(tmp_path: Path) -> None:
    local_log(tmp_path, [(0, 20), (20, 40)])
    log = tmp_path / str(NAME) / f"{20:020d}.log"
    data = bytearray(log.read_bytes())
    size = len(data) // 4  # four equal batches
    data[3 * size - 1] ^= 1
    log.write_bytes(data)

    with pytest.raises(CorruptSourceError) as refused:
        await offsets_of(source_of(tmp_path))

    assert f"{log}: wrong checksum of the batch at position {2 * size}" in str(refused.value)


@pytest.mark.spec("changelog-restore 51")
@pytest.mark.parametrize("is_rolled", [True, False], ids=["segments", "one active segment"])
async def test_aborted_records_of_a_local_log_are_left_out(tmp_path: Path, *, is_rolled: bool) -> None:
    transactional_log(tmp_path, "A - B B+ - A! -", is_rolled=is_rolled)
    assert await offsets_of(source_of(tmp_path), isolation=COMMITTED) == [1, 2, 4, 6]
    assert await offsets_of(source_of(tmp_path)) == [0, 1, 2, 4, 6]


@pytest.mark.spec("changelog-restore 51")
async def test_aborted_records_of_the_active_segment_are_left_out_without_its_index(tmp_path: Path) -> None:
    """Control batches tell the aborts that a power cut has taken from the index of the active segment."""
    path = transactional_log(tmp_path, "A - A! -", is_rolled=False)
    (path / f"{0:020d}.txnindex").unlink()
    (path / f"{4:020d}.snapshot").unlink()  # written by a clean stop
    assert await offsets_of(source_of(tmp_path), isolation=COMMITTED) == [1, 3]


@pytest.mark.spec("changelog-restore 52")
async def test_committed_read_stops_where_a_transaction_is_open_and_goes_on_once_it_has_ended(tmp_path: Path) -> None:
    path = tmp_path / str(NAME)
    checkpoint = tmp_path / REPLICATION_OFFSET_CHECKPOINT
    with opened_partition(path, config=LogConfig(), now_ms=NOW_MS, create_with=PARTITION.topic_id) as log:
        log.assign_leader_epoch(0, 0)
        producers = TransactionalProducers(log)
        for entry in ("-", "A", "-"):
            producers.append(entry)
        checkpoint.write_text(f"0\n1\n{NAME.topic} {NAME.partition} 3\n")
        source = source_of(tmp_path)

        assert await source.end_offset(NAME, COMMITTED) == 1
        assert await source.end_offset(NAME, UNCOMMITTED) == 3
        assert await read_rest(source, isolation=COMMITTED) == ([(0, b"value")], 1)

        producers.append("A+")
        checkpoint.write_text(f"0\n1\n{NAME.topic} {NAME.partition} 4\n")
        assert await offsets_of(source, 1, isolation=COMMITTED) == [1, 2]


@pytest.mark.spec("changelog-restore 55")
async def test_offsets_that_compaction_has_removed_at_the_end_lead_to_the_end(tmp_path: Path) -> None:
    path = tmp_path / str(NAME)
    with opened_partition(path, config=LogConfig(), now_ms=NOW_MS, create_with=PARTITION.topic_id) as log:
        log.assign_leader_epoch(0, 0)
        lead(log, rows(0, [(NOW_MS, b"a", b"1")]))
        lead(log, rows(0, [(NOW_MS, b"b", b"2")]))
        log.roll(now_ms=NOW_MS)
    first = path / f"{0:020d}.log"
    first.write_bytes(first.read_bytes()[: first.stat().st_size // 2])
    (tmp_path / REPLICATION_OFFSET_CHECKPOINT).write_text(f"0\n1\n{NAME.topic} {NAME.partition} 2\n")
    assert await read_rest(source_of(tmp_path, is_compacted=True)) == ([(0, b"1")], 2)


async def test_committed_offsets_are_those_that_the_source_was_given(tmp_path: Path) -> None:
    local_log(tmp_path, [(0, 20)])
    position = CommittedPosition(offset=7, leader_epoch=0, metadata="", committed_ms=0)
    source = LocalLogSource([tmp_path], delete_retention=lambda _: None, groups={"app": {NAME: position}})
    assert await source.committed_offset("app", NAME) == 7
    assert await source.committed_offset("other", NAME) is None
    with pytest.raises(RestoreError):
        await source_of(tmp_path).committed_offset("app", NAME)


async def test_partition_without_a_directory_is_an_error_that_names_it(tmp_path: Path) -> None:
    local_log(tmp_path, [(0, 20)])
    with pytest.raises(UnknownPartitionError, match="other-3"):
        await source_of(tmp_path).earliest_offset(TopicPartition("other", 3))
