"""Verification: one partition's tier against its metadata, and on demand against every byte (``tierd verify``)."""

import asyncio
from collections.abc import AsyncGenerator

from tierd.clock import Clock
from tierd.errors import (
    CorruptIndexError,
    LogError,
    RemoteIntegrityError,
    RemoteKeyMissingError,
    RemoteResourceNotFoundError,
)
from tierd.kernels import crc32c
from tierd.log import OffsetIndex, TimeIndex, TransactionIndex, iter_batches, parse_lineage, parse_producer_snapshot
from tierd.model import IndexType, RemoteLogSegmentMetadata
from tierd.remote import ObjectInfo, SegmentManifest, SegmentStorage
from tierd.tiering.auditing.findings import (
    Finding,
    Severity,
    damaged,
    manifest_findings,
    missing_object,
    object_findings,
    offset_findings,
    row_findings,
    size_findings,
)
from tierd.tiering.reading.tiered_log import TieredLog


class Verification:
    """Looks at one partition. Reads only; may run beside a daemon, whose copies under way are no findings."""

    def __init__(self, log: TieredLog, *, storage: SegmentStorage, clock: Clock, grace_s: float) -> None:
        """``grace_s``: how old a copy must be to count as left behind."""
        self._log = log
        self._storage = storage
        self._clock = clock
        self._grace_s = grace_s

    async def run(self, *, deep: bool) -> AsyncGenerator[Finding, None]:
        """Yield findings as they are made: offsets and rows, then objects, then segment by segment.

        Args:
            deep: also download every segment and check every batch, chunk and index.

        Raises:
            RemoteStorageError: the store does not answer; what it answers wrongly is a finding.
        """
        view = self._log.view
        for finding in offset_findings(self._log):
            yield finding
        for finding in row_findings(view.list(), now_ms=self._clock.now_ms(), grace_ms=round(self._grace_s * 1000)):
            yield finding
        objects = await self._storage.list_segment_objects(self._log.partition)
        # Under a prefix that is not configured any more nothing was listed; those are asked for one by one.
        elsewhere = {m.segment.id for m in self._log.finished if _has_own_prefix(self._storage, m)}
        rows = {m.segment.id: m for m in view.list() if m.segment.id not in elsewhere}
        known = {segment_id: found for segment_id, found in objects.items() if segment_id not in elsewhere}
        for finding in object_findings(rows, known):
            yield finding
        for metadata in self._log.finished:
            for finding in await self._segment(metadata, objects.get(metadata.segment.id, []), deep=deep):
                yield finding

    async def unfinished_uploads(self) -> list[Finding]:
        """Findings about uploads of this partition's topic that were begun and never ended."""
        now_ms = self._clock.now_ms()
        findings = []
        ids = {metadata.segment.id for metadata in self._log.view.list()}
        for upload, _, segment_id, _ in await self._storage.list_unfinished_uploads():
            age_ms = now_ms - upload.initiated_ms
            if segment_id in ids and age_ms >= self._grace_s * 1000:
                findings.append(
                    Finding(
                        Severity.WARNING,
                        "unfinished-upload",
                        f"begun {age_ms // 1000} s ago and never ended",
                        upload.key,
                        "a tierd that leads the partition discards it after its start",
                    )
                )
        return findings

    async def _segment(
        self, metadata: RemoteLogSegmentMetadata, objects: list[ObjectInfo], *, deep: bool
    ) -> list[Finding]:
        try:
            manifest = await self._storage.read_manifest(metadata)
        except RemoteResourceNotFoundError:
            # Where objects were listed, their absence was found there.
            return [] if not _has_own_prefix(self._storage, metadata) else [missing_object(metadata, ".manifest")]
        except RemoteIntegrityError as error:
            return [damaged(metadata, "damaged-manifest", str(error))]
        except RemoteKeyMissingError as error:
            return [Finding(Severity.ERROR, "missing-key", str(error), str(metadata.segment), error.remedy)]
        findings = [*manifest_findings(metadata, manifest), *size_findings(manifest, objects)]
        findings += _checksum_findings(metadata, manifest, objects)
        if deep:
            findings += await self._deep(metadata, manifest)
        return findings

    async def _deep(self, metadata: RemoteLogSegmentMetadata, manifest: SegmentManifest) -> list[Finding]:
        findings: list[Finding] = []
        try:
            findings += await self._walk_log(metadata, manifest)
        except RemoteResourceNotFoundError:
            pass  # found when objects were listed
        except RemoteIntegrityError as error:
            findings.append(damaged(metadata, "damaged-log", str(error)))
        for index_type in IndexType:
            if manifest.index(index_type) is None:
                if index_type is not IndexType.TRANSACTION:
                    findings.append(damaged(metadata, "missing-index", f"there is no {index_type.value} index"))
                continue
            try:
                content = await self._storage.fetch_index(metadata, index_type)
                _parse_index(metadata, index_type, content)
            except RemoteResourceNotFoundError:
                pass  # found when objects were listed
            except (RemoteIntegrityError, LogError) as error:
                findings.append(damaged(metadata, "damaged-index", f"{index_type.value}: {error}"))
        return findings

    async def _walk_log(self, metadata: RemoteLogSegmentMetadata, manifest: SegmentManifest) -> list[Finding]:
        """Download and decode chunk by chunk: the CRC of each chunk, then every whole batch that it completes."""
        walk = _BatchWalk(metadata)
        findings: list[Finding] = []
        layout = manifest.layout()
        for number, chunk in enumerate(layout.chunks):
            original = layout.original_range(number)
            content = await self._storage.fetch_log_segment(metadata, original)
            problem = await asyncio.to_thread(walk.take, content, chunk.crc32c, original.start)
            if problem is not None:
                findings.append(damaged(metadata, "damaged-log", problem))
                return findings  # what follows cannot be told from damage
        if (problem := walk.end(manifest)) is not None:
            findings.append(damaged(metadata, "damaged-log", problem))
        return findings


