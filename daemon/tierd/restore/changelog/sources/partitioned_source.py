"""PartitionedSource: a ChangelogSource over changelogs that are opened one by one (changelog-restore 3.2)."""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, NamedTuple, Protocol, TypeVar

from tierd.errors import (
    CorruptIndexError,
    CorruptRecordError,
    MissingArtefactError,
    RemoteIntegrityError,
    SegmentChangedError,
    TierError,
    UnknownPartitionError,
)
from tierd.log import AbortedTransaction, RecordBatch, committed_batches, data_batches
from tierd.model import IsolationLevel, TopicPartition
from tierd.restore.catalogue.catalogue_objects import CommittedPosition
from tierd.restore.changelog.changelog_errors import (
    ChangelogRangeError,
    CorruptSourceError,
    RestoreError,
    SourceUnavailableError,
)
from tierd.restore.changelog.changelog_source import ChangelogIdentity, ChangelogRecords, ReadResult
from tierd.restore.changelog.encoded_records import EncodedRecords, record_pieces
from tierd.restore.changelog.sources.partition_changelog import (
    ChangelogBounds,
    ChangelogPiece,
    ObjectGoneError,
    PartitionChangelog,
    damaged,
)

T = TypeVar("T")

_ATTEMPTS: Final = 5  # a broker that rolls and deletes, or a compaction, may change the log under a few reads in a row

DeleteRetention = Callable[[str], int | None]
"""Return ``delete.retention.ms`` of a compacted topic; None for a topic that is not compacted."""

CommittedPositions = Mapping[str, Mapping[TopicPartition, CommittedPosition]]
"""Committed offsets by group and partition."""


class Changelogs(Protocol):
    """Place that has changelogs."""

    async def list_partitions(self) -> frozenset[TopicPartition]:
        """Return the partitions that the place has."""

    async def open(self, partition: TopicPartition) -> PartitionChangelog | None:
        """Open a changelog; None if the place does not have it."""


@dataclass(slots=True)
class _Open:
    """An open changelog and its last bounds."""

    changelog: PartitionChangelog
    bounds: ChangelogBounds


class _ReadStep(NamedTuple):
    """One piece, and the exclusive end of what its reader may read."""

    piece: ChangelogPiece
    upper: int


