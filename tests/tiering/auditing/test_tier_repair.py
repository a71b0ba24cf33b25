"""Repair: repairable damage is repaired once, other damage is reported and left; an interrupted repair is continued."""

import asyncio
import contextlib
from dataclasses import replace
from pathlib import Path
from uuid import UUID, uuid4

import pytest

from tests.fakes.log_dirs import make_batch
from tests.fakes.transforms import TRANSFORM_NAMES, ring, transform_named
from tests.tiering.auditing.audited import GRACE_S, KEYS, MIN_AGE_S, OBJECT_KEYS, Audited
from tests.tiering.interruption import CrashError, InterruptedKeyValueStore, InterruptedObjectStore, Interruption
from tests.tiering.setups import BROKER_ID, Tier
from tierd.log import iter_batches
from tierd.model import RemoteLogSegmentState, SoftDelete, uuid_to_text
from tierd.remote import Tombstone, Transform
from tierd.testing import cancel_at
from tierd.tiering import TierRepair, partitions_left

FINISHED = RemoteLogSegmentState.COPY_SEGMENT_FINISHED
DELETING = RemoteLogSegmentState.DELETE_SEGMENT_STARTED
ALL = list(range(3 * 8 + 4))  # three rolled segments of 8 records, and the active one


async def copied(tmp_path: Path, transform: str = "plain") -> Audited:
    tier = Audited(tmp_path, transform_named(transform), rolled_segments=3)
    await tier.session.copy_once()
    return tier


@pytest.fixture
async def tier(tmp_path: Path) -> Audited:
    return await copied(tmp_path)


def grow_old(tier: Audited) -> None:
    tier.tier.clock.advance(MIN_AGE_S)


async def states(tier: Audited) -> list[tuple[int, RemoteLogSegmentState]]:
    return [(row.start_offset, row.state) for row in await tier.rows()]


async def assert_whole(tier: Audited) -> None:
    """Fail unless the audit is clean, all records are read from the tier alone, and another repair finds no action."""
    assert await tier.results(deep=True) == []
    assert await tier.findings(deep=True) == []
    tier.lose_local(0, 8, 16)
    assert await tier.records() == ALL


async def test_repair_of_a_sound_tier_does_nothing(tier: Audited) -> None:
    await assert_whole(tier)


# ------------------------------------------------------------ copied again


@pytest.mark.parametrize("suffixes", [(".log",), (".indexes",), (".manifest",), (".log", ".indexes", ".manifest")])
async def test_lost_objects_are_uploaded_again_from_the_local_log(tier: Audited, suffixes: tuple[str, ...]) -> None:
    await tier.lose(*suffixes)
    assert await tier.results() == [("copy-again", "done")]
    assert await states(tier) == [(0, FINISHED), (0, DELETING), (8, FINISHED), (16, FINISHED)]
    await assert_whole(tier)


async def test_stale_segment_below_a_newer_right_copy_is_copied_again_from_the_local_log(tier: Audited) -> None:
    """The local log was cut back and has other records at the offsets of the first copied segment."""
    log = tier.path / f"{0:020d}.log"
    first = next(iter_batches(log.read_bytes(), name=str(log)))
    other = make_batch([b"other" * 40] * first.record_count, timestamp_ms=first.max_timestamp_ms)
    log.write_bytes(other + log.read_bytes()[first.size_bytes :])
    assert await tier.kinds() == []
    assert await tier.kinds(deep=True) == ["diverged-log"]

    assert await tier.results(deep=True) == [("copy-again", "done")]

    assert await states(tier) == [(0, FINISHED), (0, DELETING), (8, FINISHED), (16, FINISHED)]
    await assert_whole(tier)


@pytest.mark.parametrize("suffix", [".log", ".indexes", ".manifest"])
async def test_damaged_objects_are_uploaded_again(tier: Audited, suffix: str) -> None:
    await tier.spoil(suffix)
    assert await tier.results(deep=True) == [("copy-again", "done")]
    await assert_whole(tier)


