"""CheckedRun: neighbouring batches of a log whose records were decoded at once, for a call per batch costs the most."""

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from tierd.errors import CorruptRecordError, InvalidRecordError
from tierd.kernels import STEP_RECORDS, decode_batches
from tierd.log import (
    CODEC_BITS,
    FLAGS_AT,
    OVERHEAD_BYTES,
    PieceBatches,
    RecordBatch,
    decompress_batch,
    parse_header,
    take_lacking,
    with_data,
)
from tierd.pipeline.rewriting.record_rows import RecordRows

_RECORD_COUNT_AT: Final = 57
_DECOMPRESSED_BYTES: Final = 4 << 20  # a run ends behind the batch that reaches this size

HEADERS: Final = np.dtype(
    [
        ("base_offset", ">i8"),
        ("length", ">i4"),
        ("leader_epoch", ">i4"),
        ("magic", "i1"),
        ("crc", ">u4"),
        ("attributes", ">i2"),
        ("last_offset_delta", ">i4"),
        ("base_timestamp_ms", ">i8"),
        ("max_timestamp_ms", ">i8"),
        ("producer_id", ">i8"),
        ("producer_epoch", ">i2"),
        ("base_sequence", ">i4"),
        ("record_count", ">i4"),
    ]
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedRun:
    """One or more checked batches of magic 2; valid until the next run is taken, since a run refers to its piece.

    Attributes:
        name: of the log, for errors.
        position: position of ``data`` in the log.
        data: the batches as they lie in the log, and more.
        bounds: int64[n + 1], positions in ``data`` at which each batch begins and the last one ends.
        plain: the batches without compression: ``data`` itself if no batch is compressed.
        plain_bounds: int64[n + 1], the same positions in ``plain``.
        headers: HEADERS[n] of ``plain``, which differ from the headers in ``data`` in length and codec.
        rows: the records of all batches; they refer to ``plain``.
        first_rows: int64[n + 1], places in ``rows`` at which each batch's rows begin and the last one's end.
    """

    name: str
    position: int
    data: memoryview = field(repr=False)
    bounds: np.ndarray
    plain: bytes | memoryview = field(repr=False)
    plain_bounds: np.ndarray
    headers: np.ndarray = field(repr=False)
    rows: RecordRows = field(repr=False)
    first_rows: np.ndarray

    def __len__(self) -> int:
        return len(self.headers)

    @property
    def is_compressed(self) -> bool:
        """Return True if all batches are compressed; otherwise none is."""
        return self.plain is not self.data

    @property
    def base_offsets(self) -> np.ndarray:
        """Return the base offset of every batch, int64[n]."""
        found: np.ndarray = self.headers["base_offset"].astype(np.int64)
        return found

    @property
    def last_offsets(self) -> np.ndarray:
        """Return the last offset of every batch, inclusive, int64[n]."""
        found: np.ndarray = self.base_offsets + self.headers["last_offset_delta"]
        return found

    def flagged(self, flags: int) -> np.ndarray:
        """Return which batches have one of the attribute bits ``flags``: bool[n]."""
        found: np.ndarray = (self.headers["attributes"] & flags) != 0
        return found

    def batch(self, index: int) -> RecordBatch:
        """Return one batch, as it lies in the log."""
        start, end = self.bounds[index : index + 2].tolist()
        batch = _first_batch(self.data[start:end], self.name, self.position + start)
        assert batch is not None, "it was whole when it was found"
        return batch

    def records(self, index: int) -> bytes | memoryview:
        """Return the encoded records of one batch, not compressed."""
        start, end = self.plain_bounds[index : index + 2].tolist()
        return self.plain[start + OVERHEAD_BYTES : end]

    def part(self, first: int, end: int) -> "CheckedRun":
        """Return the batches from ``first`` to ``end``, exclusive."""
        bounds = slice(first, end + 1)
        start, stop = self.first_rows[[first, end]].tolist()
        return replace(
            self,
            bounds=self.bounds[bounds],
            plain_bounds=self.plain_bounds[bounds],
            headers=self.headers[first:end],
            rows=self.rows.where(slice(start, stop)),
            first_rows=self.first_rows[bounds] - start,
        )

    def rows_in(self, is_chosen: np.ndarray) -> np.ndarray:
        """Return which rows, bool[m], are of the batches of ``is_chosen``, bool[n]."""
        return np.repeat(is_chosen, np.diff(self.first_rows))

    def count_by_batch(self, is_chosen: np.ndarray) -> np.ndarray:
        """Return the number of chosen rows, bool[m], in every batch: int64[n]."""
        return np.diff(np.concatenate(([0], np.cumsum(is_chosen)))[self.first_rows])


def iter_runs(pieces: Iterable[bytes | memoryview], *, name: str) -> Iterator[CheckedRun | RecordBatch]:
    """Yield the batches of a log whose bytes come in pieces; no more is kept in memory than a piece and a batch.

    A batch comes by itself where it has to be opened by itself: legacy, undecodable, large, or cut by a piece's end.

    Args:
        pieces: consecutive bytes, which begin with a batch; below 1 GiB each.
        name: of the log, for errors.

    Raises:
        CorruptRecordError: an impossible header, a wrong checksum, or an incomplete batch at the end.
    """
    position, cut = 0, bytearray()  # what the pieces so far have of a batch that they cut
    for piece in pieces:
        data = memoryview(piece)
        while cut and data:
            data = take_lacking(cut, data)
            batch = _first_batch(memoryview(cut), name, position)
            if batch is not None:
                yield batch.checked()
                position, cut = batch.end_position, bytearray()
        while (found := _first_run(data, name, position) or _first_batch(data, name, position)) is not None:
            yield found if isinstance(found, CheckedRun) else found.checked()
            size_bytes = int(found.bounds[-1]) if isinstance(found, CheckedRun) else found.size_bytes
            data = data[size_bytes:]
            position += size_bytes
        cut += data
    if cut:
        raise CorruptRecordError(name, position, f"an incomplete batch, {len(cut)} bytes")


def _first_batch(data: memoryview, name: str, position: int) -> RecordBatch | None:
    """Return the batch that ``data`` begins with, not checked; None while bytes of it are missing."""
    header = parse_header(data, 0, name=name, position=position)
    if header is None or header.size_bytes > len(data):
        return None
    return with_data(header, data[: header.size_bytes])


def _first_run(data: memoryview, name: str, position: int) -> CheckedRun | None:
    """Return the batches that ``data`` begins with; None where the first of them has to be opened by itself."""
    if len(data) < OVERHEAD_BYTES or data[16] != 2:
        return None
    if data[FLAGS_AT] & CODEC_BITS:
        plain, bounds = _decompressed(data, name, position)
        return _decoded(data, plain, name, position, bounds) if plain else None
    return _decoded(data, data, name, position)


def _decompressed(data: memoryview, name: str, position: int) -> tuple[bytes, list[int]]:
    """Return the compressed batches that ``data`` begins with, decompressed, and their bounds in ``data``."""
    pieces: list[bytes] = []
    bounds, records, plain_bytes = [0], 0, 0
    while plain_bytes < _DECOMPRESSED_BYTES and _is_compressed(data, bounds[-1]):
        at = bounds[-1]
        (count,) = struct.unpack_from(">i", data, at + _RECORD_COUNT_AT)
        records += max(count, 0)
        batch = _first_batch(data[at:], name, position + at) if records <= STEP_RECORDS else None
        if batch is None:
            break
        try:
            pieces.append(decompress_batch(batch.checked()))
        except InvalidRecordError:  # the error is reported when the batch is opened by itself
            break
        plain_bytes += len(pieces[-1])
        bounds.append(at + batch.size_bytes)
    return b"".join(pieces), bounds


def _is_compressed(data: memoryview, at: int) -> bool:
    return len(data) - at >= OVERHEAD_BYTES and data[at + 16] == 2 and bool(data[at + FLAGS_AT] & CODEC_BITS)


def _decoded(
    data: memoryview, plain: bytes | memoryview, name: str, position: int, bounds: list[int] | None = None
) -> CheckedRun | None:
    found = decode_batches(plain)
    count = len(found.position)
    if not count:
        return None
    if bounds is None:
        PieceBatches(data, name, position, found.position, found.first_record).check(found.records.end)
    plain_bounds = np.append(np.asarray(found.position), found.records.end).astype(np.int64)
    headers = np.frombuffer(plain, dtype=np.uint8)[plain_bounds[:-1, np.newaxis] + np.arange(OVERHEAD_BYTES)]
    return CheckedRun(
        name=name,
        position=position,
        data=data,
        bounds=plain_bounds if bounds is None else np.array(bounds[: count + 1]),
        plain=plain,
        plain_bounds=plain_bounds,
        headers=headers.view(HEADERS).reshape(count),
        rows=RecordRows.of_columns(plain, found.records),
        first_rows=np.append(np.asarray(found.first_record), len(found.records)).astype(np.int64),
    )
