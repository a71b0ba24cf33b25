"""Stretch: neighbouring batches of a log whose records were decoded at once, for a call per batch costs the most."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from tierd.errors import CorruptRecordError
from tierd.kernels import decode_batches
from tierd.log import RecordBatch, parse_header, with_data
from tierd.pipeline.rewriting.rows import RecordRows

_OVERHEAD_BYTES = 61
_LENGTH_END = 12  # of base offset and length, which the length does not count


class Part(NamedTuple):
    """A batch of a stretch, whose rows are those from ``first`` to ``end``, exclusive."""

    batch: RecordBatch
    first: int
    end: int


@dataclass(frozen=True, slots=True)
class Stretch:
    """Neighbouring batches; they refer to the bytes that they were found in.

    Attributes:
        parts: at least one.
        rows: of all of them; None of a single one that has to be opened first: compressed, legacy, or undecodable.
    """

    parts: tuple[Part, ...]
    rows: RecordRows | None


def iter_stretches(pieces: Iterable[bytes | memoryview], *, name: str) -> Iterator[Stretch]:
    """Walk the batches of a log whose bytes come in pieces; no more is kept than a piece and a batch.

    Args:
        pieces: consecutive bytes, the first of which begin a batch; below 2 GiB each.
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
                yield Stretch((Part(batch, 0, 0),), None)
                position, cut = batch.end_position, bytearray()
        while (stretch := _first_stretch(data, name, position)) is not None:
            yield stretch
            data = data[stretch.parts[-1].batch.end_position - position :]
            position = stretch.parts[-1].batch.end_position
        cut += data
    if cut:
        raise CorruptRecordError(name, position, f"an incomplete batch, {len(cut)} bytes")


def _lacking_bytes(cut: bytearray) -> int:
    """How many bytes more tell, or end, the batch that begins with ``cut``; its length, if there, was found sane."""
    if len(cut) < _LENGTH_END:
        return _LENGTH_END - len(cut)
    return _LENGTH_END + int.from_bytes(cut[8:12], "big") - len(cut)


def _first_stretch(data: memoryview, name: str, position: int) -> Stretch | None:
    """The batches that ``data`` begins with, checked; None while bytes of the first one are missing."""
    found = decode_batches(data) if _may_be_plain(data) else None
    if found is None or not len(found.position):
        batch = _first_batch(data, name, position)
        return None if batch is None else Stretch((Part(batch, 0, 0),), None)
    starts = [*found.position.tolist(), found.records.end]
    rows = [*found.first_record.tolist(), len(found.records)]
    parts: list[Part] = []
    for (start, end), (first, last) in zip(pairwise(starts), pairwise(rows), strict=True):
        batch = _first_batch(data[start:end], name, position + start)
        assert batch is not None, "the kernel found a whole batch there"
        parts.append(Part(batch, first, last))
    return Stretch(tuple(parts), RecordRows.of_columns(data, found.records))


def _may_be_plain(data: memoryview) -> bool:
    """Whether ``data`` begins with a batch of magic 2 that is not compressed; to try it on others takes time."""
    return len(data) >= _OVERHEAD_BYTES and data[16] == 2 and not data[22] & 7


def _first_batch(data: memoryview, name: str, position: int) -> RecordBatch | None:
    """The batch that ``data`` begins with, checked; None while bytes of it are missing."""
    header = parse_header(data, 0, name=name, position=position)
    if header is None or header.size_bytes > len(data):
        return None
    batch = with_data(header, data[: header.size_bytes])
    if not batch.is_valid:
        raise CorruptRecordError(name, position, "wrong checksum of the batch")
    return batch
