"""Whole runs on a real session: their effect on a tier, without and with failures."""

import asyncio
import base64
import os
import signal
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import ClassVar, Self, cast
from uuid import uuid4

import pytest
from pyspark.sql import SparkSession

from tests.fakes.log_dirs import LogDirWriter, PartitionWriter
from tests.fakes.transforms import RING_KEYS
from tests.pipeline.spark.job_lab import JobLab
from tests.tiering.setups import CLUSTER_ID
from tierd.errors import RetriableRemoteStorageError
from tierd.log import Compression, NewRecord, encode_batch
from tierd.metadata import Batch, Delete
from tierd.model import (
    ByteRange,
    IndexType,
    IsolationLevel,
    LogSegmentData,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
    uuid_to_text,
)
from tierd.pipeline.access import OpenTier, TierAccess
from tierd.pipeline.committing import LeaderClient
from tierd.pipeline.committing.messages import Begun
from tierd.pipeline.jobs.job_progress import JobProgress
from tierd.pipeline.jobs.job_run import JobRun
from tierd.pipeline.planning import CleaningPolicy, PartitionWork, WorkKind, WorkOrder
from tierd.pipeline.planning.work_order import Group
from tierd.remote import ObjectKeyFactory, SegmentManifest

COMPACT = CleaningPolicy(compacts=True, min_cleanable_dirty_ratio=0.0, segment_bytes=600)
MERGE = CleaningPolicy(merge_below_bytes=1 << 20)
KEPT = CleaningPolicy()
SEGMENT_RECORDS = 10
OLD_KEY = {"id": "old", "key": base64.b64encode(RING_KEYS["old"]).decode()}
ENCRYPTED = {
    "compression": {"type": "zstd"},
    "encryption": {"enabled": True, "active_key": "old", "keys": [OLD_KEY]},
}


def fill(writer: PartitionWriter, *, segments: int, keys: int, first: int = 0, size_bytes: int = 0) -> None:
    """Write rolled segments of ten records; record ``n`` has the key ``n`` modulo ``keys``, and its number as value.

    Values are padded to ``size_bytes``.
    """
    for segment in range(segments):
        numbers = range(first + segment * SEGMENT_RECORDS, first + (segment + 1) * SEGMENT_RECORDS)
        records = [
            NewRecord(b"%d" % (n % keys), (b"value %d" % n).ljust(size_bytes), 1_700_000_000_000 + n) for n in numbers
        ]
        writer.append_batch(encode_batch(records), len(records))
        writer.roll()


def latest(numbers: range, keys: int) -> dict[bytes, bytes]:
    return {b"%d" % (n % keys): b"value %d" % n for n in numbers}


def damage(root: Path, metadata: RemoteLogSegmentMetadata, suffix: str) -> None:
    """Change a bit of an object."""
    path = next((root / "bucket").rglob(f"*{uuid_to_text(metadata.segment.id)}{suffix}"))
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


async def contents(lab: JobLab, name: str) -> list[tuple[bytes | None, bytes | None]]:
    return [(record.key, record.value) for record in await lab.read(name)]


class Log:
    """Log dir whose partitions a test fills, and the lab over it."""

    def __init__(self, root: Path, names: tuple[str, ...]) -> None:
        self._root = root
        self.writer = LogDirWriter(root / "logdir")
        self.partitions = {f"{name}-0": self.writer.add_partition(name) for name in names}

    @asynccontextmanager
    async def copied(self, **remote: object) -> AsyncIterator[JobLab]:
        """Return the lab with all written records in the tier alone."""
        self.writer.write_checkpoints()
        async with JobLab.opened(self._root, self.writer.path, **remote) as lab:
            await lab.copy()
            yield lab