class _BatchWalk:
    """Every batch of a log that arrives in chunks."""

    def __init__(self, metadata: RemoteLogSegmentMetadata) -> None:
        self._metadata = metadata
        self._tail = b""
        self._next_offset = metadata.start_offset
        self._batches = 0

    def take(self, content: bytes, expected_crc: int, start: int) -> str | None:
        """Check one chunk and the batches that it completes; return what is wrong. Blocking."""
        if crc32c(content) != expected_crc:
            return f"the chunk at byte {start} does not have the checksum in the manifest"
        data = self._tail + content
        position = start - len(self._tail)
        used = 0
        try:
            for batch in iter_batches(data, name=str(self._metadata.segment), position=position):
                if batch.base_offset < self._next_offset and batch.magic >= 2:
                    return f"the batch at byte {batch.position} begins at offset {batch.base_offset} again"
                if batch.last_offset > self._metadata.end_offset:
                    return f"the batch at byte {batch.position} ends at offset {batch.last_offset}, beyond the segment"
                self._next_offset = batch.last_offset + 1
                self._batches += 1
                used += batch.size_bytes
        except LogError as error:
            return str(error)
        self._tail = data[used:]
        return None

    def end(self, manifest: SegmentManifest) -> str | None:
        """What is wrong with the whole, None when nothing is."""
        if self._tail:
            return f"{len(self._tail)} bytes at its end are no whole batch"
        if self._batches != manifest.batch_count:
            return f"{self._batches} batches, the manifest says {manifest.batch_count}"
        return None


def _checksum_findings(
    metadata: RemoteLogSegmentMetadata, manifest: SegmentManifest, objects: list[ObjectInfo]
) -> list[Finding]:
    return [
        damaged(metadata, "wrong-checksum", f"{info.key}: CRC-32C {info.crc32c:08x}, the manifest says {expected:08x}")
        for info in objects
        if info.key.endswith(".log")
        and info.crc32c is not None
        and (expected := manifest.log.crc32c) != info.crc32c
        and not manifest.is_transformed  # the store's checksum is that of the stored bytes
    ]


def _parse_index(metadata: RemoteLogSegmentMetadata, index_type: IndexType, content: bytes) -> None:
    """Parse an index as a reader would.

    Raises:
        LogError: it cannot be understood.
    """
    name = f"{metadata.segment} {index_type.value}"
    match index_type:
        case IndexType.OFFSET:
            index = OffsetIndex.from_bytes(content, metadata.start_offset, name)
            if len(index) and index[len(index) - 1].position >= metadata.size_bytes:
                raise CorruptIndexError(f"{name}: points behind the end of the log")
        case IndexType.TIMESTAMP:
            TimeIndex.from_bytes(content, metadata.start_offset, name)
        case IndexType.TRANSACTION:
            TransactionIndex.from_bytes(content, metadata.start_offset, name)
        case IndexType.PRODUCER_SNAPSHOT:
            parse_producer_snapshot(content, name)
        case IndexType.LEADER_EPOCH:
            parse_lineage(content, name=name)


def _has_own_prefix(storage: SegmentStorage, metadata: RemoteLogSegmentMetadata) -> bool:
    """Whether the segment lies under another prefix than the one that is configured now."""
    return not storage.has_configured_prefix(metadata)
