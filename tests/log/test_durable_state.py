"""Producer snapshots, leader epochs, topic ids and the clean-stop marker after a power cut."""

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.fakes.simulated_disk import SimulatedDisk
from tests.log.batches import TOPIC_ID
from tests.log.producer_steps import NOW_MS, append, data
from tierd.log.files.checkpoints import load_offset_checkpoint, write_offset_checkpoint
from tierd.log.files.clean_shutdown import (
    delete_clean_shutdown,
    has_clean_shutdown,
    read_broker_epoch,
    write_clean_shutdown,
)
from tierd.log.files.disk import Disk
from tierd.log.files.leader_epoch import LeaderEpochFileCache
from tierd.log.files.partition_metadata import PartitionMetadataFile
from tierd.log.producers.producer_manager import ProducerStateManager
from tierd.log.records.log_config import LogConfig
from tierd.model import TopicPartition

FOLDER = Path("/logs/orders-0")
PARTITION = TopicPartition("orders", 0)
SEEDS = range(30)


def disk_with_folder() -> SimulatedDisk:
    disk = SimulatedDisk()
    for path in (FOLDER.parent, FOLDER):
        disk.make_directory(path)
        disk.sync_directory(path.parent)
    return disk


def producers_on(disk: Disk) -> ProducerStateManager:
    return ProducerStateManager(disk, FOLDER, topic_partition=PARTITION, config=LogConfig())


def after_power_cut(work: Callable[[SimulatedDisk], None], seed: int) -> SimulatedDisk:
    disk = disk_with_folder()
    work(disk)
    disk.crash(random.Random(seed))
    return disk


def load(disk: Disk, end: int) -> ProducerStateManager:
    producers = producers_on(disk)
    producers.truncate_and_reload(log_start_offset=0, log_end_offset=end, now_ms=NOW_MS)
    return producers


@pytest.mark.parametrize("seed", SEEDS)
def test_producer_snapshot_after_a_power_cut_is_whole_or_not_loaded(seed: int) -> None:
    def work(disk: SimulatedDisk) -> None:
        producers = producers_on(disk)
        append(producers, *(data(at, 0, producer_id=at) for at in range(1, 9)))
        producers.take_snapshot(sync=True)
        append(producers, *(data(at, 0, producer_id=at) for at in range(9, 200)))
        producers.take_snapshot(sync=False)

    producers = load(after_power_cut(work, seed), 200)
    assert (producers.map_end_offset, len(producers.producers)) in {(9, 8), (200, 199)}


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("is_marked", [True, False])
def test_snapshot_of_a_truncated_branch_is_not_loaded_after_a_power_cut(seed: int, is_marked: bool) -> None:
    def work(disk: SimulatedDisk) -> None:
        producers = producers_on(disk)
        for producer_id in range(1, 4):
            append(producers, data(producer_id, 0, producer_id=producer_id))
            producers.take_snapshot(sync=True)
        if is_marked:
            producers.remove_and_mark_snapshot_for_deletion(4)
        producers.truncate_and_reload(log_start_offset=0, log_end_offset=2, now_ms=NOW_MS)

    producers = load(after_power_cut(work, seed), 4)
    assert (producers.map_end_offset, set(producers.producers)) == (2, {1})


@pytest.mark.parametrize("seed", SEEDS)
def test_assigned_epoch_and_written_topic_id_survive_a_power_cut(seed: int) -> None:
    def work(disk: SimulatedDisk) -> None:
        cache, metadata = LeaderEpochFileCache(disk, FOLDER), PartitionMetadataFile(disk, FOLDER)
        metadata.record(TOPIC_ID)
        metadata.maybe_flush()
        cache.assign(epoch=1, start_offset=0)
        cache.assign(epoch=2, start_offset=7)
        cache.truncate_from_end(7)

    disk = after_power_cut(work, seed)
    assert list(LeaderEpochFileCache(disk, FOLDER).lineage.entries) == [(1, 0), (2, 7)]
    assert PartitionMetadataFile(disk, FOLDER).read() == TOPIC_ID


@pytest.mark.parametrize("seed", SEEDS)
def test_written_or_deleted_clean_marker_stays_so_after_a_power_cut(seed: int) -> None:
    def deleted(disk: SimulatedDisk) -> None:
        write_clean_shutdown(disk, FOLDER.parent, broker_epoch=5)
        delete_clean_shutdown(disk, FOLDER.parent)

    written = after_power_cut(lambda disk: write_clean_shutdown(disk, FOLDER.parent, broker_epoch=5), seed)
    assert read_broker_epoch(written, FOLDER.parent) == 5
    assert not has_clean_shutdown(after_power_cut(deleted, seed), FOLDER.parent)


@pytest.mark.parametrize("seed", SEEDS)
def test_checkpoint_after_a_power_cut_has_the_old_or_the_new_offsets(seed: int) -> None:
    path = FOLDER.parent / "recovery-point-offset-checkpoint"

    def work(disk: SimulatedDisk) -> None:
        write_offset_checkpoint(disk, path, {PARTITION: 1})
        file = disk.open(path.with_name(path.name + ".tmp"), create=True)
        file.write(0, [b"0\n1\n"])
        file.close()

    assert load_offset_checkpoint(after_power_cut(work, seed), path) == {PARTITION: 1}