async def test_run_keeps_the_latest_record_of_every_key_and_the_next_run_has_no_work(
    tmp_path: Path, spark: SparkSession
) -> None:
    log = Log(tmp_path, ("orders", "users"))
    fill(log.partitions["orders-0"], segments=6, keys=7)
    fill(log.partitions["users-0"], segments=3, keys=1000)
    async with log.copied() as lab:
        policies = {"orders-0": COMPACT, "users-0": replace(COMPACT, segment_bytes=300)}
        before = {row.segment for row in lab.rows("users-0")}
        found = await lab.compact(spark.sparkContext, policies)
        assert (found.committed > 1, found.unchanged, found.failed, found.refused) == (True, 3, 0, 0)
        assert dict(await contents(lab, "orders-0")) == latest(range(60), 7)
        assert len(await contents(lab, "orders-0")) == 7
        assert {row.segment for row in lab.rows("users-0")} == before, "no segment would change"
        assert (await lab.compact(spark.sparkContext, policies)).groups == 0

        fill(log.partitions["orders-0"], segments=2, keys=7, first=60)
        log.writer.write_checkpoints()
        await lab.copy()
        found = await lab.compact(spark.sparkContext, policies)
        assert (found.committed > 0, found.failed, found.refused) == (True, 0, 0)
        assert dict(await contents(lab, "orders-0")) == latest(range(80), 7)
        assert len(await contents(lab, "orders-0")) == 7
        assert await lab.session.findings(lab.log_dir / "orders-0") == []


@pytest.mark.parametrize("remote", [{}, ENCRYPTED], ids=["plain", "encrypted"])
async def test_runs_write_the_same_with_and_without_the_stored_hashes_of_keys(
    tmp_path: Path, spark: SparkSession, remote: dict[str, object]
) -> None:
    written, fetched = [], []
    for name in ("with", "without"):
        (tmp_path / name).mkdir()
        log = Log(tmp_path / name, ("orders",))
        for first in (0, 40):
            fill(log.partitions["orders-0"], segments=4, keys=25, first=first, size_bytes=500)
        async with log.copied(**remote) as lab:
            policies = {"orders-0": replace(COMPACT, segment_bytes=6000)}
            await lab.compact(spark.sparkContext, policies)
            rows = lab.session.metadata.rows
            manifests = [await lab.session.storage.read_manifest(row) for row in readable(lab, "orders-0")]
            assert any(manifest.index(IndexType.KEY_HASHES) for manifest in manifests)
            if name == "without":  # as after a rebuild of the metadata
                await rows.apply(Batch([Delete(lab.session.metadata.keys.key_secret_key)]))
            fill(log.partitions["orders-0"], segments=1, keys=5, first=80, size_bytes=500)
            log.writer.write_checkpoints()
            await lab.copy()
            runs: list[JobRun] = []
            found = await lab.lead(policies, lambda: runs.append(run_job(spark, lab)))  # noqa: B023  ends in here
            assert (found.committed > 0, found.failed, found.refused) == (True, 0, 0)
            fetched.append(runs[0].fetched_bytes)
            whole = ByteRange.of_size(0, 1 << 20)
            written.append([await lab.session.storage.fetch_log_segment(r, whole) for r in readable(lab, "orders-0")])
            assert await lab.session.findings(lab.log_dir / "orders-0") == []
    assert written[0] == written[1]
    assert fetched[0] < fetched[1]


def readable(lab: JobLab, name: str) -> list[RemoteLogSegmentMetadata]:
    finished = RemoteLogSegmentState.COPY_SEGMENT_FINISHED
    return sorted((row for row in lab.rows(name) if row.state is finished), key=lambda row: row.start_offset)


def run_job(spark: SparkSession, lab: JobLab) -> JobRun:
    """Carry out the order that is led, and return the run."""
    leader = LeaderClient.connect(lab.socket)
    try:
        run = JobRun(spark.sparkContext, leader, lab.access, leader.order(), JobProgress())
        leader.done(run.run())
        return run
    finally:
        leader.close()


async def test_run_over_compressed_and_encrypted_segments_keeps_their_transform(
    tmp_path: Path, spark: SparkSession
) -> None:
    log = Log(tmp_path, ("orders",))
    fill(log.partitions["orders-0"], segments=4, keys=7)
    async with log.copied(**ENCRYPTED) as lab:
        found = await lab.compact(spark.sparkContext, {"orders-0": COMPACT})
        assert (found.committed, found.failed, found.refused) == (found.groups, 0, 0)
        assert dict(await contents(lab, "orders-0")) == latest(range(40), 7)
        assert not any(b"value" in path.read_bytes() for path in (tmp_path / "bucket").rglob("*.log"))


