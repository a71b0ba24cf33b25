"""StoredTier: one tier as it lies in its two stores, with the keys that find everything in them."""

from dataclasses import dataclass

from tierd.metadata import KeyValueStore, MetadataKeyFactory
from tierd.remote import ObjectKeyFactory, ObjectStore, SegmentStorage


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredTier:
    """Tier of one cluster in its two stores. Audit, repair and rebuild read all of it.

    Attributes:
        objects: the object store.
        segments: access to the same objects as segments, without a cache.
        object_keys: the keys of objects, as the tier is configured now.
        rows: the key-value store of the metadata.
        row_keys: the keys of the cluster's rows.
    """

    objects: ObjectStore
    segments: SegmentStorage
    object_keys: ObjectKeyFactory
    rows: KeyValueStore
    row_keys: MetadataKeyFactory
