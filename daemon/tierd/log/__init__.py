"""Kafka's partition log, in Kafka's own formats and words: log dirs of a broker are read, log dirs of tierd written.

Names, text files, batches, indexes and snapshots; what is stable; and where to look again when something changed.
"""

from tierd.log.broker.batch_lookup import batch_at
from tierd.log.broker.check import SegmentCheckResult, check_segment
from tierd.log.broker.live_segment import data_bytes
from tierd.log.broker.local_comparison import compare_with_local
from tierd.log.broker.local_log import LocalLog, find_log_end_offset, find_segment_end_offset, read_batch_header
from tierd.log.broker.stable_offset import last_stable_offset
from tierd.log.broker.timestamp_lookup import first_since, max_timestamp
from tierd.log.broker.watcher import (
    CheckpointChanged,
    LogDirChanged,
    LogDirWatcher,
    Overflowed,
    PartitionChanged,
    WatchLimitReached,
)
from tierd.log.cleaning.cleaned_segment import CleanedSegment
from tierd.log.cleaning.round_rewriter import RoundFacts, RoundRewriter, SourceSegment, StartRewriting
from tierd.log.dirs.broker_identity import BrokerIdentity, FoundIdentity, broker_identity, read_identities
from tierd.log.dirs.log_manager import LogManager
from tierd.log.dirs.log_manager_settings import LogManagerSettings
from tierd.log.dirs.offline_recovery import RecoveredLogDir, RecoveredPartition, recover_log_dir
from tierd.log.dirs.partition_access import opened_partition
from tierd.log.files.checkpoints import (
    LOG_START_OFFSET_CHECKPOINT,
    REPLICATION_OFFSET_CHECKPOINT,
    encode_lineage,
    parse_lineage,
    read_lineage,
    read_offset_checkpoint,
)
from tierd.log.files.clean_shutdown import CLEAN_SHUTDOWN_FILE
from tierd.log.files.directory import (
    DirectoryKind,
    KnownDirectory,
    LogDirListing,
    PartitionDirectory,
    identify_directory,
    list_log_dir,
    parse_directory_name,
)
from tierd.log.files.disk import OsDisk
from tierd.log.files.log_dir_lock import LogDirLock
from tierd.log.files.meta_properties import MetaProperties, read_meta_properties, write_meta_properties
from tierd.log.files.partition_scan import PartitionScan, SegmentFiles, file_name, scan_partition
from tierd.log.indexes.index_build import IndexBuilder, build_indexes
from tierd.log.indexes.offset_index import OffsetIndex
from tierd.log.indexes.time_index import TimeIndex
from tierd.log.indexes.transaction_index import AbortedTransaction, TransactionIndex
from tierd.log.inspection import Damage, Decoded, FileFound, Finding, Note, inspect_path
from tierd.log.inspection.index_content import check_index
from tierd.log.loading.load_progress import RemainingLoad
from tierd.log.log_service import LogService, ServiceSettings
from tierd.log.partition.unified_log import UnifiedLog
from tierd.log.producers.producer_state import ProducerStateEntry, parse_producer_snapshot, read_producer_snapshot
from tierd.log.producers.snapshot_rebuild import rebuild_producers
from tierd.log.producers.transactions import stable_end_offset
from tierd.log.records.append_origin import AppendOrigin
from tierd.log.records.batch_builder import BatchBuilder, encode_batch, encode_end_marker
from tierd.log.records.batch_header import (
    CODEC_BITS,
    FLAGS_AT,
    HAS_DELETE_HORIZON,
    IS_CONTROL,
    IS_LOG_APPEND_TIME,
    IS_TRANSACTIONAL,
    OVERHEAD_BYTES,
    BatchHeader,
    parse_header,
    stamp_crc,
    take_lacking,
)
from tierd.log.records.batch_rewrite import (
    compress_batch,
    decompress_batch,
    empty_batch,
    rewrite_batch,
    upgrade_batch,
)
from tierd.log.records.compression import Compression
from tierd.log.records.log_columns import iter_piece_columns
from tierd.log.records.log_config import LogConfig, TimestampType
from tierd.log.records.new_record import NewRecord, Producer
from tierd.log.records.record import ControlRecordType, Record
from tierd.log.records.record_batch import RecordBatch, iter_batches, with_data
from tierd.log.records.record_columns import BatchRun, PieceBatches, RecordColumns, columns_of
from tierd.log.repair import (
    CutTail,
    LogRepairResult,
    LowerCheckpoint,
    MoveAside,
    RepairPlan,
    Step,
    WriteAnew,
    repair_partition,
    truncate_partition,
)
from tierd.log.segments.log_snapshot import first_in_batch

