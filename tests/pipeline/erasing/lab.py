"""Log dir, its tier, runs without Spark, and the keeper of erasures: all parts are real but the clock."""

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from uuid import UUID, uuid4

from tests.fakes.log_dirs import LogDirWriter, PartitionWriter
from tests.pipeline.committing.plain_job import PlainJob
from tests.pipeline.spark.job_lab import delete_segments
from tests.tiering.setups import CLUSTER_ID, Tier, partition_of
from tierd.app.engine.host_caches import CHUNKS_DIRECTORY, HostCaches
from tierd.config import ExpireSettings
from tierd.log import NewRecord, Record, encode_batch
from tierd.metadata import KeyValueStore, MetadataKeyFactory
from tierd.model import ByteRange, Lineage, RemoteLogSegmentMetadata, TopicIdPartition
from tierd.pipeline import (
    EraseRequest,
    EraseRequests,
    ErasureKeeper,
    ErasureReports,
    KeeperParts,
    OldVersions,
    new_request,
    search_work,
)
from tierd.pipeline.committing import (
    CompactionLeader,
    LeaderClient,
    LeaderServer,
    LeaderSettings,
    OpenOutputs,
    PartitionRound,
)
from tierd.pipeline.planning import Candidate, CleaningPolicy, PartitionWork, WorkKind, WorkOrder
from tierd.pipeline.rewriting import find_keys
from tierd.remote import ChunkCache, ObjectKeyFactory, ObjectStore

COMPACTED = CleaningPolicy(compacts=True, min_cleanable_dirty_ratio=1.0)  # never due by itself
KEPT = CleaningPolicy()
SECRET = b"alice@example.org"
T0_MS = 1_690_000_000_000


class ErasingJob(PlainJob):
    """PlainJob that in an erasure rewrites only segments with a key."""

    fails: frozenset[int] = frozenset()
    """Groups that cannot be read."""

    def _partition(self, leader: LeaderClient, order: WorkOrder, work: PartitionWork) -> None:
        if work.kind is not WorkKind.ERASE:
            super()._partition(leader, order, work)
            return
        for group in range(len(work.groups)):
            (metadata,) = work.group_inputs(group)
            if group in self.fails:
                leader.failed(work.index, group, "it is corrupt")
            elif sum(found.size for found in find_keys(self._pieces(metadata), work.erased_keys, name="input")):
                self._rewrite(leader, order, work, [group])
            else:
                leader.unchanged(work.index, group)


