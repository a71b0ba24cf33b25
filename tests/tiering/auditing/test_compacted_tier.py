"""Audit of a tier with compacted segments: their offset gaps are no gaps of the tier, replaced segments no orphans."""

import json
from collections.abc import Collection
from pathlib import Path

import pytest

from tests.fakes.transforms import transform_named
from tests.tiering.auditing.audited import GRACE_S, Audited
from tests.tiering.compacted import Compaction
from tierd.model import IndexType, RemoteLogSegmentMetadata, RemoteLogSegmentState

FINISHED = RemoteLogSegmentState.COPY_SEGMENT_FINISHED

LAYOUTS = [
    pytest.param([(0, 31, {0, 12, 28})], id="one segment"),
    pytest.param([(0, 15, {4, 8}), (16, 31, {20})], id="gaps at the ends"),
    pytest.param([(0, 7, ()), (8, 23, ()), (24, 31, ())], id="nothing left"),
    pytest.param([(8, 15, ()), (24, 31, ())], id="the last one empty"),
]

Layout = list[tuple[int, int, Collection[int]]]


async def compacted(
    tmp_path: Path, layout: Layout, *, transform: str = "plain", grace_over: bool = False, keeps_local: bool = False
) -> Audited:
    """Copy four segments of two batches of four records, replace them, and delete the rolled ones from local disk."""
    audited = Audited(tmp_path, transform_named(transform), rolled_segments=4)
    assert [o.error for o in (await audited.session.copy_once()).values()] == [None]
    if not keeps_local:
        audited.lose_local(0, 8, 16, 24)
    compaction = Compaction(audited.session, audited.partition, tmp_path / "compacted")
    for start, end, keep in layout:
        await compaction.replace(start, end, keep, is_grace_over=grace_over)
    return audited


def kept_offsets(layout: Layout) -> list[int]:
    gone = {n for start, end, _ in layout for n in range(start, end + 1)}
    left = {base + n for _, _, keep in layout for base in keep for n in range(4)}
    return [n for n in range(36) if n in left or n not in gone]


async def first_readable(audited: Audited) -> RemoteLogSegmentMetadata:
    return min((row for row in await audited.rows() if row.state is FINISHED), key=lambda row: row.start_offset)


@pytest.mark.parametrize("grace_over", [False, True])
@pytest.mark.parametrize("deep", [False, True])
@pytest.mark.parametrize("layout", LAYOUTS)
async def test_verify_and_repair_of_a_compacted_tier_find_nothing(
    tmp_path: Path, layout: Layout, *, deep: bool, grace_over: bool
) -> None:
    audited = await compacted(tmp_path, layout, grace_over=grace_over)
    assert await audited.kinds(deep=deep) == []
    assert await audited.results(deep=deep) == []
    assert await audited.records() == kept_offsets(layout)


@pytest.mark.parametrize("transform", ["zstd", "aes", "zstd+aes"])
async def test_verify_of_a_compacted_and_transformed_tier_finds_nothing(tmp_path: Path, transform: str) -> None:
    layout: Layout = [(0, 15, {4, 8}), (16, 31, ())]
    audited = await compacted(tmp_path, layout, transform=transform)
    assert await audited.kinds(deep=True) == []
    assert await audited.records() == kept_offsets(layout)


async def test_repair_marks_and_removes_replaced_segments_that_expiration_left(tmp_path: Path) -> None:
    layout: Layout = [(0, 15, {4, 8}), (16, 31, ())]
    audited = await compacted(tmp_path, layout)
    audited.tier.clock.advance(GRACE_S + 1)
    assert await audited.kinds() == ["missing-tombstone"] * 4
    assert await audited.results() == [("write-tombstone", "done")] * 4
    audited.tier.clock.advance(3600 + GRACE_S)
    assert await audited.results() == [("end-deletion", "done")] * 4
    assert await audited.kinds(deep=True) == []
    assert len(await audited.objects(".log")) == 2
    assert await audited.records() == kept_offsets(layout)


