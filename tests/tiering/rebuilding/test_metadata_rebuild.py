"""Rebuild of a dropped metadata store from the bucket."""

import asyncio
import json
import tempfile
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fakes.key_value_store import Fault, FaultyKeyValueStore
from tests.fakes.memory_object_store import MemoryObjectStore
from tests.tiering.rebuilding.tier import (
    KEYS,
    NEW_SESSION,
    OBJECT_KEYS,
    PARTITION,
    PREFIX,
    STORE_ID,
    FilledTier,
    rebuild_of,
    rebuilt,
    view_in,
)
from tierd.errors import (
    BackendUnavailableError,
    FencedError,
    MetadataFillingRefusedError,
    OutcomeUnknownError,
    RetriableRemoteStorageError,
)
from tierd.metadata import (
    MemoryKeyValueStore,
    RebuildSeverity,
    RemoteLogMetadataManager,
    differences,
    is_tier_known,
    list_partitions,
    store_identity,
)
from tierd.model import ByteRange, RemoteLogSegmentMetadata, RemoteLogSegmentState, TopicIdPartition
from tierd.remote import LOG_START, MANIFEST, TOMBSTONE, LogStartRecord, ObjectInfo
from tierd.testing import cancel_at
from tierd.tiering import RebuildReport

FINISHED = RemoteLogSegmentState.COPY_SEGMENT_FINISHED
DELETE_STARTED = RemoteLogSegmentState.DELETE_SEGMENT_STARTED
OTHER = TopicIdPartition(UUID(int=7), "orders", 10)
THIRD = TopicIdPartition(UUID(int=9), "orders-of-2024", 1)


@pytest.fixture
async def tier(tmp_path: Path) -> FilledTier:
    tier = FilledTier(tmp_path)
    await tier.claim()
    await tier.lead()
    return tier


def problems(report: RebuildReport) -> list[tuple[RebuildSeverity, str]]:
    return [(problem.severity, problem.kind) for problem in report.problems]


async def test_rebuild_restores_every_field_of_the_rows(tier: FilledTier) -> None:
    await tier.copy(0, 9)
    await tier.copy(10, 19, {0: 10, 1: 15})
    await tier.lead(later=2)
    await tier.copy(20, 29, 1)
    report, store = await rebuilt(tier.store)
    original, view = tier.manager.view(PARTITION), await view_in(store)
    assert differences(original, view) == []
    assert {id_: replace(m, event_timestamp_ms=0) for id_, m in view.segments.items()} == {
        id_: replace(m, event_timestamp_ms=0) for id_, m in original.segments.items()
    }
    assert view.epochs == original.epochs
    assert (report.partitions, report.segments, report.written, report.deleting) == (1, 3, 1, 0)
    assert report.problems == []


async def test_rebuilt_store_has_the_identity_in_the_bucket_and_accepts_new_copies(tier: FilledTier) -> None:
    await tier.copy(0, 9)
    report, store = await rebuilt(tier.store)
    assert report.store_id == STORE_ID
    assert await store_identity(store, KEYS, new_id=lambda: UUID(int=1)) == STORE_ID
    assert await is_tier_known(store, KEYS, key_prefix=PREFIX)
    assert await store.get(KEYS.moving_key) is None
    tier.metadata = store
    tier.manager = RemoteLogMetadataManager(
        store, cluster_id="cluster", broker_id=1, session_id=UUID(int=99), clock=tier.clock
    )
    await tier.lead()
    await tier.copy(10, 19)
    assert tier.manager.view(PARTITION).segment_for(0, 15) is not None


async def test_session_from_before_the_rebuild_is_fenced(tier: FilledTier) -> None:
    await tier.copy(0, 9)
    _, store = await rebuilt(tier.store)
    stale = RemoteLogMetadataManager(store, cluster_id="cluster", broker_id=1, session_id=UUID(int=5), clock=tier.clock)
    with pytest.raises(FencedError):
        await stale.become_leader(PARTITION, tier.leader_epoch - 1)
    assert (await view_in(store)).claim == (tier.leader_epoch, 1, NEW_SESSION)


