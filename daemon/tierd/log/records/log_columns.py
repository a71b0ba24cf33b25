"""The records of a log, or of a piece of one, as columns: many batches at a time where they allow it."""

from collections.abc import Callable, Generator, Iterable, Iterator
from typing import NamedTuple

from tierd.errors import CorruptRecordError
from tierd.kernels import STEP_RECORDS, decode_batches
from tierd.log.records.batch_header import BatchHeader, parse_header, take_lacking
from tierd.log.records.compression import MAX_DECOMPRESSED_BYTES
from tierd.log.records.record_batch import RecordBatch, with_data
from tierd.log.records.record_columns import PieceBatches, RecordColumns, iter_columns


def iter_piece_columns(
    pieces: Iterable[bytes | memoryview],
    *,
    name: str,
    position: int = 0,
    check_crc: bool = True,
    may_be_torn: bool = False,
    wanted: Callable[[BatchHeader], bool] = lambda _: True,
    max_bytes: int = MAX_DECOMPRESSED_BYTES,
    step_records: int = STEP_RECORDS,
) -> Iterator[RecordColumns | RecordBatch]:
    """Decode the records of a log that comes in pieces, cut anywhere; legacy entries come as they are.

    In memory at a time: one piece, the begin of a batch from the piece before, and the columns of a step.

    Args:
        pieces: consecutive bytes that begin with a batch, each below 1 GiB.
        name: the file, for errors.
        position: where in the file the first piece begins.
        check_crc: refuse a batch whose bytes do not have its checksum.
        may_be_torn: leave out an incomplete batch at the end.
        wanted: which batches are worth decoding; it is asked only where that costs more than asking.
        max_bytes: limit on the decompressed size of a batch.
        step_records: how many records to decode at a time.

    Raises:
        CorruptRecordError: an impossible header, a wrong checksum, or an incomplete batch at the end.
        InvalidRecordError: records that cannot be decoded.
    """
    decoding = _Decoding(name, check_crc, wanted, max_bytes, step_records)
    cut = bytearray()  # what the pieces so far have of a batch that they cut
    for piece in pieces:
        data: bytes | memoryview = piece
        while cut and len(data):
            data = take_lacking(cut, data)
            if end := (yield from decoding.columns(bytes(cut), position)):
                position, cut = position + end, bytearray()
        if len(data):
            end = yield from decoding.columns(data, position)
            position, cut = position + end, bytearray(memoryview(data)[end:])
    if cut and not may_be_torn:
        raise CorruptRecordError(name, position, f"an incomplete batch, {len(cut)} bytes")


class _Decoding(NamedTuple):
    """Options of decoding: the arguments of ``iter_piece_columns``."""

    name: str
    check_crc: bool
    wanted: Callable[[BatchHeader], bool]
    max_bytes: int
    step_records: int

    def columns(self, data: bytes | memoryview, position: int) -> Generator[RecordColumns | RecordBatch, None, int]:
        """Decode the batches that ``data`` begins with; return where the last whole one ends."""
        view, at = memoryview(data), 0
        while True:
            found = decode_batches(view, start=at, at_most=self.step_records)
            if found.records.end > at:
                batches = PieceBatches(view, self.name, position, found.position, found.first_record)
                if self.check_crc:
                    batches.check(found.records.end)
                at = found.records.end
                yield RecordColumns(data, found.records, batches)
                continue
            header = parse_header(view, at, name=self.name, position=position + at)
            if header is None or at + header.size_bytes > len(view):
                return at
            if self.wanted(header):
                yield from self._opened(with_data(header, view[at : at + header.size_bytes]))
            at += header.size_bytes

    def _opened(self, batch: RecordBatch) -> Iterator[RecordColumns | RecordBatch]:
        if self.check_crc:
            batch.checked()
        if batch.magic < 2:
            yield batch
        else:
            yield from iter_columns(batch, max_bytes=self.max_bytes, step_records=self.step_records)
