"""Offsets by timestamp, and named offsets, in the local log and in the tier (remote-tiering 15; KIP-405, KIP-1005)."""

import asyncio
from collections.abc import Iterator
from functools import partial

from tierd.errors import BatchTooLargeError, CorruptRecordError, RemoteIntegrityError
from tierd.log import CheckedBatches, RecordBatch, first_in_batch, first_since, max_timestamp
from tierd.model import IsolationLevel, RemoteLogSegmentMetadata, TimestampOffset
from tierd.tiering.reading.offset_places import OffsetSpec, latest, local_start, place
from tierd.tiering.reading.read_session import ReadSources
from tierd.tiering.reading.reading_bounds import on_current, reading_bounds, remote_end
from tierd.tiering.reading.remote_reader import RemoteSegmentReader
from tierd.tiering.reading.tiered_log import TieredLog

_FIRST_BYTES = 256 << 10
_PIECE_BYTES = 4 << 20


async def list_offset(
    sources: ReadSources, timestamp_ms: int, *, isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED
) -> TimestampOffset | None:
    """Find the first record that is no older than a timestamp, or the place that an ``OffsetSpec`` names.

    Returns:
        None without such a record or place.

    Raises:
        ValueError: a negative number that is no ``OffsetSpec``.
        LogError: the local log cannot be read.
        RemoteStorageError: the store did not answer, or the stored bytes are damaged.
    """
    log = await sources.snapshot()
    if timestamp_ms >= 0:
        search = partial(offset_for_timestamp, sources, timestamp_ms=timestamp_ms, isolation=isolation)
        return await on_current(log, sources.snapshot, search)
    spec = OffsetSpec(timestamp_ms)
    if spec is OffsetSpec.MAX_TIMESTAMP:
        largest = partial(_largest_timestamp, sources, isolation=isolation)
        return await on_current(log, sources.snapshot, largest)
    if spec is OffsetSpec.LATEST:
        return await on_current(log, sources.snapshot, partial(_latest, sources, isolation=isolation))
    return place(log, spec)


async def offset_for_timestamp(
    sources: ReadSources, log: TieredLog, *, timestamp_ms: int, isolation: IsolationLevel
) -> TimestampOffset | None:
    """Find the first readable record with ``timestamp_ms`` or a later time; None without such a record (15.1).

    Kafka ends the search after the first remote segment that might hold the record. Here the search goes on, because
    the records of that segment behind the log start may all be too old.

    Raises:
        OffsetOutOfRangeError: a local log that was cut back has lost records, and the first one with such a time may be
            among them.
    """
    start, end = log.log_start_offset, (await reading_bounds(log, isolation, sources.indexes)).end_offset
    for metadata in timestamp_candidates(log, timestamp_ms):
        if log.local_start_offset is not None and metadata.start_offset >= log.local_start_offset:
            break  # the local log has the segment too
        found = await _first_in_segment(sources, log, metadata, timestamp_ms, start=start)
        if found is not None:
            return found if found.offset < end else None
    if log.scan is None:
        return None
    found = await asyncio.to_thread(first_since, log.scan, timestamp_ms, start=max(start, local_start(log)), end=end)
    if found is not None or log.cut_at is None:
        return found
    return await _first_behind_cut(sources, log, timestamp_ms, start=max(start, log.cut_at), end=end)


async def _first_behind_cut(
    sources: ReadSources, log: TieredLog, timestamp_ms: int, *, start: int, end: int
) -> TimestampOffset | None:
    """Find the first record in the tier from ``start`` on, behind the cut of a local log; pass over no record."""
    awaited = log.awaited(start)
    for readable in log.branch.readable_ranges(start, end if awaited is None else min(awaited, end)):
        if readable.metadata.max_timestamp_ms >= timestamp_ms:
            at = readable.start_offset
            found = await _first_in_segment(sources, log, readable.metadata, timestamp_ms, start=at)
            if found is not None:
                return found if found.offset < end else None
    if awaited is not None:
        raise log.missing(awaited)
    return None


def timestamp_candidates(log: TieredLog, timestamp_ms: int) -> Iterator[RemoteLogSegmentMetadata]:
    """Yield the readable segments that may have a record of ``timestamp_ms`` or later from the log start on."""
    readable = (m for m in log.finished if m.max_timestamp_ms >= timestamp_ms and m.end_offset >= log.log_start_offset)
    for metadata in readable:
        first = max(metadata.first_readable_offset, log.log_start_offset)
        if log.readable_end(metadata, first) > first:
            yield metadata


async def _first_in_segment(
    sources: ReadSources, log: TieredLog, metadata: RemoteLogSegmentMetadata, timestamp_ms: int, *, start: int
) -> TimestampOffset | None:
    first = max(start, metadata.first_readable_offset)
    end = remote_end(log, metadata, first)
    position = await sources.indexes.lookup_timestamp(metadata, timestamp_ms, first)
    reader = RemoteSegmentReader(
        sources.remote, metadata, position=position, first_bytes=_FIRST_BYTES, piece_bytes=_PIECE_BYTES
    )
    sources.recorder.fetch_requested(log.partition.topic)
    try:
        while batches := await reader.next_batches():
            for batch in await asyncio.to_thread(_since, batches, timestamp_ms, first):
                found = await asyncio.to_thread(first_in_batch, batch, timestamp_ms, start=first, end=end)
                if found is not None:
                    return found
            if batches.last_offsets[-1] + 1 >= end:
                return None
    except BatchTooLargeError:  # nothing is damaged, and the error has the right remedy
        sources.recorder.fetch_failed(log.partition.topic)
        raise
    except CorruptRecordError as error:
        sources.recorder.fetch_failed(log.partition.topic)
        raise RemoteIntegrityError(str(error), remedy=f"run tierd verify --deep {log.partition}") from error
    except Exception:
        sources.recorder.fetch_failed(log.partition.topic)
        raise
    finally:
        sources.recorder.bytes_fetched(log.partition.topic, reader.fetched_bytes)
        await reader.close()
    return None


def _since(batches: CheckedBatches, timestamp_ms: int, offset: int) -> list[RecordBatch]:
    """Return the batches that may have a record of ``timestamp_ms`` or later at ``offset`` or behind it."""
    return [each for each in batches if each.max_timestamp_ms >= timestamp_ms and each.last_offset >= offset]


async def _largest_timestamp(
    sources: ReadSources, log: TieredLog, *, isolation: IsolationLevel
) -> TimestampOffset | None:
    """Find the record with the largest timestamp, in the local segments only, as Kafka does."""
    if log.scan is None:
        return None
    bounds = await reading_bounds(log, isolation, sources.indexes)
    return await asyncio.to_thread(max_timestamp, log.scan, end=bounds.end_offset)


async def _latest(sources: ReadSources, log: TieredLog, *, isolation: IsolationLevel) -> TimestampOffset:
    bounds = await reading_bounds(log, isolation, sources.indexes)
    return latest(log, end_offset=bounds.end_offset)
