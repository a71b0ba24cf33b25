"""Encrypted tier whose bucket has objects that no holder of its key ring wrote."""

import asyncio
import base64
import functools
import json
import tempfile
import threading
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.fakes.memory_object_store import MemoryObjectStore
from tests.fakes.transforms import KEY_SEED, transform_named
from tests.tiering.rebuilding.encrypted_tier import FINISHED, EncryptedTier
from tests.tiering.rebuilding.intruder import FORGED
from tests.tiering.rebuilding.tier import (
    CLUSTER_ID,
    CONTENT,
    OBJECT_KEYS,
    PARTITION,
    PREFIX,
    FilledTier,
    rebuild_of,
    view_in,
)
from tierd.errors import RemoteAccessError
from tierd.metadata import MemoryKeyValueStore, PartitionView, RebuildSeverity, StoreFilling
from tierd.model import (
    ByteRange,
    EpochEntry,
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
    SoftDelete,
    TopicIdPartition,
    uuid_to_text,
)
from tierd.remote import TOMBSTONE, LogStartRecord, SegmentStorage, Tombstone, Transform
from tierd.remote.transform.transform import PLAIN
from tierd.tiering import RebuildReport

DELETE_STARTED = RemoteLogSegmentState.DELETE_SEGMENT_STARTED
GRACE_ENDS_MS = 2_000_000_000_000


@pytest.fixture
async def tier(tmp_path: Path) -> EncryptedTier:
    tier = EncryptedTier(tmp_path)
    await tier.copy()
    return tier


async def test_forged_segments_and_tombstones_are_neither_served_nor_obeyed_after_a_rebuild(
    tier: EncryptedTier,
) -> None:
    values, objects = await tier.values(), {info.key for info in await tier.tier.store.list_objects("")}
    await tier.intruder.tombstones()
    await tier.intruder.segments(records=16, replaces=[uuid_to_text(id_) for id_ in tier.ids])
    report = await tier.rebuilt()
    assert await tier.values() == values
    assert FORGED not in (await tier.values()).values()
    view = await tier.view()
    assert {metadata.segment.id for metadata in view.list()} == set(tier.ids)
    assert all(metadata.state is FINISHED for metadata in view.list())
    conflicts = [problem for problem in report.problems if problem.severity is RebuildSeverity.CONFLICT]
    assert [problem.kind for problem in conflicts] == ["unauthenticated"] * 3
    assert "unauthenticated" in await tier.kinds()
    await tier.expire()
    assert objects <= {info.key for info in await tier.tier.store.list_objects("")}


def storage_of(store: MemoryObjectStore, transform: Transform) -> SegmentStorage:
    return SegmentStorage(store, cluster_id=CLUSTER_ID, broker_id=1, key_prefix=PREFIX, transform=transform)


class MixedTier(FilledTier):
    """Segments through a storage with a key ring, and through one without."""

    def __init__(self, folder: Path, objects: MemoryObjectStore | None = None) -> None:
        self.objects = objects or MemoryObjectStore()
        super().__init__(folder, self.objects)
        self.plain = storage_of(self.objects, PLAIN)
        self.encrypted = self.storage = storage_of(self.objects, transform_named("aes"))

    async def replacing(self, storage: SegmentStorage, *inputs: RemoteLogSegmentMetadata) -> RemoteLogSegmentMetadata:
        """Commit an output of a compaction in the bucket; its rows do not matter to a rebuild."""
        begun = await self.copy(inputs[0].start_offset, inputs[-1].end_offset, through="started", storage=storage)
        begun = replace(begun, max_timestamp_ms=inputs[-1].end_offset)
        manifest = await storage.stage_log_segment_data(begun, self.data(), key_seed=KEY_SEED)
        output = manifest.completed(begun)
        await storage.commit_log_segment(output, manifest, [each.segment for each in inputs])
        return output

    async def rebuild(self, *, accepts_unauthenticated: bool = False) -> tuple[RebuildReport, PartitionView]:
        return await rebuilt_from(self.objects, accepts_unauthenticated=accepts_unauthenticated)


async def rebuilt_from(
    store: MemoryObjectStore, *, accepts_unauthenticated: bool = False, partition: TopicIdPartition = PARTITION
) -> tuple[RebuildReport, PartitionView]:
    rows = MemoryKeyValueStore()
    report = await rebuild_of(
        store,
        rows,
        storage=storage_of(store, transform_named("aes")),
        accepts_unauthenticated=accepts_unauthenticated,
        grace_ends_ms=GRACE_ENDS_MS,
    ).run()
    return report, await view_in(rows, partition)


