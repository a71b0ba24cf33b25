"""Removal of old versions of the objects of a partition, and the versions that are kept."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fakes.memory_object_store import MemoryObjectStore
from tests.fakes.remote_segments import PARTITION
from tests.pipeline.erasing.lab import KEPT, SECRET, ErasureLab
from tests.services.s3 import S3Admin, S3Service
from tierd.errors import ObjectVersionsUnknownError
from tierd.model import RemoteLogSegmentId
from tierd.pipeline.erasing.erase_request import ErasePhase
from tierd.pipeline.erasing.versions import plan_versions
from tierd.remote import ObjectKeyFactory, ObjectVersion, UnfinishedUpload
from tierd.remote.backends.s3 import S3Bucket, S3Keys, S3ObjectStore

KEYS = ObjectKeyFactory("", "cluster")
SUFFIXES = (".log", ".indexes", ".manifest", ".tombstone")


@st.composite
def versions(draw: st.DrawFn) -> ObjectVersion:
    segment = RemoteLogSegmentId(PARTITION, UUID(int=draw(st.integers(1, 4))))
    is_marker = draw(st.booleans())
    return ObjectVersion(
        key=KEYS.object(segment, draw(st.sampled_from([0, 10, 20])), draw(st.sampled_from(SUFFIXES))),
        version_id=draw(st.text(max_size=3)),
        size_bytes=0 if is_marker else draw(st.integers(0, 99)),
        is_current=draw(st.booleans()),
        is_marker=is_marker,
    )


@given(st.lists(versions(), max_size=12), st.frozensets(st.integers(1, 4).map(lambda n: UUID(int=n))))
def test_readable_versions_are_not_removed(found: list[ObjectVersion], known: frozenset[UUID]) -> None:
    plan = plan_versions(found, keys=[KEYS], known=known, end_offset=20)
    for version in plan.old:
        parsed = KEYS.parse(version.key)
        assert parsed is not None
        assert not version.is_current or version.is_marker
        assert parsed.start_offset < 20
        assert version.key.endswith(".log") or parsed.segment_id not in known
    markers = [version.is_marker for version in plan.old]
    assert markers == sorted(markers), "a marker is removed after the versions that it hides"
    assert all(version.is_current and not version.is_marker for version in plan.orphans)


def test_objects_of_other_owners_are_ignored() -> None:
    other = [
        ObjectVersion(key=key, version_id="", size_bytes=1, is_current=False) for key in ("cluster/tierd.json", "x")
    ]
    assert plan_versions(other, keys=[KEYS], known=(), end_offset=20).looked_at == 0


class StoreWithoutVersions(MemoryObjectStore):
    """Store that cannot list versions."""

    async def list_versions(self, prefix: str) -> list[ObjectVersion]:
        raise ObjectVersionsUnknownError("no such call", remedy="look yourself")


async def test_store_without_version_listing_needs_an_attestation(tmp_path: Path) -> None:
    lab = ErasureLab(tmp_path, {"orders-0": KEPT}, store=StoreWithoutVersions())
    lab.fill("orders-0")
    await lab.copy()
    request = await lab.file("orders-0", at_once=True)
    await lab.run()
    waiting = await lab.keeper.step(request.id)
    assert waiting.phase is ErasePhase.VERSIONS
    assert waiting.problem == "older versions cannot be verified: no such call; look yourself"
    done = await lab.keeper.attest(request.id, by="auditor", statement="versioning was never on")
    assert done.phase is ErasePhase.DONE
    assert done.versions is not None
    assert (done.versions.attested_by, done.versions.statement) == ("auditor", "versioning was never on")


class LeftUploads(MemoryObjectStore):
    """Store with unfinished uploads."""

    def __init__(self) -> None:
        super().__init__()
        self.uploads: list[UnfinishedUpload] = []

    async def list_unfinished_uploads(self, prefix: str) -> list[UnfinishedUpload]:
        return [upload for upload in self.uploads if upload.key.startswith(prefix)]

    async def abort_upload(self, upload: UnfinishedUpload) -> None:
        self.uploads.remove(upload)


async def test_request_waits_until_unfinished_uploads_are_aborted(tmp_path: Path) -> None:
    store = LeftUploads()
    lab = ErasureLab(tmp_path, {"orders-0": KEPT}, store=store)
    lab.fill("orders-0")
    await lab.copy()
    (held,) = await lab.holders()
    key = f"{held.rpartition('/')[0]}/00000000000000000003-AAAAAAAAAAAAAAAAAAAAAQ.log"
    store.uploads = [UnfinishedUpload(key, "1", lab.tier.clock.now_ms())]
    request = await lab.file("orders-0", at_once=True)
    await lab.run()
    waiting = await lab.keeper.step(request.id)
    assert (waiting.phase, len(store.uploads)) == (ErasePhase.VERSIONS, 1)
    assert "unfinished uploads may hold a key" in waiting.problem
    lab.tier.clock.advance(3601)
    assert (await lab.keeper.step(request.id)).phase is ErasePhase.DONE
    assert store.uploads == []


@pytest.mark.service("s3")
async def test_no_version_in_a_real_bucket_has_the_key_after_an_erasure(
    tmp_path: Path, s3_service: S3Service, s3_admin: S3Admin
) -> None:
    bucket = s3_admin.create_versioned_bucket()
    async with lab_in_a_bucket(tmp_path, s3_service, bucket) as lab:
        request = await lab.file("orders-0", at_once=True)
        await lab.run()
        before = s3_admin.read_versions(bucket)
        assert [SECRET in content for content in before.values()].count(True) == 1
        done = await lab.keeper.step(request.id)
        assert done.phase is ErasePhase.DONE, done.problem
        assert done.versions is not None
        assert done.versions.deleted >= 3
        after = s3_admin.read_versions(bucket)
        assert not any(SECRET in content for content in after.values())
        untouched = {key: content for key, content in before.items() if "00000003-" not in key[0]}
        assert untouched.items() <= after.items()
        assert len(await lab.read("orders-0")) == 8


@pytest.mark.service("s3")
async def test_locked_version_is_reported_and_the_request_stays_open(
    tmp_path: Path, s3_service: S3Service, s3_admin: S3Admin
) -> None:
    async with lab_in_a_bucket(tmp_path, s3_service, s3_admin.create_locked_bucket()) as lab:
        request = await lab.file("orders-0", at_once=True)
        await lab.run()
        waiting = await lab.keeper.step(request.id)
        assert waiting.phase is ErasePhase.VERSIONS
        assert "the store keeps old versions" in waiting.problem
        assert len(await lab.read("orders-0")) == 8, "the locked versions are hidden nevertheless"
        assert await lab.holders() == []


@asynccontextmanager
async def lab_in_a_bucket(root: Path, service: S3Service, bucket: str) -> AsyncIterator[ErasureLab]:
    """Run a lab of one partition whose tier is in a real bucket."""
    store = S3ObjectStore(
        S3Bucket(name=bucket, endpoint_url=service.endpoint_url, region=service.region, path_style=True),
        keys=S3Keys(access_key_id=service.access_key_id, secret_access_key=service.secret_access_key),
    )
    lab = ErasureLab(root, {"orders-0": KEPT}, store=store)
    try:
        lab.fill("orders-0")
        await lab.copy()
        yield lab
    finally:
        await store.close()
