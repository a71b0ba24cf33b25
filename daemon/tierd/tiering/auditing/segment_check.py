"""SegmentCheck: one segment's row against its objects, its manifest, and on demand every byte. Reads only."""

import asyncio
from collections.abc import Awaitable, Callable, Collection
from typing import Final
from uuid import UUID

from tierd.clock import Clock
from tierd.errors import (
    LogError,
    RemoteFormatError,
    RemoteIntegrityError,
    RemoteKeyMissingError,
    RemoteResourceNotFoundError,
    RemoteStorageError,
    RemoteUnauthenticatedError,
)
from tierd.log import check_index
from tierd.metadata import Claim
from tierd.model import IndexType, RemoteLogSegmentMetadata, RemoteLogSegmentState, TopicIdPartition
from tierd.remote import MANIFEST as MANIFEST_KIND
from tierd.remote import ObjectStore, SegmentManifest, SegmentStorage, read_whole
from tierd.tiering.auditing.content_check import BatchWalk, LocalHistory
from tierd.tiering.auditing.stored_segments import INDEXES, LOG, MANIFEST, TOMBSTONE, Objects
from tierd.tiering.auditing.tier_findings import (
    AuditLimits,
    Finding,
    Severity,
    checksum_findings,
    damaged,
    manifest_findings,
    object_findings,
    row_findings,
    size_findings,
    tombstone_findings,
)
from tierd.tiering.reading.tiered_log import TieredLog
from tierd.tiering.rebuilding.bucket import UNAUTHENTICATED

_FINISHED: Final = RemoteLogSegmentState.COPY_SEGMENT_FINISHED
_DELETING: Final = RemoteLogSegmentState.DELETE_SEGMENT_STARTED

Retained = Callable[[], Awaitable[Collection[UUID]]]
"""Lookup of the segments whose objects the store is known to keep although they were to be deleted."""


