"""A producer snapshot made from the one before and the segment in between is what the broker wrote at the roll."""

from itertools import pairwise
from pathlib import Path

import pytest

from tests.golden.unpack import GoldenCase, golden_cases
from tierd.errors import CorruptIndexError
from tierd.log import OsDisk, identify_directory, parse_producer_snapshot, rebuild_producer_snapshot, scan_partition

CASES = [
    (case, logdir)
    for case in golden_cases("clean", "epochs")
    if not case.partition.startswith("__cluster_metadata")
    for logdir in case.logdirs
]


@pytest.mark.parametrize("replica", CASES, ids=lambda replica: f"{replica[0].id}-{Path(replica[1]).parent.name}")
def test_it_is_what_the_broker_wrote(golden: Path, tmp_path: Path, replica: tuple[GoldenCase, str]) -> None:
    case, logdir = replica
    directory = identify_directory(golden / logdir / case.partition)
    assert directory is not None
    for segment, following in pairwise(scan_partition(directory).segments):
        before = directory.path / f"{segment.base_offset:020d}.snapshot"
        after = directory.path / f"{following.base_offset:020d}.snapshot"
        if not after.exists() or (segment.base_offset > 0 and not before.exists()):
            continue
        folder = tmp_path / str(segment.base_offset)
        folder.mkdir()
        log = folder / segment.log.name
        log.write_bytes(segment.log.read_bytes())
        made = rebuild_producer_snapshot(
            OsDisk(),
            log,
            before.read_bytes() if segment.base_offset > 0 else None,
            start_offset=segment.base_offset,
            end_offset=following.base_offset - 1,
        )
        assert made.name == after.name
        found, expected = (parse_producer_snapshot(path.read_bytes(), path.name) for path in (made, after))
        assert set(found) == set(expected)


def test_a_damaged_snapshot_before_is_refused(tmp_path: Path) -> None:
    log = tmp_path / f"{8:020d}.log"
    log.write_bytes(b"")
    with pytest.raises(CorruptIndexError):
        rebuild_producer_snapshot(OsDisk(), log, b"?", start_offset=8, end_offset=15)
