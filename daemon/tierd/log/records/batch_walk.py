"""The walk over the batches of a segment, sound or damaged: the reference for what is sound in a log.

Inspection, strict recovery and the survey of a repair consume the walk. The check before a copy (``log.broker.check``)
and the recovery after a crash (``log.segments.segment_recovery``) have inlined twins of the walk, because an object per
batch costs too much there. A property test in ``tests/log/records/test_batch_walk.py`` holds the twins equal.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum, auto

from tierd.errors import CorruptRecordError
from tierd.log.files.disk import Readable
from tierd.log.records.batch_header import BatchHeader, crc_matches, iter_headers
from tierd.log.records.log_config import MAX_INT


class BatchFault(Enum):
    """A reason why a complete batch is not sound at its place."""

    CHECKSUM = auto()
    """The bytes of the batch do not have the checksum of its header."""

    OFFSET_AGAIN = auto()
    """The base offset is below the segment's base, or not above the last offset of the batch before."""

    OFFSET_OF_NEXT_SEGMENT = auto()
    """The last offset is not below the base of the next segment."""

    OFFSET_TOO_FAR = auto()
    """The last offset is too far from the segment's base for an index entry."""


@dataclass(frozen=True, slots=True)
class DamagedBatch:
    """A complete batch that is not sound.

    Attributes:
        faults: at least one, in the order in which ``BatchFault`` declares them.
        expected_offset: smallest base offset that is possible at this place.
    """

    header: BatchHeader
    faults: tuple[BatchFault, ...]
    expected_offset: int


@dataclass(frozen=True, slots=True)
class NoBatch:
    """A place where no complete batch begins; the walk ends there, because the place of the next batch is unknown."""

    error: CorruptRecordError


def walk(
    source: Readable, *, base_offset: int, next_base_offset: int | None = None, end: int | None = None
) -> Iterator[BatchHeader | DamagedBatch | NoBatch]:
    """Yield every batch of an open segment, a sound one as its header. Blocking.

    The walk goes on behind a damaged batch, and expects the offset behind its last offset.

    Args:
        source: the log file of the segment.
        base_offset: of the segment.
        next_base_offset: exclusive end of the segment's offsets; None when there is no next segment.
        end: bytes of the file that count, exclusive; None for all bytes.

    Raises:
        SegmentChangedError: the file became shorter.
    """
    expected_offset = base_offset
    too_far = base_offset + MAX_INT + 1
    limit = too_far if next_base_offset is None else min(too_far, next_base_offset)
    try:
        for header in iter_headers(source, end=end, may_be_torn=False):
            is_valid, last_offset = crc_matches(source, header), header.last_offset
            if is_valid and header.base_offset >= expected_offset and last_offset < limit:
                yield header
            else:
                found = {
                    BatchFault.CHECKSUM: not is_valid,
                    BatchFault.OFFSET_AGAIN: header.base_offset < expected_offset,
                    BatchFault.OFFSET_OF_NEXT_SEGMENT: next_base_offset is not None and last_offset >= next_base_offset,
                    BatchFault.OFFSET_TOO_FAR: last_offset >= too_far,
                }
                faults = tuple(fault for fault, is_there in found.items() if is_there)
                yield DamagedBatch(header, faults, expected_offset)
            expected_offset = last_offset + 1
    except CorruptRecordError as error:
        yield NoBatch(error)
