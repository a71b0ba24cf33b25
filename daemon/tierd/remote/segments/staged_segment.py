"""Check of staged segments: one process wrote the objects, another one commits them (DESIGN 9)."""

import asyncio
from functools import reduce

from tierd.errors import RemoteIntegrityError
from tierd.kernels import combine_crc32c
from tierd.model import ByteRange, IndexType, RemoteLogSegmentMetadata, uuid_to_text
from tierd.remote.object_keys import INDEXES_SUFFIX, LOG_SUFFIX, MANIFEST_SUFFIX, ObjectKeyFactory
from tierd.remote.object_store import ObjectInfo, ObjectStore
from tierd.remote.segments.manifest import SegmentManifest
from tierd.remote.segments.open_segment import OpenSegment

_SAMPLED_CHUNKS = 4
_NEEDED = frozenset(kind for kind in IndexType if not kind.is_optional)
_REMEDY = "it is not committed; the next run makes it anew"


async def check_staged(
    store: ObjectStore,
    keys: ObjectKeyFactory,
    metadata: RemoteLogSegmentMetadata,
    staged: OpenSegment,
    *,
    cluster_id: str,
) -> None:
    """Raise unless the objects are those that the staged manifest describes, by checks that cost little.

    Every index is read, and some chunks of the log from its first to its last one. Where the store reports the checksum
    of a plain log, the checksum covers the whole log.

    Args:
        store: the store of the objects; read directly, past any cache.
        keys: of the segment.
        metadata: of the segment as it will be when it is finished.
        staged: the manifest, checked as far as that is possible without the objects.
        cluster_id: of this cluster.

    Raises:
        RemoteResourceNotFoundError: an object is not there.
        RemoteIntegrityError: an object contradicts the manifest, or the manifest contradicts the metadata.
    """
    _require_recorded(staged.manifest, metadata, cluster_id, key=keys.segment(metadata, MANIFEST_SUFFIX))
    await _check_log(store, staged, key=keys.segment(metadata, LOG_SUFFIX))
    await _check_indexes(store, staged, key=keys.segment(metadata, INDEXES_SUFFIX))


def sampled_chunks(count: int) -> list[int]:
    """Return the numbers of the chunks to check, of ``count``: the first, the last, and some evenly between them."""
    if count <= _SAMPLED_CHUNKS:
        return list(range(count))
    return [(count - 1) * n // (_SAMPLED_CHUNKS - 1) for n in range(_SAMPLED_CHUNKS)]


def _require_recorded(
    manifest: SegmentManifest, metadata: RemoteLogSegmentMetadata, cluster_id: str, *, key: str
) -> None:
    """Raise unless manifest and metadata say the same: a rebuild takes the metadata from the manifest."""
    recorded: dict[str, object] = {
        "cluster_id": cluster_id,
        "topic": metadata.segment.topic_id_partition.topic,
        "segment_id": uuid_to_text(metadata.segment.id),
        "segment_leader_epochs": tuple((entry.epoch, entry.start_offset) for entry in metadata.segment_leader_epochs),
        "leader_epoch": metadata.leader_epoch,
        "session_id": str(metadata.session_id),
        "copy_started_ms": metadata.event_timestamp_ms,
        "max_timestamp_ms": metadata.max_timestamp_ms,
        "txn_index_empty": metadata.txn_index_empty,
    }
    for name, value in recorded.items():
        if (found := getattr(manifest, name)) != value:
            raise _refused(key, f"the staged manifest has {name} {found!r}, the metadata {value!r}")
    if missing := sorted(kind.value for kind in _NEEDED if manifest.index(kind) is None):
        raise _refused(key, f"the staged manifest names no {', '.join(missing)} index")


async def _check_log(store: ObjectStore, staged: OpenSegment, *, key: str) -> None:
    manifest, layout = staged.manifest, staged.layout
    sizes = [layout.original_range(number).size for number in range(len(layout.chunks))]
    parts = zip((chunk.crc32c for chunk in layout.chunks), sizes, strict=True)
    if reduce(lambda crc, part: combine_crc32c(crc, *part), parts, 0) != manifest.log.crc32c:
        raise _refused(key, "the checksums of its chunks are not those of a log with the checksum in the manifest")
    if (problem := log_object_problem(manifest, await store.head(key))) is not None:
        raise _refused(key, problem)
    for number in sampled_chunks(len(layout.chunks)):
        stored = await store.get(key, layout.stored_range(range(number, number + 1)))
        await asyncio.to_thread(staged.decode_chunk, number, stored, key=key)


def log_object_problem(manifest: SegmentManifest, found: ObjectInfo) -> str | None:
    """Return why ``found`` is not the ``.log`` object of the manifest; None where nothing contradicts it.

    What the object has inside is only known by the CRC-32C, which some stores report, and only of a plain log.
    """
    if found.size_bytes != manifest.log.size_bytes:
        return f"it has {found.size_bytes} bytes, the manifest says {manifest.log.size_bytes}"
    if not manifest.is_transformed and found.crc32c not in {None, manifest.log.crc32c}:
        return "it has not the CRC-32C that is in the manifest"
    return None


async def _check_indexes(store: ObjectStore, staged: OpenSegment, *, key: str) -> None:
    manifest = staged.manifest
    found = await store.head(key)
    if found.size_bytes != manifest.indexes_size_bytes:
        raise _refused(key, f"it has {found.size_bytes} bytes, the staged manifest says {manifest.indexes_size_bytes}")
    for index_type in IndexType:
        artefact = manifest.index(index_type)
        if artefact is None:
            continue
        stored = b""
        if artefact.size_bytes:
            stored = await store.get(key, ByteRange.of_size(artefact.position, artefact.size_bytes))
        staged.decode_index(index_type, artefact, stored, key=key)


def _refused(key: str, problem: str) -> RemoteIntegrityError:
    return RemoteIntegrityError(f"{key}: {problem}", remedy=_REMEDY)
