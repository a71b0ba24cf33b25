"""Facts that planning needs from a partition's objects: the last producers, and the open and aborted transactions."""

import asyncio
from collections.abc import Iterable
from typing import Protocol

from tierd.errors import CorruptIndexError, RemoteIndexAbsentError, RetriableRemoteStorageError, TierError
from tierd.log import AbortedTransaction, TransactionIndex, parse_producer_snapshot, stable_end_offset
from tierd.metadata import ReadableRange
from tierd.model import IndexType, RemoteLogSegmentMetadata
from tierd.pipeline.planning import Chain, TierEvidence
from tierd.tasks import first_error


class IndexSource(Protocol):
    """Source of the indexes of remote segments."""

    async def fetch_index(self, metadata: RemoteLogSegmentMetadata, index_type: IndexType) -> bytes:
        """Return one artefact, checked; ``RemoteIndexAbsentError`` when the segment never had it."""


class EvidenceReader:
    """Reader of the small objects of many partitions: ``concurrency`` at a time, each within a deadline."""

    def __init__(self, source: IndexSource, *, concurrency: int = 8, timeout_s: float = 60.0) -> None:
        self._source = source
        self._slots = asyncio.Semaphore(concurrency)
        self._timeout_s = timeout_s

    async def of_chain(self, chain: Chain) -> TierEvidence:
        """Return the evidence of a chain that is not empty.

        Raises:
            RemoteStorageError: an object could not be read.
            CorruptIndexError: an object cannot be understood.
        """
        producer_snapshot, stable = await self._producers_at_end(chain)
        if chain.missing is not None and (covered := chain.covered()).segments:  # markers may be among what is missing
            stable = min(stable, (await self._producers_at_end(covered))[1])
        whole = (ReadableRange(m, m.start_offset, m.end_offset + 1) for m in chain.segments)
        aborted = await self._aborted_in(s for s in (*whole, *chain.elsewhere) if not s.metadata.txn_index_empty)
        return TierEvidence(
            producer_snapshot=producer_snapshot,
            last_stable_offset=stable,
            aborted=aborted,
        )

    async def _producers_at_end(self, chain: Chain) -> tuple[bytes, int]:
        """Return the producer snapshot at the end of a chain, and the last stable offset there."""
        last = chain.segments[-1]
        snapshot = await self._fetch(last, IndexType.PRODUCER_SNAPSHOT)
        producers = parse_producer_snapshot(snapshot, f"{last.segment}: producer snapshot")
        return snapshot, stable_end_offset(producers, end_offset=chain.end_offset)

    async def _aborted_in(self, ranges: Iterable[ReadableRange]) -> tuple[AbortedTransaction, ...]:
        """Return the transactions whose ABORT marker is in one of the ranges, ascending by the marker's offset."""
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(self._aborted_of(readable)) for readable in ranges]
        except* TierError as failed:
            raise first_error(failed) from failed
        found = {entry for task in tasks for entry in task.result()}  # two segments may overlap
        return tuple(sorted(found, key=lambda entry: entry.last_offset))

    async def _aborted_of(self, readable: ReadableRange) -> tuple[AbortedTransaction, ...]:
        metadata, start_offset, end_offset = readable
        try:
            content = await self._fetch(metadata, IndexType.TRANSACTION)
        except RemoteIndexAbsentError:
            return ()
        index = TransactionIndex.from_bytes(content, metadata.start_offset, f"{metadata.segment}: transaction index")
        if index.size_bytes != len(content):
            raise CorruptIndexError(f"{metadata.segment}: transaction index: the last entry is torn")
        return tuple(entry for entry in index.entries if start_offset <= entry.last_offset < end_offset)

    async def _fetch(self, metadata: RemoteLogSegmentMetadata, index_type: IndexType) -> bytes:
        try:
            async with self._slots, asyncio.timeout(self._timeout_s):
                return await self._source.fetch_index(metadata, index_type)
        except TimeoutError as error:
            problem = f"{metadata.segment}: no {index_type.value} index within {self._timeout_s:g} s"
            raise RetriableRemoteStorageError(problem) from error
