"""EndpointHost: the logs of one host as the endpoint serves them, over a log dir and a tier in memory."""

import contextlib
import os
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

from tests.fakes.manual_clock import ManualClock
from tests.tiering.setups import CLUSTER_ID, Session, delete_segment
from tierd.app.endpoint.endpoint_log import EndpointLog
from tierd.app.endpoint.local_replica import LocalReplica
from tierd.app.endpoint.log_watermarks import LogWatermarks
from tierd.app.endpoint.partition_source import PartitionSource, SourceParts
from tierd.app.endpoint.tier_views import TierViews, leads_none
from tierd.clock import Clock
from tierd.config import FetchSettings
from tierd.control import BrokerWatermarks, Role
from tierd.log import REPLICATION_OFFSET_CHECKPOINT, iter_batches, read_offset_checkpoint, write_offset_checkpoint
from tierd.log.files.disk import OsDisk
from tierd.metadata import FollowedPartitions, MetadataKeyFactory
from tierd.model import TopicIdPartition, TopicPartition
from tierd.remote import ChunkCache, ObjectStore, SegmentStorage
from tierd.tiering import BrokerLogOffsets, FetchService, open_fetch_service


class EndpointHost:
    """One host: ``session`` is its tierd.

    Attributes:
        has_replicas: False for a host whose log dirs have none of the partitions.
    """

    def __init__(
        self,
        session: Session,
        fetches: FetchService,
        *,
        clock: ManualClock,
        broker: BrokerWatermarks | None,
        is_away: bool,
    ) -> None:
        self.session = session
        self.clock = clock
        self.has_replicas = not is_away
        self.watermarks = LogWatermarks(
            BrokerLogOffsets(),
            broker=broker,
            broker_log_dirs=session.tier.log_dirs,
            clock=self.clock,
        )
        keys = MetadataKeyFactory(CLUSTER_ID)
        self.views = TierViews(
            session.tier.rows,
            keys,
            led=leads_none if is_away else session.metadata.view,
            followed=FollowedPartitions(session.tier.rows, keys, load_concurrency=2, strict_kafka_compat=False),
            clock=self.clock,
        )
        self.parts = SourceParts(self.find_replica, self.watermarks, self.views)
        self.fetches = fetches

    def find_replica(self, partition: TopicIdPartition) -> LocalReplica | None:
        replica = self.session.tiering.replicas.get(partition) if self.has_replicas else None
        if replica is None:
            return None
        is_leader = replica.leadership is not None and replica.leadership.role is Role.LEADER
        return LocalReplica(replica.local.scan, is_leader)

    def log(self, partition: TopicIdPartition) -> EndpointLog:
        return EndpointLog(PartitionSource(partition, self.parts), self.fetches, clock=self.clock)


@contextlib.asynccontextmanager
async def endpoint_host(
    session: Session,
    *,
    storage: SegmentStorage | None = None,
    broker: BrokerWatermarks | None = None,
    is_away: bool = False,
    cached_logs: SegmentStorage | None = None,
    fetch: FetchSettings | None = None,
) -> AsyncIterator[EndpointHost]:
    """Open the reads of a host, or of one that is away: it neither leads a partition nor has replicas.

    ``cached_logs`` is a storage with a chunk cache, whose files are sent.
    """
    clock = ManualClock()
    async with open_fetch_service(
        storage or session.storage,
        settings=fetch or FetchSettings(),
        piece_bytes=1 << 20,
        index_directory=None,
        chunks=None,
        cached_logs=cached_logs,
        recorder=session.recorder,
        clock=clock,
    ) as fetches:
        yield EndpointHost(session, fetches, clock=clock, broker=broker, is_away=is_away)


@contextlib.asynccontextmanager
async def open_chunks(
    store: ObjectStore, directory: Path, *, capacity_bytes: int = 64 << 20, clock: Clock | None = None
) -> AsyncIterator[ChunkCache]:
    """Open a cache of chunks, and close it afterwards."""
    cache = await ChunkCache.open(
        store, directory=directory, capacity_bytes=capacity_bytes, clock=clock or ManualClock()
    )
    try:
        yield cache
    finally:
        await cache.close()


def copied_log_dir(source: Path, target: Path, *partitions: str) -> Path:
    """Copy a log dir with some of its partitions."""
    target.mkdir()
    for file in source.iterdir():
        if file.is_file():
            shutil.copy2(file, target)
    for partition in partitions:
        shutil.copytree(source / partition, target / partition)
    return target


def write_high_watermark(path: Path, high_watermark: int) -> None:
    """Write the high watermark of the partition in ``path`` into the broker's checkpoint."""
    checkpoint = path.parent / REPLICATION_OFFSET_CHECKPOINT
    known = read_offset_checkpoint(checkpoint) if checkpoint.exists() else {}
    write_offset_checkpoint(OsDisk(), checkpoint, {**known, TopicPartition.parse(path.name): high_watermark})


def cut_log(path: Path, end_offset: int) -> None:
    """Cut the log in ``path`` as a power cut does: batches that were not flushed are gone, the checkpoints are not.

    ``end_offset`` is the first offset of a batch.
    """
    first, *_ = logs = sorted(path.glob("*.log"))
    for log in logs:
        if log is not first and int(log.stem) >= end_offset:
            delete_segment(path, int(log.stem))
        else:
            batches = iter_batches(log.read_bytes(), name=str(log))
            os.truncate(log, sum(batch.size_bytes for batch in batches if batch.last_offset < end_offset))
