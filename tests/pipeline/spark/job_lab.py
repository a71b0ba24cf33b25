"""Tier in a folder, its leader, and the job on the shared Spark session: whole runs in one process."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path
from uuid import UUID

from pyspark import SparkContext

from tests.tiering.setups import BROKER_ID, CLUSTER_ID, Session, Tier, partition_of
from tierd.config import MetadataSettings, RemoteSettings
from tierd.log import Record
from tierd.metadata import KeyValueStore, open_metadata
from tierd.model import IsolationLevel, Lineage, RemoteLogSegmentMetadata
from tierd.pipeline.access import TierAccess
from tierd.pipeline.committing import (
    CompactionLeader,
    LeaderClient,
    LeaderServer,
    LeaderSettings,
    OpenOutputs,
    RunStatistics,
)
from tierd.pipeline.jobs import job_main
from tierd.pipeline.jobs.job_progress import JobProgress
from tierd.pipeline.jobs.job_run import JobRun
from tierd.pipeline.planning import Candidate, CleaningPolicy, WorkOrder
from tierd.remote import SegmentStorage, open_object_store, open_transform, segment_storages

ChangeOrder = Callable[[WorkOrder], None]


def remote_settings(root: Path, **more: object) -> RemoteSettings:
    """Return the settings of a filesystem store below ``root``."""
    return RemoteSettings.model_validate({"backend": "filesystem", "filesystem": {"path": root / "bucket"}, **more})


class JobLab:
    """Log dir, copied to a tier that executors can open by its settings."""

    def __init__(self, root: Path, log_dir: Path, rows: KeyValueStore, remote: RemoteSettings) -> None:
        self.log_dir = log_dir
        self.scratch = root
        self.settings = remote
        self._more_remote = "{}"
        self.metadata = MetadataSettings(backend="sqlite")
        self.sqlite_path = root / "metadata.db"
        self._transform = open_transform(remote)
        self.tier = Tier(root, [log_dir], store=open_object_store(remote), rows=rows)
        self.session = self.new_session()
        self.being_copied: set[UUID] = set()

    @classmethod
    @asynccontextmanager
    async def opened(cls, root: Path, log_dir: Path, **remote: object) -> "AsyncIterator[JobLab]":
        """Open a lab over an empty tier."""
        (root / "bucket").mkdir()
        settings = MetadataSettings(backend="sqlite")
        rows = await open_metadata(settings, sqlite_path=root / "metadata.db", read_only=False)
        try:
            lab = cls(root, log_dir, rows, remote_settings(root, **remote))
            lab._more_remote = json.dumps(remote)
            yield lab
        finally:
            await rows.close()

    def new_session(self) -> Session:
        """Start a new process of tierd."""
        return self.tier.session(storage=lambda _: self._storage())

    def _storage(self) -> SegmentStorage:
        return segment_storages(
            self.settings, self.tier.store, self._transform, cluster_id=CLUSTER_ID, broker_id=BROKER_ID
        )()

    @property
    def socket(self) -> Path:
        """Return the path of the socket of the leader."""
        return self.scratch / "run" / "leader.sock"

    @property
    def access(self) -> TierAccess:
        """Return the access of executors to the tier."""
        return TierAccess(
            remote=self.settings,
            metadata=self.metadata,
            sqlite_path=self.sqlite_path,
            log_dirs=(self.log_dir,),
            cluster_id=CLUSTER_ID,
            broker_id=BROKER_ID,
        )

    def at(self, now_ms: int) -> None:
        """Set the clock; the next run begins at that time."""
        self.tier.clock.step_wall_clock(now_ms - self.tier.clock.now_ms())

    async def copy(self) -> None:
        """Copy rolled segments by a new process, and remove them from the log dir."""
        self.session = self.new_session()
        outcomes = await self.session.copy_once()
        assert all(outcome.error is None for outcome in outcomes.values()), outcomes
        for path in self.partition_dirs():
            copied = [row.end_offset for row in self.session.rows(partition_of(path))]
            delete_segments(path, copied_through=max(copied, default=-1))

    def partition_dirs(self) -> list[Path]:
        """Return the partition directories of the log dir."""
        return sorted(path.parent for path in self.log_dir.glob("*/partition.metadata"))

    async def compact(
        self,
        spark: SparkContext,
        policies: Mapping[str, CleaningPolicy],
        *,
        erased_keys: Iterable[bytes] = (),
        access: TierAccess | None = None,
        before: ChangeOrder = lambda _: None,
        client: type[LeaderClient] = LeaderClient,
    ) -> RunStatistics:
        """Run once on an existing session, as ``lead`` does.

        Args:
            spark: of the session.
            policies: of the partitions.
            erased_keys: of all of them.
            access: another way to the tier than ours.
            before: called with the order, before the job begins.
            client: of the leader.
        """

        def job() -> None:
            carry_out(spark, client.connect(self.socket), access or self.access)

        return await self.lead(policies, job, erased_keys=erased_keys, before=before)

    async def lead(
        self,
        policies: Mapping[str, CleaningPolicy],
        job: Callable[[], None],
        *,
        erased_keys: Iterable[bytes] = (),
        before: ChangeOrder = lambda _: None,
    ) -> RunStatistics:
        """Lead one run over the partitions that have a policy, by the name of their directory.

        Args:
            policies: of the partitions.
            job: program of the job, run in a thread; it connects to the leader on ``socket``.
            erased_keys: of all of them.
            before: called with the order, before the job begins.
        """
        candidates = []
        for name, policy in policies.items():
            view = self.session.metadata.view(partition_of(self.log_dir / name))
            erased = frozenset(erased_keys)
            candidates.append(Candidate(view=view, lineage=Lineage(()), policy=policy, erased_keys=erased))
        leader = CompactionLeader(
            self.session.metadata,
            self.session.storage,
            outputs=OpenOutputs(
                self.session.metadata,
                being_copied=self.being_copied,
                clock=self.tier.clock,
                abandoned=lambda _: None,
            ),
            clock=self.tier.clock,
            settings=LeaderSettings(),
        )
        before((await leader.prepare(candidates)).order)
        server = LeaderServer(leader, self.socket)
        try:
            async with server.listening(), asyncio.TaskGroup() as group:
                serving = group.create_task(server.serve())
                await asyncio.to_thread(job)
                serving.cancel()
        finally:
            await leader.end()
        return leader.statistics()

    def command(self, **pipeline: object) -> list[str]:
        """Return the command line of the job, with a configuration of its own beside the tier."""
        config = {
            "cluster_id": CLUSTER_ID,
            "node_id": BROKER_ID,
            "state_dir": str(self.scratch / "state"),
            "log_dirs": [{"path": str(self.log_dir)}],
            "metadata": {"sqlite": {"path": str(self.sqlite_path)}},
            "remote": json.loads(self._more_remote)
            | {"backend": "filesystem", "filesystem": {"path": str(self.scratch / "bucket")}},
            "pipeline": pipeline,
        }
        file = self.scratch / "tierd.yaml"
        file.write_text(json.dumps(config))  # which is YAML, too
        return [sys.executable, str(Path(job_main.__file__).with_name("__main__.py")), *self.arguments(file)]

    def arguments(self, config: Path) -> list[str]:
        """Return the arguments of the job."""
        return ["--leader", str(self.socket), "--config", str(config)]

    async def read(self, name: str, isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED) -> list[Record]:
        """Return the records that a new reader gets."""
        return await self.session.read_all(self.log_dir / name, isolation)

    def rows(self, name: str) -> list[RemoteLogSegmentMetadata]:
        """Return all rows of a partition."""
        return self.session.rows(partition_of(self.log_dir / name))

    def finished(self, name: str) -> list[tuple[int, int]]:
        """Return the offsets of the readable segments of a partition."""
        return self.session.finished(partition_of(self.log_dir / name))


def carry_out(spark: SparkContext, leader: LeaderClient, access: TierAccess) -> None:
    """Carry out an order as the process of the job does with its session."""
    try:
        leader.done(JobRun(spark, leader, access, leader.order(), JobProgress()).run())
    finally:
        leader.close()


def delete_segments(path: Path, *, copied_through: int) -> None:
    """Delete segments that are in the tier, as retention of a broker does; the active one stays."""
    bases = sorted(int(log.stem) for log in path.glob("[0-9]*.log"))
    for base, following in pairwise(bases):
        if following - 1 <= copied_through:
            for file in path.glob(f"{base:020d}.*"):
                file.unlink()
