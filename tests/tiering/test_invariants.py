"""Invariants of remote-tiering 10.8 over copies, expirations, new leaderships and interruptions in any order."""

import asyncio
import tempfile
from pathlib import Path
from uuid import UUID

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tests.fakes.log_dirs import LogDirWriter
from tests.fakes.memory_object_store import MemoryObjectStore
from tests.tiering.interruption import InterruptedKeyValueStore, InterruptedObjectStore, Interruption
from tests.tiering.setups import BROKER_ID, CLUSTER_ID, Session, Tier, delete_segment, partition_of
from tierd.config import CopySettings, ExpireSettings
from tierd.metadata import MemoryKeyValueStore
from tierd.model import LogSegmentData, RemoteLogSegmentMetadata, RemoteLogSegmentState
from tierd.remote import SegmentStorage
from tierd.tiering import TopicPolicy

FINISHED = RemoteLogSegmentState.COPY_SEGMENT_FINISHED
DELETED = RemoteLogSegmentState.DELETE_SEGMENT_FINISHED
VALUE = b"v" * 100


class WatchedStorage(SegmentStorage):
    """Storage that records uploads, their order, and any concurrent uploads of a partition."""

    def __init__(self, tier: Tier, machine: "Tiering") -> None:
        super().__init__(tier.store, cluster_id=CLUSTER_ID, broker_id=BROKER_ID)
        self._machine = machine
        self._under_way = 0
        self._newest = -1

    async def copy_log_segment_data(self, metadata: RemoteLogSegmentMetadata, data: LogSegmentData) -> bytes:
        # Recorded, not raised: an exception of a storage counts as its failure, and would be retried.
        if self._under_way:
            self._machine.violations.append("I3: one at a time")
        if metadata.start_offset < self._newest:
            self._machine.violations.append("I3: ascending, or the same again")
        if metadata.end_offset >= self._machine.high_watermark:
            self._machine.violations.append("I4: nothing above the last stable offset")
        self._newest = metadata.start_offset
        self._machine.uploaded[metadata.segment.id] = metadata
        self._under_way += 1
        try:
            return await super().copy_log_segment_data(metadata, data)
        finally:
            self._under_way -= 1