def large(key: bytes) -> bytes:
    """Return a batch of some kilobytes that unpacks to more than tierd opens: two records, one of 257 MiB."""
    records = [NewRecord(key, b"in the large batch", 1_700_000_000_000), NewRecord(b"large", bytes(257 << 20), 0)]
    return bytes(encode_batch(records, compression=Compression.ZSTD))


async def test_compaction_keeps_and_counts_a_batch_that_unpacks_to_257_mib(tmp_path: Path, spark: SparkSession) -> None:
    log = Log(tmp_path, ("orders",))
    writer = log.partitions["orders-0"]
    fill(writer, segments=2, keys=7)
    batch = large(b"1")
    writer.append_batch(batch, 2)  # 20 and 21, a segment of its own
    writer.roll()
    writer.append_batch(encode_batch([NewRecord(b"1", None, 1_700_000_000_000)]), 1)  # 22
    writer.roll()
    fill(writer, segments=1, keys=1, first=30)
    async with log.copied() as lab:
        for day in range(3):  # the first sets the tombstone's delete horizon
            lab.at(lab.tier.clock.now_ms() + day * 3 * 86_400_000)
            found = await lab.compact(spark.sparkContext, {"orders-0": COMPACT})
            assert (found.failed, found.refused) == (0, 0), found.problems
            if found.groups:
                assert found.counts["batches_unread"] == 1
        reader = lab.session.reader(lab.log_dir / "orders-0")
        behind = [(r.offset, r.key, r.value) async for r in reader.records(22, None, IsolationLevel.READ_UNCOMMITTED)]
        assert behind[0] == (22, b"1", None), "the hidden record may be in the batch"
        before = {r.key: r.value async for r in reader.records(None, 20, IsolationLevel.READ_UNCOMMITTED)}
        assert before == {key: value for key, value in latest(range(20), 7).items() if key not in {b"0", b"1"}}
        logs = [path.read_bytes() for path in (tmp_path / "bucket").rglob("*.log")]
        assert any(batch[61:] in data for data in logs), "byte for byte"


async def test_merge_of_small_segments_loses_no_record(tmp_path: Path, spark: SparkSession) -> None:
    log = Log(tmp_path, ("orders",))
    fill(log.partitions["orders-0"], segments=5, keys=3)
    async with log.copied() as lab:
        before = await contents(lab, "orders-0")
        found = await lab.compact(spark.sparkContext, {"orders-0": MERGE})
        assert (found.groups, found.committed) == (1, 1)
        assert lab.finished("orders-0") == [(0, 49)]
        assert await contents(lab, "orders-0") == before
        assert await lab.session.findings(lab.log_dir / "orders-0") == []


async def test_erasure_rewrites_only_segments_with_the_key(tmp_path: Path, spark: SparkSession) -> None:
    log = Log(tmp_path, ("orders",))
    fill(log.partitions["orders-0"], segments=4, keys=1000)
    async with log.copied() as lab:
        before = lab.rows("orders-0")
        found = await lab.compact(spark.sparkContext, {"orders-0": KEPT}, erased_keys=[b"13", b"14", b"none"])
        assert (found.committed, found.unchanged, found.counts["records_erased"]) == (1, 3, 2)
        assert [key for key, _ in await contents(lab, "orders-0")] == [
            b"%d" % n for n in range(40) if n not in {13, 14}
        ]
        kept = [row.segment for row in lab.rows("orders-0") if row.start_offset != 10]
        assert kept == [row.segment for row in before if row.start_offset != 10]


async def test_damaged_segment_is_reported_and_only_its_group_is_not_rewritten(
    tmp_path: Path, spark: SparkSession
) -> None:
    log = Log(tmp_path, ("orders", "users"))
    fill(log.partitions["orders-0"], segments=6, keys=7)
    fill(log.partitions["users-0"], segments=4, keys=7)
    async with log.copied() as lab:
        damaged = lab.rows("orders-0")[2]
        damage(tmp_path, damaged, ".log")
        found = await lab.compact(spark.sparkContext, {"orders-0": COMPACT, "users-0": COMPACT})
        assert (found.failed, found.refused) == (1, 0)
        assert uuid_to_text(damaged.segment.id) in found.problems[0].problem
        assert damaged in lab.rows("orders-0")
        assert found.committed == found.groups - 1
        assert dict(await contents(lab, "users-0")) == latest(range(40), 7)


