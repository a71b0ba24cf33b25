"""Verify and repair of an encrypted tier with objects that no holder of its key ring wrote."""

from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest

from tests.fakes.memory_object_store import MemoryObjectStore
from tests.tiering.auditing.audited import GRACE_S, MIN_AGE_S, OBJECT_KEYS
from tests.tiering.rebuilding.encrypted_tier import EncryptedTier
from tests.tiering.setups import BROKER_ID, CLUSTER_ID, Recorded
from tierd.errors import RemoteAccessError
from tierd.metadata import MemoryKeyValueStore
from tierd.model import ByteRange, RemoteLogSegmentMetadata, RemoteLogSegmentState, SoftDelete
from tierd.remote import (
    EMPTY_RING,
    ERASURE_REPORT,
    TOMBSTONE,
    CatalogueCodec,
    CataloguePositionsKey,
    LogStartRecord,
    Tombstone,
    Transform,
    erasure_report_binding,
    with_tag,
)
from tierd.tiering import SegmentDeletion

DELETING = RemoteLogSegmentState.DELETE_SEGMENT_STARTED


@pytest.fixture
async def tier(tmp_path: Path) -> EncryptedTier:
    tier = EncryptedTier(tmp_path)
    await tier.copy()
    return tier


async def keys_of(tier: EncryptedTier) -> set[str]:
    return {info.key for info in await tier.tier.store.list_objects("")}


def grow_old(tier: EncryptedTier) -> None:
    tier.tier.clock.advance(MIN_AGE_S + GRACE_S)


async def being_deleted(tier: EncryptedTier) -> RemoteLogSegmentMetadata:
    """Begin to delete the first of the two segments in the metadata alone; return its earlier row."""
    (first, _) = await tier.rows()
    now_ms = tier.tier.clock.now_ms()
    await tier.session.metadata.advance_log_start_offset(tier.partition, 8)
    soft = SoftDelete("retention_time", now_ms + 10_000_000)
    await tier.session.metadata.update(
        first.advance(DELETING, event_timestamp_ms=now_ms, broker_id=1, soft_delete=soft)
    )
    return first


async def test_verify_finds_a_forged_segment_and_repair_does_not_touch_it(tier: EncryptedTier) -> None:
    records = await tier.records()
    await tier.intruder.segments(records=16)
    grow_old(tier)
    assert sorted(await tier.kinds()) == ["orphan", "orphan", "orphan", "unauthenticated"]
    before = await keys_of(tier)
    assert await tier.results() == [("nothing", "cannot")]
    assert await keys_of(tier) == before
    assert await tier.records() == records


async def test_repair_neither_adopts_a_forged_segment_nor_fills_a_gap_with_it(tier: EncryptedTier) -> None:
    tier.lose_local(0, 8)
    await tier.forget_rows(0)
    await tier.lose(".manifest", ".log", ".indexes")
    await tier.intruder.segments(records=8)
    grow_old(tier)
    outcomes = await tier.outcomes()
    assert {outcome.action.kind.value for outcome in outcomes} == {"nothing"}
    assert "not encrypted" in "; ".join(outcome.action.why for outcome in outcomes)
    assert [row.start_offset for row in await tier.rows()] == [8]


async def test_repair_adopts_a_plain_segment_that_a_person_accepts(tier: EncryptedTier) -> None:
    encrypted, tier.transform = tier.transform, Transform()
    tier.tier.rows = MemoryKeyValueStore()
    for info in await tier.tier.store.list_objects(""):
        await tier.tier.store.delete(info.key)
    tier.session = tier.tier.session(storage=tier._transforming)
    await tier.session.copy_once()
    tier.transform = encrypted
    tier.lose_local(0, 8)
    await tier.forget_rows(0)
    grow_old(tier)
    assert ("adopt", "done") not in await tier.results()
    assert ("adopt", "done") in await tier.results(tier.repair(accepts_unauthenticated=True))
    assert [row.start_offset for row in await tier.rows()] == [0, 8]


