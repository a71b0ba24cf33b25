"""EncodedRecords: records of a changelog that stay in the bytes of their batches until the caller asks for lists."""

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from itertools import chain, groupby, pairwise
from typing import Final

from tierd.kernels import STEP_RECORDS, decode_batches
from tierd.log import PieceBatches, RecordBatch, RecordColumns, columns_of
from tierd.restore.changelog.changelog_source import ChangelogRecords, Headers

RecordPiece = RecordColumns | ChangelogRecords
"""Records in the bytes of their batches, or as lists."""

_CODEC: Final = 7  # bits of the attributes of a batch


class EncodedRecords(ChangelogRecords):
    """Records of one changelog whose lists are made when the first of them is asked for. For one thread at a time.

    Attributes:
        pieces: all records, in order; none is empty.
    """

    __slots__ = ("_lists", "pieces")

    pieces: tuple[RecordPiece, ...]
    _lists: ChangelogRecords | None

    def __init__(self, pieces: Iterable[RecordPiece]) -> None:
        # The parent is frozen; its fields are properties here.
        object.__setattr__(self, "pieces", tuple(piece for piece in pieces if len(piece)))
        object.__setattr__(self, "_lists", None)

    def decoded(self) -> ChangelogRecords:
        """Return the records as lists."""
        if self._lists is None:
            lists = ChangelogRecords()
            for piece in self.pieces:
                lists.extend(piece if isinstance(piece, ChangelogRecords) else _lists_of(piece))
            object.__setattr__(self, "_lists", lists)
        assert self._lists is not None, "made above"
        return self._lists

    @property
    def first_offset(self) -> int:
        """Return the offset of the first record; there must be one."""
        piece = self.pieces[0]
        return piece.offsets[0] if isinstance(piece, ChangelogRecords) else piece.offset(0)

    @property
    def last_offset(self) -> int:
        """Return the offset of the last record; there must be one."""
        piece = self.pieces[-1]
        return piece.offsets[-1] if isinstance(piece, ChangelogRecords) else piece.offset(len(piece) - 1)

    @property
    def last_leader_epoch(self) -> int:
        """Return the leader epoch of the last record; there must be one."""
        piece = self.pieces[-1]
        if isinstance(piece, ChangelogRecords):
            return piece.leader_epochs[-1]
        return piece.batch(len(piece) - 1).partition_leader_epoch

    def __len__(self) -> int:
        return sum(map(len, self.pieces))

    @property
    def offsets(self) -> list[int]:
        """Return the offset of every record."""
        return self.decoded().offsets

    @property
    def timestamps_ms(self) -> list[int]:
        """Return the timestamp of every record."""
        return self.decoded().timestamps_ms

    @property
    def keys(self) -> list[bytes | None]:
        """Return the key of every record."""
        return self.decoded().keys

    @property
    def values(self) -> list[bytes | None]:
        """Return the value of every record."""
        return self.decoded().values

    @property
    def headers(self) -> list[Headers]:
        """Return the headers of every record."""
        return self.decoded().headers

    @property
    def leader_epochs(self) -> list[int]:
        """Return the leader epoch of every record."""
        return self.decoded().leader_epochs

    @property
    def timestamp_types(self) -> list[str]:
        """Return the type of timestamp of every record."""
        return self.decoded().timestamp_types


def record_pieces(batches: Iterable[RecordBatch], *, start_offset: int, end_offset: int) -> Iterator[RecordPiece]:
    """Yield the records of batches from ``start_offset`` (inclusive) to ``end_offset`` (exclusive), in order.

    Batches that are not compressed become few pieces.

    Raises:
        InvalidRecordError: records that cannot be decoded.
    """

    def is_cut(batch: RecordBatch) -> bool:  # the header of a legacy batch does not tell its first offset
        return batch.magic < 2 or batch.base_offset < start_offset or batch.last_offset >= end_offset

    def is_plain(batch: RecordBatch) -> bool:
        return batch.magic >= 2 and not batch.attributes & _CODEC and not is_cut(batch)

    for are_plain, run in groupby(batches, key=is_plain):
        if are_plain:
            yield from _plain_pieces(list(run))
            continue
        for batch in run:
            piece = _piece(batch)
            if is_cut(batch):
                lists = EncodedRecords([piece]).decoded()
                piece = lists.part(bisect_left(lists.offsets, start_offset), bisect_left(lists.offsets, end_offset))
            yield piece


def _plain_pieces(batches: list[RecordBatch]) -> Iterator[RecordPiece]:
    data = b"".join(batch.data for batch in batches)
    view, at, done = memoryview(data), 0, 0
    while done < len(batches):
        step_records = max(STEP_RECORDS, batches[done].record_count)
        found = decode_batches(data, start=at, at_most=step_records)
        if not len(found.position):  # not for the kernel, or damaged
            at += batches[done].size_bytes
            yield _piece(batches[done])
            done += 1
            continue
        at, done = found.records.end, done + len(found.position)
        places = PieceBatches(view, batches[0].name, batches[0].position, found.position, found.first_record)
        yield RecordColumns(data, found.records, places)


def _piece(batch: RecordBatch) -> RecordPiece:
    if batch.magic < 2:
        return ChangelogRecords.of(batch.records())
    return columns_of(batch) if batch.record_count else ChangelogRecords()  # compaction has emptied it


def _lists_of(piece: RecordColumns) -> ChangelogRecords:
    count = len(piece)
    firsts = [0] if not isinstance(piece.batches, PieceBatches) else sorted(set(piece.batches.first_records.tolist()))
    runs = [(end - first, piece.batch(first)) for first, end in pairwise([*firsts, count]) if first < count]
    return ChangelogRecords(
        offsets=piece.offsets(),
        timestamps_ms=piece.timestamps_ms(),
        keys=piece.keys(),
        values=piece.values(),
        headers=list(piece.all_headers()),
        leader_epochs=list(chain.from_iterable([batch.partition_leader_epoch] * size for size, batch in runs)),
        timestamp_types=list(chain.from_iterable([batch.timestamp_type] * size for size, batch in runs)),
    )
