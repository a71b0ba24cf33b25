"""Remote segments of our branch of the log, and the size of the branch (remote-tiering 12.1, 12.3, 17.3)."""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple
from uuid import UUID

from tierd.model import EpochEntry, Lineage, RemoteLogSegmentMetadata, RemoteLogSegmentState


def in_lineage(metadata: RemoteLogSegmentMetadata, log_end_offset: int, lineage: Lineage) -> bool:
    """Return True if the segment is of our branch of the log (12.3; Kafka: isRemoteSegmentWithinLeaderEpochs).

    Args:
        metadata: the segment.
        log_end_offset: exclusive.
        lineage: without the epochs that wrote nothing. The start of its first epoch moves up with the log start, so
            what a segment says of that one is not compared.
    """
    if not lineage:
        return False
    epochs = Lineage(metadata.segment_leader_epochs).with_data()
    first, last = lineage.entries[0], lineage.entries[-1]
    if not first.epoch <= epochs.entries[-1].epoch <= last.epoch:
        return False
    compared = [entry for entry in epochs.entries if entry.epoch >= first.epoch]
    fits = all(_fits(entry, compared, metadata.end_offset, lineage) for entry in compared)
    return fits and metadata.end_offset < log_end_offset


def _fits(entry: EpochEntry, compared: Sequence[EpochEntry], end_offset: int, lineage: Lineage) -> bool:
    start = lineage.start_offset_of(entry.epoch)
    if start is None:
        return False
    is_first, is_last = entry is compared[0], entry is compared[-1]
    if is_first and entry.epoch != lineage.entries[0].epoch and entry.start_offset < start:
        return False
    following = lineage.next_entry(entry.epoch)
    if is_last:
        return following is None or end_offset < following.start_offset
    return following == compared[compared.index(entry) + 1]


def counted_bytes(
    list_epoch: Callable[[int], Sequence[RemoteLogSegmentMetadata]], *, lineage: Lineage, log_end_offset: int
) -> dict[UUID, int]:
    """Return the bytes that each readable segment of our branch adds to the log, by id (remote-tiering 12.1 step 3).

    The first segment that a new leader copies may begin below the end of the tier. Of offsets that two segments have,
    only the earlier segment counts. The later one counts by its share of offsets behind: its bytes are taken to be
    spread evenly. Kafka counts both, and so deletes records that fit into the limit.

    Returns:
        The segments in the order of their epochs and offsets; the sum is the size of the branch in the tier.
    """
    filtered = lineage.with_data()
    counted: dict[UUID, int] = {}
    end = -1
    for entry in filtered.entries:
        for metadata in list_epoch(entry.epoch):
            if metadata.segment.id in counted or metadata.state is not RemoteLogSegmentState.COPY_SEGMENT_FINISHED:
                continue
            if in_lineage(metadata, log_end_offset, filtered):
                counted[metadata.segment.id] = _bytes_above(
                    end, metadata.start_offset, metadata.end_offset, metadata.size_bytes
                )
                end = max(end, metadata.end_offset)
    return counted


class LocalSegment(NamedTuple):
    """Local segment; the active one has no end."""

    base_offset: int
    next_base_offset: int | None
    size_bytes: int


def only_local_bytes(
    segments: Iterable[LocalSegment],
    *,
    highest_remote_offset: int,
    log_end_offset: int,
    strict_kafka_compat: bool = False,
) -> int:
    """Return the bytes of local segments that are not in the tier (remote-tiering 17.3).

    Of a segment that the tier has in part, the other part counts, by its share of offsets. Kafka's rule, base at or
    above the highest remote offset, counts a one-record segment twice, and leaves one out that goes on beyond that
    offset; it is kept with ``strict_kafka_compat``.

    Args:
        segments: the local log.
        highest_remote_offset: the last offset in the tier, inclusive; -1 without any.
        log_end_offset: exclusive; an offset that the log surely reaches.
        strict_kafka_compat: count as Kafka does.
    """
    if strict_kafka_compat:
        return sum(s.size_bytes for s in segments if s.base_offset >= highest_remote_offset)
    return sum(
        _bytes_above(
            highest_remote_offset,
            s.base_offset,
            (log_end_offset if s.next_base_offset is None else s.next_base_offset) - 1,
            s.size_bytes,
        )
        for s in segments
    )


def _bytes_above(offset: int, first: int, last: int, size_bytes: int) -> int:
    """Return the share of a segment's bytes that its offsets above ``offset`` have.

    ``first`` and ``last``, of the segment, are inclusive. One that begins above ``offset`` counts whole, even if empty.
    """
    if offset < first:
        return size_bytes
    return size_bytes * max(0, last - offset) // max(1, last - first + 1)
