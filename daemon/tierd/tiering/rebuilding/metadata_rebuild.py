"""MetadataRebuild: rebuilds the metadata of a whole tier from its objects, by partition, into an empty store."""

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final
from uuid import UUID

from tierd.errors import MetadataFillingRefusedError
from tierd.metadata import (
    FillingSource,
    PartitionRow,
    PartitionView,
    RebuildProblem,
    RebuildSeverity,
    StoreFilling,
    differences,
    holds_segments,
    list_partitions,
    read_partition,
    rebuild_partition,
    rows_of,
)
from tierd.model import RemoteLogSegmentState, SoftDelete, TopicIdPartition
from tierd.remote import read_tier_identity
from tierd.tiering.rebuilding.bucket import UNAUTHENTICATED, BucketReader
from tierd.tiering.rebuilding.partition_objects import PartitionObjects, list_partition_objects
from tierd.tiering.stored_tier import StoredTier

_PARTITIONS_AT_ONCE: Final = 16
_REPLACED: Final = "replaced"


@dataclass(slots=True)
class RebuildReport:
    """Report of a rebuild: its findings and its writes.

    Attributes:
        store_id: identity of the metadata store that the tier belongs to; None when the bucket does not have it.
        partitions: number of partitions with at least one segment, or a log start.
        segments: number of readable segments.
        deleting: number of segments whose deletion has begun.
        written: number of partitions that this rebuild wrote.
        unchanged: number of partitions that the store had already, equal.
        differing: differences between the store and the bucket, where the store is not filled.
        problems: problems in the bucket.
        erasures: number of erase requests that were filed again from their reports; a comparison ignores them.
    """

    store_id: UUID | None = None
    partitions: int = 0
    segments: int = 0
    deleting: int = 0
    written: int = 0
    unchanged: int = 0
    differing: list[str] = field(default_factory=list)
    problems: list[RebuildProblem] = field(default_factory=list)
    erasures: int = 0

    @property
    def is_sound(self) -> bool:
        """Return True if all problems are notes."""
        return all(problem.severity is RebuildSeverity.NOTE for problem in self.problems)

    @property
    def has_unauthenticated(self) -> bool:
        """Return True if an object was left out because no holder of the key ring is proven to have written it."""
        return any(p.severity is RebuildSeverity.CONFLICT and p.kind == UNAUTHENTICATED for p in self.problems)