class Tiering(RuleBasedStateMachine):
    """Partition of a broker, and successive processes of tierd over two stores that stay."""

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.directory = tempfile.TemporaryDirectory(prefix="tierd-invariants-")
        root = Path(self.directory.name)
        self.log_dir = LogDirWriter(root / "kafka")
        self.writer = self.log_dir.add_partition("orders")
        self.writer.append([VALUE])
        self.path, self.root = self.writer.path, root
        self.partition = partition_of(self.path)
        self.rows, self.objects = MemoryKeyValueStore(), MemoryObjectStore()
        self.policy = TopicPolicy()
        self.elapsed_s = 0.0
        self.high_watermark = 0
        self.highest_finished = -1
        self.uploaded: dict[UUID, RemoteLogSegmentMetadata] = {}
        self.violations: list[str] = []
        self.interruption = Interruption(at=None)
        self.session = self._new_session(self.interruption)

    def teardown(self) -> None:
        """Check I5: after enough undisturbed passes every id is finished or deleted, and no orphan is left."""
        try:
            self._settle()
        finally:
            self.session.hold.close()
            self.runner.close()
            self.directory.cleanup()

    @rule(segments=st.integers(1, 3), batches=st.integers(1, 4), committed=st.sampled_from([1.0, 1.0, 0.7, 0.3]))
    def append_and_roll(self, segments: int, batches: int, committed: float) -> None:
        for _ in range(segments):
            for _ in range(batches):
                self.writer.append([VALUE])
            self.writer.roll()
        self.writer.append([VALUE])
        self.commit(committed)

    @rule(part=st.sampled_from([1.0, 0.5]))
    def commit(self, part: float) -> None:
        """Let the broker checkpoint a high watermark, up to the log end."""
        behind = self.writer.end_offset - self.high_watermark
        self.high_watermark += round(behind * part)
        (self.log_dir.path / "replication-offset-checkpoint").write_text(f"0\n1\norders 0 {self.high_watermark}\n")

    @rule()
    def copy(self) -> None:
        self.runner.run(self.session.copy_once())

    @rule(at=st.integers(1, 25), after=st.booleans(), cancels=st.booleans())
    def copy_interrupted(self, at: int, *, after: bool, cancels: bool) -> None:
        """Kill the process, or cancel the pass, at one call of a store; another process takes over."""
        interruption = Interruption(at=at, after=after, cancels=cancels)
        self._restart(interruption)
        self.runner.run(self._until_struck(interruption))
        self._restart(Interruption(at=None))

    @rule(keep=st.integers(0, 3))
    def expire(self, keep: int) -> None:
        """Keep about that many segments of the tier, then remove the limit."""
        self.policy = TopicPolicy(retention_bytes=keep * 400)
        self.runner.run(self._expire())
        self.policy = TopicPolicy()

    @rule()
    def new_leader(self) -> None:
        self.writer.begin_epoch(self.writer.leader_epoch + 1)
        self.writer.append([VALUE])
        self._restart(Interruption(at=None))

    @rule(seconds=st.sampled_from([1.0, 601.0]))
    def let_time_pass(self, seconds: float) -> None:
        self.elapsed_s += seconds
        self.session.tier.clock.advance(seconds)

    @precondition(lambda self: len(list(self.path.glob("*.log"))) > 1)
    @rule()
    def the_broker_deletes_its_oldest_segment(self) -> None:
        """Delete a segment without notice, as retention of the broker does; queued segments are held."""
        self.runner.run(self.session.copy_once())
        bases = sorted(int(file.stem) for file in self.path.glob("*.log"))
        if len(bases) > 1 and bases[1] <= self.high_watermark:
            delete_segment(self.path, bases[0])

    @invariant()
    def readable_segments_are_whole(self) -> None:
        """Check I1 and I2, and the records of the storage about I3 and I4."""
        assert not self.violations
        if not self.session.metadata.is_ready(self.partition):
            return
        rows = self.session.rows(self.partition)
        for row in rows:
            if row.state is FINISHED:
                assert row.segment.id in self.uploaded, "I1: its copy succeeded"
                present = self.runner.run(self.session.storage.list_segment_objects(self.partition))
                assert row.segment.id in present, "I1: and its objects are there"
                self.highest_finished = max(self.highest_finished, row.end_offset)
        (status,) = self.session.manager.status()
        if status.copied_through is not None:
            view = self.session.metadata.view(self.partition)
            ever = [
                h for e in range(self.writer.leader_epoch + 1) if (h := view.highest_offset_for_epoch(e)) is not None
            ]
            assert status.copied_through <= max([*ever, self.highest_finished, -1]), (
                "I2: not beyond the finished segments"
            )

    def _new_session(self, interruption: Interruption) -> Session:
        tier = Tier(
            self.root,
            [self.log_dir.path],
            store=InterruptedObjectStore(self.objects, interruption),
            rows=InterruptedKeyValueStore(self.rows, interruption),
        )
        tier.clock.advance(self.elapsed_s)
        return tier.session(
            storage=lambda _: WatchedStorage(tier, self),
            settings=CopySettings(dangling_grace_s=600),
            expire=ExpireSettings(grace_s=0),
            policies=lambda _: self.policy,
        )

    def _restart(self, interruption: Interruption) -> None:
        self.session.hold.close()
        self.session = self._new_session(interruption)

    async def _until_struck(self, interruption: Interruption) -> None:
        copying = asyncio.create_task(self.session.copy_once())
        interruption.victim = copying
        await asyncio.wait([copying])
        if not copying.cancelled():
            copying.exception()  # a crash, or none: the pass had fewer calls

    async def _expire(self) -> None:
        await self.session.copy_once()
        (replica,) = self.session.tiering.replicas.all()
        assert replica.tasks.expire is not None
        await replica.tasks.expire.run_once()

    def _settle(self) -> None:
        self._restart(Interruption(at=None))
        for _ in range(3):
            self.runner.run(self.session.copy_once())
            self.let_time_pass(3600)
        rows = self.session.rows(self.partition)
        assert all(row.state is FINISHED for row in rows), "I5"
        objects = self.runner.run(self.session.storage.list_segment_objects(self.partition))
        assert set(objects) == {row.segment.id for row in rows}, "I5: and no orphan"


TestInvariants = Tiering.TestCase
TestInvariants.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)