async def test_forged_tombstone_of_a_segment_without_a_row_removes_no_object(tier: EncryptedTier) -> None:
    """A backup of the metadata lacks rows of the bucket: a forged tombstone must not remove their objects."""
    await tier.forget_rows(0)
    await tier.intruder.tombstones()
    grow_old(tier)
    before = await keys_of(tier)
    outcomes = await tier.outcomes()
    results = [(outcome.action.kind.value, outcome.result.value) for outcome in outcomes]
    assert results == [("nothing", "cannot"), ("remove-tombstone", "done")]
    assert "it has no tag of the key ring" in outcomes[0].problem
    gone = before - await keys_of(tier)
    assert [key.rpartition(".")[2] for key in gone] == ["tombstone"]


async def test_tombstone_of_a_holder_of_the_ring_removes_an_orphan_once_its_grace_is_over(tier: EncryptedTier) -> None:
    (first, _) = await tier.rows()
    now_ms = tier.tier.clock.now_ms()
    tombstone = Tombstone("retention_time", now_ms, now_ms + round(2000 * (MIN_AGE_S + GRACE_S)), BROKER_ID)
    await tier.storage().write_tombstone(first, tombstone)
    await tier.forget_rows(0)
    grow_old(tier)
    (outcome,) = await tier.outcomes()
    assert (outcome.action.kind.value, outcome.result.value) == ("nothing", "cannot")
    assert "its tombstone keeps it for 4200 s more" in outcome.problem
    grow_old(tier)
    assert await tier.results(is_confirmed=False) == [("remove-orphan", "done")]


async def test_old_tombstone_that_is_put_again_after_an_undelete_removes_its_orphan_only_after_the_whole_grace(
    tier: EncryptedTier,
) -> None:
    """The tag has no time: an intruder has kept the object, and a backup of the metadata lacks the row."""
    (first, _) = await tier.rows()
    now_ms, grace_s = tier.tier.clock.now_ms(), 2 * (MIN_AGE_S + GRACE_S)
    old = Tombstone("retention_time", now_ms - 10**9, now_ms - 10**9 + round(1000 * grace_s), BROKER_ID)
    await tier.storage().write_tombstone(first, old)
    await tier.forget_rows(0)
    grow_old(tier)
    (outcome,) = await tier.outcomes()
    assert (outcome.action.kind.value, outcome.result.value) == ("nothing", "cannot")
    assert "its tombstone keeps it for 4200 s more" in outcome.problem
    grow_old(tier)
    assert await tier.results(is_confirmed=False) == [("remove-orphan", "done")]


async def test_tombstone_without_a_tag_of_a_segment_in_deletion_is_found_and_written_again(
    tier: EncryptedTier,
) -> None:
    first, now_ms = await being_deleted(tier), tier.tier.clock.now_ms()
    untagged = Tombstone("retention_time", now_ms, now_ms + 10_000_000, BROKER_ID)
    await tier.tier.store.put(OBJECT_KEYS.segment(first, ".tombstone"), untagged.encode())
    assert await tier.kinds() == ["unauthenticated"]
    assert await tier.results(is_confirmed=False) == [("write-tombstone", "done")]
    assert await tier.findings() == []


async def test_log_start_without_a_tag_is_found_and_the_daemon_writes_it_with_a_tag(tier: EncryptedTier) -> None:
    await tier.session.metadata.advance_log_start_offset(tier.partition, 8)
    await tier.session.copy_once()
    key = OBJECT_KEYS.log_start(tier.partition)
    assert b"authentication" in await tier.tier.store.get(key)
    assert await tier.findings() == []
    untagged = LogStartRecord(log_start_offset=8, leader_epoch=2**31 - 1, broker_id=2, written_ms=0)
    await tier.overwrite(key, untagged.encode(CLUSTER_ID, tier.partition))
    (finding,) = await tier.findings()
    assert finding.kind == "log-start-disagrees"
    assert "a rebuild would not believe the record" in finding.what
    assert await tier.results() == [("write-log-start", "done")]
    tier.session = tier.tier.session(storage=tier._transforming)
    await tier.session.copy_once()
    assert await tier.findings() == []
    stored = await tier.storage().log_starts.read(tier.partition)
    assert stored is not None
    assert stored.record is not None
    assert (stored.record.log_start_offset, stored.record.leader_epoch) == (8, 0)


