"""Producer snapshots rebuilt from batches are, byte for byte, those that the broker wrote at the roll."""

from itertools import pairwise
from pathlib import Path

import pytest

from tests.golden.unpack import GoldenCase, golden_cases
from tests.log.producer_steps import NOW_MS
from tierd.errors import CorruptRecordError, SegmentChangedError
from tierd.log import (
    PartitionScan,
    ProducerStateEntry,
    identify_directory,
    parse_producer_snapshot,
    rebuild_producers,
    scan_partition,
)

CASES = [
    (case, logdir)
    for case in golden_cases("clean", "epochs")
    if not case.partition.startswith("__cluster_metadata")
    for logdir in case.logdirs
]
all_replicas = pytest.mark.parametrize("replica", CASES, ids=lambda r: f"{r[0].id}-{Path(r[1]).parent.name}")


def scanned(golden: Path, replica: tuple[GoldenCase, str]) -> PartitionScan:
    case, logdir = replica
    directory = identify_directory(golden / logdir / case.partition)
    assert directory is not None
    return scan_partition(directory)


def entries_at(scan: PartitionScan, offset: int) -> tuple[ProducerStateEntry, ...]:
    file = scan.directory.path / f"{offset:020d}.snapshot"
    return parse_producer_snapshot(file.read_bytes(), file.name) if offset else ()


@all_replicas
def test_rebuild_from_a_snapshot_and_one_segment_gives_the_snapshot_of_the_broker(
    golden: Path, replica: tuple[GoldenCase, str]
) -> None:
    scan = scanned(golden, replica)
    for segment, following in pairwise(scan.segments):
        base, end = segment.base_offset, following.base_offset - 1
        before, after = (scan.directory.path / f"{offset:020d}.snapshot" for offset in (base, end + 1))
        if after.exists() and (base == 0 or before.exists()):
            made = rebuild_producers([segment.log], entries_at(scan, base), start_offset=base, end_offset=end)
            assert made.snapshot == after.read_bytes()
            assert made.transaction_index == index_of(segment.log)


@all_replicas
def test_rebuild_from_all_segments_gives_the_last_snapshot_of_the_broker(
    golden: Path, replica: tuple[GoldenCase, str]
) -> None:
    scan = scanned(golden, replica)
    if scan.segments[0].base_offset:
        return  # the broker knew of producers whose records are gone
    logs = []
    for segment, following in pairwise(scan.segments):
        logs.append(segment.log)
        made = rebuild_producers(logs, (), start_offset=0, end_offset=following.base_offset - 1)
        after = scan.directory.path / f"{following.base_offset:020d}.snapshot"
        if after.exists():
            assert made.snapshot == after.read_bytes()
        assert made.transaction_index == index_of(segment.log)


def index_of(log: Path) -> bytes:
    index = log.with_suffix(".txnindex")
    return index.read_bytes() if index.exists() else b""


def test_rebuilt_snapshot_lists_producers_in_the_order_of_their_hashes(tmp_path: Path) -> None:
    log = empty_segment(tmp_path)
    ids = [1_000_017, 31, 16, 1, (1 << 32) + 1, 0]
    made = rebuild_producers([log], [known(each) for each in ids], start_offset=8, end_offset=15)
    # In 16 buckets: 0 and 16 share bucket 0, (1 << 32) + 1 folds to 0 as well, 1_000_017 to 14.
    assert producer_ids(made.snapshot) == [16, (1 << 32) + 1, 0, 1, 1_000_017, 31]


def test_rebuilt_snapshot_orders_more_than_12_producers_by_more_buckets(tmp_path: Path) -> None:
    log = empty_segment(tmp_path)
    twelve = rebuild_producers([log], [known(16), *map(known, range(5, 16))], start_offset=8, end_offset=15)
    thirteen = rebuild_producers([log], [known(16), *map(known, range(4, 16))], start_offset=8, end_offset=15)
    assert producer_ids(twelve.snapshot) == [16, *range(5, 16)]
    assert producer_ids(thirteen.snapshot) == [*range(4, 17)]


def test_rebuilt_snapshot_keeps_an_expired_producer(tmp_path: Path) -> None:
    made = rebuild_producers([empty_segment(tmp_path)], [known(1, timestamp_ms=1)], start_offset=8, end_offset=15)
    assert producer_ids(made.snapshot) == [1]


def test_rebuild_writes_no_file(tmp_path: Path) -> None:
    log = empty_segment(tmp_path)
    rebuild_producers([log], (), start_offset=8, end_offset=15)
    assert list(tmp_path.iterdir()) == [log]


def test_rebuild_from_a_torn_segment_is_refused(tmp_path: Path) -> None:
    log = empty_segment(tmp_path)
    log.write_bytes(bytes(20))
    with pytest.raises(CorruptRecordError):
        rebuild_producers([log], (), start_offset=8, end_offset=15)


def test_rebuild_from_a_missing_segment_reports_it_as_changed(tmp_path: Path) -> None:
    with pytest.raises(SegmentChangedError):
        rebuild_producers([tmp_path / "gone.log"], (), start_offset=8, end_offset=15)


def empty_segment(folder: Path) -> Path:
    log = folder / f"{8:020d}.log"
    log.write_bytes(b"")
    return log


def known(producer_id: int, *, timestamp_ms: int = NOW_MS) -> ProducerStateEntry:
    return ProducerStateEntry(producer_id, 0, 3, 7, 3, timestamp_ms, -1, -1)


def producer_ids(snapshot: bytes) -> list[int]:
    return [entry.producer_id for entry in parse_producer_snapshot(snapshot, "snapshot")]
