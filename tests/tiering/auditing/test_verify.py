"""Verification against what can be wrong in a bucket."""

import json
from pathlib import Path

import pytest

from tests.fakes.log_dirs import LogDirWriter, SegmentShape
from tests.fakes.transforms import TRANSFORM_NAMES, ring, transform_named
from tests.tiering.setups import BROKER_ID, CLUSTER_ID, Tier, partition_of
from tierd.remote import PLAIN, ObjectInfo, SegmentStorage, Transform
from tierd.tiering import Finding, Severity, Verification


class Setup:
    def __init__(self, tmp_path: Path, transform: Transform = PLAIN) -> None:
        log_dir = LogDirWriter(tmp_path / "kafka")
        writer = log_dir.add_partition("orders")
        writer.fill(rolled_segments=2, shape=SegmentShape())
        log_dir.write_checkpoints()
        self.path = writer.path
        self.tier = Tier(tmp_path, [log_dir.path])
        self.transform = transform
        self.session = self.tier.session(storage=self._transforming)

    def _transforming(self, _: SegmentStorage) -> SegmentStorage:
        return SegmentStorage(
            self.tier.store, cluster_id=CLUSTER_ID, broker_id=BROKER_ID, chunk_size=1 << 20, transform=self.transform
        )

    async def objects(self, suffix: str) -> list[ObjectInfo]:
        return [info for info in await self.tier.store.list_objects("") if info.key.endswith(suffix)]

    async def findings(self, *, deep: bool = False, grace_s: float = 600) -> list[Finding]:
        # A process of its own, so that nothing of the bucket is remembered.
        session = self.tier.session(storage=self._transforming)
        await session.metadata.become_leader(partition_of(self.path), 0)
        verification = Verification(
            await session.tiered_log(self.path), storage=session.storage, clock=self.tier.clock, grace_s=grace_s
        )
        return [finding async for finding in verification.run(deep=deep)]

    async def kinds(self, *, deep: bool = False) -> list[str]:
        return [finding.kind for finding in await self.findings(deep=deep)]


@pytest.fixture
async def setup(tmp_path: Path) -> Setup:
    setup = Setup(tmp_path)
    await setup.session.copy_once()
    return setup


async def test_a_sound_tier_has_no_findings(setup: Setup) -> None:
    assert await setup.findings(deep=True) == []


@pytest.mark.parametrize("suffix", [".log", ".indexes", ".manifest"])
async def test_a_missing_object_is_found(setup: Setup, suffix: str) -> None:
    first, _ = await setup.objects(suffix)
    await setup.tier.store.delete(first.key)
    (finding,) = await setup.findings(deep=True)
    assert (finding.kind, finding.severity) == ("missing-object", Severity.ERROR)
    assert suffix in finding.what


async def test_an_orphan_is_found(setup: Setup) -> None:
    first, _ = await setup.objects(".log")
    orphan = first.key.replace(first.key[-26:-4], "AAAAAAAAAAAAAAAAAAAAAA")
    await setup.tier.store.put(orphan, b"left behind")
    (finding,) = await setup.findings()
    assert (finding.kind, finding.where) == ("orphan", orphan)


async def _replace(setup: Setup, suffix: str, change: bytes) -> None:
    first, _ = await setup.objects(suffix)
    content = await setup.tier.store.get(first.key)
    await setup.tier.store.delete(first.key)
    await setup.tier.store.put(first.key, content[: -len(change)] + change)


async def test_a_changed_byte_of_the_log_is_found_by_the_deep_look_only(setup: Setup) -> None:
    await _replace(setup, ".log", b"?")
    assert await setup.kinds() == []
    assert await setup.kinds(deep=True) == ["damaged-log"]


async def test_a_changed_byte_of_the_indexes_is_found(setup: Setup) -> None:
    await _replace(setup, ".indexes", b"?")
    assert await setup.kinds(deep=True) == ["damaged-index"]


async def test_a_log_of_another_size_is_found(setup: Setup) -> None:
    first, _ = await setup.objects(".log")
    await setup.tier.store.delete(first.key)
    await setup.tier.store.put(first.key, b"short")
    assert await setup.kinds() == ["wrong-size"]


async def test_a_manifest_that_is_no_json_is_found(setup: Setup) -> None:
    first, _ = await setup.objects(".manifest")
    await setup.tier.store.delete(first.key)
    await setup.tier.store.put(first.key, b"{")
    assert await setup.kinds() == ["damaged-manifest"]


async def test_a_manifest_of_another_segment_is_found(setup: Setup) -> None:
    first, second = await setup.objects(".manifest")
    content = await setup.tier.store.get(second.key)
    await setup.tier.store.delete(first.key)
    await setup.tier.store.put(first.key, content)
    (finding,) = await setup.findings()
    assert finding.kind == "damaged-manifest"
    assert "describes another segment" in finding.what


async def test_a_manifest_that_disagrees_with_the_metadata_is_found(setup: Setup) -> None:
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


async def transformed(tmp_path: Path, name: str) -> Setup:
    setup = Setup(tmp_path, transform_named(name))
    await setup.session.copy_once()
    return setup


@pytest.mark.parametrize("name", TRANSFORM_NAMES)
async def test_a_sound_tier_has_no_findings_however_it_is_stored(tmp_path: Path, name: str) -> None:
    setup = await transformed(tmp_path, name)
    assert await setup.findings(deep=True) == []


@pytest.mark.parametrize("name", ["zstd", "aes", "zstd+aes"])
async def test_damage_to_a_transformed_tier_is_found(tmp_path: Path, name: str) -> None:
    setup = await transformed(tmp_path, name)
    await _replace(setup, ".log", b"?")
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


async def test_a_missing_key_is_a_finding_for_each_segment_and_the_rest_is_looked_at(tmp_path: Path) -> None:
    setup = await transformed(tmp_path, "aes")
    setup.transform = Transform(encrypts=True, ring=ring("new", "new"))
    findings = await setup.findings(deep=True)
    assert [finding.kind for finding in findings] == ["missing-key", "missing-key"]
    assert "remote.encryption.keys" in findings[0].remedy
