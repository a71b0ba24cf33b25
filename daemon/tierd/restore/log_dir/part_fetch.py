"""Fetch of one part of a plan: the log, every batch checked, and the indexes that agree with it (4.2, steps 3-6)."""

import asyncio
from collections.abc import Callable
from contextlib import aclosing, suppress
from pathlib import Path
from typing import Final, NamedTuple

from tierd.errors import CorruptRecordError, LogError, RemoteIndexAbsentError, RemoteIntegrityError
from tierd.kernels import crc32c_of_file
from tierd.log import OsDisk, SegmentCheckResult, check_index, check_indexes_of_log, check_segment
from tierd.model import IndexType, RemoteLogSegmentMetadata, uuid_to_text
from tierd.remote import RemoteStorageManager
from tierd.restore.log_dir.kept_batches import CheckedLog
from tierd.restore.log_dir.staged_files import write_durably
from tierd.restore.plan.partition_plan import SegmentPart
from tierd.tasks import in_thread, retrieve, wait_all

_SUFFIXES: Final = {
    IndexType.OFFSET: ".index",
    IndexType.TIMESTAMP: ".timeindex",
    IndexType.TRANSACTION: ".txnindex",
    IndexType.PRODUCER_SNAPSHOT: ".snapshot",
}


class FetchedFile(NamedTuple):
    """Size and digest of a log file that was fetched and checked, as the journal has it."""

    size_bytes: int
    crc32c: int


class PartFetch:
    """Fetch of the parts of one partition into a directory.

    Args:
        storage: the tier.
        directory: where the files go, named by the ids of their segments.
        on_bytes: called on the event loop with the log bytes that arrived.
    """

    def __init__(self, storage: RemoteStorageManager, directory: Path, on_bytes: Callable[[int], None]) -> None:
        self._storage = storage
        self._directory = directory
        self._on_bytes = on_bytes

    async def fetch(self, part: SegmentPart, known: FetchedFile | None) -> tuple[CheckedLog, FetchedFile]:
        """Fetch a part; what an earlier run has fetched whole is checked again and not fetched.

        Args:
            part: of the plan.
            known: size and digest that the journal has of the part.

        Raises:
            RemoteStorageError: the store failed, or the segment is not there, or is damaged.
            OSError: the disk is full or failing.
        """
        metadata = part.metadata
        path = self._directory / f"{uuid_to_text(metadata.segment.id)}.log"
        if known is not None:
            checked = await in_thread(_known, path, metadata, known)
            if checked is not None:
                self._on_bytes(metadata.size_bytes)
                return _checked_log(path, part, checked), known
        await self._fetch_log(metadata, path)
        checked = await in_thread(_check, path, metadata)
        await self._fetch_indexes(metadata, path)
        return _checked_log(path, part, checked), FetchedFile(checked.size_bytes, crc32c_of_file(checked.checksums))

    async def _fetch_log(self, metadata: RemoteLogSegmentMetadata, path: Path) -> None:
        """Write the log to ``path``, durably: one piece is written while the next one is fetched."""
        file = await in_thread(OsDisk().open, path, create=True)
        writing: asyncio.Future[None] | None = None
        try:
            await in_thread(file.truncate, 0)
            position = 0
            async with aclosing(self._storage.stream_log_segment(metadata, 0)) as pieces:
                async for piece in pieces:
                    if writing is not None:
                        await writing
                    writing = asyncio.ensure_future(in_thread(file.write, position, [piece]))
                    position += len(piece)
                    self._on_bytes(len(piece))
            if writing is not None:
                await writing
            await in_thread(file.sync)
        finally:
            if writing is not None:
                with suppress(asyncio.CancelledError):
                    await wait_all([writing])
                retrieve(writing)  # its error came out above, or is not the first one
            file.close()

    async def _fetch_indexes(self, metadata: RemoteLogSegmentMetadata, log: Path) -> None:
        """Fetch the indexes and keep those that are sound; staging builds the others anew."""
        fetched = {kind: await self._fetch_index(metadata, kind) for kind in _SUFFIXES}
        await in_thread(_write_sound, metadata, log, fetched)

    async def _fetch_index(self, metadata: RemoteLogSegmentMetadata, kind: IndexType) -> bytes | None:
        try:
            return await self._storage.fetch_index(metadata, kind)
        except (RemoteIndexAbsentError, RemoteIntegrityError):
            return None


def _checked_log(path: Path, part: SegmentPart, checked: SegmentCheckResult) -> CheckedLog:
    return CheckedLog(
        path=path,
        base_offset=part.metadata.start_offset,
        start_offset=part.start_offset,
        end_offset=part.end_offset,
        checked=checked,
    )


def _check(path: Path, metadata: RemoteLogSegmentMetadata) -> SegmentCheckResult:
    size_bytes = path.stat().st_size
    if size_bytes != metadata.size_bytes:
        raise RemoteIntegrityError(
            f"segment {metadata.segment}: {size_bytes} bytes came, and it has {metadata.size_bytes}",
            remedy="run tierd verify for the partition; another copy may be whole",
        )
    try:
        return check_segment(path, base_offset=metadata.start_offset, next_base_offset=metadata.end_offset + 1)
    except CorruptRecordError as error:
        raise RemoteIntegrityError(
            f"segment {metadata.segment} is damaged in the tier: {error}",
            remedy="run tierd verify for the partition; another copy may be whole",
        ) from error


def _known(path: Path, metadata: RemoteLogSegmentMetadata, known: FetchedFile) -> SegmentCheckResult | None:
    """Return the check of a file that an earlier run has fetched; None if the file is not there or is another one."""
    try:
        checked = _check(path, metadata)
    except (FileNotFoundError, RemoteIntegrityError):
        return None
    return checked if FetchedFile(checked.size_bytes, crc32c_of_file(checked.checksums)) == known else None


def _write_sound(metadata: RemoteLogSegmentMetadata, log: Path, fetched: dict[IndexType, bytes | None]) -> None:
    contents = {
        kind: content for kind, content in fetched.items() if content is not None and _is_sound(metadata, kind, content)
    }
    offsets, times = contents.get(IndexType.OFFSET), contents.get(IndexType.TIMESTAMP)
    if offsets is None or times is None or not _agree(log, metadata, offsets, times):
        contents.pop(IndexType.OFFSET, None)
        contents.pop(IndexType.TIMESTAMP, None)
    if not contents.get(IndexType.TRANSACTION):
        contents.pop(IndexType.TRANSACTION, None)
    for kind, suffix in _SUFFIXES.items():
        path = log.with_suffix(suffix)
        content = contents.get(kind)
        if content is None:
            path.unlink(missing_ok=True)  # of an earlier fetch
        else:
            write_durably(path, content)
    OsDisk().sync_directory(log.parent)


def _is_sound(metadata: RemoteLogSegmentMetadata, kind: IndexType, content: bytes) -> bool:
    try:
        check_index(
            kind, content, base_offset=metadata.start_offset, log_bytes=metadata.size_bytes, name=str(metadata.segment)
        )
    except LogError:
        return False
    return True


def _agree(log: Path, metadata: RemoteLogSegmentMetadata, offsets: bytes, times: bytes) -> bool:
    """Return True if both indexes tell of the batches in the log; an empty index of a small segment is right."""
    try:
        check_indexes_of_log(log, base_offset=metadata.start_offset, offset_index=offsets, time_index=times)
    except LogError:
        return False
    return True
