"""Golden log dirs through the filesystem store and back: our loader reads what Kafka's consumer read before."""

from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest

from tests.golden.unpack import GoldenCase, OracleRecord, golden_cases, read_offsets
from tests.log.reading import read_whole_log
from tests.log.test_golden import expected_records
from tests.restore.log_dir.lab import Lab
from tierd.log import LOG_START_OFFSET_CHECKPOINT, identify_directory, read_offset_checkpoint
from tierd.model import TopicIdPartition
from tierd.remote.backends.files.filesystem_object_store import FilesystemObjectStore
from tierd.restore.plan.partition_plan import PartitionPlan, RestoreMode

REPLICAS = [
    (case, log_dir)
    for case in golden_cases("clean", "epochs", "compact-before", "compact-pass1", "compact-pass2", "old-format")
    for log_dir in case.logdirs
    if not case.partition.startswith("__cluster_metadata") and case.kind not in ("deleted", "empty", "internal")
]
of_each_replica = pytest.mark.parametrize(
    ("case", "log_dir"),
    REPLICAS,
    ids=[case.id + (f"-{Path(log_dir).parent.name}" if len(case.logdirs) > 1 else "") for case, log_dir in REPLICAS],
)
_NO_ID = UUID(int=7)  # of logs that were written before there were topic ids


async def copied(lab: Lab, directory: Path) -> PartitionPlan:
    """Copy a partition into the tier, and plan the restore of all of it."""
    segments = await lab.copy(directory)
    starts = read_offset_checkpoint(directory.parent / LOG_START_OFFSET_CHECKPOINT)
    log_start = max(starts.get(lab.partition.topic_partition, 0), segments[0].start_offset)
    return lab.plan(segments, log_start_offset=log_start, is_compacted="compact" in str(directory))


def lab_of(root: Path, directory: Path) -> Lab:
    found = identify_directory(directory)
    assert found is not None
    name = found.topic_partition
    partition = TopicIdPartition(found.topic_id or _NO_ID, name.topic, name.partition)
    return Lab(root, store=FilesystemObjectStore(root / "tier"), partition=partition)


def below(lines: list[OracleRecord], end_offset: int) -> list[OracleRecord]:
    return [line for line in lines if line["offset"] < end_offset]


def without_epochs(lines: list[OracleRecord]) -> list[OracleRecord]:
    return [{**line, "leaderEpoch": 0} for line in lines]


def require_same_files(restored: Path, lost: Path) -> None:
    """Compare the segments with the broker's own, so that its dump tool says of them what it said before.

    A log start inside the first segment cuts it, and a cut segment has another name.
    """
    names = [path.name for path in sorted(restored.glob("*.log")) if path.stat().st_size]
    for name in [name for name in names if (lost / name).exists()]:
        assert (restored / name).read_bytes() == (lost / name).read_bytes(), name
        index = Path(name).with_suffix(".txnindex").name
        assert (restored / index).exists() == bool((lost / index).exists() and (lost / index).stat().st_size), index
        if (restored / index).exists():
            assert (restored / index).read_bytes() == (lost / index).read_bytes(), index
    others = [path.name for path in sorted(lost.glob("*.log")) if path.stat().st_size and path.name not in names]
    assert others == [] or len(others) == 1 == len([name for name in names if not (lost / name).exists()])


@of_each_replica
async def test_golden_log_comes_back_as_kafka_read_it(
    golden: Path, tmp_path: Path, case: GoldenCase, log_dir: str
) -> None:
    directory, oracle = golden / log_dir / case.partition, golden / case.oracle
    lab = lab_of(tmp_path, directory)
    plan = await copied(lab, directory)
    records = expected_records(oracle / "records.jsonl.gz")
    committed = oracle / "committed.jsonl.gz"
    readable = expected_records(committed) if committed.exists() else records
    for mode in RestoreMode:
        restored = await lab.restore(replace(plan, mode=mode), partition=lab.partition)
        found = read_whole_log(lab.load())
        if mode is RestoreMode.IMPORT:
            assert without_epochs(found.records) == without_epochs(below(readable, restored.end_offset))
        else:
            assert found.records == below(records, restored.end_offset)
            assert found.committed == below(readable, restored.end_offset)
        if mode is RestoreMode.REPLICA:
            require_same_files(lab.directory, directory)
        if mode is RestoreMode.REPLICA and (oracle / "offsets.json").exists():
            assert found.offsets == read_offsets(oracle)
        lab.begin_anew()