async def test_fresh_copy_has_a_fresh_id_and_the_damaged_copy_is_removed_after_its_grace(tier: Audited) -> None:
    await tier.lose(".log")
    (damaged, *_) = await tier.rows()
    await tier.results()
    fresh, old = (await tier.rows())[:2]
    assert fresh.segment != damaged.segment == old.segment
    assert old.soft_delete == SoftDelete("damaged", tier.tier.clock.now_ms() + round(GRACE_S * 1000))
    assert [line.reason for line in tier.ledger_lines()] == ["damaged"]
    tier.tier.clock.advance(2 * GRACE_S)
    assert await tier.results() == [("end-deletion", "done")]
    assert await states(tier) == [(0, FINISHED), (8, FINISHED), (16, FINISHED)]
    await assert_whole(tier)


async def test_segment_that_the_local_log_lacks_is_copied_again_from_its_hold(tier: Audited) -> None:
    await tier.lose(".log")
    tier.lose_local(0)
    keep = tier.tier.hold_dir / uuid_to_text(tier.partition.topic_id) / "0" / f"{0:020d}-8"
    # Another process held the segment before the broker deleted it: these files remain of its hold.
    other = Audited(tier.folder / "again", rolled_segments=3)
    keep.mkdir(parents=True)
    for file in other.path.glob(f"{0:020d}.*"):
        (keep / file.name).write_bytes(file.read_bytes())
    (keep / f"{8:020d}.snapshot").write_bytes((other.path / f"{8:020d}.snapshot").read_bytes())
    (keep / "leader-epoch-checkpoint").write_bytes((tier.path / "leader-epoch-checkpoint").read_bytes())
    assert await tier.results() == [("copy-again", "done")]
    await assert_whole(tier)


@pytest.mark.parametrize("name", TRANSFORM_NAMES)
async def test_lost_indexes_are_rebuilt_from_the_stored_log(tmp_path: Path, name: str) -> None:
    tier = await copied(tmp_path, name)
    tier.lose_local(0, 8)
    await tier.lose(".indexes")
    (outcome,) = await tier.outcomes()
    assert outcome.result.value == "done"
    assert "its stored log is whole" in outcome.action.why
    assert not list((tier.folder / "repair").iterdir())
    await assert_whole(tier)


async def test_lost_producer_snapshot_is_rebuilt_from_the_snapshot_before(tier: Audited) -> None:
    tier.lose_local(0, 8)
    second = (await tier.objects(".indexes"))[1]
    await tier.tier.store.delete(second.key)
    assert await tier.results() == [("copy-again", "done")]
    await assert_whole(tier)


async def test_producer_snapshot_without_a_source_is_reported_as_lost(tier: Audited) -> None:
    tier.lose_local(0, 8)
    first, second, _ = await tier.objects(".indexes")
    for info in (first, second):
        await tier.tier.store.delete(info.key)
    await tier.lose(".log")
    outcomes = await tier.outcomes()
    assert [(o.action.kind.value, o.result.value) for o in outcomes] == [
        ("nothing", "cannot"),
        ("copy-again", "failed"),
    ]
    assert "producer snapshot cannot be read" in outcomes[1].problem
    assert await states(tier) == [(0, FINISHED), (8, FINISHED), (16, FINISHED)]


async def test_lost_manifest_of_a_plain_log_is_written_again(tier: Audited) -> None:
    tier.lose_local(0)
    await tier.lose(".manifest")
    assert await tier.results() == [("copy-again", "done")]
    await assert_whole(tier)


@pytest.mark.parametrize("name", ["zstd", "aes"])
async def test_lost_manifest_of_a_transformed_log_cannot_be_repaired(tmp_path: Path, name: str) -> None:
    tier = await copied(tmp_path, name)
    tier.lose_local(0)
    await tier.lose(".manifest")
    assert await tier.results() == [("nothing", "cannot")]