class PartitionedSource:
    """Source over the changelogs of one place. The owner has to ``close`` it."""

    def __init__(
        self,
        changelogs: Changelogs,
        *,
        delete_retention: DeleteRetention,
        groups: CommittedPositions | None = None,
        is_continued: bool = True,
    ) -> None:
        """Read the changelogs of a place.

        Args:
            changelogs: the place.
            delete_retention: which topics are compacted.
            groups: committed offsets; None where they are not known.
            is_continued: transactions that are open at the end will be decided in this place. Otherwise every read
                ends at the last stable offset, and a reader of committed records does not wait for a marker.
        """
        self._changelogs = changelogs
        self._delete_retention = delete_retention
        self._groups = groups
        self._is_continued = is_continued
        self._open: dict[TopicPartition, _Open] = {}
        self._locks: defaultdict[TopicPartition, asyncio.Lock] = defaultdict(asyncio.Lock)  # one call at a time each

    async def list_partitions(self) -> frozenset[TopicPartition]:
        """Return the partitions that the source has."""
        try:
            return await self._changelogs.list_partitions()
        except TierError as error:
            raise _failed(error) from error

    async def identity(self, partition: TopicPartition) -> ChangelogIdentity:
        """Return the identity of the changelog as it is now."""
        bounds = await self._refreshed(partition)
        return ChangelogIdentity(
            topic_id=bounds.topic_id,
            lineage=bounds.lineage,
            delete_retention_ms=self._delete_retention(partition.topic),
        )

    async def bounds(self, partition: TopicPartition) -> ChangelogBounds:
        """Return the bounds of the changelog as they are now."""
        return await self._refreshed(partition)

    async def earliest_offset(self, partition: TopicPartition) -> int:
        """Return the log start, inclusive."""
        return (await self._refreshed(partition)).earliest_offset

    async def end_offset(self, partition: TopicPartition, isolation: IsolationLevel) -> int:
        """Return the exclusive end for ``isolation``."""
        return self._end(await self._refreshed(partition), isolation)

    async def committed_offset(self, group: str, partition: TopicPartition) -> int | None:
        """Return the committed offset of a consumer group; None where it has none.

        Raises:
            RestoreError: the source was opened without positions of groups.
        """
        if self._groups is None:
            raise RestoreError(
                f"{partition}: the source does not know the committed offsets of group {group}",
                remedy="give the positions of the catalogue, or restore with a limit",
            )
        position = self._groups.get(group, {}).get(partition)
        return None if position is None else position.offset

    async def read(
        self,
        partition: TopicPartition,
        offset: int,
        *,
        max_bytes: int,
        isolation: IsolationLevel,
        is_encoded: bool = False,
    ) -> ReadResult:
        """Read batches from ``offset`` on, as ``ChangelogSource`` promises."""
        async with self._locks[partition]:
            result = await translated(partition, self._read(partition, offset, max_bytes, isolation))
            if is_encoded or not isinstance(result.records, EncodedRecords):
                return result
            return replace(result, records=await asyncio.to_thread(result.records.decoded))

    async def close(self) -> None:
        """End what was fetched ahead of every changelog; a cancellation is raised when it has ended."""
        async with AsyncExitStack() as stack:  # whose other callbacks run after one that was cancelled
            while self._open:
                stack.push_async_callback(self._open.popitem()[1].changelog.close)

    async def _read(
        self, partition: TopicPartition, offset: int, max_bytes: int, isolation: IsolationLevel
    ) -> ReadResult:
        opened = await self._opened(partition)
        attempts_left, looked_at = _ATTEMPTS, None
        while True:
            attempts_left -= 1
            try:
                step = await self._step(partition, opened, offset, max_bytes, isolation)
                if step is None:
                    return ReadResult(records=ChangelogRecords(), next_offset=offset, size_bytes=0, at_end=True)
                return await self._decoded(opened.changelog, step, offset, isolation)
            except SegmentChangedError as error:
                segments = error.segments if isinstance(error, ObjectGoneError) else None
                if segments is not None and segments == looked_at:  # lost: nothing has replaced it meanwhile
                    raise _out_of_range(partition, offset, opened.bounds) from error
                if not attempts_left:
                    raise
                looked_at = segments
            # A broker, retention or a compaction has moved on: look again. A store that was wiped for a segment that is
            # replaced once more would be restored for nothing.
            await opened.changelog.close()
            opened.bounds = await opened.changelog.refresh()

    async def _step(
        self, partition: TopicPartition, opened: _Open, offset: int, max_bytes: int, isolation: IsolationLevel
    ) -> _ReadStep | None:
        """Return the next piece; None at the end."""
        if not opened.bounds.earliest_offset <= offset < self._end(opened.bounds, isolation):
            opened.bounds = await opened.changelog.refresh()
        bounds = opened.bounds
        if not bounds.earliest_offset <= offset <= bounds.end_offset:
            raise _out_of_range(partition, offset, bounds)
        upper = self._end(bounds, isolation)
        if offset >= upper:
            return None
        return _ReadStep(await opened.changelog.read(offset, end_offset=upper, max_bytes=max_bytes), upper)

    async def _decoded(
        self, changelog: PartitionChangelog, step: _ReadStep, offset: int, isolation: IsolationLevel
    ) -> ReadResult:
        piece, upper = step
        aborted = None
        if isolation is IsolationLevel.READ_COMMITTED and piece.batches:
            aborted = await changelog.aborted(piece.batches[0].base_offset, piece.next_offset)
        decode = partial(_decode, piece.batches, start_offset=offset, end_offset=upper, aborted=aborted)
        return ReadResult(
            records=await asyncio.to_thread(decode) if piece.batches else ChangelogRecords(),
            next_offset=piece.next_offset,
            size_bytes=piece.size_bytes,
            remote_bytes=piece.remote_bytes,
            at_end=piece.next_offset >= upper,
        )

    async def _refreshed(self, partition: TopicPartition) -> ChangelogBounds:
        async with self._locks[partition]:
            return await translated(partition, self._bounds_again(partition))

    def _end(self, bounds: ChangelogBounds, isolation: IsolationLevel) -> int:
        if isolation is IsolationLevel.READ_COMMITTED or not self._is_continued:
            return max(bounds.stable_offset, bounds.earliest_offset)
        return bounds.end_offset

    async def _bounds_again(self, partition: TopicPartition) -> ChangelogBounds:
        opened = await self._opened(partition)
        opened.bounds = await opened.changelog.refresh()
        return opened.bounds

    async def _opened(self, partition: TopicPartition) -> _Open:
        if partition not in self._open:
            changelog = await self._changelogs.open(partition)
            if changelog is None:
                raise UnknownPartitionError(
                    f"{partition}: the source does not have this changelog",
                    remedy="name it as Kafka names its directories, such as orders-0; tierd status lists them",
                )
            self._open[partition] = _Open(changelog, await changelog.refresh())
        return self._open[partition]


async def translated(partition: TopicPartition, call: Awaitable[T]) -> T:
    """Await ``call``; translate an error of the log, the store, the metadata or the brokers."""
    try:
        return await call
    except (RestoreError, UnknownPartitionError):
        raise
    except CorruptRecordError as error:
        raise damaged(partition, error) from error
    except (CorruptIndexError, MissingArtefactError, RemoteIntegrityError) as error:
        raise CorruptSourceError(partition, str(error), remedy=error.remedy) from error
    except TierError as error:
        raise _failed(error, f"{partition}: ") from error


def _failed(error: TierError, place: str = "") -> RestoreError:
    kind = SourceUnavailableError if error.retriable else RestoreError
    return kind(f"{place}{error}", remedy=error.remedy)


def _out_of_range(partition: TopicPartition, offset: int, bounds: ChangelogBounds) -> ChangelogRangeError:
    return ChangelogRangeError(
        partition, offset=offset, earliest_offset=bounds.earliest_offset, end_offset=bounds.end_offset
    )


def _decode(
    batches: Iterable[RecordBatch],
    *,
    start_offset: int,
    end_offset: int,
    aborted: Iterable[AbortedTransaction] | None,
) -> EncodedRecords:
    """Return the records of ``[start_offset, end_offset)`` without control records. It takes long: for a thread.

    Args:
        batches: ascending.
        start_offset: inclusive.
        end_offset: exclusive.
        aborted: for a committed read every aborted transaction that touches the batches; None for all records.

    Raises:
        InvalidRecordError: records that cannot be decoded.
    """
    wanted = data_batches(batches) if aborted is None else committed_batches(batches, aborted)
    return EncodedRecords(record_pieces(wanted, start_offset=start_offset, end_offset=end_offset))
