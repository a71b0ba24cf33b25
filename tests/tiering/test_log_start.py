"""Log start of both tiers, over copies, deletion requests, retention and rebuilds, with real segment files."""

from pathlib import Path
from uuid import UUID, uuid4

import pytest

from tests.fakes.log_dirs import LogDirWriter, SegmentShape
from tests.tiering.setups import CLUSTER_ID, Session, Tier, delete_segment, partition_of
from tierd.config import ExpireSettings
from tierd.errors import BackendUnavailableError
from tierd.metadata import Batch, Delete, MemoryKeyValueStore, MetadataKeyFactory, RebuildSeverity, store_identity
from tierd.remote import ObjectKeyFactory, SegmentStorage
from tierd.tiering import MetadataRebuild, RebuildReport, StoredTier, TopicPolicy
from tierd.tiering.auditing.explanation import OffsetPlace, explain

SHAPE = SegmentShape()  # 8 records a segment
OFFSETS = list(range(28))


class Setup:
    """Partition of three rolled segments and an active one, a tier, and sessions of tierd."""

    def __init__(self, tmp_path: Path) -> None:
        self.log_dir = LogDirWriter(tmp_path / "kafka")
        self.writer = self.log_dir.add_partition("orders")
        self.writer.fill(rolled_segments=3, shape=SHAPE)
        self.log_dir.write_checkpoints()
        self.path = self.writer.path
        self.partition = partition_of(self.path)
        self.tier = Tier(tmp_path, [self.log_dir.path])
        self.policy = TopicPolicy()
        self.session = self.begin()

    def begin(self) -> Session:
        """Start a new process of tierd."""
        self.session = self.tier.session(policies=lambda _: self.policy, expire=ExpireSettings(grace_s=0))
        return self.session

    async def copy(self) -> None:
        outcome = (await self.session.copy_once())["orders-0"]
        assert outcome.error is None, outcome.error

    async def expire(self) -> None:
        (outcome,) = await self.session.tiering.removals.expire_here(None)
        assert outcome.error is None, outcome.error

    async def rebuild(self) -> RebuildReport:
        """Lose the metadata and rebuild it from the bucket; another process continues."""
        self.tier.rows = MemoryKeyValueStore()
        report = await MetadataRebuild(
            StoredTier(
                objects=self.tier.store,
                segments=SegmentStorage(self.tier.store, cluster_id=CLUSTER_ID, broker_id=0),
                object_keys=ObjectKeyFactory("", CLUSTER_ID),
                rows=self.tier.rows,
                row_keys=MetadataKeyFactory(CLUSTER_ID),
            ),
            session_id=uuid4(),
            grace_ends_ms=0,
            on_progress=lambda _: None,
        ).run()
        self.begin()
        return report

    async def lose_manifest(self, base_offset: int) -> None:
        prefix = f"{ObjectKeyFactory('', CLUSTER_ID).partition_prefix(self.partition)}{base_offset:020d}-"
        for info in await self.tier.store.list_objects(prefix):
            if info.key.endswith(".manifest"):
                await self.tier.store.delete(info.key)

    def request_deletion(self, before: int) -> None:
        (self.log_dir.path / "log-start-offset-checkpoint").write_text(f"0\n1\norders 0 {before}\n")

    def lead_anew(self) -> None:
        """Restart the broker, which then leads under the next epoch."""
        self.writer.begin_epoch(self.writer.leader_epoch + 1)
        self.writer.append([b"after"])
        self.log_dir.write_checkpoints()

    async def place_of(self, offset: int) -> OffsetPlace:
        log = await self.session.tiered_log(self.path)
        end = log.end_offset
        return explain(log, offset, last_stable_offset=end, log_end_offset=end, remote_key=None).place

    async def offsets(self) -> list[int]:
        return [record.offset for record in await self.session.read_all(self.path)]

    @property
    def log_start(self) -> int | None:
        return self.session.metadata.view(self.partition).log_start_offset


@pytest.fixture
async def setup(tmp_path: Path) -> Setup:
    return Setup(tmp_path)


@pytest.mark.parametrize("lost", [[0], [8], [0, 8], [16], [0, 8, 16]])
async def test_local_segments_whose_manifests_are_lost_are_read_and_copied_again(setup: Setup, lost: list[int]) -> None:
    await setup.copy()
    for base_offset in lost:
        await setup.lose_manifest(base_offset)
    await setup.rebuild()
    await setup.copy()
    assert setup.log_start == 0
    assert await setup.offsets() == OFFSETS
    assert setup.session.finished(setup.partition) == [(0, 7), (8, 15), (16, 23)]
    assert len(setup.session.recorder.copied) == len(lost), "and no other segment"
    assert {await setup.place_of(offset) for offset in range(24)} == {OffsetPlace.BOTH}
    await setup.copy()
    setup.begin()
    await setup.copy()
    assert setup.session.recorder.copied == []


async def test_offset_whose_manifest_is_lost_is_explained_as_queued_until_it_is_copied_again(setup: Setup) -> None:
    await setup.copy()
    await setup.lose_manifest(0)
    await setup.rebuild()
    setup.session.manager.pause()
    await setup.copy()
    assert await setup.place_of(3) is OffsetPlace.QUEUED
    assert await setup.offsets() == OFFSETS


