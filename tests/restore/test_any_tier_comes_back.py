"""Every restore reads any tier as its readers do: what copies, jobs and deletions left there, in any order."""

import asyncio
import tempfile
from collections.abc import Iterable, Sequence
from contextlib import aclosing
from pathlib import Path

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.restore.log_dir.lab import Lab
from tests.restore.stores.store_fixtures import KINDS, content
from tests.restore.stores.test_restored_stores import DAY_MS, restored
from tests.tiering.rebuilding.grown_tier import GrownTier, Step, steps
from tests.tiering.rebuilding.test_any_tier import EPOCH_FORGOTTEN, LOG_START_INSIDE, MERGED_BY_THE_BROKER
from tierd.control import ProducerIdentity
from tierd.log import Damage, Record, UnifiedLog, inspect_path, iter_batches, parse_lineage, repair_partition
from tierd.metadata import PartitionView
from tierd.model import IndexType, Lineage, RemoteLogSegmentMetadata, TopicIdPartition
from tierd.restore import PartitionDrill
from tierd.restore.changelog.sources.remote_segment_source import RemoteSegmentSource, RemoteTier
from tierd.restore.live_cluster.batch_transform import BatchTransform, OutgoingBatch
from tierd.restore.live_cluster.committed_source import CommittedSource
from tierd.restore.plan.log_branches import newest_segment, restored_lineage
from tierd.restore.plan.partition_plan import PartitionPlan, RestoreMode
from tierd.restore.plan.partition_planner import PlanRequest, RestoreFacts, plan_partition
from tierd.restore.plan.topic_retention import TopicRetention

Row = tuple[int, int, bytes | None, bytes | None]
"""Offset, timestamp, key and value of a record."""

ERASED_AT_A_BEGIN: list[Step] = [("write", 0, 0), ("segment", 0, 0), ("copy", 0, 0), ("erase", 0, 0)]
DELETED_AND_COMPACTED: list[Step] = [
    *[("segment", 2, 2), ("segment", 1, 1), ("copy", 0, 0), ("compact", 0, 0), ("delete records", 1, 1)],
    *[("erase", 1, 0), ("segment", 0, 2), ("copy", 0, 0), ("merge", 0, 0), ("epoch", 0, 0), ("segment", 1, 0)],
]


def rows(records: Iterable[Record]) -> list[Row]:
    return [(each.offset, each.timestamp_ms, each.key, each.value) for each in records]


class Restores:
    """Restores of a tier that grew, each into an empty place."""

    def __init__(self, tier: GrownTier, root: Path) -> None:
        self.tier = tier
        self.lab = Lab(root / "target", store=tier.tier.store, partition=tier.partition)
        self.lab.storage = tier.session.storage

    async def plan(self, mode: RestoreMode) -> PartitionPlan:
        view = self.tier.view
        newest = newest_segment(view)
        lineage = Lineage()
        if newest is not None:
            data = await self.lab.storage.fetch_index(newest, IndexType.LEADER_EPOCH)
            lineage = parse_lineage(data, name="newest segment")
        facts = RestoreFacts(
            lineage=restored_lineage(view, newest=lineage, local=Lineage()),
            is_compacted=view.compacted_to is not None,
            retention=TopicRetention(),
        )
        request = PlanRequest(mode=mode, accepts_holes=True, are_others_down=True, now_ms=self.tier.tier.clock.now_ms())
        return plan_partition(view, facts, request)

    async def into_log_dir(self, plan: PartitionPlan) -> list[Row]:
        await self.lab.restore(plan)
        return self._loaded()

    async def drilled(self, plan: PartitionPlan) -> list[Row]:
        async def never(partition: TopicIdPartition) -> PartitionPlan:
            raise AssertionError(f"{partition} has lost no segment")

        drill = PartitionDrill(
            self.lab.storage,
            cluster_id=self.lab.target.cluster_id or "",
            command=None,
            replan=never,
            random=lambda: 0.5,
            arrived=lambda _: None,
        )
        self.lab.log_dir.rmdir()
        proof = await drill.run(plan, self.lab.root)
        assert proof.failure is None
        (self.lab.root / "log-dir").rename(self.lab.log_dir)
        return self._loaded()

    def _loaded(self) -> list[Row]:
        damage = [each for each in inspect_path(self.lab.log_dir, deep=True) if isinstance(each, Damage)]
        assert damage == []
        assert repair_partition(self.lab.directory, now_ms=1, dry_run=True).plan.steps == ()
        log = self.lab.load()
        try:
            log.maybe_increment_high_watermark(log.log_end_offset)
            return rows(read(log))
        finally:
            log.close()

    async def into_topic(self, plan: PartitionPlan) -> list[Row]:
        """Return the records of the batches that a leader of another cluster gets, with the offsets of the source."""
        found: list[Row] = []
        source = CommittedSource(self.lab.storage, plan.parts)
        transform = BatchTransform(ProducerIdentity(5, 0), next_sequence=0, max_batch_bytes=1 << 20)
        end = await source.stable_end_offset(plan.end_offset)
        batches = source.batches(transform, start_offset=plan.log_start_offset, end_offset=end)
        sequence = 0
        async with aclosing(batches) as pieces:
            async for piece in pieces:
                for outgoing in piece:
                    assert outgoing.base_sequence == sequence
                    sequence = outgoing.next_sequence
                    found += received(outgoing)
        return found

    async def into_store(self, kind: str, *, is_compacted: bool) -> dict[bytes, bytes]:
        name = self.tier.partition.topic_partition

        async def load_view(partition: TopicIdPartition) -> PartitionView:
            assert partition == self.tier.partition
            return self.tier.view

        async def is_rewritten(metadata: RemoteLogSegmentMetadata) -> bool:
            return bool((await self.lab.storage.read_manifest(metadata)).replaces)

        source = RemoteSegmentSource(
            {name: self.tier.partition},
            RemoteTier(load_view=load_view, storage=self.lab.storage, is_rewritten=is_rewritten),
            delete_retention=lambda _: DAY_MS if is_compacted else None,
            is_continued=False,
        )
        store = KINDS[kind](str(name))
        root = self.lab.root / "stores"
        root.mkdir()
        outcome = await restored(source, {name: store}, root)
        await source.close()
        assert outcome.failed == {}
        return content(store, root / str(name) / "store")


