"""Tier that grew by any history: the log of a broker that rolls, merges and forgets, and the daemon of its leader."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from uuid import UUID, uuid4

from hypothesis import strategies as st

from tests.fakes.log_dirs import CLUSTER_ID, LogDirWriter
from tests.fakes.memory_object_store import MemoryObjectStore
from tests.pipeline.erasing.lab import ErasingJob
from tests.tiering.setups import BROKER_ID, Session, Tier, partition_of
from tierd.config import ExpireSettings
from tierd.log import NewRecord, Record, build_indexes, encode_batch
from tierd.metadata import (
    Batch,
    Delete,
    KeyValueStore,
    MemoryKeyValueStore,
    MetadataKeyFactory,
    PartitionView,
    read_partition,
    remember_tier,
    store_identity,
)
from tierd.model import IsolationLevel, RemoteLogSegmentMetadata, RemoteLogSegmentState, TopicIdPartition, uuid_to_text
from tierd.pipeline.committing import CompactionLeader, LeaderServer, LeaderSettings, OpenOutputs
from tierd.pipeline.planning import Candidate, CleaningPolicy
from tierd.remote import ObjectKeyFactory, SegmentStorage, Transform, claim_tier
from tierd.remote.transform.transform import PLAIN
from tierd.tiering import FetchTask, MetadataRebuild, RebuildReport, SilentRecorder, StoredTier, TieredLog
from tierd.tiering.topic_policy import TopicPolicy

KEYS = MetadataKeyFactory(CLUSTER_ID)
OBJECT_KEYS = ObjectKeyFactory("", CLUSTER_ID)
FINISHED = RemoteLogSegmentState.COPY_SEGMENT_FINISHED
STARTED = RemoteLogSegmentState.COPY_SEGMENT_STARTED
GRACE_S = 3600
_T0_MS = 1_690_000_000_000
_POLICIES = {
    "compact": CleaningPolicy(compacts=True, min_cleanable_dirty_ratio=0.0, segment_bytes=400),
    "merge": CleaningPolicy(merge_below_bytes=1 << 20, segment_bytes=1 << 20),
    "erase": CleaningPolicy(),
}

Step = tuple[str, int, int]
"""What happens, and two numbers that say where and how much."""

steps = st.lists(
    st.tuples(
        st.sampled_from(
            [
                *("write", "segment", "segment", "segment", "epoch", "copy", "copy", "copy"),
                *("local merge", "local merge", "delete records", "lose", "retention"),
                *("compact", "compact", "merge", "erase", "expire", "undelete", "end of grace"),
            ]
        ),
        st.integers(0, 7),
        st.integers(0, 7),
    ),
    max_size=24,
)


class GrownTier:
    """Partition with its broker and the tierd that leads it."""

    def __init__(
        self,
        root: Path,
        transform: Transform = PLAIN,
        *,
        value: Callable[[int, int], bytes | None] = lambda key, offset: b"value",
    ) -> None:
        """Begin with an empty log; ``value`` tells the value of a record by the number of a write and its offset."""
        self._value = value
        self.root = root
        self.transform = transform
        self.policy = TopicPolicy()
        self._writer = LogDirWriter(root / "kafka")
        self._log = self._writer.add_partition("orders")
        self.path = self._log.path
        self.tier = Tier(root, [self._writer.path])
        self.tier.store = MemoryObjectStore(clock=self.tier.clock)
        self.session: Session = self.tier.session(
            storage=lambda _: self._storage(),
            policies=lambda _: self.policy,
            expire=ExpireSettings.model_validate({"grace": f"{GRACE_S}s"}),
        )
        self._log_start = 0

    @property
    def partition(self) -> TopicIdPartition:
        return partition_of(self.path)

    def _storage(self) -> SegmentStorage:
        return SegmentStorage(
            self.tier.store, cluster_id=CLUSTER_ID, broker_id=BROKER_ID, chunk_size=1 << 20, transform=self.transform
        )

    @property
    def view(self) -> PartitionView:
        """Return the metadata of the leader."""
        return self.session.metadata.view(self.partition)

    async def begin(self) -> None:
        store_id = await store_identity(self.tier.rows, KEYS, new_id=uuid4)
        await remember_tier(self.tier.rows, KEYS, key_prefix="")
        await claim_tier(self.tier.store, key_prefix="", cluster_id=CLUSTER_ID, store_id=store_id)

    async def forget_rows(self, *ids: UUID) -> None:
        """Remove rows of segments from the metadata, as an old backup lacks them: their objects are orphans."""
        texts = list(map(uuid_to_text, ids))
        rows = await self.tier.rows.scan(KEYS.partition_prefix(self.partition))
        doomed = [key for key, value in rows if any(text in key or text.encode() in value for text in texts)]
        await self.tier.rows.apply(Batch(list(map(Delete, doomed))))

    async def play(self, history: Sequence[Step]) -> None:
        """Carry out the history, then copy the rolled segments."""
        await self.begin()
        for step in (*history, ("write", 0, 0), ("roll", 0, 0), ("write", 0, 0), ("copy", 0, 0)):
            await self._step(*step)

    async def _step(self, what: str, where: int, much: int) -> None:
        self.tier.clock.advance(1)
        match what:
            case "write":
                self._write(where, much)
            case "epoch" if self._log.end_offset > self._last_epoch_start:
                self._log.begin_epoch(self._log.leader_epoch + 1 + much % 3)
                self._last_epoch_start = self._log.end_offset
            case "roll":
                self._roll()
            case "segment":
                for number in range(1 + where % 3):
                    self._write(where + number, much + number)
                self._roll()
            case "copy":
                await self._copy()
            case "local merge":
                self._merge_local(where, 2 + much % 3)
            case "delete records":
                self._delete_records(where, much)
            case "lose":
                self._forget_local(self._bases()[: -1 - where] if much % 2 else self._bases()[:1])
            case "retention" if self.session_rows():
                self.forget_copied()
            case "compact" | "merge" | "erase" if self.session_rows():
                await self._run(what, erased=b"%d" % (where % 4))
            case "expire" if self.session_rows():
                await self.expire(where)
            case "undelete" if self.session_rows():
                await self.undelete()
            case "end of grace" if self.session_rows():
                self.tier.clock.advance(GRACE_S + 1)
                await self.expire(None)

    # ------------------------------------------------------------ the broker

    _last_epoch_start = 0

    def _write(self, key: int, records: int) -> None:
        batch = [
            NewRecord(b"%d" % ((key + n) % 4), self._value(key, self._log.end_offset + n), _T0_MS + n)
            for n in range(1 + records % 3)
        ]
        self._log.append_batch(encode_batch(batch), len(batch))

    def _roll(self) -> None:
        if self._log.active_segment.stat().st_size:
            self._log.roll()

    def _bases(self) -> list[int]:
        """Return the bases of the segments on disk; the last one is active."""
        return sorted(int(log.stem) for log in self.path.glob("[0-9]*.log"))

    def _merge_local(self, where: int, count: int) -> None:
        """Merge rolled neighbours, as the cleaner of the broker does with small segments."""
        rolled = self._bases()[:-1]
        first, *others = rolled[where % len(rolled) :][:count] if rolled else [0]
        if not others:
            return
        log = self.path / f"{first:020d}.log"
        log.write_bytes(b"".join((self.path / f"{base:020d}.log").read_bytes() for base in (first, *others)))
        offset_index, time_index = build_indexes(log, base_offset=first)
        log.with_suffix(".index").write_bytes(offset_index)
        log.with_suffix(".timeindex").write_bytes(time_index)
        self._remove(others)

    def _delete_records(self, where: int, much: int) -> None:
        """Obey a DeleteRecords request for an offset in some segment; delete whole segments below it."""
        bases = [*self._bases(), self._log.end_offset]
        base, following = list(pairwise(bases))[where % (len(bases) - 1)]
        self._raise_log_start(min(base + much, following, self._log.end_offset))
        self._remove([base for base, following in pairwise(bases[:-1]) if following <= self._log_start])

    def forget_copied(self) -> None:
        """Delete copied segments from local disk, as local retention of the broker does."""
        end = max(metadata.end_offset for metadata in self.session_rows())
        self._forget_local([base for base, following in pairwise(self._bases()) if following <= end + 1])

    def _forget_local(self, bases: Sequence[int]) -> None:
        """Delete the oldest rolled segments, as retention does: copied ones, or some that were not copied."""
        rolled = self._bases()[:-1]
        gone = [base for base in rolled if base in bases]
        if gone != rolled[: len(gone)] or not gone:
            return
        self._remove(gone)
        self._raise_log_start(self._bases()[0])

    def _raise_log_start(self, offset: int) -> None:
        if offset > self._log_start:
            self._log_start = offset
            self._log.forget_epochs_below(offset)

    def _remove(self, bases: Sequence[int]) -> None:
        for base in bases:
            for file in self.path.glob(f"{base:020d}.*"):
                file.unlink()

    def _write_checkpoints(self) -> None:
        self._writer.write_checkpoints()
        entry = f"0\n1\norders 0 {self._log_start}\n"
        (self._writer.path / "log-start-offset-checkpoint").write_text(entry)

    # ------------------------------------------------------------ tierd

    def session_rows(self) -> list[RemoteLogSegmentMetadata]:
        """Return the rows of the leader, ascending; none before the partition is led."""
        return self.session.rows(self.partition) if self.session.manager.led() else []

    async def _copy(self) -> None:
        self._write_checkpoints()
        outcomes = await self.session.copy_once()
        assert all(outcome.error is None for outcome in outcomes.values()), outcomes

    async def _run(self, what: str, *, erased: bytes) -> None:
        """Run the job once, with the commit of the leader."""
        leader = CompactionLeader(
            self.session.metadata,
            self.session.storage,
            outputs=OpenOutputs(
                self.session.metadata,
                being_copied=self.session.tiering.writes.ids,
                clock=self.tier.clock,
                abandoned=self.session.tiering.writes.abandon,
            ),
            clock=self.tier.clock,
            settings=LeaderSettings(grace_s=GRACE_S),
        )
        scan = (await self.session.tiered_log(self.path)).scan
        assert scan is not None
        candidate = Candidate(view=self.view, lineage=scan.lineage, policy=_POLICIES[what])
        if what == "erase":
            candidate = replace(candidate, erased_keys=frozenset({erased}))
        prepared = await leader.prepare([candidate])
        try:
            if prepared.order.partitions:
                socket = self.root / "run" / "leader.sock"
                server = LeaderServer(leader, socket)
                async with server.listening(), asyncio.TaskGroup() as group:
                    serving = group.create_task(server.serve())
                    job = ErasingJob(socket, self.session.storage, self.root / "scratch")
                    await asyncio.to_thread(job.run)
                    serving.cancel()
        finally:
            await leader.end()

    async def expire(self, keep: int | None) -> None:
        """Let all but the last segments expire, or complete deletions that have begun."""
        sizes = [m.size_bytes for m in self.session_rows() if m.state is FINISHED]
        self.policy = TopicPolicy() if keep is None else TopicPolicy(retention_bytes=sum(sizes[-1 - keep :]))
        outcomes = await self.session.tiering.removals.expire_here(None)
        self.policy = TopicPolicy()
        assert all(outcome.error is None for outcome in outcomes), outcomes

    async def undelete(self) -> None:
        """Undelete all segments that are in their grace and were not replaced."""
        await self.session.tiering.removals.undelete(self.partition.topic_partition, None, force=True, dry_run=False)

    # ------------------------------------------------------------ checks

    def rebuild_of(self, rows: KeyValueStore) -> MetadataRebuild:
        return MetadataRebuild(
            StoredTier(
                objects=self.tier.store,
                segments=self.session.storage,
                object_keys=OBJECT_KEYS,
                rows=rows,
                row_keys=KEYS,
            ),
            session_id=UUID(int=0xABC),
            grace_ends_ms=self.tier.clock.now_ms() + GRACE_S * 1000,
            on_progress=lambda _: None,
        )

    async def rebuilt(self) -> tuple[RebuildReport, KeyValueStore]:
        """Rebuild into an empty store."""
        rows = MemoryKeyValueStore()
        return await self.rebuild_of(rows).run(), rows

    async def view_in(self, rows: KeyValueStore) -> PartitionView:
        return await read_partition(rows, KEYS, self.partition)

    def remote_log(self, view: PartitionView) -> TieredLog:
        """Return the tier as a host without a replica sees it."""
        return TieredLog(self.partition, view, None, None)

    async def remote_records(self, view: PartitionView, *, start: int | None = None) -> list[tuple[int, bytes | None]]:
        """Return offset and key of every record of the tier that a reader of ``view`` gets, across holes."""
        return [(record.offset, record.key) for record in await self.records_of(view, start=start or 0)]

    async def records_of(self, view: PartitionView, *, start: int) -> list[Record]:
        """Return every record of the tier that a reader of ``view`` gets, across holes."""
        log = self.remote_log(view)
        found: list[Record] = []
        for stretch in log.branch.readable_ranges(start, log.branch.end_offset):
            reader = FetchTask(
                _answering(log), remote=self.session.storage, recorder=SilentRecorder(), prefetch_bytes=1 << 20
            )
            records = reader.records(
                max(stretch.start_offset, log.log_start_offset), stretch.end_offset, IsolationLevel.READ_UNCOMMITTED
            )
            found += [record async for record in records]
        return found


def _answering(log: TieredLog) -> Callable[[], "asyncio.Future[TieredLog]"]:
    async def answer() -> TieredLog:
        return log

    return lambda: asyncio.ensure_future(answer())