async def test_partitions_whose_names_share_a_prefix_are_rebuilt_apart(tier: FilledTier) -> None:
    for partition in (OTHER, THIRD):
        await tier.lead(partition)
    for partition in (PARTITION, OTHER, THIRD):
        await tier.copy(0, partition.partition + 5, partition=partition)
    report, store = await rebuilt(tier.store)
    assert report.partitions == 3
    for partition in (PARTITION, OTHER, THIRD):
        assert (await view_in(store, partition)).epochs == tier.manager.view(partition).epochs
    assert set(await list_partitions(store, KEYS)) == {PARTITION, OTHER, THIRD}


async def test_segment_with_a_tombstone_is_rebuilt_in_deletion(tier: FilledTier) -> None:
    metadata = await tier.copy(0, 9)
    await tier.copy(10, 19)
    await tier.give_up(metadata)
    report, store = await rebuilt(tier.store)
    original, view = tier.manager.view(PARTITION), await view_in(store)
    assert view.segment(metadata.segment.id) == replace(
        original.segments[metadata.segment.id], event_timestamp_ms=tier.clock.now_ms()
    )
    assert (report.segments, report.deleting) == (1, 1)
    assert view.epochs == original.epochs


async def test_rebuild_keeps_segment_whose_log_start_lies_inside_it(tier: FilledTier) -> None:
    await tier.copy(10, 19, {0: 15})
    await tier.copy(20, 29, {0: 20, 2: 25})
    report, store = await rebuilt(tier.store)
    original, view = tier.manager.view(PARTITION), await view_in(store)
    assert report.problems == []
    assert differences(original, view) == []
    assert view.epochs == original.epochs


async def test_rebuild_of_merged_local_segments_reports_no_problem(tier: FilledTier) -> None:
    """The cleaner of the broker merges small segments, so that each later copy covers earlier ones."""
    for end in range(9, 60, 10):
        await tier.copy(end - 9, end)
        await tier.copy(0, end)
    report, store = await rebuilt(tier.store)
    assert report.problems == []
    assert (await view_in(store)).epochs == tier.manager.view(PARTITION).epochs


async def test_deleted_and_unfinished_segments_are_not_rebuilt(tier: FilledTier) -> None:
    gone = await tier.copy(0, 9)
    await tier.copy(10, 19)
    await tier.copy(20, 29, through="started")
    await tier.give_up(gone, gone=True)
    _, store = await rebuilt(tier.store)
    assert [m.start_offset for m in (await view_in(store)).list()] == [10]


async def test_objects_without_a_manifest_are_noted(tier: FilledTier) -> None:
    metadata = await tier.copy(0, 9)
    await tier.store.delete(OBJECT_KEYS.segment(metadata, ".manifest"))
    report, store = await rebuilt(tier.store)
    assert problems(report) == [(RebuildSeverity.NOTE, "no manifest")]
    assert report.is_sound
    assert await list_partitions(store, KEYS) == []


async def _without_log(tier: FilledTier, metadata: RemoteLogSegmentMetadata) -> None:
    await tier.store.delete(OBJECT_KEYS.segment(metadata, ".log"))


async def _without_indexes(tier: FilledTier, metadata: RemoteLogSegmentMetadata) -> None:
    await tier.store.delete(OBJECT_KEYS.segment(metadata, ".indexes"))


async def _short_log(tier: FilledTier, metadata: RemoteLogSegmentMetadata) -> None:
    await _replaced(tier, metadata, ".log", b"short")


async def _corrupt(tier: FilledTier, metadata: RemoteLogSegmentMetadata) -> None:
    await _replaced(tier, metadata, ".manifest", b"{")


async def _later_format(tier: FilledTier, metadata: RemoteLogSegmentMetadata) -> None:
    await _changed(tier, metadata, format_version=2)


async def _anothers(tier: FilledTier, metadata: RemoteLogSegmentMetadata) -> None:
    await _changed(tier, metadata, start_offset=1, segment_leader_epochs=[[0, 1]])


async def _of_another_cluster(tier: FilledTier, metadata: RemoteLogSegmentMetadata) -> None:
    await _changed(tier, metadata, cluster_id="foreign")


async def _epochs_outside(tier: FilledTier, metadata: RemoteLogSegmentMetadata) -> None:
    await _changed(tier, metadata, segment_leader_epochs=[[0, 0], [1, 500]])


