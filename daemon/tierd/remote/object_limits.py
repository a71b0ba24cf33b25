"""Limits of objects by kind, and ``read_whole``, which stops reading at the limit of the kind.

A writer of the bucket must not be able to fill the memory of a reader. Every limit follows from what the format can
hold, so that objects that any version of tierd wrote are within it.

==================  =================================================================================================
kind                holds at most
==================  =================================================================================================
manifest            16 MiB; some fifty times what a segment of 2 GiB in chunks of 1 MiB takes
chunks              65,536 in a manifest, each of at most 1 GiB before the transformation, as ``remote.chunk_size``
tombstone           64 KiB; a few numbers and a sentence
log start record    64 KiB; a few numbers, and the fields of a later tierd
tier identity       64 KiB; the same
erasure report      64 MiB; some 200 bytes for each of 300,000 segments that left
catalogue object    256 MiB of JSON, with or without compression; some 400,000 committed offsets
indexes             an entry for each batch that the log can have, and never less than 64 MiB; 256 MiB of producers
==================  =================================================================================================
"""

from dataclasses import dataclass
from typing import Final

from tierd.errors import RemoteObjectTooLargeError, RemoteStorageError
from tierd.model import ByteRange, IndexType
from tierd.remote.object_store import ObjectStore

MAX_CHUNK_BYTES: Final = 1 << 30
MAX_CHUNKS: Final = 1 << 16
MAX_REPORT_VALUES: Final = 8_000_000
"""JSON values of an erasure report, the object with the most of them: some ten for each segment that left."""
MAX_CATALOGUE_BYTES: Final = 256 << 20
"""Bytes of the JSON of a catalogue object before its compression."""
MAX_CATALOGUE_VALUES: Final = 4_000_000
"""JSON values of a catalogue object: some nine for each committed offset."""

_SMALLEST_BATCH_BYTES: Final = 26  # of magic 0; one of today has 61
_ENTRY_BYTES: Final = {IndexType.OFFSET: 8, IndexType.TIMESTAMP: 12, IndexType.TRANSACTION: 34}
_ANY_INDEX_BYTES: Final = 64 << 20  # an index file may end in room that was never used
_PRODUCER_SNAPSHOT_BYTES: Final = 256 << 20  # some four million producers
_TAG_BYTES: Final = 16
_EARLY_BYTES_AT_MOST: Final = 8 << 20
_EARLY_BYTES_AT_LEAST: Final = 256 << 10  # for producers, epochs and aborted transactions
_INDEXED_BYTES: Final = 4096  # Kafka's default of index.interval.bytes


@dataclass(frozen=True, slots=True)
class ObjectKind:
    """A kind of object that is read whole.

    Attributes:
        name: for messages, without an article.
        max_bytes: the largest object of the kind.
    """

    name: str
    max_bytes: int


MANIFEST: Final = ObjectKind("manifest", 16 << 20)
TOMBSTONE: Final = ObjectKind("tombstone", 64 << 10)
LOG_START: Final = ObjectKind("log start record", 64 << 10)
TIER_IDENTITY: Final = ObjectKind("tier identity", 64 << 10)
ERASURE_REPORT: Final = ObjectKind("erasure report", 64 << 20)
CATALOGUE: Final = ObjectKind("catalogue object", MAX_CATALOGUE_BYTES)


async def read_whole(store: ObjectStore, key: str, kind: ObjectKind) -> bytes:
    """Return the content of an object, of which never more than one byte beyond the limit of its kind is read.

    Raises:
        RemoteObjectTooLargeError: the object is larger than any of its kind.
        RemoteResourceNotFoundError: no such object.
        RemoteStorageError: the store failed.
    """
    content = await store.get(key, ByteRange.of_size(0, kind.max_bytes + 1))
    if len(content) <= kind.max_bytes:
        return content
    del content  # the store may take its time to say how large the object is
    try:
        size = f"{(await store.head(key)).size_bytes} bytes"
    except RemoteStorageError:
        size = f"more than {kind.max_bytes} bytes"
    raise too_large(key, size, kind)


def too_large(key: str, size: str, kind: ObjectKind) -> RemoteObjectTooLargeError:
    """Return the error for an object of ``size``, such as ``17 bytes``, that is larger than any of its kind."""
    return RemoteObjectTooLargeError(
        f"{key} has {size}, and no {kind.name} has more than {kind.max_bytes}: it is not read",
        remedy="find out who wrote it; restore the object from a version or a replica of the bucket, or delete it",
    )


def early_indexes(log_size_bytes: int) -> ByteRange:
    """Return what is read of a segment's ``.indexes`` object before the manifest says where an index lies.

    Nearly always it has what readers need, and little of the hashes of keys behind it, which only a job needs.
    """
    entry_bytes = _ENTRY_BYTES[IndexType.OFFSET] + _ENTRY_BYTES[IndexType.TIMESTAMP]
    size_bytes = _EARLY_BYTES_AT_LEAST + log_size_bytes // _INDEXED_BYTES * entry_bytes
    return ByteRange.of_size(0, min(size_bytes, _EARLY_BYTES_AT_MOST))


def max_index_bytes(index_type: IndexType, log_size_bytes: int) -> int:
    """Return how many bytes an index of a log with ``log_size_bytes`` is stored in at most."""
    if index_type is IndexType.PRODUCER_SNAPSHOT:
        return _PRODUCER_SNAPSHOT_BYTES
    batches = log_size_bytes // _SMALLEST_BATCH_BYTES + 1
    return max(_ANY_INDEX_BYTES, batches * _ENTRY_BYTES.get(index_type, 0)) + _TAG_BYTES
