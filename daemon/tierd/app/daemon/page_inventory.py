"""PageInventory: the contents of the tier for the pages, from views in memory; no call of it holds the loop long."""

import asyncio
import os
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final
from uuid import UUID

from tierd.app.commands.tier_inventory import read_manifest_facts
from tierd.app.daemon.bounded_jobs import BoundedJobs
from tierd.clock import Clock
from tierd.control import Role
from tierd.errors import TierError
from tierd.metadata import PartitionView, RemoteLogMetadataManager
from tierd.model import RemoteLogSegmentMetadata, TopicIdPartition, TopicPartition, uuid_to_text
from tierd.remote import SegmentStorage
from tierd.serve import CopyOnNode, HostInventory, LocalPiece, PartitionLayout
from tierd.tiering import ManifestFacts, PartitionInventory, Replica, Tiering, partition_inventory

MANIFESTS_KEPT: Final = 20_000
"""Facts of manifests in memory, about 4 MB together."""

_TURN_S: Final = 0.01  # of the event loop, before other tasks have theirs
_STORE_TIMEOUT_S: Final = 3.0
_METADATA_TIMEOUT_S: Final = 2.0

CopiesOf = Callable[[TopicPartition], Sequence[CopyOnNode]]
"""Function that returns the copies of a partition by push replication, as far as this host knows them."""


class PageInventory:
    """Contents of the tier by partition, computed once for each change of a partition."""

    def __init__(
        self,
        tiering: Tiering,
        metadata: RemoteLogMetadataManager,
        storage: SegmentStorage,
        copies_of: CopiesOf,
        *,
        jobs: BoundedJobs,
        clock: Clock,
    ) -> None:
        """Read nothing yet; ``jobs`` looks at files."""
        self._tiering = tiering
        self._metadata = metadata
        self._storage = storage
        self._copies_of = copies_of
        self._jobs = jobs
        self._clock = clock
        self._known: dict[TopicIdPartition, tuple[PartitionView, PartitionInventory]] = {}
        self._manifests: OrderedDict[UUID, ManifestFacts] = OrderedDict()

    async def inventory(self) -> HostInventory:
        """Return the contents of the led partitions, and why those of the others are not known here.

        A call that is cancelled keeps what it has computed.
        """
        found: list[PartitionInventory] = []
        elsewhere: dict[TopicPartition, str] = {}
        turn_s = self._clock.monotonic_s()
        replicas = self._tiering.replicas.all()
        for replica in replicas:
            try:
                found.append(self._of(replica))
            except TierError as error:
                elsewhere[replica.local.partition.topic_partition] = _why_unknown(replica, error)
            if self._clock.monotonic_s() - turn_s > _TURN_S:
                await asyncio.sleep(0)
                turn_s = self._clock.monotonic_s()
        here = {replica.local.partition for replica in replicas}
        for gone in [partition for partition in self._known if partition not in here]:
            del self._known[gone]
        return HostInventory(partitions=tuple(found), elsewhere=elsewhere)

    async def partition(self, name: TopicPartition) -> PartitionLayout | None:
        """Return the facts of a partition within seconds; None if neither a log dir nor a standby here has it."""
        replica = self._replica(name)
        copies = tuple(self._copies_of(name))
        if replica is None:
            return PartitionLayout(partition=name, now_ms=self._clock.now_ms(), standbys=copies) if copies else None
        view, problem = await self._view(replica.local.partition)
        status = await self._tiering.manager.status_of(replica)
        rows = () if view is None else view.list()
        return PartitionLayout(
            partition=name,
            now_ms=self._clock.now_ms(),
            topic_id=uuid_to_text(replica.local.partition.topic_id),
            status=status,
            rows=rows,
            tier_problem=problem,
            log_start_offset=status.log_start_offset if view is None else view.log_start_offset,
            compacted_to=None if view is None else view.compacted_to,
            local=await self._jobs.run(lambda: _local(replica), default=()),
            standbys=copies,
            manifests=self._read(row.segment.id for row in rows),
        )

    async def manifests(self, rows: Sequence[RemoteLogSegmentMetadata]) -> tuple[Mapping[UUID, ManifestFacts], str]:
        """Return the facts of the manifests of segments, and why some are not known; the store has three seconds."""
        missing, problem = [row for row in rows if row.segment.id not in self._manifests], ""
        try:
            async with asyncio.timeout(_STORE_TIMEOUT_S) as deadline:
                read = await read_manifest_facts(self._storage, missing)
        except* TimeoutError:
            if not deadline.expired():
                raise
            problem = f"the object store did not answer within {_STORE_TIMEOUT_S:.0f} s"
        except* TierError as errors:
            problem = str(errors.exceptions[0])
        else:
            self._remember(read)
        for partition in {row.segment.topic_id_partition for row in rows}:
            self._known.pop(partition, None)
        return self._read(row.segment.id for row in rows), problem

    def _read(self, segment_ids: Iterable[UUID]) -> dict[UUID, ManifestFacts]:
        """Return the facts of those segments whose manifests were read."""
        return {each: self._manifests[each] for each in segment_ids if each in self._manifests}

    def _remember(self, facts: Mapping[UUID, ManifestFacts]) -> None:
        self._manifests.update(facts)
        while len(self._manifests) > MANIFESTS_KEPT:
            self._manifests.popitem(last=False)

    def _of(self, replica: Replica) -> PartitionInventory:
        """Return the contents of a led partition.

        Raises:
            TierError: it is not led here, or not loaded.
        """
        partition = replica.local.partition
        view = self._metadata.view(partition)
        kept = self._known.get(partition)
        if kept is None or kept[0] is not view:
            rows = view.list()
            known = {
                each: self._manifests[each] for each in (row.segment.id for row in rows) if each in self._manifests
            }
            kept = self._known[partition] = (view, partition_inventory(partition, rows, known or None))
        return kept[1]

    def _replica(self, name: TopicPartition) -> Replica | None:
        named = [each for each in self._tiering.replicas.all() if each.local.partition.topic_partition == name]
        return next((each for each in named if each.tasks.copy is not None), named[0] if named else None)

    async def _view(self, partition: TopicIdPartition) -> tuple[PartitionView | None, str]:
        try:
            async with asyncio.timeout(_METADATA_TIMEOUT_S):
                return await self._metadata.read_view(partition), ""
        except TimeoutError:
            return None, f"the metadata store did not answer within {_METADATA_TIMEOUT_S:.0f} s"
        except TierError as error:
            return None, str(error)


