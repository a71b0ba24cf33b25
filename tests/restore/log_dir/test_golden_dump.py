"""Ten restores of every golden log: Kafka's own dump tool, and our loader, read what the oracles have."""

import asyncio
import base64
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from tests.golden.unpack import GoldenCase, OracleRecord
from tests.log.reading import read_whole_log
from tests.log.test_golden import BATCH, LEGACY, Line, dumped, expected_records
from tests.restore.log_dir.lab import Lab
from tests.restore.log_dir.test_golden_restore import REPLICAS, below, copied, lab_of
from tests.services.kafka_dump import DumpedDirectory, DumpedRecord, dump_directories, plain_text
from tierd.restore.log_dir.restored_partition import RestoredPartition
from tierd.restore.plan.partition_plan import PartitionPlan, RestoreMode

pytestmark = pytest.mark.service("kafka")

CUTS = 7  # restores to an offset, besides the one of each mode


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectation:
    """Content of one restored directory, by the oracles.

    Attributes:
        batches: without their positions; None where no dump of the lost log is there, or batches were written anew.
        end_offset: exclusive. Behind it only offsets without records are skipped.
    """

    what: str
    end_offset: int
    records: Sequence[DumpedRecord]
    batches: Sequence[Line] | None


def plans_of(plan: PartitionPlan) -> list[PartitionPlan]:
    """Return the plans of ten restores: one in each mode, the others up to offsets within the log."""
    start, end = plan.log_start_offset, plan.end_offset
    ends = [max(start + 1, start + (end - start) * number // (CUTS + 1)) for number in range(1, CUTS + 1)]
    return [replace(plan, mode=mode) for mode in RestoreMode] + [cut_at(plan, each) for each in ends]


def cut_at(plan: PartitionPlan, end: int) -> PartitionPlan:
    """Return the plan of a restore to an offset."""
    lineage = plan.lineage.entries_in(plan.log_start_offset, end)
    parts = [part._replace(end_offset=min(part.end_offset, end)) for part in plan.parts if part.start_offset < end]
    cut = replace(plan, mode=RestoreMode.LAST_COPY, parts=tuple(parts), lineage=lineage)
    return replace(cut, end_offset=end, target_offset=end)


def as_dumped(record: OracleRecord) -> DumpedRecord:
    """Return a record of the oracle as the tool prints it."""
    key, value = record["key"], record["value"]
    texts = [
        f" {label}: {plain_text(base64.b64decode(data))}"
        for label, data in (("key", key), ("payload", value))
        if data is not None
    ]
    return DumpedRecord(
        offset=record["offset"],
        timestamp_type=record["timestampType"],
        timestamp_ms=record["timestamp"],
        key_size=-1 if key is None else len(base64.b64decode(key)),
        value_size=-1 if value is None else len(base64.b64decode(value)),
        header_names=",".join(str(name) for name, _ in record["headers"]),
        text="".join(texts),
    )


def lost_batches(golden: Path, case: GoldenCase, log_dir: str) -> list[Line] | None:
    """Return the batches of the lost log as the tool printed them; None where it did not."""
    oracle = golden / case.oracle
    if len(case.logdirs) > 1:  # one oracle for all replicas, but a dump for each
        oracle = golden / Path(log_dir).parent / "oracle" / case.partition
    if not (oracle / "dump.txt.gz").exists():
        return None
    files = sorted(dumped(oracle / "dump.txt.gz").items())
    return [without_position(line) for name, lines in files if name.endswith(".log") for line in lines]


def kept_batches(lost: list[Line] | None, restored: RestoredPartition) -> list[Line] | None:
    if lost is None:
        return None
    kept = range(restored.log_start_offset, restored.end_offset)
    return [line for line in lost if int(line["lastOffset"] or 0) in kept]


def without_position(line: Line) -> Line:
    """Return the fields of a batch that do not depend on the file that has it."""
    return {name: value for name, value in line.items() if name != "position"}


def parsed_batch(line: str) -> Line:
    match = BATCH.fullmatch(line) or LEGACY.fullmatch(line)
    assert match is not None, line
    return without_position(match.groupdict())


async def restored_ten_times(
    golden: Path, lab: Lab, case: GoldenCase, log_dir: str, keep: Callable[[Path], Path]
) -> dict[Path, Expectation]:
    """Restore a golden log, read each result with our loader, and return what the tool must print of it."""
    oracle = golden / case.oracle
    records = expected_records(oracle / "records.jsonl.gz")
    committed = oracle / "committed.jsonl.gz"
    readable = expected_records(committed) if committed.exists() else records
    lost = lost_batches(golden, case, log_dir)
    plan = await copied(lab, golden / log_dir / case.partition)
    expected: dict[Path, Expectation] = {}
    for number, each in enumerate(plans_of(plan)):
        restored = await lab.restore(each, partition=lab.partition)
        is_import = each.mode is RestoreMode.IMPORT
        wanted = below(readable if is_import else records, restored.end_offset)
        if each.target_offset is not None:
            found = read_whole_log(lab.load())
            assert (found.records, found.committed) == (wanted, below(readable, restored.end_offset)), (case.id, number)
        expected[keep(lab.directory)] = Expectation(
            what=f"{case.id}, restore {number}: {each.mode} to {restored.end_offset}",
            end_offset=restored.end_offset,
            records=[as_dumped(record) for record in wanted],
            batches=None if is_import else kept_batches(lost, restored),
        )
        lab.begin_anew()
    return expected


@pytest.mark.parametrize("version", ["3.9.2", "4.3.1"])
async def test_tool_of_kafka_reads_ten_restores_of_every_golden_log_as_the_oracles_say(
    version: str, golden: Path, tmp_path: Path, kafka_jars: Callable[[str], str]
) -> None:
    kafka_jars(version)
    kept, expected = tmp_path / "kept", dict[Path, Expectation]()

    def keep(directory: Path) -> Path:
        place = kept / str(len(list(kept.iterdir())))
        return directory.rename(place)

    kept.mkdir()
    replicas = [(case, log_dir) for case, log_dir in REPLICAS if case.broker == version]
    for number, (case, log_dir) in enumerate(replicas):
        root = tmp_path / f"lab-{number}"
        root.mkdir()
        lab = lab_of(root, golden / log_dir / case.partition)
        expected |= await restored_ten_times(golden, lab, case, log_dir, keep)
    assert len(expected) == 10 * len(replicas) >= 200

    found = await asyncio.to_thread(dump_directories, kept, list(expected), version=version)

    for directory, each in expected.items():
        dump = found.get(directory, DumpedDirectory())
        assert dump.records == each.records, each.what
        assert all(line.endswith("isvalid: true") for line in dump.batches), each.what
        batches = [parsed_batch(line) for line in dump.batches]
        below_end = [batch for batch in batches if int(batch["lastOffset"] or 0) < each.end_offset]
        assert all(batch["count"] == "0" for batch in batches[len(below_end) :]), each.what
        assert each.batches is None or below_end == each.batches, each.what
