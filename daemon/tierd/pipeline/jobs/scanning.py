"""Search for the latest record of each key, in which tasks read splits and others join buckets; and for erased keys.

::

    split ──scan──► (bucket, KeyBlock) ──shuffle──► bucket ──join──► (group, OffsetBlock) ──shuffle──► group
                    (bucket, InputNote)                              (group, InputNote)

Scan and join are generators over bounded memory, and their result does not depend on the order of the input. Spark may
run them again at any time, when it has lost a result. So an input that cannot be read is noted in every bucket of its
partition, and every bucket notes the input's group. Otherwise the group would take a missing key for a superseded one.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from tierd.errors import TierError
from tierd.kernels import STEP_RECORDS
from tierd.log import KeyHashes, check_index, key_secret_id
from tierd.model import IndexType, RemoteLogSegmentMetadata
from tierd.pipeline.access import OpenTier
from tierd.pipeline.jobs.key_blocks import KeyBlock, LatestKeys, key_blocks
from tierd.pipeline.jobs.run_context import RunContext
from tierd.pipeline.jobs.task_layout import InputPlace, InputSplit
from tierd.pipeline.rewriting import InputLog, KeyColumns, TransactionTrace, UnreadBatches, find_keys, scan_keys

UNREAD_ADVICE: Final = (
    "the keys that are to be erased may be in it; it stays, and the request waits. To remove such batches whole, with "
    "all their records, file the request again with tierd erase request --remove-unread"
)
_BLOCK_OFFSETS = 16384  # 64 KiB


@dataclass(frozen=True, slots=True)
class OffsetBlock:
    """Offsets that are the latest of their keys, as uint32 distances from the start of the group's first input."""

    distances: bytes

    @property
    def count(self) -> int:
        """Return the number of offsets."""
        return len(self.distances) // 4

    def offsets(self, start_offset: int) -> np.ndarray:
        """Return the offsets, int64, ascending."""
        return np.frombuffer(self.distances, dtype=np.uint32).astype(np.int64) + start_offset


@dataclass(frozen=True, slots=True)
class InputNote:
    """Facts about an input that was read, for the driver.

    Attributes:
        keyed: number of records that could be the latest of a key.
        trace: the transactions that go on behind the input.
        problem: why the input could not be read to its end; None when it could.
        unread_from: base offset of the input's first batch that cannot be opened; None without any.
        hashes_problem: why the stored hashes of its keys could not be used, so that its records were read; None if
            they were used, or are not there, or are under another secret.
    """

    place: InputPlace
    keyed: int
    trace: TransactionTrace
    problem: str | None = None
    unread_from: int | None = None
    hashes_problem: str | None = None


@dataclass(frozen=True, slots=True)
class ErasureNote:
    """Number of records of an input that are to be erased, or the reason why it is unknown.

    Attributes:
        records: number of records with a key that is to be erased; a batch that cannot be opened counts as one.
    """

    place: InputPlace
    records: int
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class AuditNote:
    """Result of the audit of a segment: its first problem, None when there is none."""

    place: InputPlace
    problem: str | None


def scan_split(
    context: RunContext, split: InputSplit, note_fetched: Callable[[int], object]
) -> Iterator[tuple[int, KeyBlock | InputNote]]:
    """Read the inputs of a split and yield their keys by bucket; an input that cannot be read is noted."""
    with context.opened_tier(note_fetched) as tier:
        keys, index = LatestKeys(), split.inputs[0].index
        for place in split.inputs:
            if place.index != index:
                yield from key_blocks(keys, index=index, buckets=context.buckets[index])
                index = place.index
            yield from _scan_input(context, tier, place, keys)
        yield from key_blocks(keys, index=index, buckets=context.buckets[index])


def _scan_input(
    context: RunContext, tier: OpenTier, place: InputPlace, keys: LatestKeys
) -> Iterator[tuple[int, KeyBlock | InputNote]]:
    buckets = context.buckets[place.index]
    metadata = context.work(place).inputs[place.segment]
    trace, unread, keyed, problem = TransactionTrace(), UnreadBatches(), 0, None
    hashes, hashes_problem = _stored_hashes(tier, metadata, context.order.secret)
    try:
        scanned = scan_keys(
            tier.pieces(metadata),
            context.rules(place),
            name=str(metadata.segment),
            secret=context.order.secret,
            trace=trace,
            unread=unread,
        )  # which reads nothing before it is iterated over
        for columns in scanned if hashes is None else _steps(hashes):
            keyed += len(columns)
            keys.add(columns.hash_hi, columns.hash_lo, columns.offset)
            if keys.is_full:
                yield from key_blocks(keys, index=place.index, buckets=buckets)
    except (TierError, OSError) as error:
        problem = f"{metadata.segment} could not be read: {error}"
    for number in range(buckets.count if problem else 1):
        yield buckets.first + number, InputNote(place, keyed, trace, problem, unread.first_offset, hashes_problem)


def _stored_hashes(
    tier: OpenTier, metadata: RemoteLogSegmentMetadata, secret: bytes
) -> tuple[KeyHashes | None, str | None]:
    """Return the hashes that are stored with a segment; None if its records have to be read, and what is wrong.

    Hashes say the same as a scan of the segment: it has no transactional, control or unopened batch.
    """
    name = f"{metadata.segment} {IndexType.KEY_HASHES.value}"
    try:
        manifest = tier.manifest(metadata)  # first: without it, a read of the indexes would also take what is not used
        if manifest.index(IndexType.KEY_HASHES) is None:
            return None, None
        tier.require_whole_log(metadata)  # keys of a lost log must not supersede records that can still be read
        content = tier.read_index(metadata, IndexType.KEY_HASHES)
        hashes = KeyHashes.from_bytes(content, metadata.start_offset, name, end_offset=metadata.end_offset)
    except (TierError, OSError) as error:
        return None, str(error)
    if hashes is None or hashes.secret_id != key_secret_id(secret):
        return None, None
    if len(hashes) > manifest.record_count:
        return None, f"{name}: {len(hashes)} keys of {manifest.record_count} records"
    return hashes, None


