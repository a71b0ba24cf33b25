"""What is wrong with a partition's tier, as values: metadata against objects, manifests and offsets. Decisions only."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise
from uuid import UUID

from tierd.model import (
    IndexType,
    OffsetRange,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
    uuid_to_text,
)
from tierd.remote import ObjectInfo, SegmentManifest
from tierd.tiering.reading.tiered_log import TieredLog

OBJECT_SUFFIXES = (".log", ".indexes", ".manifest")


class Severity(Enum):
    """How bad it is."""

    ERROR = "error"  # records are lost or cannot be read
    WARNING = "warning"  # something is left over, or not as it should be, and nothing is lost


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong.

    Attributes:
        kind: a fixed word, such as ``gap``.
        what: in one sentence.
        where: partition, segment or object key.
        remedy: the next step.
    """

    severity: Severity
    kind: str
    what: str
    where: str
    remedy: str


def offset_findings(log: TieredLog) -> Iterator[Finding]:
    """Gaps between what the tiers hold, and segments that hold the same offsets of one epoch."""
    for gap in missing_offsets(log):
        yield Finding(
            Severity.ERROR,
            "gap",
            f"offsets {gap.start} to {gap.end} are in neither tier",
            str(log.partition),
            "a replica may still have them; raise the broker's local retention",
        )
    referenced = [m for m in log.finished if any(_is_referenced(log, m, e.epoch) for e in m.segment_leader_epochs)]
    for earlier, later in pairwise(referenced):
        shared = {e.epoch for e in earlier.segment_leader_epochs} & {e.epoch for e in later.segment_leader_epochs}
        if later.start_offset <= earlier.end_offset and shared:
            yield Finding(
                Severity.WARNING,
                "overlap",
                f"offsets {later.start_offset} to {min(earlier.end_offset, later.end_offset)} are also in "
                f"{uuid_to_text(earlier.segment.id)}",
                str(later.segment),
                "nothing to do: readers see each offset once; it happens when a copied segment is copied again",
            )


def missing_offsets(log: TieredLog) -> Iterator[OffsetRange]:
    """Offsets between log start and end that neither tier holds, ascending."""
    offset = log.log_start_offset
    local_start = log.local_start_offset
    end = max(log.remote_end_offset, local_start or 0)
    while offset < end and (local_start is None or offset < local_start):
        metadata = log.remote_segment(offset)
        if metadata is not None:
            offset = max(log.readable_end(metadata, offset), offset + 1)
            continue
        following = log.next_available(offset)
        if following is None:
            return
        # The next segment may begin with offsets of a branch that is not ours; then the lineage says where ours begins.
        entry = log.lineage.next_entry(log.lineage.epoch_for(offset) or -1)
        until = min(following, entry.start_offset) if entry and entry.start_offset > offset else following
        yield OffsetRange(offset, until - 1)
        offset = until


def row_findings(rows: Iterable[RemoteLogSegmentMetadata], *, now_ms: int, grace_ms: int) -> Iterator[Finding]:
    """Copies and deletions that were begun and not ended, once they are older than the grace."""
    for metadata in rows:
        if metadata.state is RemoteLogSegmentState.COPY_SEGMENT_FINISHED:
            continue
        age_ms = now_ms - metadata.event_timestamp_ms
        if age_ms >= grace_ms:
            yield Finding(
                Severity.WARNING,
                "unfinished",
                f"{metadata.state.name} for {age_ms // 1000} s",
                str(metadata.segment),
                "a running tierd that leads the partition sweeps it",
            )


def object_findings(
    rows: Mapping[UUID, RemoteLogSegmentMetadata], objects: Mapping[UUID, Collection[ObjectInfo]]
) -> Iterator[Finding]:
    """Objects of no segment, and finished segments without all their objects."""
    for segment_id, found in objects.items():
        if segment_id not in rows:
            for info in found:
                yield Finding(
                    Severity.WARNING,
                    "orphan",
                    f"an object of {info.size_bytes} bytes belongs to no segment",
                    info.key,
                    "delete it once no other metadata store uses this bucket",
                )
    for segment_id, metadata in rows.items():
        if metadata.state is RemoteLogSegmentState.COPY_SEGMENT_FINISHED:
            present = [info.key for info in objects.get(segment_id, ())]
            for suffix in OBJECT_SUFFIXES:
                if not any(key.endswith(suffix) for key in present):
                    yield missing_object(metadata, suffix)


def size_findings(manifest: SegmentManifest, found: Collection[ObjectInfo]) -> Iterator[Finding]:
    """Objects of another size than the manifest says, which of a transformed log is not the size of the segment."""
    expected = {".log": manifest.log.size_bytes, ".indexes": manifest.indexes_size_bytes}
    for info in found:
        for suffix, size_bytes in expected.items():
            if info.key.endswith(suffix) and info.size_bytes != size_bytes:
                yield Finding(
                    Severity.ERROR,
                    "wrong-size",
                    f"{info.size_bytes} bytes, the manifest says {size_bytes}",
                    info.key,
                    "restore the object from a version or a replica of the bucket",
                )


def missing_object(metadata: RemoteLogSegmentMetadata, suffix: str) -> Finding:
    """A finished segment lacks an object."""
    return Finding(
        Severity.ERROR,
        "missing-object",
        f"the {suffix} object of a finished segment is not there",
        str(metadata.segment),
        "restore the object from a version or a replica of the bucket",
    )


def manifest_findings(metadata: RemoteLogSegmentMetadata, manifest: SegmentManifest) -> Iterator[Finding]:
    """Where the manifest says something else than the row."""
    partition = metadata.segment.topic_id_partition
    said = {
        "topic_id": (manifest.topic_id, uuid_to_text(partition.topic_id)),
        "partition": (manifest.partition, partition.partition),
        "segment_id": (manifest.segment_id, uuid_to_text(metadata.segment.id)),
        "start_offset": (manifest.start_offset, metadata.start_offset),
        "end_offset": (manifest.end_offset, metadata.end_offset),
        "max_timestamp_ms": (manifest.max_timestamp_ms, metadata.max_timestamp_ms),
        "size_bytes": (manifest.size_bytes, metadata.size_bytes),
        "segment_leader_epochs": (
            tuple(tuple(entry) for entry in manifest.segment_leader_epochs),
            tuple(tuple(entry) for entry in metadata.segment_leader_epochs),
        ),
    }
    for name, (in_manifest, in_row) in said.items():
        if in_manifest != in_row:
            yield Finding(
                Severity.ERROR,
                "manifest-disagrees",
                f"{name} is {in_manifest} in the manifest and {in_row} in the metadata",
                str(metadata.segment),
                "one of the two was changed by hand or restored from another time",
            )
    if IndexType.TRANSACTION.value in manifest.indexes and metadata.txn_index_empty:
        yield Finding(
            Severity.ERROR,
            "manifest-disagrees",
            "the metadata says that no transaction was aborted, the manifest lists a transaction index",
            str(metadata.segment),
            "readers of committed records would see aborted ones; report this",
        )


def damaged(metadata: RemoteLogSegmentMetadata, kind: str, problem: str) -> Finding:
    """Stored bytes that are not what they were."""
    return Finding(
        Severity.ERROR,
        kind,
        problem,
        str(metadata.segment),
        "restore the object from a version or a replica of the bucket",
    )


def _is_referenced(log: TieredLog, metadata: RemoteLogSegmentMetadata, epoch: int) -> bool:
    first = next(e.start_offset for e in metadata.segment_leader_epochs if e.epoch == epoch)
    found = log.view.segment_for(epoch, first)
    return found is not None and found.segment == metadata.segment