class ErasureLab:
    """Partitions by the name of their directory, each with a policy."""

    def __init__(
        self,
        root: Path,
        policies: Mapping[str, CleaningPolicy],
        *,
        store: ObjectStore | None = None,
        rows: KeyValueStore | None = None,
    ) -> None:
        self.root = root
        self.policies = policies
        self.writer = LogDirWriter(root / "logdir")
        self.partitions: dict[str, PartitionWriter] = {
            name: self.writer.add_partition(name.rpartition("-")[0]) for name in policies
        }
        self.tier = Tier(root, [self.writer.path], store=store, rows=rows)
        self.cache_dir = root / "cache"
        self.being_copied: set[UUID] = set()
        self.job_fails: frozenset[int] = frozenset()
        self._runs = 0
        self.restart()

    def restart(self) -> None:
        """Start a new process of tierd."""
        self.session = self.tier.session(expire=ExpireSettings.model_validate({"grace": "1h"}))
        self.requests = EraseRequests(self.tier.rows, MetadataKeyFactory(CLUSTER_ID))
        keys = ObjectKeyFactory("", CLUSTER_ID)
        self.keeper = ErasureKeeper(
            KeeperParts(
                requests=self.requests,
                find=self.find,
                remove=self.session.tiering.removals.remove_at_once,
                versions=OldVersions(self.tier.store, keys),
                caches=HostCaches(self.cache_dir, keys, None),
                reports=ErasureReports(self.tier.store, keys, self.requests),
                clock=self.tier.clock,
            )
        )

    def append(self, name: str, records: Iterable[tuple[bytes | None, bytes | None]]) -> None:
        """Append one batch to the active segment."""
        batch = [NewRecord(key, value, T0_MS + n) for n, (key, value) in enumerate(records)]
        self.partitions[name].append_batch(encode_batch(batch), len(batch))

    def roll(self, name: str) -> None:
        """End the active segment."""
        self.partitions[name].roll()

    def fill(self, name: str, *, segments: int = 3, secret_in: Iterable[int] = (1,)) -> None:
        """Write rolled segments of three records; those in ``secret_in`` have the key ``SECRET`` in the middle."""
        for number in range(segments):
            middle = SECRET if number in secret_in else b"bob"
            values = [(b"key %d" % number, b"first"), (middle, b"value of %s" % middle), (b"key", b"third")]
            self.append(name, values)
            self.roll(name)

    async def copy(self) -> None:
        """Copy rolled segments and remove them from the log dir."""
        self.writer.write_checkpoints()
        outcomes = await self.session.copy_once()
        assert all(outcome.error is None for outcome in outcomes.values()), outcomes
        for name in self.partitions:
            delete_segments(
                self.path(name), copied_through=max([row.end_offset for row in self.rows(name)], default=-1)
            )

    async def come_back(self) -> None:
        """Restart, and lead the same partitions."""
        self.restart()
        await self.session.manager.discover_once()
        for partition, epoch in self.session.manager.led().items():
            await self.session.metadata.become_leader(partition, epoch)

    async def find(self, partition: TopicIdPartition) -> Candidate | None:
        """Return the partition as a candidate of a run."""
        await self.session.metadata.ensure_ready(partition)
        view, policy = self.session.metadata.view(partition), self.policies[str(partition.topic_partition)]
        candidate = Candidate(view=view, lineage=Lineage(()), policy=policy)
        work = search_work(await self.requests.list(partition, only_open=True), candidate)
        return replace(candidate, erased_keys=work.keys, searched=work.searched, removes_unread=work.removes_unread)

    async def file(
        self,
        name: str,
        *keys: bytes,
        at_once: bool = False,
        log_end_offset: int | None = None,
        removes_unread: bool = False,
    ) -> EraseRequest:
        """File a request now."""
        candidate = await self.find(self.partition(name))
        assert candidate is not None
        request = new_request(
            uuid4(),
            candidate.partition,
            keys or (SECRET,),
            now_ms=self.tier.clock.now_ms(),
            requested_by="someone@host",
            reason="ticket 17",
            tier_end_offset=candidate.chain().end_offset,
            log_end_offset=log_end_offset,
            at_once=at_once,
            removes_unread=removes_unread,
        )
        await self.requests.file(request)
        return request

    async def run(self, *names: str, is_noted: bool = True) -> tuple[PartitionRound, ...]:
        """Run once over these partitions, None means all; return the rounds. A killed run is not recorded."""
        found = [await self.find(self.partition(name)) for name in names or self.partitions]
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
            settings=LeaderSettings(),
        )
        prepared = await leader.prepare([candidate for candidate in found if candidate is not None])
        rounds: tuple[PartitionRound, ...] = ()
        try:
            if prepared.order.partitions:
                await self._carry_out(leader)
        finally:
            rounds = leader.rounds
            statistics = await leader.end()
            self._runs += 1
            if is_noted:
                await self.keeper.after_run(f"run {self._runs}", rounds, statistics)
        return rounds

    async def _carry_out(self, leader: CompactionLeader) -> None:
        socket = self.root / "run" / "leader.sock"
        job = ErasingJob(socket, self.session.storage, self.root / "scratch")
        job.fails = self.job_fails
        server = LeaderServer(leader, socket)
        async with server.listening(), asyncio.TaskGroup() as group:
            serving = group.create_task(server.serve())
            await asyncio.to_thread(job.run)
            serving.cancel()

    async def end_of_grace(self) -> None:
        """Advance the clock beyond every grace, and run the due expirations."""
        self.tier.clock.advance(3601)
        await self.expire()

    async def expire(self) -> None:
        """Run one pass of every expiration task."""
        outcomes = await self.session.tiering.removals.expire_here(None)
        assert all(outcome.error is None for outcome in outcomes), outcomes

    async def keep_chunks(self) -> int:
        """Fill the cache on disk, as readers do; return the number of its chunks."""
        directory = self.cache_dir / CHUNKS_DIRECTORY
        cache = await ChunkCache.open(
            self.tier.store, directory=directory, capacity_bytes=1 << 20, clock=self.tier.clock
        )
        for info in await self.tier.store.list_objects(""):
            if info.key.endswith(".log"):
                await cache.get(info.key, ByteRange.of_size(0, info.size_bytes))
        await cache.close()
        return len(self.chunks())

    def chunks(self) -> list[bytes]:
        """Return the contents of the chunks in the cache on disk."""
        return [path.read_bytes() for path in (self.cache_dir / CHUNKS_DIRECTORY).glob("*.chunk")]

    async def stored(self) -> dict[str, bytes]:
        """Return every readable object by its key."""
        store = self.tier.store
        return {info.key: await store.get(info.key) for info in await store.list_objects("")}

    async def holders(self, what: bytes = SECRET) -> list[str]:
        """Return the keys of the objects that contain some bytes; logs are neither compressed nor encrypted here."""
        return [key for key, content in (await self.stored()).items() if what in content]

    async def read(self, name: str) -> list[Record]:
        """Return the records that a new reader gets."""
        return await self.session.read_all(self.path(name))

    def rows(self, name: str) -> list[RemoteLogSegmentMetadata]:
        """Return all rows of a partition."""
        return self.session.rows(self.partition(name))

    def path(self, name: str) -> Path:
        """Return the directory of a partition."""
        return self.writer.path / name

    def partition(self, name: str) -> TopicIdPartition:
        """Return the identity of a partition."""
        return partition_of(self.path(name))
