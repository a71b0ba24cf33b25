"""Compaction in the steps of pipeline and leader: the first two segments become one."""

from dataclasses import replace
from uuid import uuid4

from tests.fakes.transforms import KEY_SEED
from tests.tiering.compacted import segment_data
from tests.tiering.crash_points.world import GRACE_S, RECORDS_PER_SEGMENT, Process
from tierd.log import iter_batches
from tierd.model import (
    ByteRange,
    LogSegmentData,
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
    SoftDelete,
)

_FINISHED = RemoteLogSegmentState.COPY_SEGMENT_FINISHED
_INPUTS = 2


async def merge(process: Process) -> None:
    """Replace the first two segments by one with their batches, unless that is done; the partition is led."""
    view = process.metadata.view(process.world.partition)
    finished = sorted((m for m in view.list() if m.state is _FINISHED), key=lambda m: m.start_offset)
    inputs = [m for m in finished if m.end_offset < _INPUTS * RECORDS_PER_SEGMENT and view.is_readable(m)]
    if len(inputs) != _INPUTS:
        return
    process.clock.advance(1)
    claim = view.claim
    assert claim is not None
    begun = replace(
        inputs[0],
        segment=RemoteLogSegmentId(view.partition, uuid4()),
        end_offset=inputs[-1].end_offset,
        broker_id=process.broker_id,
        event_timestamp_ms=process.clock.now_ms(),
        leader_epoch=claim.leader_epoch,
        session_id=claim.session_id,
        state=RemoteLogSegmentState.COPY_SEGMENT_STARTED,
    )
    await process.metadata.begin_outputs([begun])
    data = await _data(process, inputs)
    biggest_ms = max(each.max_timestamp_ms for each in inputs)
    staged = replace(begun, size_bytes=data.log_checksums.size_bytes, max_timestamp_ms=biggest_ms, txn_index_empty=True)
    manifest = await process.storage.stage_log_segment_data(staged, data, key_seed=KEY_SEED)
    done = manifest.completed(begun)
    await process.storage.commit_log_segment(done, manifest, [each.segment for each in inputs])
    await process.metadata.replace_segments(
        replace(done, state=_FINISHED, event_timestamp_ms=process.clock.now_ms()),
        inputs,
        soft_delete=SoftDelete.replaced(delete_after_ms=process.clock.now_ms() + round(GRACE_S * 1000)),
        compacted_to=done.end_offset + 1,
    )


async def _data(process: Process, inputs: list[RemoteLogSegmentMetadata]) -> LogSegmentData:
    fetched = [await process.storage.fetch_log_segment(each, ByteRange.of_size(0, each.size_bytes)) for each in inputs]
    log = process.world.state_dir(process.broker_id) / "merged.log"
    batches = list(iter_batches(b"".join(fetched), name=str(log)))
    return await segment_data(log, batches, inputs, process.storage)
