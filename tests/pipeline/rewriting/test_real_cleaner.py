"""Golden partitions that a real broker has cleaned twice: our rounds write the same bytes as its cleaner."""

import shutil
from pathlib import Path

import pytest

from tests.golden.unpack import GoldenCase, OracleRecord, golden_cases, read_offsets
from tests.log.logs import open_log
from tests.log.reading import read_whole_log
from tests.log.test_golden import as_oracle, expected_records
from tests.pipeline.rewriting.rounds import DAY_MS, Round
from tierd.log import Compression, RecordBatch, iter_batches

CASES = golden_cases("compact-before")
of_every_partition = pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.broker}-{case.partition}")


def stage_dir(golden: Path, case: GoldenCase, stage: str) -> Path:
    return golden / f"kafka-{case.broker}" / stage / "logdir" / case.partition


def oracle_dir(golden: Path, case: GoldenCase, stage: str) -> Path:
    return golden / f"kafka-{case.broker}" / stage / "oracle" / case.partition


def bases_of(directory: Path) -> list[int]:
    return sorted(int(path.stem) for path in directory.glob("[0-9]*.log"))


def batches_of(directory: Path, base_offset: int) -> list[RecordBatch]:
    path = directory / f"{base_offset:020d}.log"
    return list(iter_batches(path.read_bytes(), name=path.name))


def horizons_of(directory: Path) -> dict[int, int]:
    found = (batch for base in bases_of(directory) for batch in batches_of(directory, base))
    return {batch.base_offset: batch.delete_horizon_ms for batch in found if batch.delete_horizon_ms is not None}


def time_of_pass(golden: Path, case: GoldenCase, before: str, after: str) -> int:
    """Return the time of a cleaning by the broker, taken from its new delete horizons; others are minutes away."""
    moments: list[int] = []
    for other in (case, *(other for other in CASES if other.broker == case.broker)):
        old, new = horizons_of(stage_dir(golden, other, before)), horizons_of(stage_dir(golden, other, after))
        retention_ms = int(str(other.config.get("delete.retention.ms", DAY_MS)))
        moments += [horizon - retention_ms for base, horizon in new.items() if old.get(base) != horizon][:1]
        if other is case and moments:
            return moments[0]
    return max(moments)


def clean(golden: Path, case: GoldenCase, directory: Path, before: str, after: str) -> list[int]:
    """Clean ``directory`` at the time of the broker, with its groups; return the base offsets of the outputs."""
    real, active = stage_dir(golden, case, after), bases_of(directory)[-1]
    groups = [base for base in bases_of(real) if base < active]
    if groups:
        Round(
            now_ms=time_of_pass(golden, case, before, after),
            delete_retention_ms=int(str(case.config.get("delete.retention.ms", DAY_MS))),
            group_bases=[bases_of(directory)[0], *groups[1:]],
        ).run(directory, directory.with_name("scratch"))
    return groups


def add_what_was_appended(golden: Path, case: GoldenCase, directory: Path) -> None:
    """Put the files of the broker from our active segment on in its place."""
    active = bases_of(directory)[-1]
    for path in directory.glob("[0-9]*.*"):
        if int(path.stem) >= active:
            path.unlink()
    for path in stage_dir(golden, case, "compact-more").iterdir():
        if not path.stem.isdigit() or int(path.stem) >= active:
            shutil.copy(path, directory)


def read(directory: Path) -> tuple[list[OracleRecord], list[OracleRecord]]:
    log = open_log(directory.parent, name=directory.name)
    try:
        found = read_whole_log(log)
    finally:
        log.close()
    return found.records, found.committed


def assert_reads_as(golden: Path, case: GoldenCase, directory: Path, stage: str) -> None:
    """Compare with a consumer, at both isolation levels, without records below the log start that retention raised."""
    oracle = oracle_dir(golden, case, stage)
    start = read_offsets(oracle)["logStartOffset"]
    records, committed = ([line for line in lines if line["offset"] >= start] for lines in read(directory))
    assert records == expected_records(oracle / "records.jsonl.gz")
    if (oracle / "committed.jsonl.gz").exists():
        assert committed == expected_records(oracle / "committed.jsonl.gz")


def assert_same_bytes(golden: Path, case: GoldenCase, directory: Path, stage: str, groups: list[int]) -> None:
    """Compare whole segments; of a batch compressed again with zstd, whose encoder may differ, all but the payload."""
    real = stage_dir(golden, case, stage)
    for base in groups[
        bases_of(directory)[0] != groups[0] :
    ]:  # retention deleted the first of them, our rounds did not
        ours, theirs = batches_of(directory, base), batches_of(real, base)
        assert [identity(batch) for batch in ours] == [identity(batch) for batch in theirs]
        name = f"{base:020d}.txnindex"
        assert content(directory / name) == content(real / name)


def identity(batch: RecordBatch) -> object:
    if batch.compression is not Compression.ZSTD:
        return bytes(batch.data)
    header = bytes(batch.data[:8]) + bytes(batch.data[12:17]) + bytes(batch.data[21:61])
    return header, list(batch.records())


def content(path: Path) -> bytes:
    return path.read_bytes() if path.exists() else b""


@of_every_partition
def test_two_passes_with_new_records_between_write_the_bytes_of_the_broker(
    golden: Path, case: GoldenCase, tmp_path: Path
) -> None:
    directory = tmp_path / case.partition
    shutil.copytree(stage_dir(golden, case, "compact-before"), directory)
    groups = clean(golden, case, directory, "compact-before", "compact-pass1")
    assert_same_bytes(golden, case, directory, "compact-pass1", groups)
    assert_reads_as(golden, case, directory, "compact-pass1")
    add_what_was_appended(golden, case, directory)
    assert_reads_as(golden, case, directory, "compact-more")
    groups = clean(golden, case, directory, "compact-more", "compact-pass2")
    assert_same_bytes(golden, case, directory, "compact-pass2", groups)
    assert_reads_as(golden, case, directory, "compact-pass2")


@pytest.mark.parametrize("case", golden_cases("old-format"), ids=lambda case: case.partition)
def test_old_formats_are_rewritten_as_magic_2_with_the_same_records(
    golden: Path, case: GoldenCase, tmp_path: Path
) -> None:
    directory = tmp_path / case.partition
    shutil.copytree(golden / case.logdirs[0] / case.partition, directory)
    end_offset = max(line["offset"] for line in expected_records(golden / case.oracle / "records.jsonl.gz")) + 1
    (directory / f"{end_offset:020d}.log").touch()  # so that all of it is rolled
    (output,) = Round(now_ms=1).run(directory, tmp_path / "scratch")
    batches = batches_of(directory, bases_of(directory)[0])
    assert {batch.magic for batch in batches} == {2}
    latest = {line["key"]: line for line in expected_records(golden / case.oracle / "records.jsonl.gz") if line["key"]}
    expected = sorted(latest.values(), key=lambda line: line["offset"])
    found = [as_oracle(record) for batch in batches for record in batch.records()]
    for line in (*expected, *found):
        line["timestampType"] = line["timestampType"].replace("NoTimestampType", "CreateTime")
    assert found == expected
    assert output.statistics.records_read > len(found) > 0
