"""Log dirs of a broker from what is in the tier: fetched, checked, staged, and renamed in (changelog-restore 4)."""

from tierd.restore.log_dir.held_log_dir import HeldLogDir, LogDirTarget, held_log_dir
from tierd.restore.log_dir.local_remains import JoinSourceReader
from tierd.restore.log_dir.metadata_restore import METADATA_DIRECTORY, restore_cluster_metadata, write_identity
from tierd.restore.log_dir.partition_restore import restore_partition
from tierd.restore.log_dir.restore_journal import has_restored
from tierd.restore.log_dir.restored_partition import LogDirRequest, RestoredPartition

__all__ = [
    "METADATA_DIRECTORY",
    "HeldLogDir",
    "JoinSourceReader",
    "LogDirRequest",
    "LogDirTarget",
    "RestoredPartition",
    "has_restored",
    "held_log_dir",
    "restore_cluster_metadata",
    "restore_partition",
    "write_identity",
]
