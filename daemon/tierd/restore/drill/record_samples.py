"""Samples of a restored log, compared with the tier: batches whose bytes are fetched once more from the store."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from tierd.errors import CorruptIndexError, RemoteIndexAbsentError, RemoteIntegrityError
from tierd.log import OffsetIndex, iter_batches, iter_headers, open_source
from tierd.model import ByteRange, IndexType, RemoteLogSegmentMetadata
from tierd.remote import RemoteStorageManager
from tierd.restore.log_dir.restored_partition import RestoredPartition
from tierd.restore.plan.partition_plan import PartitionPlan, SegmentPart
from tierd.tasks import in_thread

SAMPLES: Final = 16
_WINDOW_BYTES: Final = 64 << 10


class BatchSample(NamedTuple):
    """Batch of a restored log."""

    base_offset: int
    last_offset: int
    data: bytes


async def compare_samples(
    restored: RestoredPartition,
    plan: PartitionPlan,
    storage: RemoteStorageManager,
    *,
    random: Callable[[], float],
    count: int = SAMPLES,
) -> int:
    """Compare batches of a restored directory with those that the tier has now; return the number of batches.

    The first and the last batch are always compared, the others are chosen by the size of their segments.

    Args:
        restored: by ``plan``, and not changed since.
        plan: of the restore.
        storage: the tier; nothing is read through a cache.
        random: returns a number in [0, 1).
        count: of the batches that are chosen besides the first and the last one.

    Raises:
        RemoteIntegrityError: the tier has other bytes, or lacks a batch.
        RemoteStorageError: the store failed.
        LogError: the directory cannot be read.
    """
    samples = await in_thread(
        choose_samples, restored.directory, end_offset=restored.end_offset, random=random, count=count
    )
    for sample in samples:
        part = _part_of(plan, sample)
        found = None if part is None else await _remote_batch(storage, part.metadata, sample.base_offset)
        if found != sample.data:
            problem = "the tier lacks the batch" if found is None else "the batch in the tier has other bytes"
            raise RemoteIntegrityError(
                f"{plan.partition}: offset {sample.base_offset} was restored, and {problem}",
                remedy=f"run tierd verify --deep {plan.partition}, then the drill once more",
            )
    return len(samples)


def choose_samples(directory: Path, *, end_offset: int, random: Callable[[], float], count: int) -> list[BatchSample]:
    """Return the first and the last batch of a log, and up to ``count`` others, ascending. Blocking.

    Segments from ``end_offset`` on are left out: their empty batches stand for offsets that the tier never had.

    Raises:
        LogError: a file cannot be read.
    """
    logs = [path for path in sorted(directory.glob("*.log")) if path.stat().st_size and int(path.stem) < end_offset]
    if not logs:
        return []
    found = {each.base_offset: each for each in (_at(logs[0], 0.0), _at(logs[-1], 1.0))}
    sizes = [path.stat().st_size for path in logs]
    for _ in range(count):
        sample = _at(_by_size(logs, sizes, random()), random())
        found[sample.base_offset] = sample
    return [found[offset] for offset in sorted(found)]


def _by_size(logs: Sequence[Path], sizes: Sequence[int], share: float) -> Path:
    at = share * sum(sizes)
    for path, size in zip(logs, sizes, strict=True):
        if at < size:
            return path
        at -= size
    return logs[-1]


def _at(log: Path, share: float) -> BatchSample:
    """Return a batch of a log file: the first one for 0, the last one for 1, between them one near that share."""
    index = log.with_suffix(".index")
    entries = OffsetIndex.from_bytes(index.read_bytes(), int(log.stem), str(index)).entries() if index.exists() else ()
    begins = sorted({0, *(entry.position for entry in entries)})  # an entry every few KiB
    number = min(int(share * len(begins)), len(begins) - 1)
    with open_source(log) as source:
        end = [*begins, source.size_bytes][number + 1]
        headers = list(iter_headers(source, position=begins[number], end=end, may_be_torn=False))
        within = share * len(begins) - number
        header = headers[min(int(within * len(headers)), len(headers) - 1)]
        return BatchSample(header.base_offset, header.last_offset, source.read(header.position, header.size_bytes))


def _part_of(plan: PartitionPlan, sample: BatchSample) -> SegmentPart | None:
    return next((part for part in plan.parts if part.start_offset <= sample.last_offset < part.end_offset), None)


async def _remote_batch(
    storage: RemoteStorageManager, metadata: RemoteLogSegmentMetadata, base_offset: int
) -> bytes | None:
    """Return the bytes of the batch that begins at an offset; None if the segment has no such batch."""
    position, window = await _position(storage, metadata, base_offset), _WINDOW_BYTES
    while position < metadata.size_bytes:
        data = await storage.fetch_log_segment(metadata, ByteRange(position, position + window - 1))
        used = 0
        for batch in iter_batches(data, name=str(metadata.segment), position=position):
            if batch.base_offset >= base_offset:
                return bytes(batch.data) if batch.base_offset == base_offset else None
            used += batch.size_bytes
        if not used and position + window >= metadata.size_bytes:
            return None
        window = _WINDOW_BYTES if used else 2 * window  # a batch may be larger than the window
        position += used
    return None


async def _position(storage: RemoteStorageManager, metadata: RemoteLogSegmentMetadata, offset: int) -> int:
    """Return a position at or before the batch with an offset; the begin of the log where the index is of no use."""
    try:
        index = await storage.fetch_index(metadata, IndexType.OFFSET)
        return OffsetIndex.from_bytes(index, metadata.start_offset, str(metadata.segment)).lookup(offset).position
    except (RemoteIndexAbsentError, RemoteIntegrityError, CorruptIndexError):
        return 0  # a restore builds such an index anew
