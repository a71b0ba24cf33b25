"""Log start records in the bucket: verify compares them with the rows, and repair-tier writes them again."""

from pathlib import Path
from uuid import uuid4

import pytest

from tests.tiering.auditing.audited import KEYS, OBJECT_KEYS, Audited
from tierd.errors import RemoteResourceNotFoundError
from tierd.metadata import read_partition
from tierd.model import RemotePartitionDeleteMetadata, RemotePartitionDeleteState, TopicIdPartition
from tierd.remote import LOG_START, LogStartRecord, LogStartStorage
from tierd.tiering.auditing.log_start_check import disagreement


@pytest.fixture
async def tier(tmp_path: Path) -> Audited:
    tier = Audited(tmp_path)
    (tier.path.parent / "log-start-offset-checkpoint").write_text("0\n1\norders 0 4\n")
    await tier.session.copy_once()
    assert await stored(tier) == 4
    return tier


async def stored(tier: Audited) -> int | None:
    found = await LogStartStorage(tier.tier.store, OBJECT_KEYS).read(tier.partition)
    return None if found is None or found.record is None else found.record.log_start_offset


def record(log_start_offset: int) -> LogStartRecord:
    return LogStartRecord(log_start_offset=log_start_offset, leader_epoch=0, broker_id=1, written_ms=0)


async def put(tier: Audited, content: bytes | None) -> None:
    """Put ``content`` in the place of the record; None removes the record."""
    key = OBJECT_KEYS.log_start(tier.partition)
    await tier.tier.store.delete(key)
    if content is not None:
        await tier.tier.store.put(key, content)


async def test_record_that_agrees_with_its_row_is_no_finding(tier: Audited) -> None:
    assert await tier.findings() == []
    assert await tier.results() == []


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (None, "the record is gone"),
        (b"?", "is no log start record"),
        (b'{"a":' * 3_000, "is no log start record"),
        (2, "the record has log start 2"),
        (9, "the record has log start 9"),
    ],
    ids=["gone", "damaged", "deep", "lower", "higher"],
)
async def test_record_at_odds_with_its_row_is_found_and_written_again(
    tier: Audited, content: bytes | int | None, what: str
) -> None:
    if isinstance(content, int):
        content = record(content).encode(OBJECT_KEYS.cluster_id, tier.partition)
    await put(tier, content)

    (finding,) = await tier.findings()
    assert (finding.kind, finding.where) == ("log-start-disagrees", OBJECT_KEYS.log_start(tier.partition))
    assert what in finding.what
    assert "tierd repair-tier" in finding.remedy
    (elsewhere,) = await tier.outcomes(tier.repair(led={}))
    assert (elsewhere.action.kind.value, elsewhere.action.remedy) == (
        "nothing",
        "run it on the broker that leads the partition",
    )
    assert await tier.results() == [("write-log-start", "done")]
    assert await tier.findings() == []

    tier.session = tier.tier.session()
    await tier.session.copy_once()
    assert await stored(tier) == 4
    assert await tier.findings() == []


async def test_oversized_record_is_found_and_left_to_a_person(tier: Audited) -> None:
    key = OBJECT_KEYS.log_start(tier.partition)
    await put(tier, b" " * (LOG_START.max_bytes + 1))
    (finding,) = await tier.findings()
    assert (finding.kind, finding.where) == ("damaged-log-start", key)
    assert f"{key} has {LOG_START.max_bytes + 1} bytes" in finding.what
    assert await tier.results() == [("nothing", "cannot")]


@pytest.mark.parametrize("is_known", [True, False])
async def test_record_of_a_deleted_partition_is_found_and_removed_if_the_metadata_has_the_deletion(
    tier: Audited, is_known: bool
) -> None:
    gone = TopicIdPartition(uuid4(), "gone", 0)
    if is_known:
        await tier.session.metadata.become_leader(gone, 0)
        await tier.session.metadata.ensure_ready(gone)
        for state in RemotePartitionDeleteState:
            await tier.session.metadata.put_partition_delete(
                RemotePartitionDeleteMetadata(partition=gone, state=state, event_timestamp_ms=0, broker_id=1)
            )
    key = OBJECT_KEYS.log_start(gone)
    await tier.tier.store.put(key, record(4).encode(OBJECT_KEYS.cluster_id, gone))
    assert await tier.findings() == [], "a young record may be removed at this moment"
    tier.tier.clock.advance(86_400)

    (finding,) = await tier.findings()

    assert (finding.kind, finding.where) == ("stray-log-start", key)
    if is_known:
        assert await tier.results() == [("remove-log-start", "done")]
        with pytest.raises(RemoteResourceNotFoundError):
            await tier.tier.store.head(key)
    else:
        assert await tier.results() == [("nothing", "cannot")]
        assert "tierd rebuild-metadata" in finding.remedy


async def test_missing_record_is_no_finding_if_its_row_calls_it_unwritten(tier: Audited) -> None:
    row = (await read_partition(tier.tier.rows, KEYS, tier.partition)).row
    assert row is not None
    await tier.session.metadata.advance_log_start_offset(tier.partition, 6)
    assert await tier.findings() == []
    assert disagreement(None, None, "key") is None