@pytest.fixture
async def mixed(tmp_path: Path) -> MixedTier:
    tier = MixedTier(tmp_path)
    await tier.claim()
    await tier.lead()
    return tier


def kinds(report: RebuildReport) -> list[tuple[RebuildSeverity, str]]:
    return [(problem.severity, problem.kind) for problem in report.problems]


def states(view: PartitionView) -> dict[int, RemoteLogSegmentState]:
    return {metadata.start_offset: metadata.state for metadata in view.list()}


NOTE, CONFLICT = RebuildSeverity.NOTE, RebuildSeverity.CONFLICT


async def test_plain_segments_from_before_encryption_are_rebuilt_only_when_accepted(mixed: MixedTier) -> None:
    await mixed.copy(0, 9, storage=mixed.plain)
    await mixed.copy(10, 19)
    report, view = await mixed.rebuild()
    assert kinds(report) == [(CONFLICT, "unauthenticated")]
    assert "--accept-unauthenticated" not in report.problems[0].where
    assert states(view) == {10: FINISHED}
    report, view = await mixed.rebuild(accepts_unauthenticated=True)
    assert kinds(report) == [(NOTE, "unauthenticated")]
    assert report.is_sound
    assert states(view) == {0: FINISHED, 10: FINISHED}


async def test_rebuild_without_a_ring_requires_no_proof(mixed: MixedTier) -> None:
    mixed.storage = mixed.plain
    kept, gone = await mixed.copy(0, 9), await mixed.copy(10, 19)
    await mixed.give_up(gone)
    rows = MemoryKeyValueStore()
    report = await rebuild_of(mixed.objects, rows).run()
    assert report.problems == []
    assert states(await view_in(rows)) == {kept.start_offset: FINISHED, gone.start_offset: DELETE_STARTED}


async def test_plain_output_does_not_replace_encrypted_segments_even_when_accepted(mixed: MixedTier) -> None:
    inputs = [await mixed.copy(0, 9), await mixed.copy(10, 19)]
    await mixed.replacing(mixed.plain, *inputs)
    for accepts in (False, True):
        report, view = await mixed.rebuild(accepts_unauthenticated=accepts)
        assert {metadata.segment.id for metadata in view.list()} == {each.segment.id for each in inputs}
        assert set(states(view).values()) == {FINISHED}
        assert not report.is_sound
    assert (CONFLICT, "replaces authenticated") in kinds(report)


async def test_output_of_a_holder_of_the_ring_replaces_its_inputs(mixed: MixedTier) -> None:
    inputs = [await mixed.copy(0, 9), await mixed.copy(10, 19)]
    output = await mixed.replacing(mixed.encrypted, *inputs)
    report, view = await mixed.rebuild()
    assert report.problems == []
    assert {m.segment.id for m in view.list() if m.state is FINISHED} == {output.segment.id}
    assert {m.segment.id for m in view.list() if m.state is DELETE_STARTED} == {m.segment.id for m in inputs}


async def test_tombstone_and_log_start_of_an_earlier_version_count_only_when_accepted(
    mixed: MixedTier,
) -> None:
    """An earlier tierd wrote both without a tag, and encrypted segments in the present form."""
    gone = await mixed.copy(0, 9)
    await mixed.copy(10, 19)
    tombstone = Tombstone("retention-time", 1, 2, 1)
    await mixed.objects.put(OBJECT_KEYS.segment(gone, ".tombstone"), tombstone.encode())
    record = LogStartRecord(log_start_offset=10, leader_epoch=99, broker_id=2, written_ms=0)
    await mixed.objects.put(OBJECT_KEYS.log_start(PARTITION), record.encode(CLUSTER_ID, PARTITION))
    report, view = await mixed.rebuild()
    assert kinds(report) == [(CONFLICT, "unauthenticated")] * 2
    assert states(view) == {0: FINISHED, 10: FINISHED}
    assert view.log_start_offset is None
    assert view.claim is not None
    assert view.claim.leader_epoch == mixed.leader_epoch
    report, view = await mixed.rebuild(accepts_unauthenticated=True)
    assert kinds(report) == [(NOTE, "unauthenticated")] * 2
    assert states(view) == {0: DELETE_STARTED, 10: FINISHED}
    assert view.log_start_offset == 10