async def test_verify_finds_an_erasure_report_without_a_tag_and_accepts_a_tagged_report(
    tier: EncryptedTier,
) -> None:
    request_id = UUID(int=77)
    key, content = OBJECT_KEYS.erasure_report(request_id), b'{"format_version": 1}'
    binding = erasure_report_binding(CLUSTER_ID, request_id)
    await tier.tier.store.put(key, with_tag(content, tier.transform.ring, binding))
    assert await tier.findings() == []
    await tier.intruder.put(key, content)
    (finding,) = await tier.findings()
    assert (finding.kind, finding.where) == ("unauthenticated", key)
    assert await tier.results() == [("nothing", "cannot")]
    assert await tier.tier.store.get(key) == content


async def test_verify_finds_a_catalogue_object_without_proof_and_accepts_a_proven_one(tier: EncryptedTier) -> None:
    identity = CataloguePositionsKey(1_000, 1)
    key = OBJECT_KEYS.catalogue.key(identity)
    proven, plain = (
        CatalogueCodec(CLUSTER_ID, OBJECT_KEYS.catalogue.prefix, ring).encode(key, {"node_id": 1})
        for ring in (tier.transform.ring, EMPTY_RING)
    )
    await tier.tier.store.put(key, proven)
    grow_old(tier)
    assert await tier.findings() == []
    for content in (plain, b"no frame"):
        await tier.intruder.put(key, content)
        (finding,) = await tier.findings()
        assert (finding.kind, finding.where) == ("unauthenticated", key)
        assert await tier.results() == [("nothing", "cannot")]
        assert await tier.tier.store.get(key) == content


async def test_verify_takes_an_unknown_name_in_the_catalogue_for_foreign(tier: EncryptedTier) -> None:
    await tier.intruder.put(f"{OBJECT_KEYS.catalogue.prefix}nodes/one.json", b"{}")
    grow_old(tier)
    assert await tier.kinds() == ["foreign-object"]


async def test_oversized_tombstone_of_a_segment_without_a_row_removes_no_object(tier: EncryptedTier) -> None:
    row = (await tier.rows())[0]
    await tier.intruder.put(OBJECT_KEYS.segment(row, ".tombstone"), b" " * (TOMBSTONE.max_bytes + 1))
    await tier.forget_rows(0)
    grow_old(tier)
    before = await keys_of(tier)
    assert ("nothing", "cannot") in await tier.results()
    assert await keys_of(tier) == before


async def test_oversized_tombstone_of_a_segment_in_deletion_is_found_and_does_not_stop_repair(
    tier: EncryptedTier,
) -> None:
    first = await being_deleted(tier)
    await tier.intruder.put(OBJECT_KEYS.segment(first, ".tombstone"), b" " * (TOMBSTONE.max_bytes + 1))
    assert await tier.kinds() == ["damaged-tombstone"]
    assert await tier.results(is_confirmed=False) == [("nothing", "cannot")]


async def test_verify_finds_an_oversized_erasure_report(tier: EncryptedTier) -> None:
    key = OBJECT_KEYS.erasure_report(UUID(int=77))
    await tier.intruder.put(key, b" " * (ERASURE_REPORT.max_bytes + 1))
    (finding,) = await tier.findings()
    assert (finding.kind, finding.where) == ("unauthenticated", key)
    assert f"more than {ERASURE_REPORT.max_bytes}" in finding.what


@pytest.mark.parametrize("suffix", [".log", ".tombstone", ".manifest"])
async def test_misplaced_object_with_the_id_of_a_segment_leaves_the_segment_untouched(
    tier: EncryptedTier, suffix: str
) -> None:
    (first, second), records = await tier.rows(), await tier.records()
    planted = OBJECT_KEYS.object(first.segment, 5, suffix)
    await tier.intruder.put(planted, b"x")
    grow_old(tier)
    assert [(finding.kind, finding.where) for finding in await tier.findings()] == [("orphan", planted)]
    before = await keys_of(tier)
    results = await tier.results()
    assert results == [("nothing", "cannot") if suffix == ".manifest" else ("remove-orphan", "done")]
    assert before - await keys_of(tier) <= {planted}
    assert await tier.rows() == [first, second]
    assert await tier.records() == records


