"""Compacted segments made by hand: the batches of finished segments, without those that a test removes."""

from collections.abc import Callable, Collection
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

from tests.fakes.transforms import KEY_SEED
from tests.tiering.setups import BROKER_ID, Session
from tierd.log import RecordBatch, build_indexes, iter_batches
from tierd.model import (
    BlockTimestamps,
    ByteRange,
    IndexType,
    LogSegmentData,
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
    SoftDelete,
    TimestampRange,
    TopicIdPartition,
)
from tierd.remote import SegmentStorage
from tierd.testing import checksums_of

_GRACE_MS = 3_600_000


class Compaction:
    """Replacement of finished segments of one partition, as the pipeline and the leader do it together."""

    def __init__(self, session: Session, partition: TopicIdPartition, folder: Path) -> None:
        self._session = session
        self._partition = partition
        self._folder = folder

    async def replace(
        self,
        start_offset: int,
        end_offset: int,
        keep: Collection[int] | Callable[[RecordBatch], bool],
        *,
        transaction_index: bytes | None = None,
        compacted_to: int | None = None,
        is_grace_over: bool = False,
    ) -> RemoteLogSegmentMetadata:
        """Replace the segments that lie in ``[start_offset, end_offset]`` by one, and return it.

        Args:
            start_offset: where the first of them begins.
            end_offset: of the last of them, inclusive.
            keep: base offsets of the kept batches, or a predicate over base offsets.
            transaction_index: of the output; None leaves it without.
            compacted_to: up to where the partition is clean then, exclusive.
            is_grace_over: the objects of the inputs are gone afterwards.
        """
        inputs = [
            row
            for row in self._session.rows(self._partition)
            if row.state is RemoteLogSegmentState.COPY_SEGMENT_FINISHED
            and start_offset <= row.start_offset <= end_offset
        ]
        assert (inputs[0].start_offset, inputs[-1].end_offset) == (start_offset, end_offset)
        batches = [batch for row in inputs for batch in await self._batches(row)]
        kept = [batch for batch in batches if (keep(batch) if callable(keep) else batch.base_offset in keep)]
        self._session.tier.clock.advance(1)
        begun = self._begun(inputs)
        await self._session.metadata.begin_outputs([begun])
        self._folder.mkdir(exist_ok=True)
        data = await segment_data(self._folder / f"{begun.segment.id}.log", kept, inputs, self._session.storage)
        final = replace(
            begun,
            size_bytes=data.log_checksums.size_bytes,
            max_timestamp_ms=max((batch.max_timestamp_ms for batch in kept), default=-1),
            txn_index_empty=transaction_index is None,
            state=RemoteLogSegmentState.COPY_SEGMENT_FINISHED,
        )
        manifest = await self._session.storage.stage_log_segment_data(
            final, replace(data, transaction_index=transaction_index), key_seed=KEY_SEED
        )
        await self._session.storage.commit_log_segment(
            manifest.completed(begun), manifest, [row.segment for row in inputs]
        )
        soft_delete = SoftDelete.replaced(delete_after_ms=self._session.tier.clock.now_ms() + _GRACE_MS)
        await self._session.metadata.replace_segments(final, inputs, soft_delete=soft_delete, compacted_to=compacted_to)
        if is_grace_over:
            for row in inputs:
                await self._session.storage.delete_log_segment_data(row)
        return final

    async def _batches(self, row: RemoteLogSegmentMetadata) -> list[RecordBatch]:
        if not row.size_bytes:
            return []
        content = await self._session.storage.fetch_log_segment(row, ByteRange.of_size(0, row.size_bytes))
        return list(iter_batches(content, name=str(row.segment)))

    def _begun(self, inputs: list[RemoteLogSegmentMetadata]) -> RemoteLogSegmentMetadata:
        epochs = {entry.epoch: entry for row in reversed(inputs) for entry in row.segment_leader_epochs}
        return replace(
            inputs[0],
            segment=RemoteLogSegmentId(self._partition, uuid4()),
            end_offset=inputs[-1].end_offset,
            size_bytes=sum(row.size_bytes for row in inputs),
            broker_id=BROKER_ID,
            event_timestamp_ms=self._session.tier.clock.now_ms(),
            segment_leader_epochs=tuple(epochs[epoch] for epoch in sorted(epochs)),
            session_id=self._session.session_id,
            state=RemoteLogSegmentState.COPY_SEGMENT_STARTED,
        )


async def segment_data(
    log: Path, batches: list[RecordBatch], inputs: list[RemoteLogSegmentMetadata], storage: SegmentStorage
) -> LogSegmentData:
    """Write these batches to ``log`` as the output of their inputs, without a transaction index."""
    content = b"".join(batch.data for batch in batches)
    log.write_bytes(content)
    offset_index, time_index = build_indexes(log, base_offset=inputs[0].start_offset)
    return LogSegmentData(
        log=log,
        log_checksums=checksums_of(content),
        batch_count=len(batches),
        record_count=sum(batch.record_count or 0 for batch in batches),
        offset_index=offset_index,
        time_index=time_index,
        transaction_index=None,
        producer_snapshot=await storage.fetch_index(inputs[-1], IndexType.PRODUCER_SNAPSHOT),
        leader_epoch_index=await storage.fetch_index(inputs[-1], IndexType.LEADER_EPOCH),
        chunk_timestamps=_timestamps(batches),
    )


def _timestamps(batches: list[RecordBatch]) -> tuple[TimestampRange | None, ...]:
    blocks = BlockTimestamps()
    for batch in batches:
        times = [record.timestamp_ms for record in batch.records()]
        blocks.add(batch.size_bytes, TimestampRange(min(times), max(times)))
    return blocks.ranges()
