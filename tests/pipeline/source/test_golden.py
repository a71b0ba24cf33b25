"""Tier of each golden log dir, read by the data source as a real consumer has read it."""

from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from tests.pipeline.source.queries import Queries, as_oracle
from tests.scenarios.golden_tiers import GOLDEN_LOG_DIRS, copied_golden, golden_records
from tests.scenarios.log_dirs import delete_copied_segments
from tests.scenarios.oracle import assert_same_records
from tierd.log import read_producer_snapshot


@pytest.mark.parametrize("source", GOLDEN_LOG_DIRS)
def test_log_dir_of_a_broker_is_read_the_same_from_the_tier(source: str, golden: Path, tmp_path: Path) -> None:
    oracle = golden / GOLDEN_LOG_DIRS[source]
    log_dir, installation = copied_golden(golden / source, tmp_path)
    queries = Queries(installation.config_file, subscribePattern=".*", partitionBytes="20kB")
    ends = queries.remote_ends()
    names = sorted(path.name for path in oracle.iterdir() if path.name in ends)

    assert sum(ends.values()) >= 100
    stable = {name: _first_undecided(log_dir / name, ends[name]) for name in names}
    for isolation, file, limits in (
        ("read_uncommitted", "records", ends),
        ("read_committed", "committed", stable),
    ):
        found = _by_partition(queries.rows(isolation=isolation))
        for name in names:
            expected = [r for r in _oracle(oracle / name, file) if r["offset"] < limits[name]]
            assert_same_records(found[name], expected, what=f"{name} {isolation}")
    if "/crash/" in source:
        return  # damaged partitions of the host cannot be read
    for name in names:
        delete_copied_segments(log_dir / name, copied_through=ends[name] - 1)
    for isolation, file in (("read_uncommitted", "records"), ("read_committed", "committed")):
        found = _by_partition(queries.rows(isolation=isolation, includeLocal="true"))
        for name in names:
            assert_same_records(found[name], _oracle(oracle / name, file), what=f"{name} {isolation} with local")


def _first_undecided(directory: Path, end: int) -> int:
    """Return the begin of a transaction open at the end of the tier: no reader of the tier has its marker."""
    snapshot = directory / f"{end:020d}.snapshot"
    producers = read_producer_snapshot(snapshot) if snapshot.exists() else ()
    return min([end, *(p.current_txn_first_offset for p in producers if p.current_txn_first_offset >= 0)])


def _oracle(folder: Path, file: str) -> list[Any]:
    return golden_records(folder, file, without=("leaderEpoch",))


def _by_partition(rows: list[Any]) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = defaultdict(list)
    for row in rows:
        found[f"{row['topic']}-{row['partition']}"].append(as_oracle(row))
    return found
