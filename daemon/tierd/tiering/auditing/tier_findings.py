"""Findings about a partition's tier: metadata compared with objects, manifests and offsets. Decisions only."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Final

from tierd.metadata import Claim, overlaps
from tierd.model import (
    IndexType,
    OffsetRange,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
    uuid_to_text,
)
from tierd.remote import SegmentManifest
from tierd.tiering.auditing.stored_segments import INDEXES, LOG, MANIFEST, OBJECT_SUFFIXES, TOMBSTONE, Objects
from tierd.tiering.copy_plan import without_range
from tierd.tiering.reading.tiered_log import TieredLog

REPAIR: Final = "tierd repair-tier, on each broker with a replica; or restore the object from a version of the bucket"

_GIB: Final = 1 << 30
_MARGIN_S: Final = 60.0  # for what a copy does before and after its upload


class Severity(Enum):
    """Severity of a finding."""

    ERROR = "error"  # records are lost or cannot be read
    WARNING = "warning"  # something is left over, or not as it should be, and nothing is lost
    NOTE = "note"  # a fact, and no fault


@dataclass(frozen=True, slots=True)
class Finding:
    """Fault of a tier or of a standby's copy, or a note on one.

    Attributes:
        kind: a fixed word, such as ``gap``.
        what: the fault, in one sentence.
        where: partition, segment or object key.
        remedy: the next step.
        artefact: suffix of the segment's object that is not as it should be; empty where the fault is in no object.
    """

    severity: Severity
    kind: str
    what: str
    where: str
    remedy: str
    artefact: str = ""


def offset_findings(log: TieredLog) -> Iterator[Finding]:
    """Yield gaps between the offsets of tier and local log, and segments that have the same offsets of one epoch."""
    for gap in missing_offsets(log):
        yield Finding(
            Severity.ERROR,
            "gap",
            f"offsets {gap.start} to {gap.end} are in neither tier",
            str(log.partition),
            "a replica may still have them; raise the broker's local retention",
        )
    for overlap in overlaps(log.branch):
        yield Finding(
            Severity.WARNING,
            "overlap",
            f"offsets {overlap.offsets.start} to {overlap.offsets.end} are also in "
            f"{uuid_to_text(overlap.earlier.segment.id)}, which the same leader copied",
            str(overlap.later.segment),
            "nothing to do: readers see each offset once; it happens when a copied segment is copied again",
        )


def missing_offsets(log: TieredLog) -> Iterator[OffsetRange]:
    """Yield the offsets between log start and end that no tier, no local log and no held segment has, ascending."""
    for gap in _in_neither_tier(log):
        left: tuple[OffsetRange, ...] = (gap,)
        for held in log.held:
            left = without_range(left, held)
        yield from left


def _in_neither_tier(log: TieredLog) -> Iterator[OffsetRange]:
    """Yield the offsets between log start and end that a reader finds neither locally nor in the tier, ascending."""
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


@dataclass(frozen=True, slots=True)
class AuditLimits:
    """Ages up to which work counts as under way.

    Attributes:
        grace_s: age from which work without a sign of life counts as left behind.
        attempt_timeout_s: deadline of the upload of 1 GiB, and of what is less.
    """

    grace_s: float
    attempt_timeout_s: float = 900.0

    def is_living(self, row: RemoteLogSegmentMetadata, claim: Claim | None, *, now_ms: int) -> bool:
        """Return True if a copy may still be under way: its writer owns the partition, and its time is not over."""
        writes = claim is not None and (claim.leader_epoch, claim.session_id) == (row.leader_epoch, row.session_id)
        limit_s = self.attempt_timeout_s * max(1.0, row.size_bytes / _GIB) + _MARGIN_S
        return writes and now_ms - row.event_timestamp_ms < 1000 * limit_s


def row_findings(
    row: RemoteLogSegmentMetadata,
    claim: Claim | None,
    objects: Objects,
    *,
    now_ms: int,
    limits: AuditLimits,
    is_retained: bool = False,
) -> Iterator[Finding]:
    """Yield a finding for a copy or a deletion that was begun and not ended, once it is older than the grace.

    A copy whose objects are all there has only its row left to write, however long its upload may take: the margin of
    an attempt is enough for the row, also where the grace is shorter.

    Args:
        row: the row of the segment.
        claim: the claim on the partition.
        objects: the objects of the segment.
        now_ms: wall clock.
        limits: ages up to which work counts as under way.
        is_retained: the store is known to refuse the deletion of its objects.
    """
    if row.state is RemoteLogSegmentState.COPY_SEGMENT_FINISHED:
        return
    is_copy = row.state is RemoteLogSegmentState.COPY_SEGMENT_STARTED
    since_ms = row.soft_delete.delete_after_ms if row.soft_delete and not is_copy else row.event_timestamp_ms
    stored_ms = _stored_ms(objects) if is_copy else None
    is_complete = stored_ms is not None and now_ms - stored_ms >= 1000 * max(limits.grace_s, _MARGIN_S)
    overdue_ms = now_ms - since_ms
    is_living = is_copy and not is_complete and limits.is_living(row, claim, now_ms=now_ms)
    if overdue_ms < 1000 * limits.grace_s or is_living:
        return
    if is_retained:
        what = "the store keeps objects that are to be deleted: Object Lock, a retention policy or a legal hold"
        remedy = "nothing to do: tierd tries again until the store lets them go"
        yield Finding(Severity.WARNING, "retained", what, str(row.segment), remedy)
        return
    what = f"{row.state.name} for {(now_ms - row.event_timestamp_ms) // 1000} s"
    if row.soft_delete and not is_copy:
        what += f", and its grace has been over for {overdue_ms // 1000} s"
    if is_copy and all(suffix in objects for suffix in OBJECT_SUFFIXES):
        what += ", and all of its objects are there: a rebuild from the bucket would take it for readable"
    remedy = "a running tierd that leads the partition, or led it last, ends it; so does tierd repair-tier there"
    yield Finding(Severity.WARNING, "unfinished", what, str(row.segment), remedy)


def _stored_ms(objects: Objects) -> int | None:
    """Return the time at which the last object of a complete segment was stored; None where it is unknown."""
    moments = [objects[suffix].modified_ms for suffix in OBJECT_SUFFIXES if suffix in objects]
    known = [moment for moment in moments if moment is not None]
    return max(known) if len(known) == len(OBJECT_SUFFIXES) else None


def object_findings(row: RemoteLogSegmentMetadata | None, objects: Objects) -> Iterator[Finding]:
    """Yield a finding for each object of no segment, and for each object that a finished segment lacks."""
    if row is None:
        for info in objects.values():
            what = f"an object of {info.size_bytes} bytes belongs to no segment"
            yield Finding(Severity.WARNING, "orphan", what, info.key, "tierd repair-tier adopts or removes it")
    elif row.state is RemoteLogSegmentState.COPY_SEGMENT_FINISHED:
        for suffix in OBJECT_SUFFIXES:
            if suffix not in objects:
                yield missing_object(row, suffix)


def tombstone_findings(
    row: RemoteLogSegmentMetadata, objects: Objects, *, now_ms: int, limits: AuditLimits
) -> Iterator[Finding]:
    """Yield a finding where row and tombstone disagree on the deletion: a rebuild believes the tombstone."""
    if TOMBSTONE in objects and row.state is RemoteLogSegmentState.COPY_SEGMENT_FINISHED:
        yield Finding(
            Severity.WARNING,
            "stray-tombstone",
            "a tombstone says that it is deleted, and its row says that it is readable",
            objects[TOMBSTONE].key,
            "tierd repair-tier removes the tombstone; a rebuild from the bucket would lose the segment",
        )
    is_soft = row.state is RemoteLogSegmentState.DELETE_SEGMENT_STARTED and row.soft_delete is not None
    is_old = now_ms - row.event_timestamp_ms >= 1000 * limits.grace_s
    if is_soft and is_old and TOMBSTONE not in objects and MANIFEST in objects:
        yield Finding(
            Severity.WARNING,
            "missing-tombstone",
            "it is being deleted, and no tombstone says so",
            str(row.segment),
            "tierd repair-tier writes it; a rebuild from the bucket would bring the segment back",
        )


def size_findings(manifest: SegmentManifest, objects: Objects) -> Iterator[Finding]:
    """Yield a finding for each object whose size is not the stored size that the manifest gives."""
    for suffix, size_bytes in ((LOG, manifest.log.size_bytes), (INDEXES, manifest.indexes_size_bytes)):
        info = objects.get(suffix)
        if info is not None and info.size_bytes != size_bytes:
            yield Finding(
                Severity.ERROR,
                "wrong-size",
                f"{info.size_bytes} bytes, the manifest says {size_bytes}",
                info.key,
                REPAIR,
                suffix,
            )


def checksum_findings(row: RemoteLogSegmentMetadata, manifest: SegmentManifest, objects: Objects) -> Iterator[Finding]:
    """Yield a finding for a log whose checksum, where the store tells it, is not the manifest's."""
    info = objects.get(LOG)
    if info is None or info.crc32c is None or manifest.is_transformed or info.size_bytes != manifest.log.size_bytes:
        return  # of a transformed log the store's checksum is that of the stored bytes
    if info.crc32c != manifest.log.crc32c:
        what = f"{info.key}: CRC-32C {info.crc32c:08x}, the manifest says {manifest.log.crc32c:08x}"
        yield damaged(row, "wrong-checksum", what, LOG)