async def test_log_without_a_source_is_reported_as_lost_and_no_row_changes(tier: Audited) -> None:
    tier.lose_local(0)
    await tier.lose(".log")
    before = await tier.rows()
    (outcome,) = await tier.outcomes()
    assert outcome.result.value == "cannot"
    assert "neither this host nor the stored log" in outcome.problem
    assert "every broker" in outcome.remedy
    assert await tier.rows() == before


async def test_a_damaged_local_segment_is_not_uploaded(tier: Audited) -> None:
    await tier.lose(".log")
    segment = tier.path / f"{0:020d}.log"
    content = segment.read_bytes()
    segment.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    assert await tier.results() == [("copy-again", "failed")]
    assert await states(tier) == [(0, FINISHED), (8, FINISHED), (16, FINISHED)]


async def test_repair_without_the_key_asks_for_the_key_and_changes_no_row(tmp_path: Path) -> None:
    tier = await copied(tmp_path, "aes")
    before = await tier.rows()
    tier.transform = Transform(encrypts=True, ring=ring("new", "new"))
    outcomes = await tier.outcomes(deep=True)
    assert {(o.action.kind.value, o.result.value) for o in outcomes} == {("nothing", "cannot")}
    assert all("remote.encryption.keys" in outcome.remedy for outcome in outcomes)
    assert await tier.rows() == before


# ------------------------------------------------------------ orphans


async def test_an_orphan_that_fills_a_gap_is_adopted_with_its_own_id(tier: Audited) -> None:
    before = await tier.rows()
    tier.lose_local(0, 8)
    await tier.forget_rows(8)
    grow_old(tier)
    assert "gap" in await tier.kinds()
    assert await tier.results() == [("adopt", "done")]
    assert [row.segment for row in await tier.rows()] == [row.segment for row in before]
    await assert_whole(tier)


async def test_the_first_and_the_last_segment_are_adopted_as_well(tier: Audited) -> None:
    await tier.session.metadata.advance_log_start_offset(tier.partition, 0)
    tier.lose_local(0, 8)
    await tier.forget_rows(0, 8)
    grow_old(tier)
    assert await tier.results() == [("adopt", "done"), ("adopt", "done")]
    await assert_whole(tier)


async def test_a_damaged_orphan_that_would_fill_a_gap_is_kept(tier: Audited) -> None:
    await tier.spoil(".log")
    tier.lose_local(0, 8)
    await tier.session.metadata.advance_log_start_offset(tier.partition, 0)
    await tier.forget_rows(0)
    grow_old(tier)
    results = [(o.action.kind.value, o.result.value) for o in await tier.outcomes()]
    assert results == [("nothing", "cannot")]
    assert len(await tier.objects(".log")) == 3


async def test_an_orphan_whose_offsets_are_in_the_tier_is_removed_only_on_request(tier: Audited) -> None:
    lost = Tier(tier.folder / "other", tier.tier.log_dirs, store=tier.tier.store)  # metadata that is lost after this
    await lost.session(storage=lambda _: tier.storage()).copy_once()
    grow_old(tier)
    assert await tier.results(is_confirmed=False) == [("remove-orphan", "refused")] * 3
    assert len(await tier.objects(".log")) == 6
    assert await tier.results() == [("remove-orphan", "done")] * 3
    await assert_whole(tier)


async def test_orphan_in_the_middle_is_adopted_although_the_local_log_has_its_records(tier: Audited) -> None:
    await tier.forget_rows(8)  # no pass would copy the segment again: the copied range ends behind it
    grow_old(tier)
    assert await tier.results() == [("adopt", "done")]
    await assert_whole(tier)


async def test_an_orphan_that_is_still_to_be_copied_is_kept(tier: Audited) -> None:
    await tier.forget_rows(8, 16)
    grow_old(tier)
    assert await tier.results() == [("nothing", "cannot"), ("nothing", "cannot")]
    assert len(await tier.objects(".log")) == 3


