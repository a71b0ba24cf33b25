"""Segments as objects: their bytes between local disk and an object store.

``ObjectStore`` is the promise of a backend. Wrappers around it retry, limit and observe its calls, and
``SegmentStorage`` stores a segment as objects. ``open_object_store`` builds the stack from the settings.
"""

from typing import TYPE_CHECKING

from tierd.on_demand import exports_on_demand

if TYPE_CHECKING:
    from tierd.remote.cache.checked_file import (
        TEMPORARY_SUFFIX,
        DamagedFileError,
        is_complete,
        read_checked,
        write_checked,
    )
    from tierd.remote.cache.chunk_cache import CacheStatistics, ChunkCache
    from tierd.remote.cache.chunk_files import purge_chunks
    from tierd.remote.cache.sized_lru import SizedLru
    from tierd.remote.catalogue_keys import (
        CatalogueKey,
        CatalogueKeys,
        CatalogueNodeKey,
        CataloguePositionsKey,
        CatalogueTopicKey,
    )
    from tierd.remote.catalogue_object import CatalogueCodec
    from tierd.remote.forwarding import ForwardedCall, ForwardingObjectStore
    from tierd.remote.limited import PacedReads
    from tierd.remote.log_start import LogStartRecord, LogStartStorage, StoredLogStart
    from tierd.remote.object_keys import ObjectKeyFactory, SegmentKey, must_be_encrypted
    from tierd.remote.object_limits import (
        CATALOGUE,
        ERASURE_REPORT,
        LOG_START,
        MANIFEST,
        MAX_REPORT_VALUES,
        TOMBSTONE,
        ObjectKind,
        read_whole,
        too_large,
    )
    from tierd.remote.object_store import (
        ArchiveState,
        Body,
        ChunkedBody,
        FileBody,
        ObjectInfo,
        ObjectStore,
        ObjectVersion,
        UnfinishedUpload,
    )
    from tierd.remote.object_store_connector import ObjectStoreConnector
    from tierd.remote.object_store_factory import open_object_store, segment_storages
    from tierd.remote.observed import ObjectStoreCall
    from tierd.remote.remote_storage_manager import RemoteStorageManager
    from tierd.remote.segments.key_rewrapping import KeyRewrapping, RewrapOutcome, RewrapResult
    from tierd.remote.segments.manifest import SegmentManifest
    from tierd.remote.segments.segment_reader import CachedBytes
    from tierd.remote.segments.segment_storage import SegmentStorage
    from tierd.remote.segments.tombstone import Tombstone
    from tierd.remote.tier_identity import claim_tier, read_tier_identity
    from tierd.remote.transform.binding import erasure_report_binding
    from tierd.remote.transform.chunk_compression import compress
    from tierd.remote.transform.content_key import KEY_SEED_BYTES
    from tierd.remote.transform.key_ring import EMPTY_RING, KeyRing
    from tierd.remote.transform.object_tag import require_tag, with_tag
    from tierd.remote.transform.transform import Transform, open_key_ring, open_transform
else:
    __getattr__ = exports_on_demand(__name__)

__all__ = [
    "CATALOGUE",
    "EMPTY_RING",
    "ERASURE_REPORT",
    "KEY_SEED_BYTES",
    "LOG_START",
    "MANIFEST",
    "MAX_REPORT_VALUES",
    "TEMPORARY_SUFFIX",
    "TOMBSTONE",
    "ArchiveState",
    "Body",
    "CacheStatistics",
    "CachedBytes",
    "CatalogueCodec",
    "CatalogueKey",
    "CatalogueKeys",
    "CatalogueNodeKey",
    "CataloguePositionsKey",
    "CatalogueTopicKey",
    "ChunkCache",
    "ChunkedBody",
    "DamagedFileError",
    "FileBody",
    "ForwardedCall",
    "ForwardingObjectStore",
    "KeyRewrapping",
    "KeyRing",
    "LogStartRecord",
    "LogStartStorage",
    "ObjectInfo",
    "ObjectKeyFactory",
    "ObjectKind",
    "ObjectStore",
    "ObjectStoreCall",
    "ObjectStoreConnector",
    "ObjectVersion",
    "PacedReads",
    "RemoteStorageManager",
    "RewrapOutcome",
    "RewrapResult",
    "SegmentKey",
    "SegmentManifest",
    "SegmentStorage",
    "SizedLru",
    "StoredLogStart",
    "Tombstone",
    "Transform",
    "UnfinishedUpload",
    "claim_tier",
    "compress",
    "erasure_report_binding",
    "is_complete",
    "must_be_encrypted",
    "open_key_ring",
    "open_object_store",
    "open_transform",
    "purge_chunks",
    "read_checked",
    "read_tier_identity",
    "read_whole",
    "require_tag",
    "segment_storages",
    "too_large",
    "with_tag",
    "write_checked",
]
