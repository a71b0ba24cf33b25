"""CopyTools: the collaborators that the copy tasks of all partitions share."""

import asyncio
from dataclasses import dataclass

from tierd.clock import Clock
from tierd.metadata import RemoteLogMetadataManager
from tierd.remote import RemoteStorageManager
from tierd.tiering.capacity import QuotaGate
from tierd.tiering.copying.segment_copy import SegmentCopy
from tierd.tiering.copying.stale_segments import StaleSegmentTools
from tierd.tiering.local.log_offsets import LogOffsets
from tierd.tiering.recorder import TieringRecorder
from tierd.tiering.removing.log_start_keeper import LogStartKeeper


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyTools:
    """Collaborators of copy tasks, the same for every partition.

    Attributes:
        metadata: the rows of the tier.
        remote: reads the tier.
        segment_copy: copies one segment into the tier.
        log_starts: keeps the log start in the bucket.
        log_offsets: tells what is committed, and is told what was copied.
        slots: bounds the segments that are checked or uploaded at once.
        quota: passes segments on as fast as the broker may copy.
        recorder: is told of outcomes.
        clock: time.
        broker_id: this broker.
        interval_s: longest wait until the next pass of a partition that waits for the broker.
        stale: ends copied segments that the local log does not have any more.
    """

    metadata: RemoteLogMetadataManager
    remote: RemoteStorageManager
    segment_copy: SegmentCopy
    log_starts: LogStartKeeper
    log_offsets: LogOffsets
    slots: asyncio.Semaphore
    quota: QuotaGate
    recorder: TieringRecorder
    clock: Clock
    broker_id: int
    interval_s: float
    stale: StaleSegmentTools