@pytest.mark.parametrize("accepts", [False, True])
async def test_encrypted_tier_of_a_version_without_tags_is_rebuilt_and_read(*, accepts: bool) -> None:
    """The file has the objects as the last version without tags wrote them."""
    store = MemoryObjectStore()
    written = json.loads(Path(__file__).with_name("tier_without_tags.json").read_text())
    for key, content in written.items():
        await store.put(key, base64.b64decode(content))
    report, view = await rebuilt_from(store, accepts_unauthenticated=accepts)
    assert kinds(report) == [(NOTE if accepts else CONFLICT, "unauthenticated")] * 2
    assert [problem.where.rpartition(".")[2] for problem in report.problems] == ["tombstone", "json"]
    found = sorted((m.start_offset, m.end_offset, m.state is FINISHED) for m in view.list())
    assert found == [(0, 9, False), (0, 19, True), (10, 19, False), (20, 29, not accepts), (30, 39, True)]
    assert view.log_start_offset == (3 if accepts else None)
    storage = storage_of(store, transform_named("aes"))
    for metadata in view.list():
        assert await storage.fetch_log_segment(metadata, ByteRange(0, 999)) == CONTENT


async def test_segment_stored_again_under_the_other_form_of_a_long_name_counts_once(mixed: MixedTier) -> None:
    partition = TopicIdPartition(UUID(int=9), "x" * 240, 0)
    await mixed.lead(partition)
    segment = await mixed.copy(0, 9, partition=partition)
    cut, spelled_out = OBJECT_KEYS.forms(partition.topic)
    for suffix in (".log", ".indexes", ".manifest"):
        content = await mixed.objects.get(cut.segment(segment, suffix))
        await mixed.objects.put(spelled_out.segment(segment, suffix), content)
    report, view = await rebuilt_from(mixed.objects, partition=partition)
    assert kinds(report) == [(NOTE, "stored twice")]
    assert [metadata.segment for metadata in view.list()] == [segment.segment]


@pytest.mark.parametrize("content", [b"{", b" " * (TOMBSTONE.max_bytes + 1), b"[" * 50_000])
async def test_object_in_the_place_of_a_tombstone_hides_no_segment(mixed: MixedTier, content: bytes) -> None:
    segment = await mixed.copy(0, 9)
    await mixed.objects.put(OBJECT_KEYS.segment(segment, ".tombstone"), content)
    report, view = await mixed.rebuild()
    assert kinds(report) == [(CONFLICT, "unauthenticated")]
    assert states(view) == {0: FINISHED}


@pytest.mark.parametrize("is_encrypted", [False, True])
async def test_grace_of_a_deletion_ends_no_earlier_than_a_full_grace_after_the_rebuild(
    mixed: MixedTier, *, is_encrypted: bool
) -> None:
    mixed.storage = mixed.encrypted if is_encrypted else mixed.plain
    early, late = await mixed.copy(0, 9), await mixed.copy(10, 19)
    for metadata, delete_after_ms in ((early, 1), (late, GRACE_ENDS_MS + 7)):
        await mixed.storage.write_tombstone(metadata, Tombstone("retention-time", 0, delete_after_ms, 1))
    _, view = await mixed.rebuild(accepts_unauthenticated=True)
    ends = {m.start_offset: m.soft_delete and m.soft_delete.delete_after_ms for m in view.list()}
    assert ends == {0: GRACE_ENDS_MS, 10: GRACE_ENDS_MS + 7}


async def test_deletion_replaces_a_forged_tombstone_with_its_own(mixed: MixedTier) -> None:
    segment = await mixed.copy(0, 9)
    forged = Tombstone("topic-deleted", 0, 1, 1).encode()
    await mixed.objects.put(OBJECT_KEYS.segment(segment, ".tombstone"), forged)
    await mixed.give_up(segment)
    report, view = await mixed.rebuild()
    assert report.problems == []
    found = view.segment(segment.segment.id)
    assert found is not None
    assert found.soft_delete == SoftDelete("retention-time", GRACE_ENDS_MS)


async def put_under_the_id_of(mixed: MixedTier, segment: RemoteLogSegmentMetadata, start: int) -> None:
    """Put a plain segment that begins at ``start`` and has the id of another one."""
    forged = replace(
        segment,
        start_offset=start,
        segment_leader_epochs=(EpochEntry(0, start),),
        custom_metadata=mixed.plain.custom_metadata(segment),
    )
    await mixed.plain.copy_log_segment_data(forged, mixed.data())