async def _no_session(tier: FilledTier, metadata: RemoteLogSegmentMetadata) -> None:
    await _changed(tier, metadata, session_id="?")


async def _replaced(tier: FilledTier, metadata: RemoteLogSegmentMetadata, suffix: str, content: bytes) -> None:
    key = OBJECT_KEYS.segment(metadata, suffix)
    await tier.store.delete(key)
    await tier.store.put(key, content)


async def _changed(tier: FilledTier, metadata: RemoteLogSegmentMetadata, **fields: object) -> None:
    manifest = json.loads(await tier.store.get(OBJECT_KEYS.segment(metadata, ".manifest")))
    await _replaced(tier, metadata, ".manifest", json.dumps(manifest | fields).encode())


async def _impossible_leader(tier: FilledTier, metadata: RemoteLogSegmentMetadata) -> None:
    """Put a record after which no leader could claim the partition."""
    await _changed(tier, metadata, leader_epoch=2**31)


async def _endless_manifest(tier: FilledTier, metadata: RemoteLogSegmentMetadata) -> None:
    await _changed(tier, metadata, padding="x" * MANIFEST.max_bytes)


async def _endless_tombstone(tier: FilledTier, metadata: RemoteLogSegmentMetadata) -> None:
    await tier.store.put(OBJECT_KEYS.segment(metadata, ".tombstone"), b" " * (TOMBSTONE.max_bytes + 1))


@pytest.mark.parametrize(
    ("damage", "kind"),
    [
        (_without_log, "missing object"),
        (_without_indexes, "missing object"),
        (_short_log, "wrong size"),
        (_corrupt, "damaged"),
        (_later_format, "not understood"),
        (_anothers, "foreign manifest"),
        (_of_another_cluster, "foreign manifest"),
        (_epochs_outside, "damaged"),
        (_no_session, "damaged"),
        (_impossible_leader, "damaged"),
        (_endless_manifest, "too large"),
        (_endless_tombstone, "too large"),
    ],
)
async def test_damage_is_reported_and_other_segments_are_rebuilt(
    tier: FilledTier, damage: Callable[[FilledTier, RemoteLogSegmentMetadata], Awaitable[None]], kind: str
) -> None:
    await tier.copy(0, 9)
    damaged = await tier.copy(10, 19)
    await tier.copy(20, 29)
    await damage(tier, damaged)
    report, store = await rebuilt(tier.store)
    assert problems(report) == [(RebuildSeverity.DAMAGE, kind)]
    assert not report.is_sound
    assert sorted(m.start_offset for m in (await view_in(store)).list()) == [0, 20]


async def test_foreign_objects_are_noted(tier: FilledTier) -> None:
    await tier.copy(0, 9)
    foreign = [f"{OBJECT_KEYS.root}notes.txt", f"{OBJECT_KEYS.root}orders-short/0/1.log"]
    for key in foreign:
        await tier.store.put(key, b"x")
    report, _ = await rebuilt(tier.store)
    assert [problem.where for problem in report.problems] == sorted(foreign)
    assert report.is_sound


async def test_output_of_the_later_leader_replaces_the_inputs_of_two_outputs(tier: FilledTier) -> None:
    inputs = [await tier.copy(0, 9), await tier.copy(10, 19)]
    names = [KEYS.segment(PARTITION, m.segment.id)[-22:] for m in inputs]
    early = await tier.copy(0, 19, through="manifest")
    await tier.lead(later=1)
    late = await tier.copy(0, 19, through="manifest")
    for output in (early, late):
        await _changed(tier, output, replaces=names)
    report, store = await rebuilt(tier.store)
    view = await view_in(store)
    assert {m.segment.id for m in view.list() if m.state is FINISHED} == {late.segment.id}
    assert {m.segment.id for m in view.list() if m.state is DELETE_STARTED} == {m.segment.id for m in inputs}
    assert problems(report) == [(RebuildSeverity.CONFLICT, "replaced twice")]


async def test_second_rebuild_compares_and_writes_no_row(tier: FilledTier) -> None:
    await tier.copy(0, 9)
    _, store = await rebuilt(tier.store)
    assert isinstance(store, FaultyKeyValueStore)
    before = len(store.batches)
    report, _ = await rebuilt(tier.store, store)
    assert (report.unchanged, report.written, report.differing) == (1, 0, [])
    assert len(store.batches) == before


