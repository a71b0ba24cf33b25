"""Golden log dirs of real brokers, read by the sources as a real consumer has read them."""

import base64
from pathlib import Path
from typing import Any

import pytest

from tests.golden.unpack import golden_cases
from tests.restore.changelog.sources.changelog_fixtures import COMMITTED, UNCOMMITTED, RemoteLogs
from tests.scenarios.oracle import assert_same_records, read_oracle
from tierd.log import Record, identify_directory
from tierd.model import IsolationLevel, TopicPartition
from tierd.restore.changelog.changelog_source import ChangelogSource
from tierd.restore.changelog.sources.local_log_source import LocalEnd, LocalLogSource
from tierd.restore.changelog.sources.remote_segment_source import RemoteSegmentSource

DAY_MS = 86_400_000
LOG_DIRS = {case.logdirs[-1]: str(Path(case.oracle).parent) for case in golden_cases("clean", "compact-before")} | {
    f"kafka-{version}/{stage}/logdir": f"kafka-{version}/{stage}/oracle"
    for version in ("3.9.2", "4.3.1")
    for stage in ("compact-pass1", "compact-pass2")
}


@pytest.mark.parametrize("log_dir", LOG_DIRS)
async def test_log_dir_of_a_broker_is_read_from_this_host_and_from_the_tier(log_dir: str, golden: Path) -> None:
    oracle = golden / LOG_DIRS[log_dir]
    local = LocalLogSource([golden / log_dir], delete_retention=lambda _: DAY_MS, end=LocalEnd.LOG_END)
    partitions = sorted(
        each for each in await local.list_partitions() if (oracle / str(each) / "records.jsonl.gz").exists()
    )
    assert partitions
    for partition in partitions:
        name = str(partition)
        start = await local.earliest_offset(partition)
        remote = await _copied(golden / log_dir / name)
        for isolation, file in ((UNCOMMITTED, "records"), (COMMITTED, "committed")):
            expected = _oracle(oracle / name, file)
            what = f"{name} {isolation}"
            assert_same_records(await _all(local, partition, isolation, start), expected, what=what)
            end = await remote.end_offset(partition, isolation)
            copied = [record for record in expected if record["offset"] < end]
            if end < start:
                continue  # every record was deleted, those in the tier too
            assert_same_records(await _all(remote, partition, isolation, start), copied, what=f"{what} in the tier")


async def _copied(path: Path) -> RemoteSegmentSource:
    """Return a source over the rolled segments of a directory, as the tier has them."""
    directory = identify_directory(path)
    assert directory is not None
    remote = RemoteLogs(directory.partition)
    remote.add_rolled(path)
    return RemoteSegmentSource(
        {directory.topic_partition: directory.partition}, remote.tier(), delete_retention=lambda _: DAY_MS
    )


async def _all(
    source: ChangelogSource, partition: TopicPartition, isolation: IsolationLevel, offset: int
) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    while True:
        result = await source.read(partition, offset, max_bytes=1 << 20, isolation=isolation)
        found += map(_as_oracle, result.records)
        if result.next_offset == offset:
            return found
        offset = result.next_offset


def _as_oracle(record: Record) -> dict[str, Any]:
    return {
        "offset": record.offset,
        "timestamp": record.timestamp_ms,
        "timestampType": record.timestamp_type,
        "key": _text(record.key),
        "value": _text(record.value),
        "headers": [[name, _text(value)] for name, value in record.headers],
    }


def _text(content: bytes | None) -> str | None:
    return None if content is None else base64.b64encode(content).decode()


def _oracle(folder: Path, file: str) -> list[dict[str, Any]]:
    path = folder / f"{file}.jsonl.gz"
    records = read_oracle(path if path.exists() else folder / "records.jsonl.gz")
    left_out = {"leaderEpoch", "magic"}
    return [{name: r[name] for name in r if name not in left_out} for r in records if "offset" in r]
