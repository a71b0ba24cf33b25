"""Log dirs of real brokers, as clients get them from the endpoint: all local, half of it in the tier, all of it."""

import base64
from pathlib import Path

import pytest

from tests.app.endpoint.consuming import COMMITTED, UNCOMMITTED, consumed
from tests.app.endpoint.hosts import copied_log_dir, endpoint_host
from tests.golden.unpack import GoldenCase, OracleRecord, golden_cases, read_lines, read_offsets
from tests.tiering.setups import Tier, delete_segment, partition_of
from tierd.log import Record
from tierd.model import IsolationLevel

CASES = [
    (case, kept)
    for case in golden_cases("clean", "epochs", "compact-before")
    if not case.partition.startswith("__")
    for kept in (("half",) if case.broker.endswith("3.9.2") else ("all", "none"))
]


def as_oracle(record: Record) -> OracleRecord:
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


@pytest.mark.parametrize(("case", "kept"), CASES, ids=[f"{case.id}-{kept}" for case, kept in CASES])
async def test_golden_partition_is_served_as_its_broker_served_it(
    golden: Path, tmp_path: Path, case: GoldenCase, kept: str
) -> None:
    log_dir = copied_log_dir(golden / case.logdirs[0], tmp_path / "kafka", case.partition)
    path = log_dir / case.partition
    session = Tier(tmp_path, [log_dir]).session()
    outcomes = await session.copy_once()
    if not outcomes:
        return  # an empty partition has no leader epoch: nothing is copied, and the metadata has no row
    assert [outcome.error for outcome in outcomes.values()] == [None]
    partition, oracle = partition_of(path), golden / case.oracle
    finished = session.finished(partition)
    for start, _ in finished[: {"all": 0, "half": len(finished) // 2, "none": len(finished)}[kept]]:
        delete_segment(path, start)
    async with endpoint_host(session) as host:
        log = host.log(partition)

        async def served(isolation: IsolationLevel) -> list[OracleRecord]:
            return [as_oracle(record) async for record in consumed(log, isolation, max_bytes=20_000)]

        bounds, expected = await log.bounds(), read_offsets(oracle)
        assert bounds.log_start_offset == expected["logStartOffset"]
        assert bounds.high_watermark == expected["highWatermark"]
        assert bounds.last_stable_offset == expected["lastStableOffset"]
        assert await served(UNCOMMITTED) == read_lines(oracle / "records.jsonl.gz")
        if (oracle / "committed.jsonl.gz").exists():
            assert await served(COMMITTED) == read_lines(oracle / "committed.jsonl.gz")