def _why_unknown(replica: Replica, error: TierError) -> str:
    role = None if replica.leadership is None else replica.leadership.role
    if role is None:
        return "no leader is known yet"
    if role is Role.LEADER:
        return str(error)
    return "its topic was deleted" if role is Role.DELETED else "another broker leads it: ask the daemon there"


def _local(replica: Replica) -> tuple[LocalPiece, ...]:
    """Return the segments in the log dir and the held ones. Blocking."""
    pending = {held.base_offset: held for held in replica.local.pending}
    pieces = [
        LocalPiece(
            base_offset=held.base_offset,
            next_base_offset=held.next_base_offset,
            size_bytes=held.size_bytes,
            modified_ms=held.modified_ms,
            waits=True,
        )
        for held in pending.values()
    ]
    for segment in replica.local.scan.segments:
        if segment.base_offset in pending:
            continue
        try:
            status = os.stat(segment.log)  # noqa: PTH116 - one call per segment of thousands
        except OSError:  # the broker has deleted it since the scan
            continue
        pieces.append(
            LocalPiece(
                base_offset=segment.base_offset,
                next_base_offset=segment.next_base_offset,
                size_bytes=status.st_size,
                modified_ms=status.st_mtime_ns // 1_000_000,
            )
        )
    return tuple(sorted(pieces, key=lambda piece: piece.base_offset))