async def test_audit_finds_damaged_segments_and_changes_no_row(tmp_path: Path, spark: SparkSession) -> None:
    log = Log(tmp_path, ("orders",))
    fill(log.partitions["orders-0"], segments=3, keys=7)
    async with log.copied() as lab:
        before = lab.rows("orders-0")
        damage(tmp_path, before[1], ".log")
        damage(tmp_path, before[2], ".indexes")
        order, leader = audit_of(before), RecordingLeader()
        run = JobRun(spark.sparkContext, cast("LeaderClient", leader), lab.access, order, JobProgress())
        assert await asyncio.to_thread(run.run) == {"groups_unchanged": 1, "groups_failed": 2}
        assert leader.unchanged_groups == [0]
        assert [uuid_to_text(row.segment.id) in leader.problems[at] for at, row in enumerate(before) if at] == [
            True
        ] * 2
        assert lab.rows("orders-0") == before


def audit_of(rows: Sequence[RemoteLogSegmentMetadata]) -> WorkOrder:
    """Return an order to read every byte of some segments."""
    work = PartitionWork(
        index=0,
        partition=rows[0].segment.topic_id_partition,
        kind=WorkKind.AUDIT,
        inputs=tuple(rows),
        groups=tuple(Group(at, at) for at in range(len(rows))),
        first_dirty_offset=0,
        round_end_offset=rows[-1].end_offset + 1,
        delete_retention_ms=0,
        producer_snapshot=b"",
    )
    return WorkOrder(run_id=uuid4(), now_ms=0, secret=bytes(16), partitions=(work,))


class RecordingLeader:
    """Leader that records its messages, and refuses to begin an output."""

    def __init__(self) -> None:
        self.unchanged_groups: list[int] = []
        self.problems: dict[int, str] = {}

    def unchanged(self, index: int, group: int, counts: Mapping[str, int]) -> None:
        assert (index, counts) == (0, {})
        self.unchanged_groups.append(group)

    def failed(self, index: int, group: int, problem: str) -> None:
        assert index == 0
        self.problems[group] = problem


class SabotagedLeader(LeaderClient):
    """Leader that lets a fault happen whenever the second group of a partition was begun."""

    in_the_way: ClassVar[list[Callable[[RemoteLogSegmentMetadata], None]]] = []

    def begin(self, index: int, groups: Iterable[int]) -> Begun:
        begun = super().begin(index, groups)
        for output in begun.outputs:
            if output.group == 1:
                self.in_the_way[0](output.metadata)
        return begun


async def test_existing_object_with_other_bytes_fails_only_its_group(tmp_path: Path, spark: SparkSession) -> None:
    log = Log(tmp_path, ("orders",))
    fill(log.partitions["orders-0"], segments=6, keys=7)
    async with log.copied() as lab:
        keys = ObjectKeyFactory("", CLUSTER_ID)

        def put(metadata: RemoteLogSegmentMetadata) -> None:
            path = tmp_path / "bucket" / keys.segment(metadata, ".log")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(b"something else")

        SabotagedLeader.in_the_way[:] = [put]
        found = await lab.compact(spark.sparkContext, {"orders-0": COMPACT}, client=SabotagedLeader)
        assert (found.failed, found.committed) == (1, found.groups - 1)
        assert dict(await contents(lab, "orders-0")) == latest(range(60), 7)
        found = await lab.compact(spark.sparkContext, {"orders-0": COMPACT})
        assert (found.failed, found.refused) == (0, 0)
        assert len(await contents(lab, "orders-0")) == 7


async def test_store_that_fails_half_way_leaves_the_remaining_groups_unchanged(
    tmp_path: Path, spark: SparkSession
) -> None:
    log = Log(tmp_path, ("orders",))
    fill(log.partitions["orders-0"], segments=6, keys=7)
    async with log.copied() as lab:
        access = FailingAccess.of(lab.access, from_offset=20)
        found = await lab.compact(spark.sparkContext, {"orders-0": COMPACT}, access=access)
        assert found.failed > 1
        assert found.committed == found.groups - found.failed
        assert dict(await contents(lab, "orders-0")) == latest(range(60), 7)
        assert (await lab.compact(spark.sparkContext, {"orders-0": COMPACT})).failed == 0
        assert len(await contents(lab, "orders-0")) == 7