@pytest.mark.parametrize("suffixes", [(".manifest",), (".manifest", ".indexes")])
async def test_an_unfinished_orphan_is_removed_once_it_is_old(tier: Audited, suffixes: tuple[str, ...]) -> None:
    await tier.forget_rows(0)
    await tier.lose(*suffixes)
    tier.tier.clock.advance(MIN_AGE_S - 1)
    assert await tier.results() == [("nothing", "cannot")]
    tier.tier.clock.advance(1)
    assert await tier.results(is_confirmed=False) == [("remove-orphan", "done")]
    assert [line.reason for line in tier.ledger_lines()] == ["orphan"]
    assert len(await tier.objects(".log")) == 2


async def test_an_orphan_with_a_tombstone_is_removed(tier: Audited) -> None:
    (first, *_) = await tier.rows()
    await tier.storage().write_tombstone(first, Tombstone("retention_time", 1, 2, BROKER_ID))
    await tier.forget_rows(0)
    grow_old(tier)
    assert await tier.results(is_confirmed=False) == [("remove-orphan", "done")]
    assert await tier.objects(".tombstone") == []


async def test_a_complete_segment_of_an_unknown_partition_is_left_to_a_person(tier: Audited) -> None:
    other = uuid_to_text(UUID(int=5))
    for info in await tier.tier.store.list_objects(""):
        if "00000000000000000000-" in info.key:
            key = info.key.replace(uuid_to_text(tier.partition.topic_id), other)
            await tier.tier.store.put(key, await tier.tier.store.get(info.key))
    grow_old(tier)
    (outcome,) = await tier.outcomes()
    assert outcome.result.value == "cannot"
    assert "rebuild-metadata" in outcome.remedy
    await tier.tier.store.delete(next(i.key for i in await tier.objects(".manifest") if other in i.key))
    assert await tier.results() == [("remove-orphan", "done")]


# ------------------------------------------------------------ leadership


async def test_partition_that_another_broker_leads_is_not_repaired(tier: Audited) -> None:
    await tier.lose(".log")
    before = await tier.rows()
    assert await tier.results(tier.repair(led={})) == [("nothing", "cannot")]
    assert await tier.rows() == before


async def test_repair_by_a_replaced_leader_is_refused(tier: Audited) -> None:
    await tier.lose(".log")
    session = tier.tier.session()
    await session.metadata.become_leader(tier.partition, 7)
    before = await tier.rows()
    assert await tier.results(tier.repair(led={tier.partition: 6})) == [("copy-again", "refused")]
    assert await tier.rows() == before


async def test_dangerous_repair_without_confirmation_is_refused(tier: Audited) -> None:
    await tier.lose(".log")
    before = await tier.rows()
    assert await tier.results(is_confirmed=False) == [("copy-again", "refused")]
    assert await tier.rows() == before


# ------------------------------------------------------------ rows and tombstones


async def test_tombstone_of_a_readable_segment_is_removed(tier: Audited) -> None:
    (first, *_) = await tier.rows()
    await tier.storage().write_tombstone(first, Tombstone("retention_time", 1, 2, BROKER_ID))
    assert await tier.results(is_confirmed=False) == [("remove-tombstone", "done")]
    await assert_whole(tier)


async def test_unfinished_copy_of_a_dead_process_is_removed_after_its_grace(tier: Audited) -> None:
    session = tier.tier.session()
    await session.metadata.become_leader(tier.partition, 0)
    row = replace(
        (await tier.rows())[-1],
        state=RemoteLogSegmentState.COPY_SEGMENT_STARTED,
        event_timestamp_ms=tier.tier.clock.now_ms(),
        session_id=session.session_id,
    )
    row = replace(row, segment=replace(row.segment, id=uuid4()))
    await session.metadata.add(row)
    name = f"{row.start_offset:020d}-{uuid_to_text(row.segment.id)}.log"
    await tier.tier.store.put(f"{OBJECT_KEYS.partition_prefix(tier.partition)}{name}", b"half")
    assert await tier.results() == []
    tier.tier.clock.advance(1000)
    assert await tier.results(is_confirmed=False) == [("end-deletion", "done")]
    assert len(await tier.objects(".log")) == 3
    await assert_whole(tier)