@pytest.mark.parametrize("start", [5, 15])
async def test_accepted_segment_with_the_id_of_a_proven_one_does_not_replace_it(mixed: MixedTier, start: int) -> None:
    segment = await mixed.copy(10, 19)
    await put_under_the_id_of(mixed, segment, start)
    report, view = await mixed.rebuild(accepts_unauthenticated=True)
    assert (CONFLICT, "stored twice") in kinds(report)
    assert states(view) == {10: FINISHED}


async def test_two_segments_with_one_id_are_a_conflict_without_a_ring(mixed: MixedTier) -> None:
    segment = await mixed.copy(10, 19, storage=mixed.plain)
    await put_under_the_id_of(mixed, segment, 5)
    report = await rebuild_of(mixed.objects, MemoryKeyValueStore()).run()
    assert kinds(report) == [(CONFLICT, "stored twice")]
    assert not report.is_sound


@pytest.mark.parametrize(("start", "end"), [(0, 9), (5, 19), (0, 19), (3, 4)])
async def test_accepted_segment_with_offsets_of_a_proven_one_is_reported(
    mixed: MixedTier, start: int, end: int
) -> None:
    """Readers may get its records in place of the proven ones: a person has to decide which are right."""
    await mixed.copy(0, 9)
    await mixed.lead(later=1)
    accepted = await mixed.copy(start, end, storage=mixed.plain)
    await mixed.copy(20, 29, storage=mixed.plain)
    report, view = await mixed.rebuild(accepts_unauthenticated=True)
    named = [problem.where for problem in report.problems if problem.kind == "overlaps authenticated"]
    assert named == [str(accepted.segment)]
    assert not report.is_sound
    assert len(view.segments) == 3


async def test_accepted_segment_that_a_proven_one_replaces_is_no_conflict(mixed: MixedTier) -> None:
    inputs = [await mixed.copy(0, 9, storage=mixed.plain), await mixed.copy(10, 19, storage=mixed.plain)]
    await mixed.replacing(mixed.encrypted, *inputs)
    report, _ = await mixed.rebuild(accepts_unauthenticated=True)
    assert report.is_sound


@pytest.mark.parametrize("name", ["a-name", "z-name"])
async def test_log_start_under_another_name_of_a_topic_does_not_stop_a_rebuild_without_a_ring(
    mixed: MixedTier, name: str
) -> None:
    mixed.storage = mixed.plain
    await mixed.copy(0, 9)
    other = replace(PARTITION, topic=name)
    record = LogStartRecord(log_start_offset=7, leader_epoch=99, broker_id=2, written_ms=0)
    await mixed.storage.log_starts.write(other, record, previous=None)
    rows = MemoryKeyValueStore()
    report = await rebuild_of(mixed.objects, rows).run()
    assert kinds(report) == [(CONFLICT, "two names")]
    view = await view_in(rows)
    assert states(view) == {0: FINISHED}
    assert view.row is not None
    assert (view.row.topic, view.log_start_offset) == (PARTITION.topic, None)


async def _copy_under_another_name(mixed: MixedTier) -> None:
    mixed.storage = mixed.plain
    await mixed.copy(0, 9)
    other = replace(PARTITION, topic="z-name")
    forged = replace(await mixed.copy(10, 19), segment=RemoteLogSegmentId(other, UUID(int=77)))
    await mixed.plain.copy_log_segment_data(forged, mixed.data())


async def test_segments_under_another_name_of_a_topic_do_not_stop_a_rebuild_without_a_ring(mixed: MixedTier) -> None:
    await _copy_under_another_name(mixed)
    rows = MemoryKeyValueStore()
    report = await rebuild_of(mixed.objects, rows).run()
    assert kinds(report) == [(CONFLICT, "two names")]
    assert states(await view_in(rows)) == {0: FINISHED, 10: FINISHED}


async def test_first_name_of_a_topic_in_the_bucket_is_kept_when_another_one_is_planned_sooner(
    mixed: MixedTier, monkeypatch: pytest.MonkeyPatch
) -> None:
    await _copy_under_another_name(mixed)
    rows, other_is_settled = MemoryKeyValueStore(), threading.Event()
    rebuild = rebuild_of(mixed.objects, rows)
    plan, settle = rebuild._plan, rebuild._settle

    def slow_plan(partition: TopicIdPartition, *args: object, **kwargs: object) -> object:
        if partition == PARTITION:
            other_is_settled.wait(0.3)  # in vain: the other one waits for this one's name
        return plan(partition, *args, **kwargs)  # type: ignore[arg-type]

    async def noted_settle(view: PartitionView, filling: StoreFilling) -> None:
        other_is_settled.set()
        await settle(view, filling)

    monkeypatch.setattr(rebuild, "_plan", slow_plan)
    monkeypatch.setattr(rebuild, "_settle", noted_settle)
    await rebuild.run()
    assert states(await view_in(rows)) == {0: FINISHED, 10: FINISHED}


