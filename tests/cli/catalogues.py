"""Catalogues for tests of commands: written into the store of an installation, as daemons write them."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.fakes.log_dirs import CLUSTER_ID
from tierd.model import TopicIdPartition
from tierd.remote import EMPTY_RING, ObjectKeyFactory
from tierd.remote.backends.files.filesystem_object_store import FilesystemObjectStore
from tierd.restore import CatalogueStorage
from tierd.restore.catalogue.catalogue_objects import (
    CataloguedNode,
    CataloguedTopic,
    CommittedPosition,
    CoordinatedGroups,
    PartitionPositions,
    Positions,
)


def catalogued(
    partition: TopicIdPartition,
    *,
    replicas: tuple[int, ...],
    config: Mapping[str, str] | None = None,
    effective: Mapping[str, str] | None = None,
) -> CataloguedTopic:
    """Return a topic of one partition, as a broker describes it."""
    return CataloguedTopic(
        name=partition.topic,
        topic_id=partition.topic_id,
        partition_count=1,
        replication_factor=len(replicas),
        config=dict(config or {}),
        effective=dict(effective or {}),
        assignment={partition.partition: replicas},
        observed_ms=1,
    )


def seen(
    partition: TopicIdPartition, *, node_id: int, taken_ms: int, end_offset: int, epoch: int = 0, committed: int = 0
) -> Positions:
    """Return the positions of one partition, and of a group if it has committed an offset."""
    commit = CommittedPosition(offset=committed, leader_epoch=-1, metadata="", committed_ms=taken_ms)
    groups = {"billing": {partition.topic_partition: commit}} if committed else {}
    offsets = PartitionPositions(
        log_start_offset=0, log_end_offset=end_offset, high_watermark=end_offset, leader_epoch=epoch
    )
    return Positions(
        node_id=node_id,
        taken_ms=taken_ms,
        partitions={partition: offsets},
        coordinated={0: CoordinatedGroups(leader_epoch=epoch, groups=groups)},
    )


async def write_catalogue(
    store_dir: Path,
    *,
    topics: Sequence[CataloguedTopic] = (),
    positions: Sequence[Positions] = (),
    nodes: Sequence[CataloguedNode] = (),
) -> None:
    """Write objects of the catalogue into the store."""
    store = FilesystemObjectStore(store_dir)
    storage = CatalogueStorage(store, ObjectKeyFactory("", CLUSTER_ID), EMPTY_RING)
    for topic in topics:
        await storage.write_topic([topic], previous=None)
    for each in positions:
        await storage.write_positions(each)
    for node in nodes:
        await storage.write_node(node)
    await store.close()
