"""Kafka's partition log, in Kafka's own formats and words: log dirs of a broker are read, log dirs of tierd written.

Names, text files, batches, indexes and snapshots; what is stable; and the places that changed.
"""

from typing import TYPE_CHECKING

from tierd.on_demand import exports_on_demand

if TYPE_CHECKING:
    from tierd.log.broker.check import SegmentCheckResult, check_segment
    from tierd.log.broker.live_segment import data_bytes
    from tierd.log.broker.local_comparison import (
        batch_identity,
        compare_batches,
        compare_with_local,
        local_batches,
        record_identity,
    )
    from tierd.log.broker.local_log import (
        EndMarkerAt,
        LocalLog,
        batch_at,
        find_cut_end,
        find_log_end_offset,
        find_segment_end_offset,
        read_batch_header,
    )
    from tierd.log.broker.local_slices import KnownPositions, LocalSlice, find_slice
    from tierd.log.broker.stable_offset import last_stable_offset, recent_transactions
    from tierd.log.broker.stable_tracker import StableOffsetTracker
    from tierd.log.broker.timestamp_lookup import first_since, max_timestamp
    from tierd.log.broker.watcher import (
        CheckpointChanged,
        LogDirChanged,
        LogDirEvent,
        LogDirWatcher,
        Overflowed,
        PartitionChanged,
        WatchLimitReached,
    )
    from tierd.log.cleaning.cleaned_segment import CleanedSegment
    from tierd.log.cleaning.round_rewriter import RoundFacts, RoundRewriter, SourceSegment, StartRewriting
    from tierd.log.dirs.broker_identity import BrokerIdentity, FoundIdentity, broker_identity, read_identities
    from tierd.log.dirs.log_dir_start import RemainingLoad
    from tierd.log.dirs.log_manager import LogManager
    from tierd.log.dirs.log_manager_settings import LogManagerSettings
    from tierd.log.dirs.node_files import MetadataSnapshot, newest_metadata_snapshot, read_meta_properties_text
    from tierd.log.dirs.offline_recovery import RecoveredLogDir, RecoveredPartition, recover_log_dir
    from tierd.log.dirs.partition_access import opened_partition
    from tierd.log.files.checkpoints import (
        CLEANER_OFFSET_CHECKPOINT,
        LEADER_EPOCH_CHECKPOINT,
        LOG_START_OFFSET_CHECKPOINT,
        PARTITION_METADATA,
        RECOVERY_POINT_CHECKPOINT,
        REPLICATION_OFFSET_CHECKPOINT,
        encode_lineage,
        encode_offset_checkpoint,
        encode_topic_id,
        is_of_former_log,
        parse_lineage,
        parse_offset_checkpoint,
        read_lineage,
        read_lineage_file,
        read_log_start,
        read_offset_checkpoint,
        write_offset_checkpoint,
    )
    from tierd.log.files.clean_shutdown import CLEAN_SHUTDOWN_FILE, delete_clean_shutdown
    from tierd.log.files.directory import (
        CLUSTER_METADATA,
        DirectoryKind,
        KnownDirectory,
        LogDirListing,
        PartitionDirectory,
        identify_directory,
        list_log_dir,
        parse_directory_name,
    )
    from tierd.log.files.disk import Disk, OsDisk, read_file, replace_file, unlink_if_there
    from tierd.log.files.log_dir_lock import LOCK_FILE, LogDirLock, require_unlocked
    from tierd.log.files.meta_properties import (
        META_PROPERTIES,
        MetaProperties,
        read_meta_properties,
        write_meta_properties,
    )
    from tierd.log.files.offline import OfflineFlag
    from tierd.log.files.partition_scan import PartitionScan, SegmentFiles, file_name, scan_again, scan_partition
    from tierd.log.files.source import Source, broker_file, open_source
    from tierd.log.indexes.index_build import IndexBuilder, build_indexes
    from tierd.log.indexes.key_hashes import KEY_ROW_BYTES, KeyHashes, key_secret_id
    from tierd.log.indexes.offset_index import OffsetIndex
    from tierd.log.indexes.time_index import TimeIndex
    from tierd.log.indexes.transaction_index import AbortedTransaction, TransactionIndex
    from tierd.log.inspection import Damage, Decoded, FileFound, InspectionFinding, Note, inspect_path
    from tierd.log.inspection.index_content import check_index, check_indexes_of_log
    from tierd.log.loading.artefact_checks import EpochCheck, TransactionIndexCheck
    from tierd.log.loading.log_loader import LoadRequest, load_log
    from tierd.log.log_errors import InvalidTransactionStateError, LogBusyError, LogTimeoutError
    from tierd.log.log_service import LogService, PartitionWriter, ServiceSettings
    from tierd.log.partition.log_observer import AppendedRecords
    from tierd.log.partition.unified_log import UnifiedLog
    from tierd.log.producers.producer_state import (
        ProducerStateEntry,
        encode_producer_snapshot,
        parse_producer_snapshot,
        read_producer_snapshot,
    )
    from tierd.log.producers.snapshot_rebuild import rebuild_producers
    from tierd.log.producers.transactions import (
        CompletedTransaction,
        OpenTransactions,
        read_end_marker,
        stable_end_offset,
        unexplained_transactions,
    )
    from tierd.log.records.append_origin import AppendOrigin
    from tierd.log.records.batch_builder import BatchBuilder, encode_batch, encode_empty_batch, encode_end_marker
    from tierd.log.records.batch_header import (
        CODEC_BITS,
        FLAGS_AT,
        HAS_DELETE_HORIZON,
        IS_CONTROL,
        IS_LOG_APPEND_TIME,
        IS_TRANSACTIONAL,
        MAGIC_END,
        MAX_SEQUENCE,
        OVERHEAD_BYTES,
        BatchHeader,
        crc_matches,
        headers_in,
        increment_sequence,
        iter_headers,
        parse_header,
        stamp_crc,
        take_lacking,
    )
    from tierd.log.records.batch_restamp import forget_producer, set_leader_epoch
    from tierd.log.records.batch_rewrite import (
        compress_batch,
        decompress_batch,
        empty_batch,
        reissued_header,
        rewrite_batch,
        upgrade_batch,
    )
    from tierd.log.records.batch_walk import DamagedBatch, NoBatch, walk
    from tierd.log.records.checked_batches import CheckedBatches, walk_checked
    from tierd.log.records.compression import Compression
    from tierd.log.records.log_columns import iter_piece_columns
    from tierd.log.records.log_config import LogConfig, TimestampType
    from tierd.log.records.new_record import NewRecord, Producer
    from tierd.log.records.record import ControlRecordType, Record, as_json_line
    from tierd.log.records.record_batch import RecordBatch, iter_batches, read_batch, with_data
    from tierd.log.records.record_columns import BatchRun, PieceBatches, RecordColumns, columns_of
    from tierd.log.repair import (
        CutTail,
        LogRepairResult,
        LogRepairStep,
        LowerCheckpoint,
        MoveAside,
        RepairPlan,
        WriteAnew,
        repair_partition,
        truncate_partition,
    )
    from tierd.log.segments.committed_batches import committed_batches, data_batches
    from tierd.log.segments.log_snapshot import first_in_batch
    from tierd.log.segments.segment_ranges import floor_index, segment_at, segments_from
    from tierd.log.segments.segment_reading import indexed_position
else:
    __getattr__ = exports_on_demand(__name__)
