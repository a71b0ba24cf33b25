"""The catalogue in the bucket: what a new cluster needs and segments do not say (DESIGN 13)."""

from tierd.restore.catalogue.catalogue_keeper import CatalogueKeeper
from tierd.restore.catalogue.catalogue_objects import (
    CataloguedNode,
    CataloguedTopic,
    CommittedPosition,
    Positions,
)
from tierd.restore.catalogue.catalogue_reader import read_positions_at
from tierd.restore.catalogue.catalogue_storage import CatalogueStorage
from tierd.restore.catalogue.cluster_snapshot import ClusterSnapshot, parse_cluster_snapshot
from tierd.restore.catalogue.local_partitions import LocalPartitions
from tierd.restore.catalogue.positions_at import PositionsAt
from tierd.restore.catalogue.topic_sources import BrokerTopics, LogDirTopics, TopicSource

__all__ = [
    "BrokerTopics",
    "CatalogueKeeper",
    "CatalogueStorage",
    "CataloguedNode",
    "CataloguedTopic",
    "ClusterSnapshot",
    "CommittedPosition",
    "LocalPartitions",
    "LogDirTopics",
    "Positions",
    "PositionsAt",
    "TopicSource",
    "parse_cluster_snapshot",
    "read_positions_at",
]
