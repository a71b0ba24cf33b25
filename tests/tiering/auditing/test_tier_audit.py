"""Verification of a bucket with each kind of damage."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from uuid import UUID, uuid4

import pytest

from tests.fakes.log_dirs import LogDirWriter, SegmentShape
from tests.fakes.memory_object_store import MemoryObjectStore
from tests.fakes.transforms import TRANSFORM_NAMES, ring, transform_named
from tests.tiering.auditing.audited import KEYS, OBJECT_KEYS, Audited
from tests.tiering.interruption import InterruptedObjectStore, Interruption
from tests.tiering.setups import BROKER_ID, CLUSTER_ID
from tierd.errors import RemoteStorageError
from tierd.metadata import remember_tier, store_identity
from tierd.model import (
    ByteRange,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
    SoftDelete,
    TopicIdPartition,
    uuid_to_text,
)
from tierd.remote import (
    MANIFEST,
    TOMBSTONE,
    ObjectInfo,
    ObjectStore,
    SegmentStorage,
    Tombstone,
    Transform,
    UnfinishedUpload,
    claim_tier,
)
from tierd.tiering.auditing.tier_findings import Severity

FINISHED = RemoteLogSegmentState.COPY_SEGMENT_FINISHED
DELETING = RemoteLogSegmentState.DELETE_SEGMENT_STARTED


@pytest.fixture
async def setup(tmp_path: Path) -> Audited:
    setup = Audited(tmp_path)
    await setup.session.copy_once()
    return setup


async def test_a_sound_tier_has_no_findings(setup: Audited) -> None:
    assert await setup.findings(deep=True) == []


@pytest.mark.parametrize("suffix", [".log", ".indexes", ".manifest"])
async def test_a_missing_object_is_found(setup: Audited, suffix: str) -> None:
    first, _ = await setup.objects(suffix)
    await setup.tier.store.delete(first.key)
    (finding,) = await setup.findings(deep=True)
    assert (finding.kind, finding.severity) == ("missing-object", Severity.ERROR)
    assert suffix in finding.what


async def test_object_of_an_unknown_segment_is_an_orphan(setup: Audited) -> None:
    first, _ = await setup.objects(".log")
    orphan = first.key.replace(first.key[-26:-4], "AAAAAAAAAAAAAAAAAAAAAA")
    await setup.tier.store.put(orphan, b"left behind")
    (finding,) = await setup.findings()
    assert (finding.kind, finding.where) == ("orphan", orphan)


async def test_changed_byte_of_the_log_is_found_by_the_checksum_of_the_store_and_by_a_deep_verify(
    setup: Audited,
) -> None:
    await setup.spoil(".log")
    assert await setup.kinds() == ["wrong-checksum"]
    assert await setup.kinds(deep=True) == ["wrong-checksum", "damaged-log"]


async def test_a_changed_byte_of_the_indexes_is_found(setup: Audited) -> None:
    await setup.spoil(".indexes")
    assert await setup.kinds(deep=True) == ["damaged-index"]


async def test_a_log_of_another_size_is_found(setup: Audited) -> None:
    first, _ = await setup.objects(".log")
    await setup.tier.store.delete(first.key)
    await setup.tier.store.put(first.key, b"short")
    assert await setup.kinds() == ["wrong-size"]


async def test_a_manifest_that_is_no_json_is_found(setup: Audited) -> None:
    first, _ = await setup.objects(".manifest")
    await setup.tier.store.delete(first.key)
    await setup.tier.store.put(first.key, b"{")
    assert await setup.kinds() == ["damaged-manifest"]


@pytest.mark.parametrize(
    ("content", "what"),
    [(b" " * (MANIFEST.max_bytes + 1), "no manifest has more than"), (b'{"a":' * 3_000, "nested too deeply")],
)
async def test_oversized_or_deep_manifest_is_found_and_the_other_segments_are_verified(
    setup: Audited, content: bytes, what: str
) -> None:
    first, second = await setup.objects(".manifest")
    await setup.tier.store.delete(first.key)
    await setup.tier.store.put(first.key, content)
    await setup.tier.store.delete(second.key)
    found = await setup.findings(deep=True)
    assert [finding.kind for finding in found] == ["damaged-manifest", "missing-object"]
    assert what in found[0].what
    assert first.key in found[0].what


async def test_oversized_or_deep_tombstone_and_identity_are_found(setup: Audited) -> None:
    row = await soft_deleted(setup)
    for content in (b" " * (TOMBSTONE.max_bytes + 1), b'{"a":' * 3_000):
        for key in (OBJECT_KEYS.segment(row, ".tombstone"), OBJECT_KEYS.tier_identity):
            await setup.tier.store.delete(key)
            await setup.tier.store.put(key, content)
        kinds = {finding.kind for finding in await setup.findings()}
        assert kinds == {"damaged-tombstone", "damaged-tier-identity"}


async def test_a_manifest_of_another_segment_is_found(setup: Audited) -> None:
    first, second = await setup.objects(".manifest")
    content = await setup.tier.store.get(second.key)
    await setup.tier.store.delete(first.key)
    await setup.tier.store.put(first.key, content)
    (finding,) = await setup.findings()
    assert finding.kind == "damaged-manifest"
    assert "describes another segment" in finding.what


async def test_a_manifest_that_disagrees_with_the_metadata_is_found(setup: Audited) -> None:
    first, _ = await setup.objects(".manifest")
    manifest = json.loads(await setup.tier.store.get(first.key))
    manifest["max_timestamp_ms"] += 1
    manifest["segment_leader_epochs"] = [[3, 0]]
    await setup.tier.store.delete(first.key)
    await setup.tier.store.put(first.key, json.dumps(manifest).encode())
    findings = await setup.findings()
    assert {finding.kind for finding in findings} == {"manifest-disagrees"}
    assert [finding.what.split()[0] for finding in findings] == ["max_timestamp_ms", "segment_leader_epochs"]


# ------------------------------------------------------------ transformed segments


async def transformed(tmp_path: Path, name: str) -> Audited:
    setup = Audited(tmp_path, transform_named(name))
    await setup.session.copy_once()
    return setup


@pytest.mark.parametrize("name", TRANSFORM_NAMES)
async def test_sound_tier_has_no_findings_with_any_transform(tmp_path: Path, name: str) -> None:
    setup = await transformed(tmp_path, name)
    assert await setup.findings(deep=True) == []


@pytest.mark.parametrize("name", ["zstd", "aes", "zstd+aes"])
async def test_damage_to_a_transformed_tier_is_found(tmp_path: Path, name: str) -> None:
    setup = await transformed(tmp_path, name)
    await setup.spoil(".log")
    assert await setup.kinds() == []
    assert await setup.kinds(deep=True) == ["damaged-log"]
    first, _ = await setup.objects(".log")
    content = await setup.tier.store.get(first.key)
    await setup.tier.store.replace(first.key, content + b"?", previous=content)
    assert await setup.kinds() == ["wrong-size"]


async def test_a_changed_field_of_an_encrypted_manifest_is_found(tmp_path: Path) -> None:
    setup = await transformed(tmp_path, "aes")
    first, _ = await setup.objects(".manifest")
    content = await setup.tier.store.get(first.key)
    fields = json.loads(content) | {"leader_epoch": 77}
    await setup.tier.store.replace(first.key, json.dumps(fields).encode(), previous=content)
    (finding,) = await setup.findings()
    assert finding.kind == "damaged-manifest"
    assert "was changed" in finding.what


async def test_missing_key_is_a_finding_for_each_segment(tmp_path: Path) -> None:
    setup = await transformed(tmp_path, "aes")
    setup.transform = Transform(encrypts=True, ring=ring("new", "new"))
    findings = await setup.findings(deep=True)
    assert [finding.kind for finding in findings] == ["missing-key", "missing-key"]
    assert "remote.encryption.keys" in findings[0].remedy


# ------------------------------------------------------------ running copies and deletions


async def started(setup: Audited, *, session_is_ours: bool = True) -> RemoteLogSegmentMetadata:
    """Add the row of a copy that has begun, with the first of its objects."""
    session = setup.tier.session()
    await session.metadata.become_leader(setup.partition, 0)
    template = (await setup.rows())[-1]
    row = replace(
        template,
        segment=replace(template.segment, id=uuid4()),
        state=RemoteLogSegmentState.COPY_SEGMENT_STARTED,
        event_timestamp_ms=setup.tier.clock.now_ms(),
        session_id=session.session_id,
    )
    await session.metadata.add(row)
    name = f"{row.start_offset:020d}-{uuid_to_text(row.segment.id)}.log"
    await setup.tier.store.put(f"{OBJECT_KEYS.partition_prefix(setup.partition)}{name}", b"half")
    if not session_is_ours:
        await setup.tier.session().metadata.become_leader(setup.partition, 0)
    return row


async def test_a_copy_of_the_present_leader_is_no_finding_until_its_deadline(setup: Audited) -> None:
    await started(setup)
    assert await setup.findings(grace_s=0) == []
    setup.tier.clock.advance(900 + 59)
    assert await setup.findings(grace_s=0) == []
    setup.tier.clock.advance(2)
    assert [finding.kind for finding in await setup.findings(grace_s=0)] == ["unfinished"]


async def test_a_copy_of_a_dead_process_is_found_after_the_grace(setup: Audited) -> None:
    await started(setup, session_is_ours=False)
    setup.tier.clock.advance(599)
    assert await setup.findings() == []
    setup.tier.clock.advance(1)
    (finding,) = await setup.findings()
    assert (finding.kind, finding.severity) == ("unfinished", Severity.WARNING)
    assert "COPY_SEGMENT_STARTED for 600 s" in finding.what


async def test_copy_with_all_of_its_objects_is_found_although_its_writer_owns_the_partition(setup: Audited) -> None:
    row = await started(setup)
    for suffix in (".indexes", ".manifest"):
        await setup.tier.store.put(OBJECT_KEYS.segment(row, suffix), b"whole")
    setup.tier.clock.advance(599)
    assert await setup.findings() == []
    setup.tier.clock.advance(1)
    (finding,) = await setup.findings()
    assert (finding.kind, finding.where) == ("unfinished", str(row.segment))
    assert "all of its objects are there" in finding.what


async def soft_deleted(setup: Audited, *, grace_s: int = 900, with_tombstone: bool = True) -> RemoteLogSegmentMetadata:
    session = setup.tier.session()
    await session.metadata.become_leader(setup.partition, 0)
    row, now_ms = (await setup.rows())[0], setup.tier.clock.now_ms()
    await session.metadata.advance_log_start_offset(setup.partition, row.end_offset + 1)
    soft = SoftDelete("retention_time", now_ms + 1000 * grace_s)
    update = row.advance(DELETING, event_timestamp_ms=now_ms, broker_id=BROKER_ID, soft_delete=soft)
    await session.metadata.update(update)
    if with_tombstone:
        tombstone = Tombstone(soft.reason, now_ms, soft.delete_after_ms, BROKER_ID)
        await setup.storage().write_tombstone(row, tombstone)
    return row.updated(update)


async def test_overdue_deletion_is_a_finding_and_a_segment_in_its_grace_is_not(setup: Audited) -> None:
    await soft_deleted(setup, grace_s=900)
    setup.tier.clock.advance(900 + 599)
    assert await setup.findings(deep=True) == []
    setup.tier.clock.advance(1)
    (finding,) = await setup.findings()
    assert finding.kind == "unfinished"
    assert "its grace has been over for 600 s" in finding.what


async def test_segment_that_the_store_refuses_to_delete_is_found_as_retained(setup: Audited) -> None:
    row = await soft_deleted(setup, grace_s=0)
    setup.tier.clock.advance(600)
    (report,) = await setup.reports(retained=row.segment.id)
    assert [finding.kind for finding in report.findings] == ["retained"]


async def test_a_deletion_without_a_tombstone_is_found_after_the_grace(setup: Audited) -> None:
    await soft_deleted(setup, grace_s=3600, with_tombstone=False)
    assert await setup.kinds() == []
    setup.tier.clock.advance(600)
    assert await setup.kinds() == ["missing-tombstone"]


async def test_a_tombstone_of_a_readable_segment_is_found(setup: Audited) -> None:
    row = (await setup.rows())[0]
    await setup.storage().write_tombstone(row, Tombstone("retention_time", 1, 2, BROKER_ID))
    (finding,) = await setup.findings()
    assert (finding.kind, finding.where[-10:]) == ("stray-tombstone", ".tombstone")


@pytest.mark.parametrize(
    ("content", "kind"), [(b"?", "damaged-tombstone"), (b'{"format_version": 2}', "unknown-format")]
)
async def test_a_tombstone_that_cannot_be_read_is_found(setup: Audited, content: bytes, kind: str) -> None:
    await soft_deleted(setup)
    (tombstone,) = await setup.objects(".tombstone")
    await setup.overwrite(tombstone.key, content)
    assert await setup.kinds() == [kind]


# ------------------------------------------------------------ manifests


async def change_manifest(setup: Audited, **fields: object) -> None:
    first, _ = await setup.objects(".manifest")
    manifest = json.loads(await setup.tier.store.get(first.key)) | fields
    await setup.overwrite(first.key, json.dumps(manifest).encode())


async def test_manifest_of_an_unknown_format_is_found_and_the_other_segments_are_verified(setup: Audited) -> None:
    await change_manifest(setup, format_version=2)
    await setup.tier.store.delete((await setup.objects(".log"))[1].key)
    assert await setup.kinds() == ["unknown-format", "missing-object"]


async def test_a_manifest_of_another_cluster_is_found(setup: Audited) -> None:
    await change_manifest(setup, cluster_id="somebody-else")
    (finding,) = await setup.findings()
    assert (finding.kind, finding.what.split()[0]) == ("manifest-disagrees", "cluster_id")


# ------------------------------------------------------------ the whole bucket


async def test_objects_of_unknown_partitions_and_incarnations_are_orphans(setup: Audited) -> None:
    first, _ = await setup.objects(".log")
    unknown = [
        first.key.replace("orders-", "aaa-"),
        first.key.replace("orders-", "zzz-"),
        first.key.replace(uuid_to_text(setup.partition.topic_id), uuid_to_text(UUID(int=5))),
        first.key.replace("/0/", "/17/"),
    ]
    for key in unknown:
        await setup.tier.store.put(key, b"left behind")
    findings = await setup.findings()
    assert {finding.kind for finding in findings} == {"orphan"}
    assert sorted(finding.where for finding in findings) == sorted(unknown)


async def test_object_that_belongs_to_no_segment_is_foreign_once_it_is_old(setup: Audited) -> None:
    await setup.tier.store.put(f"{OBJECT_KEYS.root}notes.txt", b"mine")
    assert await setup.kinds() == []
    setup.tier.clock.advance(600)
    assert await setup.kinds() == ["foreign-object"]


async def test_report_of_an_erasure_is_no_foreign_object(setup: Audited) -> None:
    await setup.tier.store.put(OBJECT_KEYS.erasure_report(UUID(int=5)), b"{}")
    setup.tier.clock.advance(600)
    assert await setup.kinds() == []


async def test_verify_can_be_limited_to_one_partition(setup: Audited) -> None:
    await setup.lose(".log")
    other = replace(setup.partition, partition=9)
    await setup.tier.store.put(f"{OBJECT_KEYS.partition_prefix(other)}{0:020d}-{'A' * 22}.log", b"left behind")
    reports = await setup.reports(only=[setup.partition])
    assert [finding.kind for report in reports for finding in report.findings] == ["missing-object"]
    assert await setup.reports(only=[TopicIdPartition(UUID(int=5), "orders", 0)]) == []


async def test_segments_under_an_earlier_prefix_are_verified(tmp_path: Path) -> None:
    setup = Audited(tmp_path)
    old = SegmentStorage(setup.tier.store, cluster_id=CLUSTER_ID, broker_id=BROKER_ID, key_prefix="old")
    await setup.tier.session(storage=lambda _: old).copy_once()
    assert await setup.findings(deep=True) == []
    await setup.lose(".log")
    orphan = (await setup.objects(".log"))[0].key[:-26] + "A" * 22 + ".log"
    await setup.tier.store.put(orphan, b"left behind")
    assert sorted(await setup.kinds()) == ["missing-object", "orphan"]


class RefusingStore(MemoryObjectStore):
    """Store that refuses each call about one segment for good, as a file system does for a name that is too long."""

    refused = "no key contains this"

    async def head(self, key: str) -> ObjectInfo:
        self._refuse(key)
        return await super().head(key)

    async def get(self, key: str, byte_range: ByteRange | None = None) -> bytes:
        self._refuse(key)
        return await super().get(key, byte_range)

    def _refuse(self, key: str) -> None:
        if self.refused in key:
            raise RemoteStorageError(f"{key}: it is too long", remedy="use a shorter key")


async def test_segment_that_the_store_refuses_to_read_is_a_finding_and_the_others_are_verified(tmp_path: Path) -> None:
    setup = Audited(tmp_path, rolled_segments=3, store=RefusingStore)
    await setup.session.copy_once()
    first, second, third = await setup.objects(".log")
    store = setup.tier.store
    assert isinstance(store, RefusingStore)
    store.refused = first.key.removesuffix(".log")
    await store.delete(third.key)
    findings = await setup.findings()
    assert [finding.kind for finding in findings] == ["unreadable-segment", "missing-object"]
    assert findings[0].severity is Severity.ERROR
    assert second.key not in str(findings)


async def test_objects_of_a_long_topic_name_are_verified_under_old_and_new_keys(tmp_path: Path) -> None:
    setup = Audited(tmp_path, topic="t" * 249, rolled_segments=3)
    await setup.session.copy_once()
    now, before = OBJECT_KEYS.forms("t" * 249)
    first, *_ = await setup.rows()
    for suffix in (".log", ".indexes", ".manifest"):
        content = await setup.tier.store.get(now.segment(first, suffix))
        await setup.tier.store.delete(now.segment(first, suffix))
        await setup.tier.store.put(before.segment(first, suffix), content)
    await setup.replace_row(replace(first, custom_metadata=b"\x01"))
    assert await setup.findings(deep=True) == []
    assert await setup.reports(only=[setup.partition]) == []

    orphan = before.segment(first, ".log").replace(uuid_to_text(first.segment.id), "A" * 22)
    await setup.tier.store.put(orphan, b"left behind")
    await setup.tier.store.delete(before.segment(first, ".indexes"))
    await setup.tier.store.delete(now.segment((await setup.rows())[1], ".log"))
    for reports in (await setup.reports(), await setup.reports(only=[setup.partition])):
        kinds = [finding.kind for report in reports for finding in report.findings]
        assert sorted(kinds) == ["missing-object", "missing-object", "orphan"]


async def test_identity_of_the_tier_in_the_bucket_is_verified(setup: Audited) -> None:
    ours = await store_identity(setup.tier.rows, KEYS, new_id=uuid4)
    await remember_tier(setup.tier.rows, KEYS, key_prefix="")
    assert await setup.kinds() == ["missing-tier-identity"]
    await claim_tier(setup.tier.store, key_prefix="", cluster_id=CLUSTER_ID, store_id=ours)
    assert await setup.kinds() == []
    await setup.overwrite(OBJECT_KEYS.tier_identity, json.dumps({"store_id": str(uuid4())}).encode())
    await setup.tier.store.put(f"{OBJECT_KEYS.root}theirs.txt", b"not ours to judge")
    assert await setup.kinds() == ["foreign-tier"]
    await setup.overwrite(OBJECT_KEYS.tier_identity, b"{")
    assert await setup.kinds() == ["damaged-tier-identity"]


class UploadingStore(MemoryObjectStore):
    """Store with unfinished uploads."""

    uploads: tuple[UnfinishedUpload, ...] = ()

    async def list_unfinished_uploads(self, prefix: str) -> list[UnfinishedUpload]:
        return list(self.uploads)

    async def abort_upload(self, upload: UnfinishedUpload) -> None:
        self.uploads = tuple(each for each in self.uploads if each != upload)


async def test_abandoned_upload_is_found_after_its_grace(tmp_path: Path) -> None:
    setup = Audited(tmp_path, store=UploadingStore)
    store = setup.tier.store
    assert isinstance(store, UploadingStore)
    await setup.session.copy_once()
    row = await started(setup)
    prefix = OBJECT_KEYS.partition_prefix(setup.partition)
    mine = f"{prefix}{row.start_offset:020d}-{uuid_to_text(row.segment.id)}.log"
    nobodys = f"{prefix}{0:020d}-{'A' * 22}.log"
    begun_ms = setup.tier.clock.now_ms()
    store.uploads = (UnfinishedUpload(mine, "1", begun_ms), UnfinishedUpload(nobodys, "2", begun_ms))
    setup.tier.clock.advance(599)
    assert await setup.findings() == []
    setup.tier.clock.advance(1)
    (finding,) = await setup.findings()
    assert (finding.kind, finding.where) == ("unfinished-upload", nobodys)


async def test_upload_of_the_catalogue_is_no_finding_before_its_deadline(tmp_path: Path) -> None:
    setup = Audited(tmp_path, store=UploadingStore)
    store = setup.tier.store
    assert isinstance(store, UploadingStore)
    await setup.session.copy_once()
    key = f"{OBJECT_KEYS.root}catalogue/topics/orders.json"
    store.uploads = (UnfinishedUpload(key, "1", setup.tier.clock.now_ms()),)
    assert await setup.findings(grace_s=0) == []
    setup.tier.clock.advance(900)
    (finding,) = await setup.findings(grace_s=0)
    assert (finding.kind, finding.where) == ("unfinished-upload", key)


# ------------------------------------------------------------ no false alarms


class StaleListing(MemoryObjectStore):
    """Store that lists the objects of the moment in which it was frozen."""

    frozen: list[ObjectInfo] | None = None

    async def freeze(self) -> None:
        self.frozen = await super().list_objects("")

    async def list_objects(self, prefix: str, *, start_after: str = "", limit: int | None = None) -> list[ObjectInfo]:
        if self.frozen is None:
            return await super().list_objects(prefix, start_after=start_after, limit=limit)
        found = [info for info in self.frozen if info.key.startswith(prefix) and info.key > start_after]
        return found[:limit]


async def test_stale_listing_causes_no_finding(tmp_path: Path) -> None:
    setup = Audited(tmp_path, store=StaleListing)
    store = setup.tier.store
    assert isinstance(store, StaleListing)
    await store.freeze()
    await setup.session.copy_once()  # the listing lacks all of these objects
    assert await setup.findings(deep=True) == []
    store.frozen = None
    await store.freeze()
    row = await soft_deleted(setup, grace_s=0)
    await setup.storage().delete_log_segment_data(row)
    session = setup.tier.session()
    await session.metadata.become_leader(setup.partition, 0)
    gone = RemoteLogSegmentState.DELETE_SEGMENT_FINISHED
    await session.metadata.update(row.advance(gone, event_timestamp_ms=1, broker_id=BROKER_ID))
    assert await setup.findings(deep=True) == []  # the listing still has the deleted objects


class BusyStore(InterruptedObjectStore):
    """Store in which another change happens during a call."""

    def __init__(self, inner: ObjectStore, event: Callable[[], Awaitable[object]]) -> None:
        super().__init__(inner, Interruption(at=None))
        self._event: Callable[[], Awaitable[object]] | None = event

    async def list_objects(self, prefix: str, *, start_after: str = "", limit: int | None = None) -> list[ObjectInfo]:
        found = await super().list_objects(prefix, start_after=start_after, limit=limit)
        if self._event is not None and found:
            event, self._event = self._event, None
            await event()
        return found


async def test_deletion_during_verify_causes_no_finding(setup: Audited) -> None:
    async def delete() -> None:
        row = await soft_deleted(setup, grace_s=0)
        await setup.storage().delete_log_segment_data(row)

    assert await setup.reports(store=BusyStore(setup.tier.store, delete), deep=True) == []


async def test_copies_during_verify_cause_no_finding(tmp_path: Path) -> None:
    setup = Audited(tmp_path)
    log_dir = LogDirWriter(tmp_path / "busy")
    setup.tier.log_dirs.append(log_dir.path)
    writers = [log_dir.add_partition("busy", number) for number in range(8)]
    for writer in writers:
        writer.fill(rolled_segments=8, shape=SegmentShape())
    log_dir.write_checkpoints()
    session = setup.tier.session()
    ended = asyncio.Event()

    async def copy() -> None:
        await session.copy_once()
        ended.set()

    rounds = 0
    async with asyncio.TaskGroup() as group:
        group.create_task(copy())
        while not ended.is_set():
            assert await setup.findings(deep=rounds % 2 == 0, grace_s=0) == []
            rounds += 1
    assert rounds > 1
    assert await setup.findings(deep=True, grace_s=0) == []
    assert len(await setup.objects(".manifest")) == 2 + 8 * 8
