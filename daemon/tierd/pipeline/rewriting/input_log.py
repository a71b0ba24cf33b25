"""InputLog: the bytes of a segment that come in pieces, cut into batches again (log-format 2.1)."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from tierd.errors import CorruptRecordError
from tierd.log import RecordBatch, parse_header, with_data

_LENGTH_END = 12  # of base offset and length, which the length does not count


@dataclass(slots=True, kw_only=True)
class InputLog:
    """One input segment, read once.

    Attributes:
        name: for errors.
        start_offset: no batch begins below it.
        end_offset: no batch ends above it; inclusive.
        pieces: the consecutive bytes of its ``.log``, cut anywhere.
    """

    name: str
    start_offset: int
    end_offset: int
    pieces: Iterable[bytes | memoryview] = field(repr=False)

    def batches(self) -> Iterator[RecordBatch]:
        """The batches, in order; each refers to its piece, and is of use until the next one is asked for.

        Raises:
            CorruptRecordError: as ``iter_piecewise``, or a batch whose offsets do not belong there.
        """
        expected = self.start_offset
        for batch in iter_piecewise(self.pieces, name=self.name):
            if batch.base_offset < expected or batch.last_offset > self.end_offset:
                offsets = f"offsets {batch.base_offset} to {batch.last_offset}"
                problem = f"{offsets} where {expected} to {self.end_offset} are possible"
                raise CorruptRecordError(self.name, batch.position, problem)
            expected = batch.last_offset + 1
            yield batch


def iter_piecewise(pieces: Iterable[bytes | memoryview], *, name: str) -> Iterator[RecordBatch]:
    """Walk the batches of a log whose bytes come in pieces; no more is kept than a piece and a batch.

    Args:
        pieces: consecutive bytes, the first of which begin a batch.
        name: of the log, for errors.

    Raises:
        CorruptRecordError: an impossible header, a wrong checksum, or an incomplete batch at the end.
    """
    position, cut = 0, bytearray()  # what the pieces so far have of a batch that they cut
    for piece in pieces:
        data = memoryview(piece)
        while cut and data:
            lacking = _lacking_bytes(cut)
            cut += data[:lacking]
            data = data[lacking:]
            batch = _first_batch(memoryview(cut), name, position)
            if batch is not None:
                yield batch
                position, cut = batch.end_position, bytearray()
        while (batch := _first_batch(data, name, position)) is not None:
            yield batch
            position, data = batch.end_position, data[batch.size_bytes :]
        cut += data
    if cut:
        raise CorruptRecordError(name, position, f"an incomplete batch, {len(cut)} bytes")


def _lacking_bytes(cut: bytearray) -> int:
    """How many bytes more tell, or end, the batch that begins with ``cut``; its length, if there, was found sane."""
    if len(cut) < _LENGTH_END:
        return _LENGTH_END - len(cut)
    return _LENGTH_END + int.from_bytes(cut[8:12], "big") - len(cut)


def _first_batch(data: memoryview, name: str, position: int) -> RecordBatch | None:
    """The batch that ``data`` begins with, checked; None while bytes of it are missing."""
    header = parse_header(data, 0, name=name, position=position)
    if header is None or header.size_bytes > len(data):
        return None
    batch = with_data(header, data[: header.size_bytes])
    if not batch.is_valid:
        raise CorruptRecordError(name, position, "wrong checksum of the batch")
    return batch
