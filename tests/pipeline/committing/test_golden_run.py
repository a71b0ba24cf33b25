"""Tier of the input of a real broker's cleaner, compacted by one run: it reads as the output of that cleaner."""

import asyncio
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from uuid import UUID

import pytest

from tests.golden.unpack import GoldenCase, read_offsets
from tests.log.test_golden import as_oracle, expected_records
from tests.pipeline.committing.plain_job import PlainJob
from tests.pipeline.rewriting.rounds import DAY_MS
from tests.pipeline.rewriting.test_real_cleaner import CASES, oracle_dir, stage_dir, time_of_pass
from tests.tiering.setups import Session, Tier, partition_of
from tierd.metadata.kv import SqliteKeyValueStore
from tierd.model import IsolationLevel, Lineage, RemoteLogSegmentState, TopicPartition
from tierd.pipeline.committing import (
    CompactionLeader,
    LeaderServer,
    LeaderSettings,
    OpenOutputs,
    PreparedRun,
    RunStatistics,
)
from tierd.pipeline.planning import Candidate, CleaningPolicy
from tierd.remote.backends.files import FilesystemObjectStore

BROKERS = sorted({case.broker for case in CASES})


class GoldenTier:
    """Partitions of one broker in a filesystem store with SQLite metadata."""

    def __init__(self, tier: Tier, log_dir: Path, cases: list[GoldenCase]) -> None:
        self.tier = tier
        self.log_dir = log_dir
        self.cases = cases
        self.session: Session = tier.session()
        self.being_copied: set[UUID] = set()

    async def copy(self) -> None:
        outcomes = await self.session.copy_once()
        assert all(outcome.error is None for outcome in outcomes.values()), outcomes
        for case in self.cases:
            rows = self.session.finished(partition_of(self.log_dir / case.partition))
            for base in bases_of(self.log_dir / case.partition)[: len(rows)]:
                for path in (self.log_dir / case.partition).glob(f"{base:020d}.*"):
                    path.unlink()

    async def compact(self, scratch: Path) -> tuple[PreparedRun, RunStatistics]:
        """Run once, with the leader here and the job in a thread, and a socket between them."""
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
        prepared = await leader.prepare([self.candidate(case) for case in self.cases])
        socket = scratch / "run" / "leader.sock"
        server = LeaderServer(leader, socket)
        job = PlainJob(socket, self.session.storage, scratch / "scratch")
        try:
            async with server.listening(), asyncio.TaskGroup() as group:
                serving = group.create_task(server.serve())
                group.create_task(asyncio.to_thread(job.run))
            assert serving.result()
        finally:
            found = await leader.end()
        return prepared, found

    def candidate(self, case: GoldenCase) -> Candidate:
        policy = CleaningPolicy(
            compacts=True,
            delete_retention_ms=int(str(case.config.get("delete.retention.ms", DAY_MS))),
            min_cleanable_dirty_ratio=0.0,
            segment_bytes=int(str(case.config["segment.bytes"])),
        )
        view = self.session.metadata.view(partition_of(self.log_dir / case.partition))
        return Candidate(view=view, lineage=Lineage(), policy=policy)


def bases_of(directory: Path) -> list[int]:
    return sorted(int(path.stem) for path in directory.glob("[0-9]*.log"))


@pytest.fixture(params=BROKERS)
async def golden_tier(request: pytest.FixtureRequest, golden: Path, tmp_path: Path) -> AsyncIterator[GoldenTier]:
    cases = [case for case in CASES if case.broker == request.param]
    log_dir = tmp_path / "logdir"
    for case in cases:
        shutil.copytree(stage_dir(golden, case, "compact-before"), log_dir / case.partition)
    ends = [read_offsets(oracle_dir(golden, case, "compact-before"))["highWatermark"] for case in cases]
    names = [TopicPartition.parse(case.partition) for case in cases]
    lines = [f"{name.topic} {name.partition} {end}" for name, end in zip(names, ends, strict=True)]
    (log_dir / "replication-offset-checkpoint").write_text("\n".join(["0", str(len(lines)), *lines, ""]))
    (tmp_path / "bucket").mkdir()
    rows = await SqliteKeyValueStore.open(tmp_path / "metadata.db")
    tier = Tier(tmp_path, [log_dir], store=FilesystemObjectStore(tmp_path / "bucket"), rows=rows)
    tier.clock.step_wall_clock(
        max(time_of_pass(golden, case, "compact-before", "compact-pass1") for case in cases) - tier.clock.now_ms()
    )
    yield GoldenTier(tier, log_dir, cases)
    await rows.close()


async def test_run_leaves_the_same_records_as_the_real_cleaner(
    golden: Path, golden_tier: GoldenTier, tmp_path: Path
) -> None:
    await golden_tier.copy()
    prepared, found = await golden_tier.compact(tmp_path)
    assert len(prepared.order.partitions) == len(golden_tier.cases)
    assert (found.committed, found.problems) == (found.groups, ())
    assert found.tally.bytes_after < found.tally.bytes_before
    assert not golden_tier.being_copied
    for case in golden_tier.cases:
        path, oracle = golden_tier.log_dir / case.partition, oracle_dir(golden, case, "compact-pass1")
        for isolation, name in (
            (IsolationLevel.READ_UNCOMMITTED, "records.jsonl.gz"),
            (IsolationLevel.READ_COMMITTED, "committed.jsonl.gz"),
        ):
            if (oracle / name).exists():
                read = [as_oracle(record) for record in await golden_tier.session.read_all(path, isolation)]
                assert read == expected_records(oracle / name), (case.partition, name)

    again, _ = await golden_tier.compact(tmp_path)
    assert not again.order.partitions
    assert all("nothing is new since it was compacted" in skipped.reason for skipped in again.skipped)


async def test_a_run_leaves_a_sound_tier(golden_tier: GoldenTier, tmp_path: Path) -> None:
    await golden_tier.copy()
    await golden_tier.compact(tmp_path)
    for case in golden_tier.cases:
        path = golden_tier.log_dir / case.partition
        rows = golden_tier.session.rows(partition_of(path))
        assert {row.state for row in rows} == {
            RemoteLogSegmentState.COPY_SEGMENT_FINISHED,
            RemoteLogSegmentState.DELETE_SEGMENT_STARTED,
        }
        assert await golden_tier.session.findings(path) == []