def _steps(hashes: KeyHashes) -> Iterator[KeyColumns]:
    """Yield the rows some at a time, as a scan does, in memory of their own."""
    for start in range(0, len(hashes), STEP_RECORDS):
        rows = slice(start, start + STEP_RECORDS)
        yield KeyColumns(hashes.hi[rows].copy(), hashes.lo[rows].copy(), hashes.offsets(rows))


def join_bucket(
    context: RunContext, first_numbers: Mapping[int, int], rows: Iterable[tuple[int, KeyBlock | InputNote]]
) -> Iterator[tuple[int, OffsetBlock | InputNote]]:
    """Join the keys of a bucket and yield the latest offsets by the number of their group.

    Args:
        context: of the run.
        first_numbers: the number of each partition's first group.
        rows: rows of ``scan_split``, from all splits. A note goes to the partition's first group, and a note of a
            problem to the input's own group too.
    """
    partitions: dict[int, LatestKeys] = {}
    for _, row in rows:
        if isinstance(row, InputNote):
            first_number = first_numbers[row.place.index]
            yield first_number, row
            group = context.work(row.place).group_of(row.place.segment) if row.problem else None
            if group:  # the first group has the note already
                yield first_number + group, row
        else:
            partitions.setdefault(row.index, LatestKeys()).add_block(row)
    for index, keys in partitions.items():
        _, _, offsets = keys.take()
        for group, block in _by_group(context, index, np.sort(offsets)):
            yield first_numbers[index] + group, block


def _by_group(context: RunContext, index: int, offsets: np.ndarray) -> Iterator[tuple[int, OffsetBlock]]:
    work = context.order.partitions[index]
    for group in range(len(work.groups)):
        inputs = work.group_inputs(group)
        start_offset, end_offset = inputs[0].start_offset, inputs[-1].end_offset
        first, end = np.searchsorted(offsets, (start_offset, end_offset + 1)).tolist()
        distances = (offsets[first:end] - start_offset).astype(np.uint32)
        for at in range(0, len(distances), _BLOCK_OFFSETS):
            yield group, OffsetBlock(distances[at : at + _BLOCK_OFFSETS].tobytes())


def find_erased(context: RunContext, split: InputSplit, note_fetched: Callable[[int], object]) -> Iterator[ErasureNote]:
    """Search the inputs of a split for the keys that are to be erased; yield a note for each, with any problem."""
    with context.opened_tier(note_fetched) as tier:
        for place in split.inputs:
            work = context.work(place)
            metadata, records, unread = work.inputs[place.segment], 0, UnreadBatches()
            try:
                for offsets in find_keys(
                    tier.pieces(metadata), work.erased_keys, name=str(metadata.segment), unread=unread
                ):
                    records += len(offsets)
            except (TierError, OSError) as error:
                yield ErasureNote(place, records, f"{metadata.segment} could not be read: {error}")
            else:
                may_pass = work.removes_unread or not unread.count
                problem = None if may_pass else _may_hold_keys(metadata, unread)
                yield ErasureNote(place, records + unread.count, problem)


def _may_hold_keys(metadata: RemoteLogSegmentMetadata, unread: UnreadBatches) -> str:
    return (
        f"{metadata.segment}: {unread.count} batches unpack to more than tierd opens, the first at offset "
        f"{unread.first_offset}: {UNREAD_ADVICE}"
    )


def audit_split(context: RunContext, split: InputSplit, note_fetched: Callable[[int], object]) -> Iterator[AuditNote]:
    """Check the inputs of a split; yield a note for each, also for one that could not be read."""
    with context.opened_tier(note_fetched) as tier:
        for place in split.inputs:
            metadata = context.work(place).inputs[place.segment]
            try:
                yield AuditNote(place, _audit_problem(tier, metadata))
            except (TierError, OSError) as error:
                yield AuditNote(place, f"{metadata.segment}: {error}")


def input_log(tier: OpenTier, metadata: RemoteLogSegmentMetadata) -> InputLog:
    """Return the log of an input; it reads nothing before it is iterated over."""
    return InputLog(
        name=str(metadata.segment),
        start_offset=metadata.start_offset,
        end_offset=metadata.end_offset,
        pieces=tier.pieces(metadata),
    )


def _audit_problem(tier: OpenTier, metadata: RemoteLogSegmentMetadata) -> str | None:
    """Return the first problem of a segment, or None. Reads compare chunks and indexes with their checksums."""
    manifest = tier.manifest(metadata)
    batches = input_log(tier, metadata).count_batches()
    if batches != manifest.batch_count:
        return f"{metadata.segment}: {batches} batches, the manifest says {manifest.batch_count}"
    for kind in IndexType:
        if manifest.index(kind) is not None:
            check_index(
                kind,
                tier.read_index(metadata, kind),
                base_offset=metadata.start_offset,
                log_bytes=metadata.size_bytes,
                name=f"{kind.value} index",
            )
        elif not kind.is_optional:
            return f"{metadata.segment}: there is no {kind.value} index"
    return None
