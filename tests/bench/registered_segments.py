"""Metadata of a tier that has every rolled segment of a log dir, registered without copying a byte.

``RemoteLogMetadataManager`` itself makes the rows: it claims each partition, stores its log start, and adopts each of
its segments, as a repair adopts segments whose objects are there. Here no objects are there. A daemon that finds all
segments in its metadata copies nothing, and its start reads no object of a segment that is older than its row.
"""

import asyncio
from collections.abc import Iterator, Sequence
from uuid import uuid4

from tests.fakes.log_dirs import FIRST_TIMESTAMP_MS, PartitionWriter, SegmentShape
from tests.scenarios.installation import Installation
from tierd.app import Deployment, run_in_loop
from tierd.clock import SystemClock
from tierd.config import load_config
from tierd.metadata import MetadataManagerSettings, RemoteLogMetadataManager
from tierd.model import EpochEntry, RemoteLogSegmentId, RemoteLogSegmentMetadata, TopicIdPartition

_AT_ONCE = 500  # partitions; their writes share transactions
_TIMEOUT_S = 60.0


def register_segments(tierd: Installation, partitions: Sequence[PartitionWriter], shape: SegmentShape) -> None:
    """Fill the metadata store of an installation whose daemon has never run.

    Args:
        tierd: the installation.
        partitions: writers of the partitions, each with rolled segments of ``shape`` and an active one.
        shape: of each rolled segment.
    """
    deployment = Deployment(load_config(tierd.config_file, {}), tierd.config_file)
    tierd.state_dir.mkdir(parents=True, exist_ok=True)
    run_in_loop(_register(deployment, partitions, shape))


async def _register(deployment: Deployment, partitions: Sequence[PartitionWriter], shape: SegmentShape) -> None:
    identity, clock = await deployment.identity(), SystemClock()
    async with deployment.metadata_store(read_only=False) as rows:
        manager = RemoteLogMetadataManager(
            rows,
            cluster_id=identity.cluster_id,
            broker_id=identity.node_id,
            session_id=uuid4(),
            clock=clock,
            settings=MetadataManagerSettings(backend_timeout_s=_TIMEOUT_S),
        )
        custom_metadata = deployment.object_keys(identity).custom_metadata

        async def register(writer: PartitionWriter) -> None:
            partition = TopicIdPartition(writer.topic_id, writer.partition.topic, writer.partition.partition)
            await manager.become_leader(partition, writer.leader_epoch)
            await manager.advance_log_start_offset(partition, 0)
            for start_offset in _rolled(writer, shape):
                await manager.adopt(
                    RemoteLogSegmentMetadata(
                        segment=RemoteLogSegmentId(partition, uuid4()),
                        start_offset=start_offset,
                        end_offset=start_offset + shape.batches * shape.records_per_batch - 1,
                        max_timestamp_ms=FIRST_TIMESTAMP_MS + shape.records_per_batch - 1,
                        broker_id=identity.node_id,
                        event_timestamp_ms=clock.now_ms(),  # not older than the file, or the daemon reads the object
                        size_bytes=shape.batches * len(shape.batch()),
                        segment_leader_epochs=(EpochEntry(writer.leader_epoch, start_offset),),
                        leader_epoch=writer.leader_epoch,
                        session_id=manager.session_id,
                        custom_metadata=custom_metadata(partition.topic),
                        txn_index_empty=True,
                    )
                )
            manager.stop(partition)  # its view is not needed any more

        for at in range(0, len(partitions), _AT_ONCE):
            async with asyncio.TaskGroup() as group:
                for writer in partitions[at : at + _AT_ONCE]:
                    group.create_task(register(writer), name=f"register {writer.partition}")
        await manager.close()


def _rolled(writer: PartitionWriter, shape: SegmentShape) -> Iterator[int]:
    """Yield the base offset of each rolled segment of a log that begins at 0."""
    end_offset = int(writer.active_segment.stem)
    yield from range(0, end_offset, shape.batches * shape.records_per_batch)
