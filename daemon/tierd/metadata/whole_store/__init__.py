"""Operations on the whole metadata of a cluster: the identity of its store, export, import and rebuild."""

from tierd.metadata.whole_store.partition_rebuild import (
    BucketLogStart,
    BucketSegment,
    RebuildProblem,
    RebuildSeverity,
    differences,
    rebuild_partition,
)
from tierd.metadata.whole_store.store_filling import FillingSource, StoreFilling, holds_segments
from tierd.metadata.whole_store.store_identity import (
    is_tier_known,
    key_secret,
    read_store_identity,
    remember_tier,
    store_identity,
)
from tierd.metadata.whole_store.transfer import TransferCounts, export_lines, import_lines

__all__ = [
    "BucketLogStart",
    "BucketSegment",
    "FillingSource",
    "RebuildProblem",
    "RebuildSeverity",
    "StoreFilling",
    "TransferCounts",
    "differences",
    "export_lines",
    "holds_segments",
    "import_lines",
    "is_tier_known",
    "key_secret",
    "read_store_identity",
    "rebuild_partition",
    "remember_tier",
    "store_identity",
]
