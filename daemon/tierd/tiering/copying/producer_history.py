"""ProducerHistory: the producers known where a segment begins, to restore what the broker lost of the segment.

A broker creates the next segment first and writes the producer snapshot of the roll a moment later, or never if it is
killed in between; and whenever it truncates or loads a log it deletes snapshots above the end and not above the start,
of which it makes only the last two again.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import structlog

from tierd.errors import CorruptIndexError, MissingArtefactError, RemoteStorageError, SegmentChangedError
from tierd.log import PartitionScan, ProducerStateEntry, parse_producer_snapshot, read_producer_snapshot
from tierd.metadata import OwnBranch, PartitionView
from tierd.model import IndexType, Lineage, RemoteLogSegmentMetadata
from tierd.remote import RemoteStorageManager
from tierd.tiering.local.held_segment import DELETED_SUFFIX, HeldSegment, SegmentFile
from tierd.tiering.local.partition_log import PartitionLog
from tierd.tiering.local.rolled import rolled_segments, unprotected

log = structlog.get_logger()

Producers = tuple[ProducerStateEntry, ...]


@dataclass(frozen=True, slots=True)
class ProducersBefore:
    """Source of the producers at the base of a segment.

    Attributes:
        entries: the producers known at ``start_offset``.
        start_offset: the base of the segment, or of an earlier one.
        logs: the logs of the segments in between, which are replayed; ascending.
        source: the source of the entries, in words.
        is_certain: False where the log begins anew at ``start_offset`` behind a gap: like a broker that begins there
            no producer is known, but what a transaction wrote before the gap is still read.
    """

    entries: Producers
    start_offset: int
    logs: tuple[Path, ...]
    source: str
    is_certain: bool = True


async def stored_producers(remote: RemoteStorageManager, segment: RemoteLogSegmentMetadata) -> Producers | None:
    """Return the producers at the end of a segment of the tier; None where its producer snapshot is lost.

    Raises:
        RemoteStorageError: a retriable one: the store does not answer now.
    """
    try:
        content = await remote.fetch_index(segment, IndexType.PRODUCER_SNAPSHOT)
        return parse_producer_snapshot(content, f"{segment.segment}, its producer snapshot")
    except RemoteStorageError as error:
        if error.retriable:
            raise
        problem: Exception = error
    except CorruptIndexError as error:
        problem = error
    log.warning("producer_snapshot_unreadable", segment=str(segment.segment), problem=str(problem))
    return None


class ProducerHistory:
    """Producer states of one log during one pass over it, of the branch that the pass copies."""

    def __init__(self, local: PartitionLog, remote: RemoteStorageManager) -> None:
        """Read nothing yet; calls of ``remote`` have deadlines of their own."""
        self._local = local
        self._remote = remote
        self._taken: tuple[int, bytes] = (0, b"")

    def take(self, offset: int, snapshot: bytes) -> None:
        """Remember the producer snapshot at ``offset``: its segment may not be in the tier when the next one asks."""
        self._taken = offset, snapshot

    async def before(self, held: HeldSegment, lineage: Lineage, view: PartitionView) -> ProducersBefore | None:
        """Find what was known at the base of ``held``, from the tier first, then from its own log.

        As a broker does it: from the newest snapshot at or below the base and the segments behind it. The tier is asked
        first, because a broker that recovers a log whose earlier segments are gone writes a snapshot without the
        producers of these. Where neither the log nor the tier has anything that ends where the earliest of these
        begins, the log begins without producers.

        Args:
            held: the segment.
            lineage: the lineage of the partition, which names the segment of the tier that comes before.
            view: the rows of the tier.

        Returns:
            None where the tier has the segment before, and its producer snapshot is lost there too.

        Raises:
            RemoteStorageError: a retriable one: the store does not answer now.
            LogDirOfflineError: the disk does not answer.
        """
        offset, logs = held.base_offset, tuple[Path, ...]()
        while True:
            pending, scan = self._local.pending, self._local.scan
            previous = await asyncio.to_thread(_segment_before, offset, pending, scan)
            stored = OwnBranch(view, lineage).segment_before(offset)
            known, source = self._known_for_certain(offset), "this host"
            if known is None and stored is not None:
                known, source = await stored_producers(self._remote, stored), "the tier"
            if known is None:
                known, source = await asyncio.to_thread(self._known_here, offset, previous), "this host"
            if known is not None:
                return ProducersBefore(known, offset, logs, source)
            if previous is None:
                break
            logs, offset = (previous.log, *logs), previous.base_offset
        if stored is not None:
            return None
        is_first = not any(each.start_offset < offset for each in view.list())
        return ProducersBefore((), offset, logs, "no producer before", is_certain=is_first)

    def _known_for_certain(self, offset: int) -> Producers | None:
        """Return the producers at the beginning of the log, or at the end of the last copied segment of this pass."""
        if offset == 0:
            return ()
        if self._taken[0] == offset:
            return parse_producer_snapshot(self._taken[1], f"{self._local.path}, at {offset}")
        return None

    def _known_here(self, offset: int, previous: HeldSegment | None) -> Producers | None:
        """Return the producers that a snapshot on this host has at ``offset``. Blocking."""
        name = SegmentFile.PRODUCER_SNAPSHOT.name_for(base_offset=0, next_base_offset=offset)
        kept = None if previous is None else previous.path(SegmentFile.PRODUCER_SNAPSHOT)
        for file in (self._local.path / name, self._local.path / (name + DELETED_SUFFIX), kept):
            if file is not None:
                try:
                    return read_producer_snapshot(file)
                except MissingArtefactError:
                    continue
                except CorruptIndexError as error:
                    log.warning("producer_snapshot_unreadable", file=str(file), problem=str(error))
        return None


def _segment_before(offset: int, pending: Sequence[HeldSegment], scan: PartitionScan) -> HeldSegment | None:
    """Return the segment of this host that ends where ``offset`` begins, held or in the log."""
    for held in pending:
        if held.next_base_offset == offset:
            return held
    for segment in rolled_segments(scan):
        if segment.next_base_offset == offset:
            try:
                return unprotected(segment, scan)
            except SegmentChangedError:
                return None  # the broker has deleted it meanwhile
    return None
