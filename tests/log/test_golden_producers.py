"""Producer state and leader epochs of real brokers, derived from the batches alone."""

from pathlib import Path

import pytest

from tests.golden.unpack import GoldenCase, golden_cases
from tierd.log import PartitionDirectory, identify_directory, read_lineage
from tierd.log.files.disk import OsDisk
from tierd.log.files.leader_epoch import LeaderEpochFileCache
from tierd.log.files.partition_scan import PartitionScan, file_name, scan_partition
from tierd.log.indexes.transaction_index import AbortedTransaction, read_transaction_index
from tierd.log.producers.producer_manager import ProducerStateManager
from tierd.log.producers.producer_state import ProducerStateEntry, encode_producer_snapshot, parse_producer_snapshot
from tierd.log.producers.transactions import read_end_marker
from tierd.log.records.batch_header import iter_headers
from tierd.log.records.log_config import MAX_LONG, LogConfig

DISK = OsDisk()
NEVER = LogConfig(producer_id_expiration_ms=MAX_LONG)
CASES = [
    (case, logdir)
    for case in golden_cases("clean", "epochs")
    if not case.partition.startswith("__cluster_metadata")
    for logdir in case.logdirs
]


def replica_id(replica: tuple[GoldenCase, str]) -> str:
    case, logdir = replica
    return case.id + (f"-{Path(logdir).parent.name}" if len(case.logdirs) > 1 else "")


def scan_of(golden: Path, replica: tuple[GoldenCase, str]) -> tuple[PartitionDirectory, PartitionScan]:
    case, logdir = replica
    directory = identify_directory(golden / logdir / case.partition)
    assert directory is not None
    return directory, scan_partition(directory)


def describe(manager: ProducerStateManager) -> set[ProducerStateEntry]:
    return {producer.to_snapshot() for producer in manager.producers.values()}


@pytest.mark.spec("log-format PSM-33")
@pytest.mark.parametrize("replica", CASES, ids=replica_id)
def test_producers_replayed_from_batches_equal_the_snapshots_of_the_broker(
    golden: Path, tmp_path: Path, replica: tuple[GoldenCase, str]
) -> None:
    directory, scan = scan_of(golden, replica)
    # a log whose first segments were deleted begins with the oldest snapshot, at its second segment
    first = next((s for s in scan.segments if s.base_offset in (0, *scan.snapshots)), None)
    if first is None:
        assert len(scan.segments) == 1
        return
    manager = ProducerStateManager(DISK, tmp_path, topic_partition=directory.topic_partition, config=NEVER)
    path = directory.path / file_name(first.base_offset, ".snapshot")
    if path.exists():
        (tmp_path / path.name).write_bytes(path.read_bytes())
        manager.remove_stray_snapshots([first.base_offset])
        manager.truncate_and_reload(log_start_offset=-1, log_end_offset=first.base_offset, now_ms=0)
    compared = 0
    for segment in scan.segments[scan.segments.index(first) :]:
        aborted: list[AbortedTransaction] = []
        file = DISK.open(segment.log, write=False)
        for header in iter_headers(file):
            entry = manager.replay(header, read_end_marker(file, header))
            aborted += [] if entry is None else [entry]
        file.close()
        entries = read_transaction_index(segment.transaction_index, base_offset=segment.base_offset).entries
        assert tuple(aborted) == entries
        end = manager.map_end_offset if segment.next_base_offset is None else segment.next_base_offset
        written = directory.path / file_name(end, ".snapshot")
        if written.exists():
            assert describe(manager) == set(parse_producer_snapshot(written.read_bytes(), "broker"))
            assert len(encode_producer_snapshot(tuple(describe(manager)))) == written.stat().st_size
            compared += 1
    assert compared or manager.map_end_offset == 0


@pytest.mark.spec("log-format DIR-23")
@pytest.mark.parametrize("replica", CASES, ids=replica_id)
def test_epochs_replayed_from_batches_equal_those_of_the_broker(
    golden: Path, tmp_path: Path, replica: tuple[GoldenCase, str]
) -> None:
    directory, scan = scan_of(golden, replica)
    theirs = read_lineage(directory.path)
    cache = LeaderEpochFileCache(DISK, tmp_path)
    for segment in scan.segments:
        file = DISK.open(segment.log, write=False)
        for header in iter_headers(file):
            cache.assign(epoch=header.partition_leader_epoch, start_offset=header.base_offset)
        file.close()
    if theirs.earliest is not None:
        cache.truncate_from_start(theirs.earliest.start_offset)
    assert set(cache.lineage.entries) <= set(theirs.entries)
    cache.write_pending()
    assert read_lineage(tmp_path) == cache.lineage
    cache.clear()
    for entry in theirs.entries:
        cache.assign(epoch=entry.epoch, start_offset=entry.start_offset)
    assert (tmp_path / "leader-epoch-checkpoint").read_bytes() == (
        directory.path / "leader-epoch-checkpoint"
    ).read_bytes()
