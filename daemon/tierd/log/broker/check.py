"""The check of every batch of a segment before a copy (DESIGN 4, step 2). The hot path of a copy.

``_CheckWalk`` is an inlined twin of ``log.records.batch_walk``. A property test holds the two equal. The check refuses
more: a negative record count, and a control batch or compressed legacy entry that cannot be decoded.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

from tierd.errors import CorruptRecordError
from tierd.kernels import crc32c
from tierd.log.files.partition_scan import MAX_OFFSET
from tierd.log.files.source import Source, open_source
from tierd.log.records.batch_header import (
    CRC_START_V2,
    HEADER_V2,
    IS_CONTROL,
    IS_TRANSACTIONAL,
    LOG_OVERHEAD_BYTES,
    MAGIC_END,
    OVERHEAD_BYTES,
    parse_header,
)
from tierd.log.records.compression import Compression
from tierd.log.records.log_config import MAX_INT
from tierd.log.records.record import ControlRecordType
from tierd.log.records.record_batch import read_batch, with_data
from tierd.model import CHECKSUM_BLOCK_BYTES, BlockChecksums, EpochEntry

_CARRY_BYTES = 4096  # a batch up to this size that a block cuts in two is moved, a larger one is checked in pieces
_MAX_LEGACY_BYTES = 256 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentCheckResult:
    """The facts about a sound segment.

    Attributes:
        first_offset: of the first batch, -1 when the segment is empty.
        last_offset: of the last batch, inclusive; -1 when the segment is empty.
        max_timestamp_ms: of all batches; -1 without a timestamp.
        shallow_offset_of_max_timestamp: last offset of the earliest batch with that timestamp, -1 without a timestamp.
        epochs: first offset of each leader epoch, in the order of the batches; -1 (unknown) is left out.
        has_transactions: a batch is transactional.
        abort_markers: number of markers that abort a transaction. The transaction index has an entry for each whose
            transaction has records.
        min_magic: magic of the oldest format in the segment; 2 when the segment is empty.
        highest_producer_id: of all batches; -1 without a producer id.
    """

    size_bytes: int
    batch_count: int
    record_count: int
    first_offset: int
    last_offset: int
    max_timestamp_ms: int
    shallow_offset_of_max_timestamp: int
    epochs: tuple[EpochEntry, ...]
    checksums: BlockChecksums
    has_transactions: bool = False
    abort_markers: int = 0
    min_magic: int = 2
    highest_producer_id: int = -1

    @property
    def has_abort_markers(self) -> bool:
        """Return True if a transaction was aborted in the segment."""
        return self.abort_markers > 0


def check_segment(path: Path, *, base_offset: int, next_base_offset: int | None) -> SegmentCheckResult:
    """Check every batch of a segment. The memory of one block suffices for any segment. Blocking.

    The check covers lengths, magic, CRC, offsets that ascend within ``[base_offset, next_base_offset)``, and bytes
    behind the last batch. A file of zero bytes is sound: compaction leaves such segments.

    Args:
        path: the log file, under any name.
        base_offset: of the segment.
        next_base_offset: base of the next segment, exclusive; None when there is no next segment.

    Raises:
        CorruptRecordError: the segment is damaged; the error names file and position.
        SegmentChangedError: the file vanished, or changed while it was read.
        LogDirOfflineError: the file cannot be read.
    """
    with open_source(path) as source:
        if source.size_bytes > MAX_INT:
            raise CorruptRecordError(path, 0, f"{source.size_bytes} bytes are more than a segment may have")
        walk = _CheckWalk(source, base_offset, next_base_offset)
        walk.run()
        source.require_unchanged()
        return walk.result()


@dataclass(slots=True)
class _CheckWalk:
    """The state of one check.

    A block is read behind ``_CARRY_BYTES`` bytes of room. The incomplete batch at the end of the block before is moved
    into that room, so that the batches of a block are walked in place::

        [ room ... carried | block ............................ ]
                           ^ _CARRY_BYTES
    """

    source: Source
    base_offset: int
    next_base_offset: int | None
    blocks: list[int] = field(default_factory=list)
    batch_count: int = 0
    record_count: int = 0
    first_offset: int = -1
    last_offset: int = -1
    max_timestamp_ms: int = -1
    shallow_offset: int = -1
    epochs: list[EpochEntry] = field(default_factory=list)
    attributes_seen: int = 0
    abort_markers: int = 0
    min_magic: int = 2
    highest_producer_id: int = -1
    # of a batch that is larger than the rest of its block:
    rest_bytes: int = 0
    rest_crc: int = 0
    rest_expected_crc: int | None = 0  # None: the batch is checked already, its rest is only skipped
    rest_position: int = 0

    def run(self) -> None:
        room = memoryview(bytearray(_CARRY_BYTES + min(CHECKSUM_BLOCK_BYTES, self.source.size_bytes)))
        carried = 0
        for start in range(0, self.source.size_bytes, CHECKSUM_BLOCK_BYTES):
            end = _CARRY_BYTES + min(CHECKSUM_BLOCK_BYTES, self.source.size_bytes - start)
            block = room[_CARRY_BYTES:end]
            self.source.read_into(block, start)
            self.blocks.append(crc32c(block))
            at = _CARRY_BYTES - carried
            if self.rest_bytes:
                at += self._continue(block)
                if self.rest_bytes:
                    continue
            at = self._walk_block(room[:end], at, start - _CARRY_BYTES)
            carried = max(end - at, 0)
            room[_CARRY_BYTES - carried : _CARRY_BYTES] = bytes(room[end - carried : end])
        if carried or self.rest_bytes:
            self._fail(self.source.size_bytes - carried, f"an incomplete batch, {carried} bytes")

    def _continue(self, block: memoryview) -> int:
        """Check the next piece of a batch that spans blocks, and return the size of the piece."""
        size = min(self.rest_bytes, len(block))
        self.rest_bytes -= size
        if self.rest_expected_crc is not None:
            self.rest_crc = crc32c(block[:size], self.rest_crc)
            if not self.rest_bytes and self.rest_crc != self.rest_expected_crc:
                self._fail(self.rest_position, "wrong checksum of the batch")
        return size

    def _walk_block(self, data: memoryview, at: int, origin: int) -> int:
        """Check the batches of ``data`` from ``at`` on, and return the position of the first incomplete batch.

        ``origin`` is the position in the file of the first byte of ``data``. The function is long, and has its state in
        local names, because every line runs once per batch.
        """
        unpack, crc_of = HEADER_V2.unpack_from, crc32c
        end, limit_bytes = len(data), self.source.size_bytes - origin
        expected = self.base_offset if self.last_offset < 0 else self.last_offset + 1
        limit = self._offset_limit()
        epoch_seen = self.epochs[-1].epoch if self.epochs else -1
        max_timestamp_ms, batch_count, record_count, seen = self.max_timestamp_ms, 0, 0, 0
        highest_producer_id = self.highest_producer_id
        while end - at >= OVERHEAD_BYTES or (end == limit_bytes and end - at >= MAGIC_END):
            if data[at + 16] != 2 or end - at < OVERHEAD_BYTES:
                # rare: flush the state, let the slow path check one entry, and go on
                self._add(batch_count, record_count, seen, expected - 1)
                batch_count = record_count = seen = 0
                self.max_timestamp_ms = max_timestamp_ms
                at = self._legacy_entry(data, at, origin)
                expected, max_timestamp_ms = self.last_offset + 1, self.max_timestamp_ms
                continue
            base, length, epoch, _, crc, attributes, delta, _, max_ms, producer_id, _, _, count = unpack(data, at)
            last, size = base + delta, length + LOG_OVERHEAD_BYTES
            if base < expected or delta < 0 or last >= limit or size < OVERHEAD_BYTES or count < 0:
                self._fail(
                    at + origin, self._why(base=base, last=last, size=size, count=count, expected=expected, limit=limit)
                )
            if at + size > end:
                if at + size > limit_bytes:
                    self._fail(at + origin, f"an incomplete batch, {limit_bytes - at} of {size} bytes")
                if size <= _CARRY_BYTES:
                    break
                self.rest_bytes, self.rest_expected_crc = at + size - end, crc
                self.rest_crc, self.rest_position = crc_of(data[at + CRC_START_V2 : end]), at + origin
            elif crc_of(data[at + CRC_START_V2 : at + size]) != crc:
                self._fail(at + origin, "wrong checksum of the batch")
            if epoch != epoch_seen and epoch >= 0:
                self.epochs.append(EpochEntry(epoch, base))
                epoch_seen = epoch
            if max_ms > max_timestamp_ms:
                max_timestamp_ms, self.shallow_offset = max_ms, last
            if producer_id > highest_producer_id:  # noqa: PLR1730 - a call for every batch
                highest_producer_id = producer_id
            if attributes & IS_CONTROL and count and at + size <= end:
                self._control(data[at : at + size], at + origin)
            if self.first_offset < 0:
                self.first_offset = base
            seen |= attributes
            batch_count += 1
            record_count += count
            expected = last + 1
            at += size
        self.max_timestamp_ms = max_timestamp_ms
        self.highest_producer_id = highest_producer_id
        self._add(batch_count, record_count, seen, expected - 1)
        return at

    def _add(self, batch_count: int, record_count: int, seen: int, last_offset: int) -> None:
        if batch_count:
            self.batch_count += batch_count
            self.record_count += record_count
            self.attributes_seen |= seen
            self.last_offset = last_offset

    def _offset_limit(self) -> int:
        """Return the first offset that cannot be in the segment: the next base, or one that no index expresses."""
        limit = min(self.base_offset + MAX_INT + 1, MAX_OFFSET)
        return limit if self.next_base_offset is None else min(limit, self.next_base_offset)

    def _control(self, data: memoryview, position: int) -> None:
        header = parse_header(data, 0, name=str(self.source.path), position=position)
        assert header is not None, "its header was just read"
        if with_data(header, data).control_type() is ControlRecordType.ABORT:
            self.abort_markers += 1

    def _legacy_entry(self, data: memoryview, at: int, origin: int) -> int:
        """Check an entry of magic 0 or 1. Only decompression tells the number of records in a wrapper."""
        position = at + origin
        header = parse_header(data, at, name=str(self.source.path), position=position)
        if header is None or header.end_position > self.source.size_bytes or header.magic == 2:
            self._fail(position, "an incomplete batch")
        if header.size_bytes > _MAX_LEGACY_BYTES:
            self._fail(position, f"an entry of {header.size_bytes} bytes is too large")
        batch = read_batch(self.source, header)
        if not batch.is_valid:
            self._fail(position, "wrong checksum of the batch")
        first, count = header.base_offset, 1
        if batch.compression is not Compression.NONE:
            offsets = [record.offset for record in batch.records()]
            first, count = offsets[0], len(offsets)
        expected, limit = max(self.base_offset, self.last_offset + 1), self._offset_limit()
        if first < expected or header.last_offset >= limit:
            self._fail(
                position,
                self._why(
                    base=first,
                    last=header.last_offset,
                    size=header.size_bytes,
                    count=count,
                    expected=expected,
                    limit=limit,
                ),
            )
        if self.first_offset < 0:
            self.first_offset = first
        if header.max_timestamp_ms > self.max_timestamp_ms:
            self.max_timestamp_ms, self.shallow_offset = header.max_timestamp_ms, header.last_offset
        self.min_magic = min(self.min_magic, header.magic)
        self._add(1, count, 0, header.last_offset)
        self.rest_bytes, self.rest_expected_crc = max(at + header.size_bytes - len(data), 0), None
        return at + header.size_bytes

    def _why(self, *, base: int, last: int, size: int, count: int, expected: int, limit: int) -> str:
        if size < OVERHEAD_BYTES:
            return f"{size} bytes are too few for a batch of magic 2"
        if last < base or count < 0:
            return f"offsets {base} to {last} with {count} records are impossible"
        if base < expected:
            return f"offset {base} where {expected} is the smallest possible"
        return f"offset {last} where the segment ends at {limit - 1}"

    def _fail(self, position: int, problem: str) -> NoReturn:
        raise CorruptRecordError(self.source.path, position, problem)

    def result(self) -> SegmentCheckResult:
        return SegmentCheckResult(
            size_bytes=self.source.size_bytes,
            batch_count=self.batch_count,
            record_count=self.record_count,
            first_offset=self.first_offset,
            last_offset=self.last_offset,
            max_timestamp_ms=self.max_timestamp_ms,
            shallow_offset_of_max_timestamp=self.shallow_offset,
            epochs=tuple(self.epochs),
            checksums=BlockChecksums(self.source.size_bytes, tuple(self.blocks)),
            has_transactions=bool(self.attributes_seen & IS_TRANSACTIONAL),
            abort_markers=self.abort_markers,
            min_magic=self.min_magic,
            highest_producer_id=self.highest_producer_id,
        )