async def test_a_missing_tombstone_is_written(tier: Audited) -> None:
    session = tier.tier.session()
    await session.metadata.become_leader(tier.partition, 0)
    await session.metadata.advance_log_start_offset(tier.partition, 8)
    (first, *_) = await tier.rows()
    soft = SoftDelete("retention_time", tier.tier.clock.now_ms() + 10_000_000)
    await session.metadata.update(
        first.advance(DELETING, event_timestamp_ms=tier.tier.clock.now_ms(), broker_id=1, soft_delete=soft)
    )
    tier.tier.clock.advance(GRACE_S)
    assert await tier.results(is_confirmed=False) == [("write-tombstone", "done")]
    assert len(await tier.objects(".tombstone")) == 1
    assert await tier.findings() == []


# ------------------------------------------------------------ interruptions


async def damaged(folder: Path) -> Audited:
    """Make one segment to copy again from the local log, and one orphan to adopt."""
    tier = await copied(folder)
    tier.lose_local(0, 8)
    await tier.forget_rows(8)
    grow_old(tier)
    await tier.lose(".indexes")
    return tier


def interrupted(tier: Audited, interruption: Interruption) -> TierRepair:
    return tier.repair(
        store=InterruptedObjectStore(tier.tier.store, interruption),
        rows=InterruptedKeyValueStore(tier.tier.rows, interruption),
    )


async def assert_gone_on_with(tier: Audited) -> None:
    tier.tier.clock.advance(MIN_AGE_S)  # a copy that was begun counts as abandoned
    await tier.outcomes()
    await tier.outcomes()
    assert await tier.findings(deep=True) == []
    assert await tier.records() == ALL


@pytest.mark.parametrize("after", [False, True])
async def test_repair_killed_at_any_call_is_completed_by_the_next_run(tmp_path: Path, *, after: bool) -> None:
    whole = Interruption(at=None)
    tier = await damaged(tmp_path / "whole")
    await tier.outcomes(interrupted(tier, whole))
    assert whole.calls > 30
    for number in range(1, whole.calls + 1):
        tier = await damaged(tmp_path / str(number))
        with contextlib.suppress(CrashError, BaseExceptionGroup):
            await tier.outcomes(interrupted(tier, Interruption(at=number, after=after)))
        await asyncio.sleep(0)
        await assert_gone_on_with(tier)


async def test_repair_cancelled_at_any_wait_is_completed_by_the_next_run(tmp_path: Path) -> None:
    cancelled, number = True, 0
    while cancelled:
        number += 1
        tier = await damaged(tmp_path / str(number))
        cancelled = await cancel_at(number, tier.outcomes)
        await assert_gone_on_with(tier)
    assert number > 10


async def test_repair_ends_the_deletion_in_a_deleted_topic_that_this_broker_led_last(tmp_path: Path) -> None:
    tier = Audited(tmp_path)
    await tier.session.copy_once()
    (first, _), metadata = await tier.rows(), tier.session.metadata
    after_ms = tier.tier.clock.now_ms()
    await metadata.update(
        first.advance(
            RemoteLogSegmentState.DELETE_SEGMENT_STARTED,
            event_timestamp_ms=after_ms,
            broker_id=first.broker_id,
            soft_delete=SoftDelete("retention_time", after_ms),
        )
    )
    await tier.storage().write_tombstone(first, Tombstone("retention_time", after_ms, after_ms, BROKER_ID))
    tier.tier.clock.advance(3600)
    assert await tier.results(tier.repair(led={})) == [("nothing", "cannot")]
    left = await partitions_left(tier.tier.rows, KEYS, broker_id=BROKER_ID, is_here=lambda _: False)
    assert await tier.results(tier.repair(led=left)) == [("end-deletion", "done")]
    assert [row.start_offset for row in await tier.rows()] == [8]
    assert await tier.kinds() == []