class SegmentCheck:
    """Check of segments; several may run at once.

    Args:
        store: the objects.
        storage: the same objects as segments; it must not read through a cache.
        cluster_id: the cluster that manifests have to name.
        clock: time.
        limits: ages up to which work counts as under way.
        retained: is called only where a deletion is overdue.
        tiered_log: reads a partition's tier and local log, with which deep checks compare; None compares nothing.
    """

    def __init__(
        self,
        store: ObjectStore,
        storage: SegmentStorage,
        *,
        cluster_id: str,
        clock: Clock,
        limits: AuditLimits,
        retained: Retained,
        tiered_log: Callable[[TopicIdPartition], Awaitable[TieredLog]] | None = None,
    ) -> None:
        self._store = store
        self._storage = storage
        self._cluster_id = cluster_id
        self._clock = clock
        self._limits = limits
        self._retained = retained
        self._tiered_log = tiered_log

    async def run(
        self, row: RemoteLogSegmentMetadata | None, objects: Objects, claim: Claim | None, *, deep: bool
    ) -> tuple[Finding, ...]:
        """Return the findings about one segment.

        Args:
            row: the row of the segment; None for a segment without a row.
            objects: the stored objects of the segment.
            claim: the owner of the partition.
            deep: download the segment, and check every chunk, batch and index.

        Raises:
            RemoteStorageError: the store does not answer; what it answers wrongly is a finding.
        """
        findings = list(object_findings(row, objects))
        if row is None:
            return (*findings, *await self._unproven(objects))
        now_ms = self._clock.now_ms()
        findings += await self._unfinished(row, claim, objects, now_ms)
        findings += tombstone_findings(row, objects, now_ms=now_ms, limits=self._limits)
        if TOMBSTONE in objects and (row.state is _FINISHED or row.soft_delete is not None):
            findings += await self._tombstone(row)
        if row.state is _FINISHED and MANIFEST in objects:
            findings += await self._content(row, objects, deep=deep)
        return tuple(findings)

    async def _unfinished(
        self, row: RemoteLogSegmentMetadata, claim: Claim | None, objects: Objects, now_ms: int
    ) -> list[Finding]:
        found = list(row_findings(row, claim, objects, now_ms=now_ms, limits=self._limits))
        if found and row.state is _DELETING and row.segment.id in await self._retained():
            return list(row_findings(row, claim, objects, now_ms=now_ms, limits=self._limits, is_retained=True))
        return found

    async def _unproven(self, objects: Objects) -> list[Finding]:
        """Return a finding for a manifest without a row that no holder of the key ring is proven to have written."""
        info = objects.get(MANIFEST)
        if info is None or not self._storage.asks_for_proof:
            return []
        try:
            self._storage.prove_manifest(await read_whole(self._store, info.key, MANIFEST_KIND), key=info.key)
        except RemoteUnauthenticatedError as error:
            return [Finding(Severity.WARNING, UNAUTHENTICATED, str(error), info.key, error.remedy, MANIFEST)]
        except (
            RemoteIntegrityError,
            RemoteFormatError,
            RemoteKeyMissingError,
            RemoteResourceNotFoundError,
            ValueError,
        ):
            pass  # an orphan, which is a finding in itself
        return []

    async def _tombstone(self, row: RemoteLogSegmentMetadata) -> list[Finding]:
        try:
            await self._storage.read_tombstone(row)
        except RemoteFormatError as error:
            return [Finding(Severity.WARNING, "unknown-format", str(error), str(row.segment), error.remedy, TOMBSTONE)]
        except RemoteIntegrityError as error:
            kind = UNAUTHENTICATED if isinstance(error, RemoteUnauthenticatedError) else "damaged-tombstone"
            return [Finding(Severity.WARNING, kind, str(error), str(row.segment), error.remedy, TOMBSTONE)]
        return []

    async def _content(self, row: RemoteLogSegmentMetadata, objects: Objects, *, deep: bool) -> list[Finding]:
        try:
            manifest = await self._storage.read_manifest(row)
        except RemoteResourceNotFoundError:
            return []  # it went after it was listed, and the next read finds that
        except RemoteStorageError as error:
            if (finding := _unreadable(row, error)) is None:
                raise
            return [finding]
        findings = [*manifest_findings(row, manifest, cluster_id=self._cluster_id)]
        findings += size_findings(manifest, objects)
        findings += checksum_findings(row, manifest, await self._with_checksum(manifest, objects))
        if deep:
            findings += await self._deep(row, manifest)
        return findings

    async def _with_checksum(self, manifest: SegmentManifest, objects: Objects) -> Objects:
        """Return the same objects with the store's checksum of the log, which a listing does not tell."""
        info = objects.get(LOG)
        if info is None or info.crc32c is not None or manifest.is_transformed:
            return objects
        try:
            return {**objects, LOG: await self._store.head(info.key)}
        except RemoteResourceNotFoundError:
            return objects  # it went after it was listed, and the next read finds that

    async def _deep(self, row: RemoteLogSegmentMetadata, manifest: SegmentManifest) -> list[Finding]:
        findings: list[Finding] = []
        try:
            findings += await self._walk_log(row, manifest)
        except RemoteResourceNotFoundError:
            pass  # found when objects were listed
        except RemoteIntegrityError as error:
            findings.append(damaged(row, "damaged-log", str(error), LOG))
        for index_type in IndexType:
            if manifest.index(index_type) is None:
                if not index_type.is_optional:
                    problem = f"there is no {index_type.value} index"
                    findings.append(damaged(row, "missing-index", problem, INDEXES))
                continue
            try:
                content = await self._storage.fetch_index(row, index_type)
                name = f"{row.segment} {index_type.value}"
                check_index(index_type, content, base_offset=row.start_offset, log_bytes=row.size_bytes, name=name)
            except RemoteResourceNotFoundError:
                pass  # found when objects were listed
            except (RemoteIntegrityError, LogError) as error:
                findings.append(damaged(row, "damaged-index", f"{index_type.value}: {error}", INDEXES))
        return findings

    async def _walk_log(self, row: RemoteLogSegmentMetadata, manifest: SegmentManifest) -> list[Finding]:
        """Download and decode chunk by chunk: the CRC of each chunk, then every whole batch that it completes."""
        walk = BatchWalk(row)
        layout = manifest.layout()
        tiered = None if self._tiered_log is None else await self._tiered_log(row.segment.topic_id_partition)
        history = LocalHistory(row, tiered)
        for number, chunk in enumerate(manifest.log.chunks):
            original = layout.original_range(number)
            content = await self._storage.fetch_log_segment(row, original)
            problem = await asyncio.to_thread(walk.take, content, chunk.crc32c, original.start, chunk.timestamps)
            if problem is not None:
                return [damaged(row, "damaged-log", problem, LOG)]  # what follows cannot be told from damage
            await asyncio.to_thread(history.take, walk.taken)
        if (problem := walk.end(manifest)) is not None:
            return [damaged(row, "damaged-log", problem, LOG)]
        if history.problem is not None:
            return [damaged(row, "diverged-log", history.problem, LOG)]
        return [damaged(row, "wrong-times", walk.wrong_times, MANIFEST)] if walk.wrong_times else []


def _unreadable(row: RemoteLogSegmentMetadata, error: RemoteStorageError) -> Finding | None:
    """Return the finding for a manifest that cannot be believed; None for an error of the store."""
    where = str(row.segment)
    match error:
        case RemoteKeyMissingError():
            return Finding(Severity.ERROR, "missing-key", str(error), where, error.remedy)
        case RemoteFormatError():
            return Finding(Severity.ERROR, "unknown-format", str(error), where, error.remedy)
        case RemoteIntegrityError():
            return damaged(row, "damaged-manifest", str(error), MANIFEST)
    return None