class RefusingStore(MemoryObjectStore):
    """Store that refuses to read objects with a suffix, as S3 does for archived objects or a key of another account."""

    suffix = ""

    async def get(self, key: str, byte_range: ByteRange | None = None) -> bytes:
        if self.suffix and key.endswith(self.suffix):
            raise RemoteAccessError(f"get {key}: 403 InvalidObjectState")
        return await super().get(key, byte_range)


async def test_tombstone_that_the_store_refuses_to_read_hides_no_proven_segment(tmp_path: Path) -> None:
    mixed = MixedTier(tmp_path, RefusingStore())
    await mixed.claim()
    await mixed.lead()
    segment = await mixed.copy(0, 9)
    await mixed.objects.put(OBJECT_KEYS.segment(segment, ".tombstone"), b"archived")
    assert isinstance(mixed.objects, RefusingStore)
    mixed.objects.suffix = ".tombstone"
    report, view = await mixed.rebuild()
    assert kinds(report) == [(CONFLICT, "unauthenticated")]
    assert states(view) == {0: FINISHED}


@pytest.mark.parametrize("number", [-7, 2**63])
@pytest.mark.parametrize(
    ("suffix", "name"),
    [
        (".tombstone", "deleted_at_ms"),
        (".tombstone", "delete_after_ms"),
        (".tombstone", "broker_id"),
        (".manifest", "broker_id"),
        (".manifest", "copy_started_ms"),
        (".manifest", "max_timestamp_ms"),
        ("log-start.json", "broker_id"),
    ],
)
async def test_number_that_no_row_can_hold_makes_no_partition_unreadable(
    mixed: MixedTier, suffix: str, name: str, number: int
) -> None:
    """A rebuild without a key ring accepts the objects of the bucket; its rows must be readable nevertheless."""
    mixed.storage = mixed.plain
    kept, given_up = await mixed.copy(0, 9), await mixed.copy(10, 19)
    await mixed.give_up(given_up)
    record = LogStartRecord(log_start_offset=0, leader_epoch=5, broker_id=1, written_ms=0)
    await mixed.storage.log_starts.write(PARTITION, record, previous=None)
    key = next(i.key for i in reversed(await mixed.objects.list_objects("")) if i.key.endswith(suffix))
    content = await mixed.objects.get(key)
    forged = json.dumps(json.loads(content) | {name: number}).encode()
    await mixed.objects.replace(key, forged, previous=content)
    rows = MemoryKeyValueStore()
    report = await rebuild_of(mixed.objects, rows).run()
    view = await view_in(rows)
    assert states(view)[kept.start_offset] is FINISHED
    assert not report.is_sound


# ------------------------------------------------------------ any change that an intruder can make


@functools.cache
def sound_bucket() -> tuple[Mapping[str, bytes], PartitionView]:
    """Return the objects of a tier with all deciding objects, and the metadata that they give."""

    async def fill(folder: Path) -> tuple[Mapping[str, bytes], PartitionView]:
        tier = MixedTier(folder)
        await tier.claim()
        await tier.lead()
        inputs = [await tier.copy(0, 9), await tier.copy(10, 19)]
        gone = await tier.copy(20, 29)
        await tier.copy(30, 39)
        await tier.replacing(tier.encrypted, *inputs)
        await tier.give_up(gone)
        record = LogStartRecord(log_start_offset=3, leader_epoch=tier.leader_epoch, broker_id=1, written_ms=0)
        await tier.storage.log_starts.write(PARTITION, record, previous=None)
        report, view = await tier.rebuild()
        assert report.problems == []
        return {info.key: await tier.objects.get(info.key) for info in await tier.objects.list_objects("")}, view

    with tempfile.TemporaryDirectory() as folder:
        return asyncio.run(fill(Path(folder)))


def deciding() -> list[str]:
    """Return the keys of manifests, tombstones and the log start."""
    return [key for key in sound_bucket()[0] if key.endswith((".manifest", ".tombstone", "log-start.json"))]


