"""What tierd knows of remote segments: the leader's immutable views in memory, written through to a key-value store.

First durable, then visible; every batch carries the leader epoch and session of its writer, so that the store itself
fences a stale one (remote-tiering 2 to 7).
"""

from tierd.metadata.cache import PartitionView, ViewChange
from tierd.metadata.epoch_state import RemoteLogLeaderEpochState
from tierd.metadata.identity import is_tier_known, remember_tier, store_identity
from tierd.metadata.keys import MetadataKeyFactory
from tierd.metadata.kv import (
    Batch,
    CallLatency,
    Delete,
    Expect,
    KeyValueStore,
    MemoryKeyValueStore,
    Put,
    SqliteKeyValueStore,
)
from tierd.metadata.lineage import effective_lineage
from tierd.metadata.manager import MetadataStatistics, RemoteLogMetadataManager
from tierd.metadata.reader import list_partitions, read_partition
from tierd.metadata.row import Claim, PartitionRow

__all__ = [
    "Batch",
    "CallLatency",
    "Claim",
    "Delete",
    "Expect",
    "KeyValueStore",
    "MemoryKeyValueStore",
    "MetadataKeyFactory",
    "MetadataStatistics",
    "PartitionRow",
    "PartitionView",
    "Put",
    "RemoteLogLeaderEpochState",
    "RemoteLogMetadataManager",
    "SqliteKeyValueStore",
    "ViewChange",
    "effective_lineage",
    "is_tier_known",
    "list_partitions",
    "read_partition",
    "remember_tier",
    "store_identity",
]
