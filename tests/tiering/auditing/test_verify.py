"""Verification against what can be wrong in a bucket."""

import json
from pathlib import Path

import pytest

from tests.fakes.log_dirs import LogDirWriter, SegmentShape
from tests.tiering.setups import Tier, partition_of
from tierd.remote import ObjectInfo
from tierd.tiering import Finding, Severity, Verification


class Setup:
    def __init__(self, tmp_path: Path) -> None:
        log_dir = LogDirWriter(tmp_path / "kafka")
        writer = log_dir.add_partition("orders")
        writer.fill(rolled_segments=2, shape=SegmentShape())
        log_dir.write_checkpoints()
        self.path = writer.path
        self.tier = Tier(tmp_path, [log_dir.path])
        self.session = self.tier.session()

    async def objects(self, suffix: str) -> list[ObjectInfo]:
        return [info for info in await self.tier.store.list_objects("") if info.key.endswith(suffix)]

    async def findings(self, *, deep: bool = False, grace_s: float = 600) -> list[Finding]:
        # A process of its own, so that nothing of the bucket is remembered.
        session = self.tier.session()
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