_FIELDS: Mapping[str, list[object]] = {
    "replaces": [[], [uuid_to_text(UUID(int=n)) for n in range(1, 6)]],
    "delete_after_ms": [1],
    "reason": ["replaced"],
    "log_start_offset": [0, 39, 1000],
    "leader_epoch": [0, 99],
    "start_offset": [0, 40],
    "end_offset": [1000],
    "segment_id": [uuid_to_text(UUID(int=4))],
    "partition": [1],
    "encryption": [None],
    "authentication": [None, {"key_id": "old", "tag": "00"}],
    "max_timestamp_ms": [-1],
}

Mutation = tuple[str, int, int]

mutations = st.lists(
    st.tuples(
        st.sampled_from(["flip", "swap", "move", "strip", "edit", "tombstone"]),
        st.integers(0, 30),
        st.integers(0, 1 << 13),
    ),
    min_size=1,
    max_size=4,
)


def mutated(objects: dict[str, bytes], mutation: Mutation) -> None:
    """Put the changes of an intruder to the deciding objects; none is deleted, and any may be put over another."""
    what, which, how = mutation
    keys = [key for key in deciding() if key in objects]
    key, other = keys[which % len(keys)], keys[how % len(keys)]
    content = bytearray(objects[key])
    stems = sorted({each.rpartition(".")[0] for each in keys if each.endswith(".manifest")})
    stem, suffix = stems[how % len(stems)], key[key.rindex(".") :]
    match what:
        case "flip":
            content[how // 8 % len(content)] ^= 1 << how % 8
            objects[key] = bytes(content)
        case "swap":
            objects[key], objects[other] = objects[other], objects[key]
        case "move" if suffix != ".json":
            name = stem.rpartition("/")[2]
            places = [stem, stem.replace(name, f"{how:020d}{name[20:]}"), stem.replace("/0/", "/1/")]
            objects[places[how % 3] + suffix] = bytes(content)
        case "strip" | "edit":
            fields = _parsed(bytes(content))
            if what == "strip":
                fields = {name: value for name, value in fields.items() if name not in {"authentication", "encryption"}}
            else:
                names = [name for name in _FIELDS if name in fields]
                if names:
                    values = _FIELDS[names[how % len(names)]]
                    fields[names[how % len(names)]] = values[how // len(names) % len(values)]
            objects[key] = json.dumps(fields).encode()
        case "tombstone":
            objects[f"{stem}.tombstone"] = Tombstone("retention-time", 0, which, 1).encode()


def _parsed(content: bytes) -> dict[str, object]:
    try:
        fields = json.loads(content)
    except ValueError:
        return {}
    return fields if isinstance(fields, dict) else {}


def lasting(metadata: RemoteLogSegmentMetadata) -> RemoteLogSegmentMetadata:
    return replace(metadata, state=FINISHED, soft_delete=None, event_timestamp_ms=0, broker_id=0)


async def check_unbelieved(objects: Mapping[str, bytes]) -> None:
    sound, before = sound_bucket()
    store = MemoryObjectStore()
    for key, content in objects.items():
        await store.put(key, content)
    _, after = await rebuilt_from(store)
    assert {id_: lasting(m) for id_, m in after.segments.items()}.items() <= {
        id_: lasting(m) for id_, m in before.segments.items()
    }.items()
    deleting = {m.segment.id for m in after.list() if m.state is DELETE_STARTED}
    assert deleting <= {m.segment.id for m in before.list() if m.state is DELETE_STARTED}
    assert all(m.soft_delete and m.soft_delete.delete_after_ms >= GRACE_ENDS_MS for m in after.list() if m.soft_delete)
    assert after.log_start_offset in (before.log_start_offset, None)
    if after.claim is not None:
        assert before.claim is not None
        assert after.claim.leader_epoch <= before.claim.leader_epoch
    if all(objects[key] == content for key, content in sound.items()):
        assert after == before


@settings(max_examples=300, deadline=None)
@given(mutations)
@example([("tombstone", 1, n) for n in range(5)])
@example([("move", n, 9999) for n in range(7)])
def test_rebuild_from_changed_objects_adds_no_segment_and_no_deletion(changes: list[Mutation]) -> None:
    objects = dict(sound_bucket()[0])
    for change in changes:
        mutated(objects, change)
    asyncio.run(check_unbelieved(objects))
