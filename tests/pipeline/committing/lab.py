"""Tier in memory, its leader, and the part of the job in a run done by hand; no log is decoded."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from uuid import UUID, uuid4

from tests.fakes.clock import FakeClock
from tests.fakes.memory_object_store import MemoryObjectStore
from tests.fakes.remote_segments import FINISHED, PARTITION, segment
from tests.fakes.transforms import KEY_SEED
from tierd.log import AbortedTransaction, ProducerStateEntry, TransactionIndex
from tierd.log.producers.producer_state import encode_producer_snapshot
from tierd.metadata import KeyValueStore, MemoryKeyValueStore, RemoteLogMetadataManager
from tierd.model import Lineage, LogSegmentData, RemoteLogSegmentMetadata, RemoteLogSegmentState, TopicIdPartition
from tierd.pipeline.committing import CompactionLeader, LeaderSettings, OpenOutputs
from tierd.pipeline.committing.replacing import OutputStorage
from tierd.pipeline.planning import Candidate, CleaningPolicy, Output, WorkOrder
from tierd.remote import SegmentManifest, SegmentStorage
from tierd.testing import checksums_of, content_of

COMPACTED = CleaningPolicy(compacts=True, segment_bytes=250)
NOTHING_HIDDEN = {"records_tombstone": 0, "records_expired": 0, "records_superseded": 3}
NEWEST_MS = 1_600_000_000_000


class LeaderLab:
    """Process of tierd over stores that survive it."""

    def __init__(
        self,
        folder: Path,
        *,
        rows: KeyValueStore | None = None,
        objects: MemoryObjectStore | None = None,
        clock: FakeClock | None = None,
    ) -> None:
        self.folder = folder
        self.rows = rows or MemoryKeyValueStore()
        self.objects = objects or MemoryObjectStore()
        self.clock = clock or FakeClock()
        self.session_id = uuid4()
        self.metadata = RemoteLogMetadataManager(
            self.rows, cluster_id="cluster", broker_id=1, session_id=self.session_id, clock=self.clock
        )
        self.storage = SegmentStorage(self.objects, cluster_id="cluster", broker_id=1)
        self.being_copied: set[UUID] = set()
        self.abandoned: list[UUID] = []
        self.leader = self.leader_over(self.storage)

    def leader_over(self, storage: OutputStorage, settings: LeaderSettings | None = None) -> CompactionLeader:
        return CompactionLeader(
            self.metadata,
            storage,
            outputs=OpenOutputs(
                self.metadata,
                being_copied=self.being_copied,
                clock=self.clock,
                abandoned=lambda row: self.abandoned.append(row.segment.id),
            ),
            clock=self.clock,
            settings=settings or LeaderSettings(),
        )

    async def lead(self, *partitions: TopicIdPartition, leader_epoch: int = 5) -> None:
        for partition in partitions or (PARTITION,):
            await self.metadata.become_leader(partition, leader_epoch)

    async def copy(
        self,
        start: int,
        end: int,
        *,
        size: int = 100,
        partition: TopicIdPartition = PARTITION,
        epochs: Mapping[int, int] | int = 0,
        producers: Iterable[ProducerStateEntry] = (),
        aborted: Sequence[AbortedTransaction] = (),
        leader_epoch: int = 5,
    ) -> RemoteLogSegmentMetadata:
        """Copy a segment of any bytes, as the copy task does."""
        begun = replace(
            segment(start, end, epochs, partition=partition, size_bytes=size, leader_epoch=leader_epoch),
            session_id=self.session_id,
            max_timestamp_ms=NEWEST_MS,
            event_timestamp_ms=self.clock.now_ms(),
            txn_index_empty=not aborted,
        )
        begun = replace(begun, custom_metadata=self.storage.custom_metadata(begun))
        await self.metadata.add(begun)
        snapshot = encode_producer_snapshot(tuple(producers))
        data = self.data(begun, size, snapshot=snapshot, aborted=aborted)
        await self.storage.copy_log_segment_data(begun, data)
        step = begun.advance(FINISHED, event_timestamp_ms=self.clock.now_ms(), broker_id=1)
        await self.metadata.update(step)
        return begun.updated(step)

    async def copy_tier(self, *starts: int, partition: TopicIdPartition = PARTITION) -> list[RemoteLogSegmentMetadata]:
        """Lead the partition and copy neighbours of ten offsets each."""
        await self.lead(partition)
        return [await self.copy(start, start + 9, partition=partition) for start in starts]

    def data(
        self,
        metadata: RemoteLogSegmentMetadata,
        size: int,
        *,
        snapshot: bytes = b"",
        aborted: Sequence[AbortedTransaction] = (),
    ) -> LogSegmentData:
        content = content_of(size, seed=metadata.start_offset)
        log = self.folder / f"{metadata.segment.id}.log"
        log.write_bytes(content)
        return LogSegmentData(
            log=log,
            log_checksums=checksums_of(content),
            batch_count=min(size, 1),
            record_count=min(size, 3),
            offset_index=b"offsets",
            time_index=b"times",
            transaction_index=TransactionIndex(tuple(aborted)).to_bytes() if aborted else None,
            producer_snapshot=snapshot or encode_producer_snapshot(()),
            leader_epoch_index=b"0\n1\n0 0\n",
        )

    def candidate(
        self,
        policy: CleaningPolicy = COMPACTED,
        *,
        partition: TopicIdPartition = PARTITION,
        erased_keys: frozenset[bytes] = frozenset(),
    ) -> Candidate:
        view = self.metadata.view(partition)
        return Candidate(view=view, lineage=Lineage(), policy=policy, erased_keys=erased_keys)

    async def prepare(self, policy: CleaningPolicy = COMPACTED) -> WorkOrder:
        return (await self.leader.prepare([self.candidate(policy)])).order

    async def begin(self, *groups: int, index: int = 0) -> tuple[Output, ...]:
        begun = await self.leader.begin(index, groups)
        assert not begun.refused, begun.refused
        return begun.outputs

    async def write(
        self, output: Output, size: int = 50, *, newest_ms: int = NEWEST_MS, txn_index_empty: bool = True
    ) -> SegmentManifest:
        """Write the objects of an output, as an executor does; return its manifest."""
        metadata = replace(
            output.metadata, size_bytes=size, max_timestamp_ms=newest_ms, txn_index_empty=txn_index_empty
        )
        return await self.storage.stage_log_segment_data(metadata, self.data(metadata, size), key_seed=KEY_SEED)

    def states(self, partition: TopicIdPartition = PARTITION) -> dict[tuple[int, int], list[str]]:
        """Return the states of all rows, by their offsets."""
        found: dict[tuple[int, int], list[str]] = {}
        for row in sorted(self.metadata.view(partition).list(), key=lambda row: (row.start_offset, row.state)):
            found.setdefault((row.start_offset, row.end_offset), []).append(row.state.name)
        return found

    def readable(self, partition: TopicIdPartition = PARTITION) -> list[tuple[int, int]]:
        """Return the segments that readers find, from the beginning to the end."""
        view, found, at = self.metadata.view(partition), [], 0
        while (metadata := view.segment_for(0, at)) is not None:
            found.append((metadata.start_offset, metadata.end_offset))
            at = metadata.end_offset + 1
        return found

    def in_state(self, state: RemoteLogSegmentState) -> list[RemoteLogSegmentMetadata]:
        """Return the rows in a state, ascending by offset."""
        found = [row for row in self.metadata.view(PARTITION).list() if row.state is state]
        return sorted(found, key=lambda row: row.start_offset)
