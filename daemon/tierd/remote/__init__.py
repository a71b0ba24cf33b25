"""Moves the bytes of segments between local disk and an object store.

``ObjectStore`` is what a backend keeps; the retrying, limited and observed stores wrap one another around it, and
``SegmentStorage`` turns a segment into objects on top. ``open_object_store`` builds the stack from the settings.
"""

from tierd.remote.deadlines import Deadlines
from tierd.remote.factory import open_object_store
from tierd.remote.keys import ObjectKeyFactory, SegmentKey
from tierd.remote.limited import ByteRate, LimitedObjectStore
from tierd.remote.manager import RemoteStorageManager
from tierd.remote.manifest import SegmentManifest
from tierd.remote.object_store import FileBody, ObjectInfo, ObjectStore, UnfinishedUpload
from tierd.remote.observed import ObjectStoreCall, ObservedObjectStore
from tierd.remote.retrying import Backoff, Retry, RetryingObjectStore
from tierd.remote.segment_storage import SegmentStorage, UnfinishedSegmentUpload
from tierd.remote.tier_identity import claim_tier

__all__ = [
    "Backoff",
    "ByteRate",
    "Deadlines",
    "FileBody",
    "LimitedObjectStore",
    "ObjectInfo",
    "ObjectKeyFactory",
    "ObjectStore",
    "ObjectStoreCall",
    "ObservedObjectStore",
    "RemoteStorageManager",
    "Retry",
    "RetryingObjectStore",
    "SegmentKey",
    "SegmentManifest",
    "SegmentStorage",
    "UnfinishedSegmentUpload",
    "UnfinishedUpload",
    "claim_tier",
    "open_object_store",
]