async def test_deletion_request_survives_a_rebuild_under_a_later_leader_epoch(setup: Setup) -> None:
    await setup.copy()
    setup.request_deletion(10)
    await setup.copy()
    assert setup.log_start == 10
    await setup.rebuild()
    setup.lead_anew()
    await setup.copy()
    assert setup.log_start == 10
    assert await setup.offsets() == [*range(10, 29)]
    assert await setup.place_of(9) is OffsetPlace.EXPIRED


async def test_checkpoint_above_the_log_start_of_a_rebuilt_tier_is_obeyed_at_once(setup: Setup) -> None:
    await setup.copy()
    setup.request_deletion(10)
    await setup.copy()
    await setup.rebuild()
    setup.request_deletion(13)
    await setup.copy()
    assert setup.log_start == 13


async def test_checkpoint_is_obeyed_after_a_rebuild_without_a_record_under_a_later_leader_epoch(setup: Setup) -> None:
    await setup.copy()
    setup.request_deletion(10)
    await setup.copy()
    await setup.tier.store.delete(ObjectKeyFactory("", CLUSTER_ID).log_start(setup.partition))
    await setup.rebuild()
    setup.lead_anew()
    await setup.copy()
    setup.request_deletion(10)  # the broker writes its checkpoint once a minute
    await setup.copy()
    assert setup.log_start == 10
    assert await setup.offsets() == [*range(10, 29)]


async def test_log_start_of_retention_survives_a_rebuild_and_no_segment_is_copied_again(setup: Setup) -> None:
    await setup.copy()
    setup.policy = TopicPolicy(retention_bytes=0)
    await setup.expire()
    await setup.rebuild()
    await setup.copy()
    assert setup.log_start == 24
    assert setup.session.recorder.copied == []
    assert await setup.offsets() == OFFSETS[24:]


async def test_log_start_that_is_lowered_is_lowered_in_the_bucket(setup: Setup) -> None:
    await setup.copy()
    await setup.session.metadata.advance_log_start_offset(setup.partition, 1000)
    await setup.copy()
    setup.begin()
    setup.writer.roll()
    setup.writer.append([b"next"])
    setup.log_dir.write_checkpoints()
    await setup.copy()  # the log ends below 1000: its disk was replaced
    assert setup.log_start == 0
    await setup.rebuild()
    await setup.copy()
    assert setup.log_start == 0


async def test_high_watermark_that_a_new_leader_has_not_written_yet_does_not_lower_the_log_start(setup: Setup) -> None:
    """A broker writes its high watermark every five seconds: a new leader's may be below what was deleted meanwhile."""
    await setup.copy()
    setup.request_deletion(26)
    await setup.copy()
    assert setup.log_start == 26
    setup.begin()
    setup.lead_anew()
    (setup.log_dir.path / "replication-offset-checkpoint").write_text("0\n1\norders 0 25\n")
    (setup.log_dir.path / "log-start-offset-checkpoint").unlink()
    await setup.copy()
    assert setup.log_start == 26
    setup.log_dir.write_checkpoints()
    await setup.copy()
    assert await setup.offsets() == [26, 27, 28]


async def test_metadata_that_vanishes_under_a_leader_moves_no_log_start(setup: Setup) -> None:
    """A server without a disk was restarted: what the leader wrote then would cut the tier off at a rebuild."""
    await store_identity(setup.tier.rows, MetadataKeyFactory(CLUSTER_ID), new_id=uuid4)
    await setup.copy()
    for base_offset in (0, 8):
        delete_segment(setup.path, base_offset)
    setup.writer.roll()
    setup.writer.append([b"next"])
    setup.log_dir.write_checkpoints()
    await setup.tier.rows.apply(Batch([Delete(key) for key, _ in await setup.tier.rows.scan("")]))
    for _ in range(3):
        error = (await setup.session.copy_once())["orders-0"].error
        assert isinstance(error, BackendUnavailableError)
    assert await setup.tier.rows.scan("") == []
    await setup.rebuild()
    await setup.copy()
    await setup.expire()
    assert setup.log_start == 0
    assert await setup.offsets() == [*OFFSETS, 28]


async def test_damaged_record_is_reported_by_a_rebuild_and_written_again_by_the_leader(setup: Setup) -> None:
    await setup.copy()
    setup.request_deletion(10)
    await setup.copy()
    key = ObjectKeyFactory("", CLUSTER_ID).log_start(setup.partition)
    await setup.tier.store.delete(key)
    await setup.tier.store.put(key, b"{}")
    report = await setup.rebuild()
    assert [(problem.severity, problem.where) for problem in report.problems] == [(RebuildSeverity.DAMAGE, key)]
    await setup.copy()
    assert setup.log_start == 10, "the checkpoint of the broker has that log start"
    assert (await setup.rebuild()).problems == []


async def test_audit_of_a_log_start_record_has_no_finding(setup: Setup) -> None:
    await setup.copy()
    setup.request_deletion(10)
    await setup.copy()
    assert await setup.session.findings(setup.path) == []


async def test_recreated_topic_has_a_log_start_of_its_own(tmp_path: Path) -> None:
    setup = Setup(tmp_path)
    await setup.copy()
    setup.request_deletion(10)
    await setup.copy()
    later = Setup(tmp_path / "later")
    later.tier = setup.tier
    later.tier.log_dirs = [later.log_dir.path]
    (later.path / "partition.metadata").write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAEQ\n")
    later.partition = partition_of(later.path)
    assert later.partition.topic_id == UUID(int=0x11)
    later.begin()
    await later.copy()
    await later.rebuild()
    await later.copy()
    assert later.log_start == 0
    assert await later.offsets() == OFFSETS
