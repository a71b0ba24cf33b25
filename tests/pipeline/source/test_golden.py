"""Tier of each golden log dir, read by the data source as a real consumer has read it."""

import asyncio
from collections import defaultdict
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from tests.fakes.log_dirs import LogDirWriter
from tests.golden.unpack import golden_cases
from tests.pipeline.source.queries import Queries, as_oracle
from tests.scenarios.installation import Installation
from tests.scenarios.log_dirs import copy_writable, delete_copied_segments
from tests.scenarios.oracle import assert_same_records, read_oracle
from tierd.app import Deployment, copy_once
from tierd.config import load_config
from tierd.log import iter_batches, read_producer_snapshot
from tierd.model import uuid_to_text

LOG_DIRS = {
    case.logdirs[-1]: str(Path(case.oracle).parent)
    for case in golden_cases("clean", "epochs", "compact-before", "old-format", "crash")
} | {
    f"kafka-{version}/{stage}/logdir": f"kafka-{version}/{stage}/oracle"
    for version in ("3.9.2", "4.3.1")
    for stage in ("compact-pass1", "compact-pass2")
}


@pytest.mark.parametrize("source", LOG_DIRS)
def test_log_dir_of_a_broker_is_read_the_same_from_the_tier(source: str, golden: Path, tmp_path: Path) -> None:
    log_dir, oracle = tmp_path / "logdir", golden / LOG_DIRS[source]
    copy_writable(golden / source, log_dir)
    if not (log_dir / "meta.properties").exists():
        _complete(log_dir)
    config_file = Installation(tmp_path / "tierd", [log_dir]).config_file
    copied = asyncio.run(copy_once(Deployment(load_config(config_file, {}), config_file), None))
    failures = [outcome.error for outcome in copied if outcome.error is not None]
    assert not failures or "/crash/" in source, failures  # partitions that a crash has damaged stay local
    queries = Queries(config_file, subscribePattern=".*", partitionBytes="20kB")
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


def _complete(log_dir: Path) -> None:
    """Add the files that a present broker makes beside the logs of old brokers."""
    writer = LogDirWriter(log_dir)
    ends = []
    for log in sorted(log_dir.rglob("*.log")):
        last = [batch.last_offset for batch in iter_batches(log.read_bytes(), name="log")][-1]
        (log.parent / f"{last + 1:020d}.log").touch()
        (log.parent / "partition.metadata").write_text(f"version: 0\ntopic_id: {uuid_to_text(uuid4())}")
        (log.parent / "leader-epoch-checkpoint").write_text(f"0\n1\n0 {int(log.stem)}\n")
        ends.append(f"{log.parent.name.rpartition('-')[0]} 0 {last + 1}\n")
    (writer.path / "replication-offset-checkpoint").write_text(f"0\n{len(ends)}\n{''.join(ends)}")


def _first_undecided(directory: Path, end: int) -> int:
    """Return the begin of a transaction open at the end of the tier: no reader of the tier has its marker."""
    snapshot = directory / f"{end:020d}.snapshot"
    producers = read_producer_snapshot(snapshot) if snapshot.exists() else ()
    return min([end, *(p.current_txn_first_offset for p in producers if p.current_txn_first_offset >= 0)])


def _oracle(folder: Path, file: str) -> list[Any]:
    path = folder / f"{file}.jsonl.gz"
    records = read_oracle(path if path.exists() else folder / "records.jsonl.gz")
    left_out = {"leaderEpoch", "magic"}
    return [{name: r[name] for name in r if name not in left_out} for r in records if "offset" in r]


def _by_partition(rows: list[Any]) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = defaultdict(list)
    for row in rows:
        found[f"{row['topic']}-{row['partition']}"].append(as_oracle(row))
    return found