async def test_store_that_differs_is_reported_and_not_changed(tier: FilledTier) -> None:
    kept = await tier.copy(0, 9)
    lost = await tier.copy(10, 19)
    await tier.lead(OTHER)
    await tier.copy(0, 9, partition=OTHER)
    for info in await tier.store.list_objects(OBJECT_KEYS.partition_prefix(OTHER)):
        await tier.store.delete(info.key)
    for suffix in (".log", ".indexes", ".manifest"):
        await tier.store.delete(OBJECT_KEYS.segment(lost, suffix))
    before = await tier.metadata.scan("")
    report, _ = await rebuilt(tier.store, tier.metadata)
    assert len(report.differing) == 2
    assert any(str(OTHER) in difference for difference in report.differing)
    assert (report.written, report.segments) == (0, 1)
    assert await tier.metadata.scan("") == before
    assert kept.segment.id in tier.manager.view(PARTITION).segments


async def test_dry_run_of_a_rebuild_reports_the_same_and_writes_no_row(tier: FilledTier) -> None:
    await tier.copy(0, 9)
    store = FaultyKeyValueStore(MemoryKeyValueStore())
    report = await rebuild_of(tier.store, store, dry_run=True).run()
    assert (report.partitions, report.segments, report.written) == (1, 1, 0)
    assert store.batches == []


async def test_partitions_that_a_daemon_claimed_before_the_rebuild_are_filled(tier: FilledTier) -> None:
    await tier.copy(0, 9)
    store = FaultyKeyValueStore(MemoryKeyValueStore())
    await store_identity(store, KEYS, new_id=lambda: UUID(int=3))
    daemon = RemoteLogMetadataManager(
        store, cluster_id="cluster", broker_id=2, session_id=UUID(int=3), clock=tier.clock
    )
    await daemon.become_leader(PARTITION, 9)
    await daemon.advance_log_start_offset(PARTITION, 10)  # where its local log begins
    await rebuilt(tier.store, store)
    view = await view_in(store)
    assert view.segment_for(0, 5) is not None
    assert view.log_start_offset is None
    assert view.claim == (9, 2, NEW_SESSION)
    assert await store_identity(store, KEYS, new_id=lambda: UUID(int=1)) == STORE_ID
    with pytest.raises(FencedError):
        await daemon.advance_log_start_offset(PARTITION, 11)


def record(log_start_offset: int, *, leader_epoch: int = 5) -> LogStartRecord:
    return LogStartRecord(log_start_offset=log_start_offset, leader_epoch=leader_epoch, broker_id=2, written_ms=0)


async def test_log_start_is_rebuilt_and_a_leader_before_its_writer_is_fenced(tier: FilledTier) -> None:
    await tier.copy(0, 9)
    await tier.storage.log_starts.write(PARTITION, record(4, leader_epoch=9), previous=None)
    report, store = await rebuilt(tier.store)
    assert report.problems == []
    view = await view_in(store)
    assert (view.log_start_offset, view.claim) == (4, (9, 2, NEW_SESSION))
    assert view.row is not None
    assert view.row.is_log_start_recorded
    stale = RemoteLogMetadataManager(store, cluster_id="cluster", broker_id=1, session_id=UUID(int=3), clock=tier.clock)
    with pytest.raises(FencedError):
        await stale.become_leader(PARTITION, 8)


async def test_log_start_of_a_partition_without_segments_is_rebuilt(tier: FilledTier) -> None:
    await tier.storage.log_starts.write(PARTITION, record(40), previous=None)
    report, store = await rebuilt(tier.store)
    assert (report.partitions, report.segments, report.written) == (1, 0, 1)
    assert (await view_in(store)).log_start_offset == 40
    assert await list_partitions(store, KEYS) == [PARTITION]