async def test_killed_worker_fails_at_most_the_group_that_kills_it(tmp_path: Path, spark: SparkSession) -> None:
    log = Log(tmp_path, ("orders",))
    fill(log.partitions["orders-0"], segments=6, keys=7)
    async with log.copied() as lab:
        access = DeadlyAccess.of(lab.access, from_offset=40)
        found = await lab.compact(spark.sparkContext, {"orders-0": COMPACT}, access=access)
        assert found.failed >= 1
        assert found.committed == found.groups - found.failed >= 1
        assert dict(await contents(lab, "orders-0")) == latest(range(60), 7)


async def test_encrypted_output_of_a_task_that_died_after_storing_is_committed_by_its_repetition(
    tmp_path: Path, spark: SparkSession
) -> None:
    log = Log(tmp_path, ("orders",))
    fill(log.partitions["orders-0"], segments=6, keys=7)
    async with log.copied(**ENCRYPTED) as lab:
        (tmp_path / "deaths").mkdir()
        access = OnceDeadlyAccess.of(lab.access, from_offset=20, deaths=tmp_path / "deaths")
        found = await lab.compact(spark.sparkContext, {"orders-0": COMPACT}, access=access)
        assert list(access.deaths.iterdir()), "a task died"
        assert (found.committed, found.failed, found.refused) == (found.groups, 0, 0)
        assert dict(await contents(lab, "orders-0")) == latest(range(60), 7)
        assert len(await contents(lab, "orders-0")) == 7
        assert await lab.session.findings(lab.log_dir / "orders-0") == []


@dataclass(frozen=True, slots=True, kw_only=True)
class FailingAccess(TierAccess):
    """Access to a tier that stores no output that begins at ``from_offset`` or behind it."""

    from_offset: int

    @classmethod
    def of(cls, access: TierAccess, *, from_offset: int) -> Self:
        known = {field.name: getattr(access, field.name) for field in fields(access)}
        return cls(**known, from_offset=from_offset)

    @contextmanager
    def open(self) -> Iterator[OpenTier]:
        with TierAccess.open(self) as tier:
            stage = tier.stage

            def staged(metadata: RemoteLogSegmentMetadata, data: LogSegmentData, *, key_seed: bytes) -> SegmentManifest:
                if metadata.start_offset >= self.from_offset:
                    self.fail()
                return stage(metadata, data, key_seed=key_seed)

            tier.stage = staged  # type: ignore[method-assign]
            yield tier

    def fail(self) -> None:
        raise RetriableRemoteStorageError("the store is busy")


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadlyAccess(FailingAccess):
    """Access to a tier that kills the worker that stores such an output."""

    def fail(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)


@dataclass(frozen=True, slots=True, kw_only=True)
class OnceDeadlyAccess(TierAccess):
    """Access to a tier that kills one worker, once it has stored an output that begins at ``from_offset`` or behind.

    Only one worker dies: the job abandons a wave of groups at the first death, and then tries each group once more.
    """

    from_offset: int
    deaths: Path

    @classmethod
    def of(cls, access: TierAccess, *, from_offset: int, deaths: Path) -> Self:
        known = {field.name: getattr(access, field.name) for field in fields(access)}
        return cls(**known, from_offset=from_offset, deaths=deaths)

    @contextmanager
    def open(self) -> Iterator[OpenTier]:
        with TierAccess.open(self) as tier:
            stage = tier.stage

            def staged(metadata: RemoteLogSegmentMetadata, data: LogSegmentData, *, key_seed: bytes) -> SegmentManifest:
                manifest = stage(metadata, data, key_seed=key_seed)
                if metadata.start_offset >= self.from_offset and self._is_first():
                    os.kill(os.getpid(), signal.SIGKILL)
                return manifest

            tier.stage = staged  # type: ignore[method-assign]
            yield tier

    def _is_first(self) -> bool:
        try:
            (self.deaths / "died").touch(exist_ok=False)
        except FileExistsError:
            return False
        return True
