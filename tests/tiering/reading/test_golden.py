"""Log dirs of real brokers: copied, cut down to the active segment, and read back record by record."""

import base64
import shutil
from pathlib import Path

import pytest

from tests.golden.unpack import GoldenCase, OracleRecord, golden_cases, read_lines
from tests.tiering.setups import Tier, delete_segment, partition_of
from tierd.log import Record
from tierd.model import IsolationLevel

CASES = [
    (case, logdir)
    for case in golden_cases("clean", "epochs", "compact-before")
    for logdir in case.logdirs
    if not case.partition.startswith("__")
]


def _as_oracle(record: Record) -> OracleRecord:
    def text(value: bytes | None) -> str | None:
        return None if value is None else base64.b64encode(value).decode()

    return {
        "offset": record.offset,
        "timestamp": record.timestamp_ms,
        "timestampType": record.timestamp_type,
        "leaderEpoch": record.leader_epoch,
        "key": text(record.key),
        "value": text(record.value),
        "headers": [[name, text(value)] for name, value in record.headers],
    }


@pytest.mark.parametrize(
    ("case", "logdir"), CASES, ids=[f"{case.id}-{Path(logdir).parent.name}" for case, logdir in CASES]
)
async def test_copied_golden_partition_reads_as_a_consumer_read_it(
    golden: Path, tmp_path: Path, case: GoldenCase, logdir: str
) -> None:
    log_dir = tmp_path / "logdir"
    log_dir.mkdir()
    for file in (golden / logdir).iterdir():
        if file.is_file():
            shutil.copy2(file, log_dir)
    shutil.copytree(golden / logdir / case.partition, log_dir / case.partition)
    path = log_dir / case.partition
    session = Tier(tmp_path, [log_dir]).session()

    outcomes = await session.copy_once()

    assert [outcome.error for outcome in outcomes.values()] in ([None], [])
    if not outcomes:
        return  # an empty partition has no leader epoch, and nothing to copy
    partition = partition_of(path)
    for row in session.rows(partition):
        if session.finished(partition):
            delete_segment(path, row.start_offset)
    records = [_as_oracle(record) for record in await session.read_all(path)]
    assert records == read_lines(golden / case.oracle / "records.jsonl.gz")
    committed = golden / case.oracle / "committed.jsonl.gz"
    if committed.exists():
        read = await session.read_all(path, IsolationLevel.READ_COMMITTED)
        assert [_as_oracle(record) for record in read] == read_lines(committed)
    assert await session.findings(path) == []