async def test_log_start_of_a_partition_that_a_daemon_claimed_is_the_recorded_one(tier: FilledTier) -> None:
    await tier.copy(0, 9)
    await tier.storage.log_starts.write(PARTITION, record(4), previous=None)
    store = FaultyKeyValueStore(MemoryKeyValueStore())
    daemon = RemoteLogMetadataManager(
        store, cluster_id="cluster", broker_id=2, session_id=UUID(int=3), clock=tier.clock
    )
    await daemon.become_leader(PARTITION, 9)
    await daemon.advance_log_start_offset(PARTITION, 10)  # where its local log begins
    await rebuilt(tier.store, store)
    view = await view_in(store)
    assert (view.log_start_offset, view.claim) == (4, (9, 2, NEW_SESSION))


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (b"{}", "damaged"),
        (b'{"format_version": 2}', "not understood"),
        (b" " * (LOG_START.max_bytes + 1), "too large"),
    ],
)
async def test_unreadable_log_start_record_is_reported_and_the_segments_are_rebuilt(
    tier: FilledTier, content: bytes, kind: str
) -> None:
    await tier.copy(0, 9)
    await tier.store.put(OBJECT_KEYS.log_start(PARTITION), content)
    report, store = await rebuilt(tier.store)
    assert problems(report) == [(RebuildSeverity.DAMAGE, kind)]
    view = await view_in(store)
    assert (view.log_start_offset, view.segment_for(0, 5) is not None) == (None, True)


@pytest.mark.parametrize("fault", [Fault.FAIL, Fault.LOSE_ANSWER, Fault.DROP_REQUEST])
async def test_an_interrupted_rebuild_is_continued(tier: FilledTier, fault: Fault) -> None:
    for partition in (OTHER, THIRD):
        await tier.lead(partition)
    for partition in (PARTITION, OTHER, THIRD):
        await tier.copy(0, 9, partition=partition)
    for failing in range(20):
        store = FaultyKeyValueStore(MemoryKeyValueStore())
        store.apply_faults.extend([*[None] * failing, fault])
        try:
            await rebuilt(tier.store, store)
        except (BackendUnavailableError, OutcomeUnknownError, ExceptionGroup):
            for partition in await list_partitions(store, KEYS):
                assert differences(await view_in(store, partition), tier.manager.view(partition)) == []
            report, _ = await rebuilt(tier.store, store)
            assert report.unchanged + report.written == 3
        for partition in (PARTITION, OTHER, THIRD):
            assert differences(await view_in(store, partition), tier.manager.view(partition)) == []
        assert await store.get(KEYS.moving_key) is None


async def test_rebuild_that_is_cancelled_at_any_await_is_continued(tier: FilledTier) -> None:
    await tier.lead(OTHER)
    for partition in (PARTITION, OTHER):
        await tier.copy(0, 9, partition=partition)
    for suspension in range(1, 200):
        store = MemoryKeyValueStore()
        was_cancelled = await cancel_at(suspension, rebuild_of(tier.store, store).run)
        if not was_cancelled:
            return
        await rebuilt(tier.store, store)
        for partition in (PARTITION, OTHER):
            assert differences(await view_in(store, partition), tier.manager.view(partition)) == []
    raise AssertionError("it never came to its end")


class _SlowStore(MemoryObjectStore):
    """Store that counts concurrent requests, and fails on demand."""

    def __init__(self) -> None:
        super().__init__()
        self.at_once = self.most_at_once = 0
        self.pages: list[int] = []
        self.fails = False

    async def get(self, key: str, byte_range: ByteRange | None = None) -> bytes:
        if self.fails and key.endswith(".manifest"):
            raise RetriableRemoteStorageError("busy for a test")
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            for _ in range(5):
                await asyncio.sleep(0)
            return await super().get(key, byte_range)
        finally:
            self.at_once -= 1

    async def list_objects(self, prefix: str, *, start_after: str = "", limit: int | None = None) -> list[ObjectInfo]:
        page = await super().list_objects(prefix, start_after=start_after, limit=limit)
        self.pages.append(len(page))
        return page


async def test_requests_are_concurrent_within_a_bound_and_listings_are_paged(tmp_path: Path) -> None:
    store = _SlowStore()
    tier = FilledTier(tmp_path, store)
    await tier.lead()
    for number in range(400):
        await tier.copy(number * 10, number * 10 + 9)
    report, metadata = await rebuilt(store)
    assert report.segments == 400
    assert 32 < store.most_at_once <= 64
    assert max(store.pages) <= 1000
    assert len(store.pages) == 3
    assert (await view_in(metadata)).epochs == tier.manager.view(PARTITION).epochs
    assert report.store_id is None  # no store had claimed the tier
    assert await metadata.get(KEYS.store_key) is None


