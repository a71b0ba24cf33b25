"""Remote segments of one partition as one immutable value: lookups, changes, epochs and lineage. Decisions only."""

from tierd.metadata.views import epoch_state
from tierd.metadata.views.epoch_state import EpochRange, RemoteLogLeaderEpochState
from tierd.metadata.views.overlaps import covered_copies, overlaps
from tierd.metadata.views.own_branch import OwnBranch, ReadableRange, effective_lineage
from tierd.metadata.views.partition_lookups import NO_STATE, copied_last_ms
from tierd.metadata.views.partition_view import PartitionView, ViewChange
from tierd.metadata.views.view_rows import LoadedPartition, load_partition, rows_of, writes_of

__all__ = [
    "NO_STATE",
    "EpochRange",
    "LoadedPartition",
    "OwnBranch",
    "PartitionView",
    "ReadableRange",
    "RemoteLogLeaderEpochState",
    "ViewChange",
    "copied_last_ms",
    "covered_copies",
    "effective_lineage",
    "epoch_state",
    "load_partition",
    "overlaps",
    "rows_of",
    "writes_of",
]