@pytest.mark.parametrize("layout", LAYOUTS)
async def test_lost_indexes_of_a_compacted_segment_are_rebuilt_from_the_stored_log(
    tmp_path: Path, layout: Layout
) -> None:
    audited = await compacted(tmp_path, layout, grace_over=True)
    damaged = await first_readable(audited)
    key = next(i.key for i in await audited.objects(".indexes") if f"{damaged.start_offset:020d}-" in i.key)
    content = bytearray(await audited.tier.store.get(key))
    content[0] ^= 1
    await audited.overwrite(key, bytes(content))
    assert await audited.kinds(deep=True) == ["damaged-index"]
    assert await audited.results(deep=True) == [("copy-again", "done")]
    fresh = await first_readable(audited)
    assert fresh.segment != damaged.segment
    assert (fresh.start_offset, fresh.end_offset, fresh.size_bytes) == (
        damaged.start_offset,
        damaged.end_offset,
        damaged.size_bytes,
    )
    assert await audited.storage().fetch_index(fresh, IndexType.PRODUCER_SNAPSHOT)
    assert await audited.kinds(deep=True) == []
    assert await audited.records() == kept_offsets(layout)


async def test_repair_of_a_compacted_segment_takes_no_records_from_the_local_log(tmp_path: Path) -> None:
    """A broker that has not cleaned yet holds the records of deleted keys, whose tombstones may be gone in the tier."""
    layout: Layout = [(0, 15, {4, 8}), (16, 31, {20})]
    audited = await compacted(tmp_path, layout, grace_over=True, keeps_local=True)
    damaged = await first_readable(audited)
    key = next(i.key for i in await audited.objects(".indexes") if f"{damaged.start_offset:020d}-" in i.key)
    await audited.tier.store.delete(key)
    assert await audited.results() == [("copy-again", "done")]
    fresh = await first_readable(audited)
    assert fresh.segment != damaged.segment
    assert (fresh.end_offset, fresh.size_bytes) == (damaged.end_offset, damaged.size_bytes)


async def test_damage_in_a_compacted_log_is_found(tmp_path: Path) -> None:
    audited = await compacted(tmp_path, [(0, 31, {0, 12, 28})], grace_over=True)
    await audited.spoil(".log")
    assert "damaged-log" in await audited.kinds(deep=True)
    assert ("nothing", "cannot") in await audited.results(deep=True)


@pytest.mark.parametrize("shift_ms", [-60_000, 60_000])
async def test_wrong_times_in_a_manifest_are_found_and_the_segment_is_copied_again(
    tmp_path: Path, shift_ms: int
) -> None:
    layout: Layout = [(0, 31, {0, 12, 28})]
    audited = await compacted(tmp_path, layout, grace_over=True)
    (manifest,) = await audited.objects(".manifest")
    fields = json.loads(await audited.tier.store.get(manifest.key))
    chunk = fields["log"]["chunks"][0]
    fields["log"]["chunks"][0] |= {name: chunk[name] + shift_ms for name in ("min_timestamp_ms", "max_timestamp_ms")}
    await audited.overwrite(manifest.key, json.dumps(fields).encode())
    assert await audited.kinds(deep=True) == ["wrong-times"]
    assert await audited.results(deep=True) == [("copy-again", "done")]
    assert await audited.kinds(deep=True) == []
    assert await audited.records() == kept_offsets(layout)


async def test_replaced_segment_whose_row_is_lost_is_removed_as_an_orphan(tmp_path: Path) -> None:
    audited = await compacted(tmp_path, [(0, 15, {4, 8}), (16, 31, {28})])
    before = await audited.records()
    await audited.forget_rows(8)
    assert await audited.kinds() == ["orphan"] * 3
    audited.tier.clock.advance(3600 + GRACE_S)
    results = await audited.results()
    assert ("remove-orphan", "done") in results
    assert await audited.records() == before