async def test_forged_tombstone_beside_a_copy_in_removal_does_not_stop_repair(tier: EncryptedTier) -> None:
    """A copy that was never readable has no grace, so its row has no tombstone."""
    (first, _) = await tier.rows()
    row = replace(first, state=DELETING, event_timestamp_ms=tier.tier.clock.now_ms())
    await tier.replace_row(row)
    await tier.intruder.put(OBJECT_KEYS.segment(first, ".tombstone"), b"forged")
    outcomes = await tier.outcomes()
    assert "write-tombstone" not in [outcome.action.kind.value for outcome in outcomes]
    tier.tier.clock.advance(GRACE_S)
    assert ("end-deletion", "done") in await tier.results()
    assert [row.start_offset for row in await tier.rows()] == [8]


async def test_forged_tombstone_does_not_mark_a_segment_whose_undelete_was_interrupted(tier: EncryptedTier) -> None:
    """An undelete that the metadata store interrupted has removed the tombstone; an intruder puts one there."""
    first = await being_deleted(tier)
    (row,) = [row for row in await tier.rows() if row.segment == first.segment]
    before = await keys_of(tier)
    await tier.intruder.put(OBJECT_KEYS.segment(first, ".tombstone"), b'{"format_version": 1}')
    tier.tier.clock.advance(20_000)
    metadata = tier.session.metadata
    deletion = SegmentDeletion(
        metadata=metadata, remote=tier.storage(), recorder=Recorded(), clock=tier.tier.clock, broker_id=BROKER_ID
    )
    assert not await deletion.finish(row)
    assert before <= await keys_of(tier)
    (row,) = [row for row in await tier.rows() if row.segment == first.segment]
    assert row.soft_delete is not None
    assert row.soft_delete.delete_after_ms > tier.tier.clock.now_ms()
    assert await tier.storage().read_tombstone(row) is not None
    tier.tier.clock.advance(20_000)
    assert await deletion.finish(row)


class RefusingStore(MemoryObjectStore):
    """Store that refuses to read one object, as S3 does for an archived object or a key of another account."""

    refused = ""

    async def get(self, key: str, byte_range: ByteRange | None = None) -> bytes:
        if self.refused in {key, "all"}:
            raise RemoteAccessError(f"get {key}: 403 AccessDenied")
        return await super().get(key, byte_range)


@pytest.mark.parametrize("name", ["manifest", "tombstone", "log-start.json", "report"])
async def test_verify_continues_after_an_object_that_the_store_refuses_to_read(tmp_path: Path, name: str) -> None:
    tier = EncryptedTier(tmp_path, store=RefusingStore)
    await tier.copy()
    store = tier.tier.store
    assert isinstance(store, RefusingStore)
    (first, second) = await tier.rows()
    if name == "log-start.json":
        await tier.session.metadata.advance_log_start_offset(tier.partition, 1)
        await tier.session.copy_once()
    refused = {
        "manifest": OBJECT_KEYS.segment(first, ".manifest"),
        "tombstone": OBJECT_KEYS.segment(first, ".tombstone"),
        "log-start.json": OBJECT_KEYS.log_start(tier.partition),
        "report": OBJECT_KEYS.erasure_report(UUID(int=77)),
    }[name]
    if name in ("tombstone", "report"):
        await store.put(refused, b"archived")
    await store.delete(OBJECT_KEYS.segment(second, ".log"))
    store.refused = refused
    findings = await tier.findings()
    assert [f.what for f in findings if "403 AccessDenied" in f.what]
    assert [f.where for f in findings if f.kind == "missing-object"] == [str(second.segment)]
    assert await tier.outcomes()


async def test_verify_ends_with_an_access_error_if_the_store_refuses_all_reads(tmp_path: Path) -> None:
    tier = EncryptedTier(tmp_path, store=RefusingStore)
    await tier.copy()
    assert isinstance(tier.tier.store, RefusingStore)
    tier.tier.store.refused = "all"
    with pytest.raises(RemoteAccessError):
        await tier.findings()