async def test_rebuild_that_a_store_failure_ended_is_continued_by_the_next_run(tmp_path: Path) -> None:
    store = _SlowStore()
    tier = FilledTier(tmp_path, store)
    await tier.lead()
    await tier.copy(0, 9)
    metadata = FaultyKeyValueStore(MemoryKeyValueStore())
    store.fails = True
    with pytest.raises(ExceptionGroup):
        await rebuilt(store, metadata)
    assert await metadata.get(KEYS.moving_key) is not None
    store.fails = False
    report, _ = await rebuilt(store, metadata)
    assert report.written == 1


async def test_rebuild_of_another_tier_does_not_continue_an_interrupted_rebuild(tier: FilledTier) -> None:
    await tier.copy(0, 9)
    metadata = FaultyKeyValueStore(MemoryKeyValueStore())
    metadata.apply_faults.extend([None, Fault.FAIL])
    with pytest.raises(ExceptionGroup):
        await rebuilt(tier.store, metadata)
    await tier.store.delete(OBJECT_KEYS.tier_identity)
    with pytest.raises(MetadataFillingRefusedError, match="interrupted rebuild"):
        await rebuilt(tier.store, metadata)


events = st.lists(
    st.tuples(
        st.sampled_from(["copy", "copy", "copy", "unfinished", "committed", "lead", "give up", "delete", "epoch"]),
        st.integers(1, 8),
    ),
    max_size=25,
)


async def _play(tier: FilledTier, history: list[tuple[str, int]]) -> set[UUID]:
    """Play the life of a leader; return the copies that are whole in the bucket, but were never finished."""
    end, epoch, epochs = 0, 0, {0: 0}
    finished: list[RemoteLogSegmentMetadata] = []
    given_up: list[RemoteLogSegmentMetadata] = []
    committed: set[UUID] = set()
    for event, number in history:
        match event:
            case "copy" | "unfinished" | "committed":
                through = {"copy": "finished", "unfinished": "started", "committed": "manifest"}[event]
                metadata = await tier.copy(end, end + number, epochs, through=through)
                if event == "copy":
                    finished.append(metadata)
                    end, epochs = end + number + 1, {epoch: end + number + 1}
                elif event == "committed":
                    committed.add(metadata.segment.id)
            case "lead":
                await tier.lead(later=1)
            case "epoch":
                epoch += 1
                epochs = {**{e: s for e, s in epochs.items() if s < end}, epoch: end}
            case "give up" if finished:
                metadata = finished.pop(0)
                await tier.give_up(metadata)
                given_up.append(metadata)
            case "delete" if given_up:
                metadata = given_up.pop(0)
                await tier.storage.delete_log_segment_data(metadata)
                await tier.step(metadata, RemoteLogSegmentState.DELETE_SEGMENT_FINISHED)
    return committed


@settings(max_examples=60, deadline=None)
@given(events)
def test_rebuild_after_any_history_restores_its_rows(history: list[tuple[str, int]]) -> None:
    async def played(folder: Path) -> None:
        tier = FilledTier(folder)
        await tier.claim()
        await tier.lead()
        committed = await _play(tier, history)
        report, store = await rebuilt(tier.store)
        original, view = tier.manager.view(PARTITION), await view_in(store)
        lost = {
            id_ for id_, m in original.segments.items() if m.state is not RemoteLogSegmentState.COPY_SEGMENT_STARTED
        }
        assert set(view.segments) == lost | committed
        for id_ in lost:
            expected = replace(original.segments[id_], event_timestamp_ms=0)
            assert replace(view.segments[id_], event_timestamp_ms=0) == expected
        if not committed:
            for epoch, state in original.epochs.items():
                found = view.epochs.get(epoch)
                assert (found.ids if found else ()) == state.ids
        for epoch in original.epochs:
            for offset in range(250):
                was = original.segment_for(epoch, offset)
                now = view.segment_for(epoch, offset)
                assert was is None or now is not None
        assert all(problem.severity is not RebuildSeverity.DAMAGE for problem in report.problems)
        again, _ = await rebuilt(tier.store, store)
        assert again.differing == []

    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(played(Path(folder)))
