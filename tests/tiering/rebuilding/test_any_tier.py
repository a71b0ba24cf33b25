"""Rebuild and export of a tier with any history restore its metadata row by row."""

import asyncio
import tempfile
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from uuid import UUID

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.fakes.transforms import transform_named
from tests.tiering.auditing.audited import GRACE_S, MIN_AGE_S, Audited
from tests.tiering.rebuilding.grown_tier import FINISHED, KEYS, STARTED, GrownTier, Step, steps
from tierd.metadata import MemoryKeyValueStore, PartitionView, RebuildSeverity, differences, export_lines, import_lines
from tierd.model import RemoteLogSegmentMetadata
from tierd.remote import Transform
from tierd.remote.transform.transform import PLAIN
from tierd.tiering.auditing.tier_findings import missing_offsets, offset_findings

LOG_START_INSIDE: list[Step] = [
    ("write", 0, 2),
    ("write", 0, 2),
    ("delete records", 0, 2),
    ("roll", 0, 0),
    ("copy", 0, 0),
    ("write", 1, 2),
    ("roll", 0, 0),
]
MERGED_BY_THE_BROKER: list[Step] = [
    *[("write", 0, 0), ("roll", 0, 0), ("write", 1, 0), ("roll", 0, 0), ("write", 0, 0), ("copy", 0, 0)],
    *[("roll", 0, 0), ("write", 0, 0), ("local merge", 0, 2), ("copy", 0, 0)],
    *[("roll", 0, 0), ("write", 0, 0), ("local merge", 0, 2), ("copy", 0, 0)],
]


EPOCH_FORGOTTEN: list[Step] = [
    *[("segment", 0, 0), ("copy", 0, 0), ("epoch", 0, 0), ("write", 0, 1), ("write", 0, 1), ("retention", 0, 0)],
    *[("delete records", 0, 2), ("roll", 0, 0), ("write", 0, 0), ("copy", 0, 0)],
]
"""The log start moves into the first segment of an epoch: the broker forgets where the epoch began."""


ENCRYPTED = transform_named("aes")
transforms = st.sampled_from([PLAIN, ENCRYPTED])
"""Of the tier: without a key ring, and encrypted, where what one component writes every other one must prove."""


def played(history: list[Step], check: Callable[[GrownTier], Awaitable[None]], transform: Transform = PLAIN) -> None:
    async def play(folder: Path) -> None:
        tier = GrownTier(folder, transform)
        await tier.play(history)
        await check(tier)

    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(play(Path(folder)))


def lasting(metadata: RemoteLogSegmentMetadata) -> RemoteLogSegmentMetadata:
    """Return a row without time and broker of its last event, and without the end of its grace."""
    reason = metadata.soft_delete and replace(metadata.soft_delete, delete_after_ms=0)
    return replace(metadata, event_timestamp_ms=0, broker_id=0, soft_delete=reason)


def rows_of(view: PartitionView) -> dict[UUID, RemoteLogSegmentMetadata]:
    return {id_: lasting(metadata) for id_, metadata in view.segments.items() if metadata.state is not STARTED}


async def check_rebuild(tier: GrownTier) -> None:
    report, store = await tier.rebuilt()
    before, after = tier.view, await tier.view_in(store)
    assert [p for p in report.problems if p.severity is RebuildSeverity.DAMAGE] == []
    assert not report.has_unauthenticated
    assert rows_of(after) == rows_of(before)
    assert differences(before, after) == []
    assert before.row is not None
    if before.row.is_log_start_recorded:
        assert (after.log_start_offset or 0) == (before.log_start_offset or 0)
    answers = [has_answer(before, after, epoch, offset) for epoch, offset in places(before)]
    conflicts = [p.where for p in report.problems if p.severity is RebuildSeverity.CONFLICT]
    overlaps = [f.where for f in offset_findings(tier.remote_log(after)) if f.kind == "overlap"]
    assert conflicts == overlaps
    if all(answers):
        start = before.log_start_offset or 0
        assert await tier.remote_records(after, start=start) == await tier.remote_records(before, start=start)


def places(view: PartitionView) -> list[tuple[int, int]]:
    """Return every epoch with every offset, and some offsets behind the end."""
    end = max((metadata.end_offset for metadata in view.list()), default=-1) + 2
    return [(epoch, offset) for epoch in view.epochs for offset in range(end)]