def missing_object(metadata: RemoteLogSegmentMetadata, suffix: str) -> Finding:
    """Return the finding that a finished segment lacks an object."""
    what = f"the {suffix} object of a finished segment is not there"
    return Finding(Severity.ERROR, "missing-object", what, str(metadata.segment), REPAIR, suffix)


def manifest_findings(
    metadata: RemoteLogSegmentMetadata, manifest: SegmentManifest, *, cluster_id: str
) -> Iterator[Finding]:
    """Yield a finding for each field in which manifest and row differ.

    The broker and the leader epoch of the copy are not compared: a segment that was adopted has a row of its own.
    """
    partition = metadata.segment.topic_id_partition
    said = {
        "cluster_id": (manifest.cluster_id, cluster_id),
        "topic": (manifest.topic, partition.topic),
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
                MANIFEST,
            )
    if IndexType.TRANSACTION.value in manifest.indexes and metadata.txn_index_empty:
        yield Finding(
            Severity.ERROR,
            "manifest-disagrees",
            "the metadata says that no transaction was aborted, the manifest lists a transaction index",
            str(metadata.segment),
            "readers of committed records would see aborted ones; report this",
            MANIFEST,
        )


def damaged(metadata: RemoteLogSegmentMetadata, kind: str, problem: str, artefact: str) -> Finding:
    """Return the finding that stored bytes are not what they were."""
    return Finding(Severity.ERROR, kind, problem, str(metadata.segment), REPAIR, artefact)
