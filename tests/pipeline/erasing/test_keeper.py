"""Requests of erasure from filing to end, over a tier with real segments."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.fakes.memory_object_store import MemoryObjectStore
from tests.pipeline.erasing.lab import COMPACTED, KEPT, SECRET, ErasureLab
from tierd.errors import RefusedError
from tierd.model import RemoteLogSegmentState
from tierd.pipeline import EraseRequest
from tierd.pipeline.erasing.erase_request import ErasePhase
from tierd.testing import cancel_at

NAMES = ("orders-0", "users-0")
POLICIES = {"orders-0": KEPT, "users-0": COMPACTED}
ALWAYS_DUE = replace(COMPACTED, min_cleanable_dirty_ratio=0.0)


@pytest.fixture
async def lab(tmp_path: Path) -> ErasureLab:
    """Return a topic with deletion and one with compaction, three segments each, the second with the key."""
    lab = ErasureLab(tmp_path, POLICIES)
    for name in NAMES:
        lab.fill(name)
    await lab.copy()
    return lab


async def keys_read(lab: ErasureLab, name: str) -> list[bytes | None]:
    return [record.key for record in await lab.read(name)]


async def phase_of(lab: ErasureLab, request: EraseRequest) -> ErasePhase:
    return (await lab.requests.get(request.id)).phase


@pytest.mark.parametrize("name", NAMES)
async def test_erasure_removes_the_records_of_its_key_and_no_others(lab: ErasureLab, name: str) -> None:
    before, stored = await keys_read(lab, name), await lab.stored()
    assert SECRET in before
    request = await lab.file(name)
    assert (await lab.keeper.step(request.id)).phase is ErasePhase.SEARCHING

    (round_,) = await lab.run()
    assert (len(round_.outputs), round_.counts["records_erased"]) == (1, 1)
    assert await keys_read(lab, name) == [key for key in before if key != SECRET]
    waiting = await lab.keeper.step(request.id)
    assert waiting.phase is ErasePhase.LEAVING
    assert "is in its grace until" in waiting.problem
    (left,) = waiting.left
    assert (left.start_offset, left.end_offset, left.gone_at_ms) == (3, 5, None)

    await lab.end_of_grace()
    done = await lab.keeper.step(request.id)
    assert done.phase is ErasePhase.DONE
    assert await lab.holders() == [key for key in stored if name[:-2] not in key and SECRET in stored[key]]
    (note,) = done.runs
    assert (note.searched, note.rewritten, note.records_erased) == (3, 1, 1)
    assert done.left[0].gone_at_ms is not None
    assert done.versions is not None
    assert done.versions.deleted == 0
    untouched = {key: content for key, content in stored.items() if SECRET not in content and "00000003-" not in key}
    assert untouched.items() <= (await lab.stored()).items(), "byte for byte what it was"
    assert await lab.session.findings(lab.path(name)) == []


async def test_ended_request_forgets_the_keys_and_keeps_their_digests(lab: ErasureLab) -> None:
    request = await lab.file("orders-0")
    await lab.run()
    await lab.keeper.step_all()
    await lab.end_of_grace()
    (done,) = await lab.keeper.step_all()
    assert (done.keys, done.key_digests) == (frozenset(), request.key_digests)
    values = [value for _, value in await lab.tier.rows.scan("")]
    assert not any(SECRET in value for value in values)
    assert await lab.keeper.step_all() == []
    assert (await lab.run()) == ()


async def test_request_at_once_does_not_wait_for_the_grace(lab: ErasureLab) -> None:
    request = await lab.file("orders-0", at_once=True)
    await lab.run()
    assert (await lab.keeper.step(request.id)).phase is ErasePhase.DONE
    assert not [key for key in await lab.holders() if "orders" in key]


async def test_request_for_an_absent_key_searches_all_segments_and_rewrites_none(lab: ErasureLab) -> None:
    stored = await lab.stored()
    request = await lab.file("orders-0", b"nobody")
    (round_,) = await lab.run()
    assert round_.outputs == {}
    done = await lab.keeper.step(request.id)
    assert (done.phase, done.left) == (ErasePhase.DONE, ())
    assert [(note.searched, note.records_erased) for note in done.runs] == [(3, 0)]
    assert await lab.stored() == stored


async def test_records_in_the_active_segment_are_erased_once_they_are_in_the_tier(lab: ErasureLab) -> None:
    lab.append("orders-0", [(SECRET, b"late"), (b"carol", b"1")])
    request = await lab.file("orders-0", log_end_offset=11)
    await lab.run()
    waiting = await lab.keeper.step(request.id)
    assert waiting.phase is ErasePhase.SEARCHING
    assert "offsets 9 to 10 are in the broker's log alone" in waiting.problem

    lab.roll("orders-0")
    await lab.copy()
    assert [key for key in await lab.holders(b"late") if "orders" in key]
    (round_,) = await lab.run()
    assert len(round_.work.groups) == 1, "only the new segment is searched"
    await lab.keeper.step(request.id)
    await lab.end_of_grace()
    assert (await lab.keeper.step(request.id)).phase is ErasePhase.DONE
    assert not [key for key in await lab.holders() if "orders" in key]
    assert b"carol" in await keys_read(lab, "orders-0")


async def test_records_written_after_the_request_are_kept(lab: ErasureLab) -> None:
    request = await lab.file("orders-0", at_once=True)
    lab.append("orders-0", [(SECRET, b"again")])
    lab.roll("orders-0")
    await lab.copy()
    (round_,) = await lab.run()
    assert len(round_.work.groups) == 3
    assert (await lab.keeper.step(request.id)).phase is ErasePhase.DONE
    assert len(await lab.holders(b"again")) == 1


async def test_request_waits_for_segments_that_were_in_deletion_before_it(lab: ErasureLab) -> None:
    (_, held, _) = lab.rows("orders-0")
    deletion = lab.session.tiering.deletion
    after_ms = lab.tier.clock.now_ms() + 3_600_000
    await deletion.begin(held, reason="damaged", detail="", delete_after_ms=after_ms)
    request = await lab.file("orders-0", at_once=True)
    await lab.run()
    waiting = await lab.keeper.step(request.id)
    assert (waiting.phase, [each.id for each in waiting.left]) == (ErasePhase.LEAVING, [held.segment.id])
    assert "is in its grace until" in waiting.problem, (
        "an undelete may still restore the segment: its grace is not cut short"
    )
    await lab.end_of_grace()
    done = await lab.keeper.step(request.id)
    assert done.phase is ErasePhase.DONE
    assert [each.id for each in done.left] == [held.segment.id]
    assert not [key for key in await lab.holders() if "orders" in key]


async def test_unreadable_segment_keeps_the_request_open_and_the_others_are_erased(lab: ErasureLab) -> None:
    lab.job_fails = frozenset([0])
    request = await lab.file("orders-0", at_once=True)
    await lab.run()
    waiting = await lab.keeper.step(request.id)
    assert waiting.phase is ErasePhase.SEARCHING
    assert "it is corrupt" in waiting.problem
    assert not [key for key in await lab.holders() if "orders" in key]
    lab.job_fails = frozenset()
    (round_,) = await lab.run()
    assert len(round_.work.groups) == 1
    assert (await lab.keeper.step(request.id)).phase is ErasePhase.DONE


async def test_erasure_in_a_compacted_topic_brings_back_no_older_value(tmp_path: Path) -> None:
    lab = ErasureLab(tmp_path, {"users-0": COMPACTED})
    for value in (b"old", None):
        lab.append("users-0", [(SECRET, value), (b"bob", b"1")])
        lab.roll("users-0")
    await lab.copy()
    lab.job_fails = frozenset([0])
    request = await lab.file("users-0", at_once=True)
    await lab.run()
    assert [record.value for record in await lab.read("users-0") if record.key == SECRET] == [b"old", None]
    lab.job_fails = frozenset()
    await lab.run()
    await lab.expire()  # the output that was refused
    assert (await lab.keeper.step(request.id)).phase is ErasePhase.DONE
    assert await keys_read(lab, "users-0") == [b"bob", b"bob"]


async def test_two_requests_of_one_partition_share_a_run(lab: ErasureLab) -> None:
    requests = [await lab.file("orders-0", key, at_once=True) for key in (SECRET, b"key 2")]
    (round_,) = await lab.run()
    assert (len(round_.outputs), len(round_.work.erased_keys)) == (2, 2)
    for stepped in await lab.keeper.step_all():
        assert stepped.phase is ErasePhase.DONE, stepped.problem
    assert len(requests) == 2
    assert await keys_read(lab, "orders-0") == [b"key 0", b"bob", b"key", b"key 1", b"key", b"bob", b"key"]


async def test_each_of_two_requests_that_share_a_run_counts_its_own_records(lab: ErasureLab) -> None:
    requests = [
        await lab.file("orders-0", SECRET),
        await lab.file("orders-0", b"key"),
        await lab.file("orders-0", b"no such key"),
    ]
    before = await keys_read(lab, "orders-0")
    (round_,) = await lab.run()
    runs = [(await lab.requests.get(request.id)).runs for request in requests]
    assert [note.records_erased for (note,) in runs] == [before.count(SECRET), before.count(b"key"), 0]
    assert round_.counts["records_erased"] == before.count(SECRET) + before.count(b"key")


async def test_record_of_a_key_that_two_requests_name_counts_in_both(lab: ErasureLab) -> None:
    requests = [await lab.file("orders-0", SECRET) for _ in range(2)]
    await lab.run()
    for request in requests:
        assert [note.records_erased for note in (await lab.requests.get(request.id)).runs] == [1]


async def test_cancelled_request_ends_and_erased_records_stay_erased(lab: ErasureLab) -> None:
    request = await lab.file("orders-0")
    await lab.run()
    await lab.keeper.step(request.id)
    cancelled = await lab.keeper.cancel(request.id)
    assert (cancelled.phase, cancelled.keys) == (ErasePhase.CANCELLED, frozenset())
    assert await lab.keeper.cancel(request.id) == cancelled
    await lab.end_of_grace()
    assert (await lab.keeper.step(request.id)).phase is ErasePhase.CANCELLED
    assert SECRET not in await keys_read(lab, "orders-0")


async def test_finished_request_cannot_be_cancelled(lab: ErasureLab) -> None:
    request = await lab.file("orders-0", b"nobody")
    await lab.run()
    await lab.keeper.step(request.id)
    with pytest.raises(RefusedError, match="is done"):
        await lab.keeper.cancel(request.id)


async def test_request_with_a_retained_object_names_it_and_waits(lab: ErasureLab) -> None:
    store = lab.tier.store
    assert isinstance(store, MemoryObjectStore)
    store.retained |= set(await lab.holders())
    await lab.file("orders-0", at_once=True)
    await lab.run()
    (waiting,) = await lab.keeper.step_all()
    assert waiting.phase is ErasePhase.LEAVING
    assert "is retained" in waiting.problem
    store.retained.clear()
    (done,) = await lab.keeper.step_all()
    assert (done.phase, done.problem) == (ErasePhase.DONE, "")


async def test_request_stays_open_while_an_orphan_may_hold_the_key(lab: ErasureLab) -> None:
    (held,) = [key for key in await lab.holders() if "orders" in key]
    orphan = f"{held.rpartition('/')[0]}/00000000000000000003-AAAAAAAAAAAAAAAAAAAAAQ.log"
    await lab.tier.store.put(orphan, b"what a dead process left of " + SECRET)
    request = await lab.file("orders-0", at_once=True)
    await lab.run()
    waiting = await lab.keeper.step(request.id)
    assert waiting.phase is ErasePhase.VERSIONS
    assert "repair-tier" in waiting.problem
    await lab.tier.store.delete(orphan)
    assert (await lab.keeper.step(request.id)).phase is ErasePhase.DONE


async def test_compaction_during_the_request_keeps_its_evidence(tmp_path: Path) -> None:
    lab = ErasureLab(tmp_path, {"users-0": ALWAYS_DUE})
    lab.fill("users-0")
    await lab.copy()
    request = await lab.file("users-0")
    (round_,) = await lab.run()
    assert round_.work.compacts, "the compaction erases the key"
    await lab.keeper.step(request.id)
    lab.fill("users-0", segments=2, secret_in=())
    await lab.copy()
    (round_,) = await lab.run()
    assert (round_.work.compacts, round_.work.erased_keys) == (True, frozenset())
    waiting = await lab.keeper.step(request.id)
    assert waiting.phase is ErasePhase.LEAVING, waiting.problem
    await lab.end_of_grace()
    assert (await lab.keeper.step(request.id)).phase is ErasePhase.DONE
    assert await lab.holders() == []


async def test_request_removes_segments_deleted_before_it_from_the_cache_of_the_host(tmp_path: Path) -> None:
    """A command, or another leader, may have deleted the segment, and has another cache than the daemon."""
    lab = ErasureLab(tmp_path, {"users-0": ALWAYS_DUE})
    lab.fill("users-0")
    await lab.copy()
    assert await lab.keep_chunks() == 3
    await lab.run()
    await lab.end_of_grace()
    assert len(lab.rows("users-0")) == 1
    assert sum(SECRET in chunk for chunk in lab.chunks()) == 1

    lab.tier.clock.advance(1)
    request = await lab.file("users-0", at_once=True)
    lab.policies = POLICIES  # so that it is searched, dirty or not
    await lab.run()
    done = await lab.keeper.step(request.id)
    assert done.phase is ErasePhase.DONE, done.problem
    assert not any(SECRET in chunk for chunk in lab.chunks())
    assert done.caches is not None
    assert (done.caches.segments, len(done.left)) == (4, 1)


async def test_record_that_another_host_copies_again_restarts_the_search(lab: ErasureLab) -> None:
    request = await lab.file("orders-0")
    await lab.run()
    assert (await lab.keeper.step(request.id)).phase is ErasePhase.LEAVING
    present = await lab.requests.get(request.id)
    (forgotten, *_) = present.searched
    await lab.requests.update(request.id, lambda r: replace(r, searched=r.searched - {forgotten}))
    assert (await lab.keeper.step(request.id)).phase is ErasePhase.SEARCHING


@pytest.mark.parametrize("at_once", [False, True])
async def test_request_interrupted_at_any_await_is_completed_by_the_next_process(tmp_path: Path, at_once: bool) -> None:
    number = 1
    while True:
        root = tmp_path / str(number)
        root.mkdir()
        lab = ErasureLab(root, {"orders-0": KEPT})
        lab.fill("orders-0")
        await lab.copy()
        request = await lab.file("orders-0", at_once=at_once)
        await lab.run()
        if not at_once:
            await lab.end_of_grace()
        was_cancelled = await cancel_at(number, lambda: lab.keeper.step(request.id))  # noqa: B023 - called at once
        await lab.come_back()
        done = await lab.keeper.step(request.id)
        assert done.phase is ErasePhase.DONE, done.problem
        assert await lab.holders() == []
        assert [row.state for row in lab.rows("orders-0")] == [RemoteLogSegmentState.COPY_SEGMENT_FINISHED] * 3
        if not was_cancelled:
            return
        number += 1


async def test_lost_evidence_of_a_run_is_replaced_by_the_next_run(lab: ErasureLab) -> None:
    request = await lab.file("orders-0", at_once=True)
    await lab.run(is_noted=False)
    assert (await lab.keeper.step(request.id)).phase is ErasePhase.SEARCHING
    (round_,) = await lab.run()
    assert round_.outputs == {}
    done = await lab.keeper.step(request.id)
    assert (done.phase, len(done.left)) == (ErasePhase.DONE, 1)