class MetadataRebuild:
    """Rebuild of one cluster's tier.

    A store without segments is filled. A store that an interrupted rebuild of the same tier began to fill is completed.
    Any other store is compared and not written. Partitions that were claimed but have no segment count as empty: a
    daemon that found the store empty has claimed them.

    Args:
        tier: the tier in its two stores; its rows are filled.
        session_id: becomes the owner of every partition until its next leader claims it.
        grace_ends_ms: wall clock before which no object is removed whose deletion has begun.
        on_progress: is called with lines about the progress.
        accepts_unauthenticated: accept also objects that no holder of the key ring is proven to have written.
        dry_run: read and compare, write nothing.
        strict_kafka_compat: as in ``PartitionView``.
    """

    def __init__(
        self,
        tier: StoredTier,
        *,
        session_id: UUID,
        grace_ends_ms: int,
        on_progress: Callable[[str], None],
        accepts_unauthenticated: bool = False,
        dry_run: bool = False,
        strict_kafka_compat: bool = False,
    ) -> None:
        self._store = tier.objects
        self._metadata = tier.rows
        self._keys = tier.row_keys
        self._object_keys = tier.object_keys
        self._reader = BucketReader(
            tier.objects, tier.segments, tier.object_keys, accepts_unauthenticated=accepts_unauthenticated
        )
        self._plan = partial(
            rebuild_partition,
            session_id=session_id,
            replaced=SoftDelete.replaced(delete_after_ms=grace_ends_ms),
            strict_kafka_compat=strict_kafka_compat,
        )
        self._strict_kafka_compat = strict_kafka_compat
        self._on_progress = on_progress
        self._dry_run = dry_run
        self._fills = False
        self._slots = asyncio.Semaphore(_PARTITIONS_AT_ONCE)
        self._report = RebuildReport()
        self._seen: set[TopicIdPartition] = set()
        self._names: dict[tuple[UUID, int], str] = {}
        self._without_segments: list[PartitionView] = []  # settled last: a name is believed rather with segments

    async def run(self) -> RebuildReport:
        """Rebuild the metadata. Cancelled or failed, it leaves whole partitions and a note; another run continues.

        Raises:
            MetadataFillingRefusedError: an import, or the rebuild of another tier, is not complete; or another program
                writes to the store.
            RemoteStorageError: the object store failed.
            BackendUnavailableError: the metadata store did not answer.
            OutcomeUnknownError: the metadata store did not answer a write.
        """
        report = self._report
        report.store_id = await read_tier_identity(
            self._store, key_prefix=self._object_keys.prefix, cluster_id=self._object_keys.cluster_id
        )
        filling = StoreFilling(self._metadata, self._keys, FillingSource("rebuild", self._source()))
        self._fills = await filling.is_begun() or not await holds_segments(self._metadata, self._keys)
        if self._fills and not self._dry_run:
            await filling.begin()
        await self._partitions(filling)
        if self._fills and not self._dry_run:
            await filling.complete(
                store_id=report.store_id, tiers=[self._object_keys.prefix] if report.store_id else []
            )
        if not self._fills:
            await self._compare_unseen()
        report.problems.sort(key=lambda problem: (problem.where, problem.kind))
        return report

    def _source(self) -> str:
        return f"{self._object_keys.root} of store {self._report.store_id}"

    async def _partitions(self, filling: StoreFilling) -> None:
        async with (
            asyncio.TaskGroup() as group,
            contextlib.aclosing(list_partition_objects(self._store, self._object_keys)) as listing,
        ):
            previous: asyncio.Event | None = None
            async for found in listing:
                if isinstance(found, RebuildProblem):
                    self._report.problems.append(found)
                    continue
                await self._slots.acquire()
                named = asyncio.Event()
                task = group.create_task(
                    self._partition(found, filling, previous, named), name=f"rebuild {found.partition}"
                )
                task.add_done_callback(lambda _: self._slots.release())
                previous = named
        for view in sorted(self._without_segments, key=lambda view: view.partition):
            await self._settle(view, filling)

    async def _compare_unseen(self) -> None:
        for partition in await list_partitions(self._metadata, self._keys):
            if partition not in self._seen:
                stored = await read_partition(self._metadata, self._keys, partition)
                self._report.differing += differences(stored, PartitionView(partition))

    async def _partition(
        self, objects: PartitionObjects, filling: StoreFilling, previous: asyncio.Event | None, named: asyncio.Event
    ) -> None:
        """Read, plan and settle a partition. It claims its name after the previous one of the listing has."""
        found = await self._reader.read(objects)
        rebuilt = await asyncio.to_thread(
            partial(self._plan, objects.partition, found.segments, log_start=found.log_start)
        )
        self._report.problems += [*found.problems, *rebuilt.problems]
        if previous is not None:
            await previous.wait()
        if rebuilt.view.segments:
            self._claim_name(rebuilt.view.partition)
        named.set()
        if rebuilt.view.segments:
            await self._settle(rebuilt.view, filling)
        elif rebuilt.view.row is not None:
            self._without_segments.append(rebuilt.view)

    async def _settle(self, view: PartitionView, filling: StoreFilling) -> None:
        """Write a partition, or compare it; objects under another name of the same topic id are a conflict."""
        name = self._claim_name(view.partition)
        if name != view.partition.topic:
            what = f"its topic id is that of {name}, whose segments are in the metadata; these are left out"
            problem = RebuildProblem(RebuildSeverity.CONFLICT, "two names", str(view.partition), what)
            self._report.problems.append(problem)
            return
        self._seen.add(view.partition)
        report, partition = self._report, view.partition
        stored = await read_partition(
            self._metadata, self._keys, partition, strict_kafka_compat=self._strict_kafka_compat
        )
        if stored.segments or stored.tombstones or not self._fills:
            different = differences(stored, view)
            report.differing += different
            report.unchanged += not different
            if different and self._fills:
                raise MetadataFillingRefusedError(
                    different[0], remedy="stop every tierd that uses this metadata store; begin with an empty one"
                )
        elif not self._dry_run:
            await self._write(view, stored.row, filling)
            report.written += 1
        readable = sum(m.state is RemoteLogSegmentState.COPY_SEGMENT_FINISHED for m in view.segments.values())
        report.partitions += 1
        report.segments += readable
        report.deleting += len(view.segments) - readable
        self._on_progress(f"{report.partitions} partitions, {report.segments} segments")

    def _claim_name(self, partition: TopicIdPartition) -> str:
        """Return the topic name of the topic id and partition number, which is the one claimed first."""
        return self._names.setdefault((partition.topic_id, partition.partition), partition.topic)

    async def _write(self, view: PartitionView, claimed: PartitionRow | None, filling: StoreFilling) -> None:
        row = view.row
        assert row is not None
        if claimed is not None:
            # A daemon that found the store empty wrote the claim; its log start is that of the local log.
            claim = max(claimed.claim, row.claim, key=lambda claim: claim.leader_epoch)
            row = replace(
                claimed.bumped(view.newest_epochs),
                claim=claim._replace(session_id=row.claim.session_id),
                log_start_offset=row.log_start_offset,
                recorded_log_start=row.recorded_log_start,
                only_broker_id=row.only_broker_id,
            )
        rows = await asyncio.to_thread(rows_of, view, self._keys)
        await filling.write(view.partition, rows, row, stored=claimed)
