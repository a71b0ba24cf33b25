"""Golden partitions that a real broker of each version has cleaned, compacted by one run of the job, twice."""

import shutil
from pathlib import Path

from pyspark.sql import SparkSession

from tests.golden.unpack import GoldenCase, OracleRecord, read_offsets
from tests.log.test_golden import as_oracle, expected_records
from tests.pipeline.rewriting.rounds import DAY_MS
from tests.pipeline.rewriting.test_real_cleaner import CASES, oracle_dir, stage_dir, time_of_pass
from tests.pipeline.spark.job_lab import JobLab
from tierd.model import IsolationLevel
from tierd.pipeline.planning import CleaningPolicy, WorkOrder


def name_of(case: GoldenCase) -> str:
    """Return the directory of a partition: both brokers have partitions of the same names."""
    return f"k{case.broker.replace('.', '')}-{case.partition}"


def policy_of(case: GoldenCase) -> CleaningPolicy:
    return CleaningPolicy(
        compacts=True,
        delete_retention_ms=int(str(case.config.get("delete.retention.ms", DAY_MS))),
        min_cleanable_dirty_ratio=0.0,
        segment_bytes=int(str(case.config["segment.bytes"])),
    )


def put(source: Path, target: Path, *, from_offset: int = 0) -> None:
    """Copy the files of a partition; segments below ``from_offset`` are left out."""
    target.mkdir(exist_ok=True)
    for path in source.iterdir():
        if not path.stem.isdigit() or int(path.stem) >= from_offset:
            shutil.copy(path, target / path.name)
            (target / path.name).chmod(0o644)


def active_base(directory: Path) -> int:
    return max(int(path.stem) for path in directory.glob("[0-9]*.log"))


async def assert_reads_as(golden: Path, case: GoldenCase, lab: JobLab, stage: str, *, end: int | None = None) -> None:
    """Compare with a consumer, at both isolation levels, without records below the log start.

    Args:
        golden: where the oracles are.
        case: the partition.
        lab: where it is read.
        stage: stage of the oracle.
        end: exclusive, of the round; records left for a later round may exist besides.
    """
    oracle = oracle_dir(golden, case, stage)
    start = read_offsets(oracle)["logStartOffset"]
    for isolation, file in (
        (IsolationLevel.READ_UNCOMMITTED, "records.jsonl.gz"),
        (IsolationLevel.READ_COMMITTED, "committed.jsonl.gz"),
    ):
        if (oracle / file).exists():
            found = [as_oracle(record) for record in await lab.read(name_of(case), isolation)]
            wanted = expected_records(oracle / file)
            left = offsets_left(found, wanted, end) if end is not None else set()
            assert [line for line in found if start <= line["offset"] not in left] == wanted, name_of(case)


def offsets_left(found: list[OracleRecord], wanted: list[OracleRecord], end: int) -> set[int]:
    """Return the surplus that a round to ``end`` cannot remove: records behind it, or superseded only there."""
    keys_behind = {line["key"] for line in found if line["offset"] >= end}
    surplus = {line["offset"] for line in found} - {line["offset"] for line in wanted}
    return {line["offset"] for line in found if line["offset"] >= end or line["key"] in keys_behind} & surplus


def round_ends(order: WorkOrder) -> dict[str, int]:
    return {str(work.partition): work.round_end_offset for work in order.partitions}


def checkpoint_ends(golden: Path, log_dir: Path, stage: str) -> None:
    """Checkpoint all offsets as stable, as the broker did at its stop."""
    lines = [
        f"{name_of(case).rpartition('-')[0]} 0 {read_offsets(oracle_dir(golden, case, stage))['highWatermark']}"
        for case in CASES
    ]
    (log_dir / "replication-offset-checkpoint").write_text("\n".join(["0", str(len(lines)), *lines, ""]))


async def test_two_runs_over_all_partitions_leave_the_records_of_the_real_cleaner(
    golden: Path, tmp_path: Path, spark: SparkSession
) -> None:
    log_dir = tmp_path / "logdir"
    log_dir.mkdir()
    for case in CASES:
        put(stage_dir(golden, case, "compact-before"), log_dir / name_of(case))
    checkpoint_ends(golden, log_dir, "compact-before")
    policies = {name_of(case): policy_of(case) for case in CASES}
    async with JobLab.opened(tmp_path, log_dir) as lab:
        await lab.copy()
        lab.at(max(time_of_pass(golden, case, "compact-before", "compact-pass1") for case in CASES))
        first = await lab.compact(spark.sparkContext, policies)
        assert not first.problems, first.problems
        for case in CASES:
            await assert_reads_as(golden, case, lab, "compact-pass1")

        for case in CASES:
            active = active_base(log_dir / name_of(case))
            put(stage_dir(golden, case, "compact-more"), log_dir / name_of(case), from_offset=active)
        checkpoint_ends(golden, log_dir, "compact-more")
        await lab.copy()
        for case in CASES:
            await assert_reads_as(golden, case, lab, "compact-more")
        lab.at(max(time_of_pass(golden, case, "compact-more", "compact-pass2") for case in CASES))
        ends: dict[str, int] = {}  # a transaction is open at the end of one tier: its marker is in the active segment
        second = await lab.compact(spark.sparkContext, policies, before=lambda order: ends.update(round_ends(order)))
        assert not second.problems, second.problems
        for case in CASES:
            await assert_reads_as(golden, case, lab, "compact-pass2", end=ends[name_of(case)])
        assert sum(lab.finished(name_of(case))[-1][1] >= ends[name_of(case)] for case in CASES) == 1