def has_answer(before: PartitionView, after: PartitionView, epoch: int, offset: int) -> bool:
    """Compare a lookup with the earlier one; return True if the same segment serves it.

    Of copies with equal offsets in an epoch the one that was finished last serves reads. An undelete finishes a copy
    once more, and the bucket does not have that event: there a copy with the same offsets may serve reads.
    """
    was, now = before.segment_for(epoch, offset), after.segment_for(epoch, offset)
    if was is None or (now is not None and now.segment == was.segment):
        return True
    assert now is not None
    old, new = before.range_in(epoch, was.segment.id), after.range_in(epoch, now.segment.id)
    assert new.first <= old.first
    assert old.last <= new.last
    return False


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(steps, transforms)
@example(LOG_START_INSIDE, PLAIN)
@example(LOG_START_INSIDE, ENCRYPTED)
@example(MERGED_BY_THE_BROKER, PLAIN)
@example(EPOCH_FORGOTTEN, PLAIN)
@example(EPOCH_FORGOTTEN, ENCRYPTED)
def test_rebuild_of_any_tier_restores_its_metadata_row_by_row(history: list[Step], transform: Transform) -> None:
    played(history, check_rebuild, transform)


async def check_export(tier: GrownTier) -> None:
    lines = [line async for line in export_lines(tier.tier.rows, KEYS, exported_ms=1)]
    store = MemoryKeyValueStore()
    await import_lines(store, KEYS, lambda: iter(lines), on_progress=lambda _: None)
    assert await tier.view_in(store) == await tier.view_in(tier.tier.rows)
    report = await tier.rebuild_of(store).run()
    assert report.differing == []


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(steps, transforms)
@example(LOG_START_INSIDE, PLAIN)
@example(LOG_START_INSIDE, ENCRYPTED)
def test_export_of_any_tier_is_imported_row_by_row_and_equals_the_bucket(
    history: list[Step], transform: Transform
) -> None:
    played(history, check_export, transform)


class AuditedTier(Audited):
    """Audit and repair of a tier that grew."""

    def __init__(self, grown: GrownTier) -> None:
        self.folder = grown.root
        self.path = grown.path
        self.tier = grown.tier
        self.transform = grown.transform
        self.session = grown.session


async def check_repair(tier: GrownTier, which: int) -> None:
    """Lose the row of any segment that readers find, and its remaining copied log on local disk."""
    tier.forget_copied()
    before, start = tier.view, tier.view.log_start_offset or 0
    records = await tier.remote_records(before, start=start)
    readable = [m for m in before.list() if before.is_readable(m) and m.end_offset >= start]
    if not readable:
        return
    lost = sorted(readable, key=lambda m: (m.start_offset, m.end_offset))[which % len(readable)]
    await tier.forget_rows(lost.segment.id)
    tier.tier.clock.advance(MIN_AGE_S + GRACE_S)
    audited = AuditedTier(tier)
    assert before.claim is not None
    outcomes = await audited.outcomes(audited.repair(led={tier.partition: before.claim.leader_epoch}))
    after = await tier.view_in(tier.tier.rows)
    assert await tier.remote_records(after, start=start) == records, [(o.action.kind, o.action.why) for o in outcomes]
    adopted = after.segment(lost.segment.id)
    if adopted is not None:
        mine = replace(adopted, leader_epoch=lost.leader_epoch, session_id=lost.session_id)
        assert lasting(mine) == lasting(lost)
        assert (await tier.rebuild_of(tier.tier.rows).run()).differing == []


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(steps, st.integers(0, 7), transforms)
@example(LOG_START_INSIDE, 0, PLAIN)
@example(LOG_START_INSIDE, 0, ENCRYPTED)
def test_repair_of_any_tier_restores_a_segment_whose_row_is_lost(
    history: list[Step], which: int, transform: Transform
) -> None:
    played(history, lambda tier: check_repair(tier, which), transform)


async def check_undelete(tier: GrownTier) -> None:
    before, start = tier.view, tier.view.log_start_offset or 0
    records = await tier.remote_records(before, start=start)
    await tier.expire(0)
    await tier.undelete()
    after = tier.view
    answers = [has_answer(before, after, *place) for place in places(before) if place[1] >= start]
    if all(answers):
        assert await tier.remote_records(after, start=start) == records
    start = max(start, after.log_start_offset or 0, tier.remote_log(before).log_start_offset)
    gaps = [gap for gap in missing_offsets(tier.remote_log(after)) if gap.end >= start]
    assert gaps == [gap for gap in missing_offsets(tier.remote_log(before)) if gap.end >= start]
    await check_rebuild(tier)


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(steps, transforms)
@example(LOG_START_INSIDE, PLAIN)
@example(LOG_START_INSIDE, ENCRYPTED)
def test_undelete_of_any_tier_restores_expired_segments_and_a_rebuild_agrees(
    history: list[Step], transform: Transform
) -> None:
    played(history, check_undelete, transform)


def test_history_with_log_start_inside_a_segment_makes_such_a_segment() -> None:
    async def check(tier: GrownTier) -> None:
        inside = [m for m in tier.view.list() if m.first_readable_offset > m.start_offset and m.state is FINISHED]
        assert [(m.start_offset, m.first_readable_offset) for m in inside] == [(0, 2)]

    played(LOG_START_INSIDE, check)