__all__ = [
    "CLEAN_SHUTDOWN_FILE",
    "CODEC_BITS",
    "FLAGS_AT",
    "HAS_DELETE_HORIZON",
    "IS_CONTROL",
    "IS_LOG_APPEND_TIME",
    "IS_TRANSACTIONAL",
    "LOG_START_OFFSET_CHECKPOINT",
    "OVERHEAD_BYTES",
    "REPLICATION_OFFSET_CHECKPOINT",
    "AbortedTransaction",
    "AppendOrigin",
    "BatchBuilder",
    "BatchHeader",
    "BatchRun",
    "BrokerIdentity",
    "CheckpointChanged",
    "CleanedSegment",
    "Compression",
    "ControlRecordType",
    "CutTail",
    "Damage",
    "Decoded",
    "DirectoryKind",
    "FileFound",
    "Finding",
    "FoundIdentity",
    "IndexBuilder",
    "KnownDirectory",
    "LocalLog",
    "LogConfig",
    "LogDirChanged",
    "LogDirListing",
    "LogDirLock",
    "LogDirWatcher",
    "LogManager",
    "LogManagerSettings",
    "LogRepairResult",
    "LogService",
    "LowerCheckpoint",
    "MetaProperties",
    "MoveAside",
    "NewRecord",
    "Note",
    "OffsetIndex",
    "OsDisk",
    "Overflowed",
    "PartitionChanged",
    "PartitionDirectory",
    "PartitionScan",
    "PieceBatches",
    "Producer",
    "ProducerStateEntry",
    "Record",
    "RecordBatch",
    "RecordColumns",
    "RecoveredLogDir",
    "RecoveredPartition",
    "RemainingLoad",
    "RepairPlan",
    "RoundFacts",
    "RoundRewriter",
    "SegmentCheckResult",
    "SegmentFiles",
    "ServiceSettings",
    "SourceSegment",
    "StartRewriting",
    "Step",
    "TimeIndex",
    "TimestampType",
    "TransactionIndex",
    "UnifiedLog",
    "WatchLimitReached",
    "WriteAnew",
    "batch_at",
    "broker_identity",
    "build_indexes",
    "check_index",
    "check_segment",
    "columns_of",
    "compare_with_local",
    "compress_batch",
    "data_bytes",
    "decompress_batch",
    "empty_batch",
    "encode_batch",
    "encode_end_marker",
    "encode_lineage",
    "file_name",
    "find_log_end_offset",
    "find_segment_end_offset",
    "first_in_batch",
    "first_since",
    "identify_directory",
    "inspect_path",
    "iter_batches",
    "iter_piece_columns",
    "last_stable_offset",
    "list_log_dir",
    "max_timestamp",
    "opened_partition",
    "parse_directory_name",
    "parse_header",
    "parse_lineage",
    "parse_producer_snapshot",
    "read_batch_header",
    "read_identities",
    "read_lineage",
    "read_meta_properties",
    "read_offset_checkpoint",
    "read_producer_snapshot",
    "rebuild_producers",
    "recover_log_dir",
    "repair_partition",
    "rewrite_batch",
    "scan_partition",
    "stable_end_offset",
    "stamp_crc",
    "take_lacking",
    "truncate_partition",
    "upgrade_batch",
    "with_data",
    "write_meta_properties",
]