def received(outgoing: OutgoingBatch) -> list[Row]:
    (batch,) = iter_batches(bytes(outgoing.header) + bytes(outgoing.payload), name="sent")
    offsets = [run.start + n for run in outgoing.runs for n in range(run.length)]
    records = list(batch.checked().records())
    assert [each.offset for each in records] == list(range(len(offsets)))
    return [(offset, *row[1:]) for offset, row in zip(offsets, rows(records), strict=True)]


def read(log: UnifiedLog) -> list[Record]:
    """Return the records of a log from its start."""
    found: list[Record] = []
    offset = log.log_start_offset
    while (answer := log.read(offset, max_bytes=1 << 20)).records:
        for each in iter_batches(answer.records, name="restored"):
            if not each.is_control:
                found += [record for record in each.checked().records() if record.offset >= offset]
            offset = each.last_offset + 1
    return found


def latest(found: Sequence[Row]) -> dict[bytes, bytes]:
    """Return the newest value of each key."""
    store: dict[bytes, bytes] = {}
    for _, _, key, value in found:
        assert key is not None
        if value is None:
            store.pop(key, None)
        else:
            store[key] = value
    return store


async def check(tier: GrownTier, mode: RestoreMode, kind: str, root: Path) -> None:
    restores = Restores(tier, root)
    plan = await restores.plan(mode)
    if not plan.parts:
        assert plan.is_left_out
        return
    expected = rows(await tier.records_of(tier.view, start=plan.log_start_offset))
    assert await restores.into_topic(plan) == expected
    is_replica_of_compacted = mode is RestoreMode.REPLICA and plan.is_compacted
    assert plan.is_refused == is_replica_of_compacted, plan.findings
    if mode is RestoreMode.LAST_COPY:
        assert await restores.drilled(plan) == expected
    elif not is_replica_of_compacted:
        assert await restores.into_log_dir(plan) == expected
    has_holes = any(each.start_offset > plan.log_start_offset for each in plan.missing)
    assert await restores.into_store(kind, is_compacted=plan.is_compacted or has_holes) == latest(expected)


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(steps, st.sampled_from(RestoreMode), st.sampled_from(sorted(KINDS)))
@example(ERASED_AT_A_BEGIN, RestoreMode.LAST_COPY, "dict")
@example(DELETED_AND_COMPACTED, RestoreMode.LAST_COPY, "rocks")
@example(DELETED_AND_COMPACTED, RestoreMode.IMPORT, "sqlite")
@example(LOG_START_INSIDE, RestoreMode.REPLICA, "dict")
@example(EPOCH_FORGOTTEN, RestoreMode.IMPORT, "dict")
@example(MERGED_BY_THE_BROKER, RestoreMode.LAST_COPY, "sqlite")
def test_every_restore_of_any_tier_gives_the_records_that_its_readers_get(
    history: list[Step], mode: RestoreMode, kind: str
) -> None:
    async def play(folder: Path) -> None:
        tier = GrownTier(folder, value=lambda key, offset: None if key == 7 else b"%d" % offset)
        await tier.play(history)
        await check(tier, mode, kind, folder)

    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(play(Path(folder)))
