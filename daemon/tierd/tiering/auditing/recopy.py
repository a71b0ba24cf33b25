"""Sources for the bytes of a damaged remote segment: this host's log dirs and holds, or the stored log itself."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import structlog

from tierd.errors import (
    MissingArtefactError,
    RemoteStorageError,
    SegmentChangedError,
    StateDirError,
    TierError,
)
from tierd.log import rebuild_producers
from tierd.metadata import effective_lineage
from tierd.model import ByteRange, IndexType, Lineage, RemoteLogSegmentMetadata, TopicIdPartition
from tierd.remote import ObjectKeyFactory, ObjectStore, SegmentStorage, must_be_encrypted
from tierd.tiering.auditing.stored_segments import LOG, SegmentPlace
from tierd.tiering.copying.complete import prepare_segment
from tierd.tiering.copying.due_segments import lineage_for
from tierd.tiering.copying.prepare import PreparedSegment
from tierd.tiering.copying.producer_history import Producers, stored_producers
from tierd.tiering.local.held_directories import linked_segments
from tierd.tiering.local.held_files import recovered
from tierd.tiering.local.held_segment import FileState, HeldSegment, HoldKind, SegmentFile
from tierd.tiering.local.rolled import files_present, rolled_segments, unprotected
from tierd.tiering.reading.tiered_log import TieredLog

log = structlog.get_logger()

_PIECE_BYTES = 8 << 20
_FILES = {
    IndexType.OFFSET: SegmentFile.OFFSET_INDEX,
    IndexType.TIMESTAMP: SegmentFile.TIME_INDEX,
    IndexType.TRANSACTION: SegmentFile.TRANSACTION_INDEX,
    IndexType.PRODUCER_SNAPSHOT: SegmentFile.PRODUCER_SNAPSHOT,
}


@dataclass(frozen=True, slots=True)
class LocalSource:
    """Segments of this host that hold every offset of the remote one."""

    segments: tuple[HeldSegment, ...]

    def is_same_size(self, row: RemoteLogSegmentMetadata) -> bool:
        """Return True if these segments have as many bytes as the remote copy: neither was compacted by itself."""
        return sum(held.log_file.size_bytes for held in self.segments) == row.size_bytes


@dataclass(frozen=True, slots=True)
class RemoteSource:
    """The stored log itself, which is whole; the other artefacts are fetched or made anew."""


RecopySource = LocalSource | RemoteSource


def local_source(row: RemoteLogSegmentMetadata, tiered: TieredLog, hold_dir: Path) -> LocalSource | None:
    """Find segments of this host with every offset of ``row``; None when there are none. Blocking.

    Only segments that end below the end of the tier are used: their records are committed, and their transactions were
    decided.
    """
    if tiered.scan is None:
        return None
    candidates = [
        held
        for held in (*_of_log(tiered), *_of_holds(row.segment.topic_id_partition, hold_dir))
        if held.end_offset < tiered.remote_end_offset
    ]
    chosen = _covering(candidates, row.start_offset, row.end_offset)
    return LocalSource(chosen) if chosen else None


def _of_log(tiered: TieredLog) -> Iterator[HeldSegment]:
    assert tiered.scan is not None, "asked before"
    for segment in rolled_segments(tiered.scan):
        try:
            yield unprotected(segment, tiered.scan)
        except SegmentChangedError:
            continue  # the broker has deleted it meanwhile


def _of_holds(partition: TopicIdPartition, hold_dir: Path) -> Iterator[HeldSegment]:
    for path in linked_segments(hold_dir, partition):
        try:
            yield recovered(path)
        except (ValueError, OSError, TierError) as error:
            log.warning("hold_not_understood", path=str(path), problem=str(error))


def _covering(candidates: Iterable[HeldSegment], start: int, end: int) -> tuple[HeldSegment, ...]:
    """Return a chain without holes from ``start`` to ``end``, or the very same segment; empty without either."""
    held = sorted(candidates, key=lambda each: (each.base_offset, each.end_offset))
    same = [each for each in held if (each.base_offset, each.end_offset) == (start, end)]
    if same:
        return (same[0],)
    chain: list[HeldSegment] = []
    offset = start
    while offset <= end:
        following = [each for each in held if each.base_offset <= offset <= each.end_offset]
        if not following:
            return ()
        chain.append(max(following, key=lambda each: each.end_offset))
        offset = chain[-1].next_base_offset
    return tuple(chain)


@dataclass(frozen=True, slots=True)
class ReadyCopy:
    """Copy that can be uploaded: a checked segment, and the directory of its files."""

    held: HeldSegment
    prepared: PreparedSegment
    directory: Path


def prepare_local(held: HeldSegment, tiered: TieredLog) -> ReadyCopy:
    """Check a segment of this host, every batch, and gather what belongs to it. Blocking.

    Raises:
        LogError: it is damaged, or one of its artefacts is missing.
    """
    assert tiered.scan is not None, "a local source comes from a scan"
    directory = tiered.scan.directory.path
    lineage = lineage_for(held, tiered.scan, tiered.view)
    return ReadyCopy(held, prepare_segment(held, lineage, directory=directory), directory)


class RemoteLogCopy:
    """Fetcher of the log of a remote segment into a directory of its own, with the artefacts that belong to it.

    Args:
        store: the objects.
        storage: the same objects as segments.
        keys: the keys of the tier's objects.
    """

    def __init__(self, store: ObjectStore, storage: SegmentStorage, keys: ObjectKeyFactory) -> None:
        self._store = store
        self._storage = storage
        self._keys = keys

    async def prepare(self, row: RemoteLogSegmentMetadata, tiered: TieredLog, directory: Path) -> ReadyCopy:
        """Fetch and check the log of ``row``. The caller removes what is left in ``directory``, however the call ends.

        Raises:
            MissingArtefactError: something that cannot be derived is gone: aborted transactions, or producers.
            LogError: the stored log is damaged.
            RemoteStorageError: the stored log cannot be read.
            StateDirError: ``directory`` has no room for the log.
        """
        path = directory / SegmentFile.LOG.name_for(base_offset=row.start_offset, next_base_offset=row.end_offset + 1)
        try:
            await self._fetch_log(row, path)
            for kind in _FILES:
                await self._fetch_index(row, kind, directory)
            await self._require_snapshot(row, tiered, path)
        except OSError as error:
            raise StateDirError(
                f"{path} cannot be written: {error.strerror}", remedy="free space in state_dir, and run it again"
            ) from error
        return await asyncio.to_thread(_ready, row, tiered, directory)

    async def _fetch_log(self, row: RemoteLogSegmentMetadata, path: Path) -> None:
        is_described = await self._is_described(row)
        keys = self._keys.for_custom_metadata(row.custom_metadata, row.segment.topic_id_partition.topic)
        key = SegmentPlace.of_row(row).key(keys, LOG)
        await asyncio.to_thread(path.touch)
        pieces = self._storage.stream_log_segment(row, 0) if is_described else self._plain_pieces(row, key)
        async with contextlib.aclosing(pieces):
            async for content in pieces:
                await asyncio.to_thread(_append, path, content)

    async def _plain_pieces(self, row: RemoteLogSegmentMetadata, key: str) -> AsyncGenerator[bytes, None]:
        for start in range(0, row.size_bytes, _PIECE_BYTES):
            yield await self._store.get(key, ByteRange(start, min(start + _PIECE_BYTES, row.size_bytes) - 1))

    async def _is_described(self, row: RemoteLogSegmentMetadata) -> bool:
        """Return True if there is a manifest to read the log by; a plain log needs none, for its batches prove it.

        Raises:
            MissingArtefactError: there is no manifest, and the log is encrypted.
        """
        try:
            await self._storage.read_manifest(row)
        except RemoteStorageError as error:
            if error.retriable:
                raise
            if must_be_encrypted(row.custom_metadata):
                raise MissingArtefactError(
                    f"{row.segment}: without its manifest, which carries its key, nothing of it can be read",
                    remedy="restore the manifest from a version of the bucket",
                ) from error
            return False
        return True

    async def _fetch_index(self, row: RemoteLogSegmentMetadata, kind: IndexType, directory: Path) -> None:
        """Put an index that can be read beside the log; any other is left out, to be made anew.

        Raises:
            MissingArtefactError: the index of aborted transactions cannot be read, and the row says that it has some.
        """
        try:
            content = await self._storage.fetch_index(row, kind)
        except RemoteStorageError as error:
            if error.retriable:
                raise
            if kind is IndexType.TRANSACTION and not row.txn_index_empty:
                raise MissingArtefactError(
                    f"{row.segment}: its index of aborted transactions cannot be read, nor made from its log alone",
                    remedy="run tierd repair-tier on a broker that still has the segment",
                ) from error
            return
        name = _FILES[kind].name_for(base_offset=row.start_offset, next_base_offset=row.end_offset + 1)
        await asyncio.to_thread((directory / name).write_bytes, content)

    async def _require_snapshot(self, row: RemoteLogSegmentMetadata, tiered: TieredLog, path: Path) -> None:
        """Make the producer snapshot from the one before and the log, where the stored one cannot be read."""
        name = SegmentFile.PRODUCER_SNAPSHOT.name_for(base_offset=row.start_offset, next_base_offset=row.end_offset + 1)
        if await asyncio.to_thread((path.parent / name).exists):
            return
        before = await self._producers_before(row, tiered)
        if before is None:
            raise MissingArtefactError(
                f"{row.segment}: its producer snapshot cannot be read, nor can the one before it to make it from",
                remedy="run tierd repair-tier on a broker that still has the segment",
            )
        rebuilt = await asyncio.to_thread(
            rebuild_producers, [path], before, start_offset=row.start_offset, end_offset=row.end_offset
        )
        await asyncio.to_thread((path.parent / name).write_bytes, rebuilt.snapshot)

    async def _producers_before(self, row: RemoteLogSegmentMetadata, tiered: TieredLog) -> Producers | None:
        if row.start_offset == 0:
            return ()
        previous = tiered.remote_segment(row.start_offset - 1)
        if previous is None or previous.end_offset != row.start_offset - 1:
            return None
        return await stored_producers(self._storage, previous)


def _append(path: Path, content: bytes) -> None:
    with path.open("ab") as file:
        file.write(content)


def _ready(row: RemoteLogSegmentMetadata, tiered: TieredLog, directory: Path) -> ReadyCopy:
    lineage = effective_lineage(tiered.view, tiered.scan.lineage if tiered.scan else Lineage())
    held = HeldSegment(
        base_offset=row.start_offset,
        next_base_offset=row.end_offset + 1,
        kind=HoldKind.NONE,
        root=str(directory),
        log_file=FileState.of(
            directory / SegmentFile.LOG.name_for(base_offset=row.start_offset, next_base_offset=row.end_offset + 1)
        ),
        lineage=lineage,
        present=files_present(directory, base_offset=row.start_offset, next_base_offset=row.end_offset + 1)[0],
    )
    return ReadyCopy(held, prepare_segment(held, lineage, directory=directory), directory)
