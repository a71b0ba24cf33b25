"""RowBuffer and SortedRows: records of a key-value store in memory, in the order of the log, then in that of the keys.

No object is made for a record before its key and its value go to RocksDB: kernels copy the fields, sort the keys and
bring rows into order, without the interpreter's lock. numpy is imported for the first record.
"""

import struct
from collections.abc import Iterator
from itertools import accumulate, chain
from operator import add
from typing import TYPE_CHECKING, Final, NamedTuple

from tierd.kernels import Numbers, gather, latest_in_order, pack_rows
from tierd.restore.changelog.changelog_source import ChangelogRecords
from tierd.restore.changelog.encoded_records import EncodedRecords, RecordPiece
from tierd.restore.stores.rocks_database import TableRows

if TYPE_CHECKING:
    import numpy as np

_STEP_ROWS: Final = 1024  # made into objects at a time: other threads wait for the interpreter meanwhile
_TIMESTAMP_BYTES: Final = 8
_COLUMN_BYTES: Final = 32  # of a row, beside its key and its value: sizes, position and order


class SortedRows:
    """One row a key, in the order of the keys. Rows are gathered as they are asked for.

    Attributes:
        data: the rows, in any order.
        starts: int32[n], position of each row.
        key_sizes: int32[n].
        value_sizes: int32[n], -1 for a key to delete.
    """

    def __init__(
        self, data: memoryview, starts: "np.ndarray", key_sizes: "np.ndarray", value_sizes: "np.ndarray"
    ) -> None:
        self.data = data
        self.starts = starts
        self.key_sizes = key_sizes
        self.value_sizes = value_sizes

    def __iter__(self) -> Iterator[TableRows]:
        for first in range(0, len(self.starts), _STEP_ROWS):
            yield self._rows(slice(first, first + _STEP_ROWS))

    def _rows(self, step: slice) -> TableRows:
        key_sizes, value_sizes = self.key_sizes[step], self.value_sizes[step]
        gathered = gather(self.data, self.starts[step], key_sizes + value_sizes.clip(0))
        rows, lowest = gathered.data.tobytes(), int(value_sizes.min())
        if rows and 0 <= lowest == value_sizes.max() and key_sizes.min() == key_sizes.max():
            return TableRows(struct.iter_unpack(f"{key_sizes[0]}s{lowest}s", rows), None)
        starts = gathered.offsets.tolist()
        middles = list(map(add, starts, key_sizes.tolist()))
        keys = map(rows.__getitem__, map(slice, starts, middles))  # loops without bytecode
        values = map(rows.__getitem__, map(slice, middles, starts[1:]))
        return TableRows(zip(keys, values, strict=True), value_sizes.tolist() if lowest < 0 else None)


class RowBuffer:
    """Rows in the order of the changelog, of limited size with their columns.

    Attributes:
        skipped: records without a key so far; they have no row.
    """

    def __init__(self, size_bytes: int, *, is_timestamped: bool) -> None:
        self.skipped = 0
        self._size_bytes = size_bytes
        self._is_timestamped = is_timestamped
        self._data: np.ndarray | None = None
        self._end = 0
        self._key_sizes: list[np.ndarray] = []
        self._value_sizes: list[np.ndarray] = []

    def __len__(self) -> int:
        return sum(map(len, self._key_sizes))

    def has_room(self, piece: RecordPiece) -> bool:
        """Return True if the rows of a piece fit, or the buffer is empty: it grows for a piece that is larger."""
        used_bytes = self._end + _COLUMN_BYTES * (len(self) + len(piece))
        return not len(self) or used_bytes + self._most_bytes(piece) <= self._size_bytes

    def add(self, piece: RecordPiece) -> None:
        """Append the rows of records; there must be room."""
        import numpy as np  # noqa: PLC0415  the command line starts without

        size_bytes = max(self._size_bytes, self._end + self._most_bytes(piece))
        if self._data is None or len(self._data) < size_bytes:
            self._data = np.empty(size_bytes, dtype=np.uint8)  # the system gives pages when they are written
        payload, keys, values, timestamps_ms = _fields(piece)
        times = timestamps_ms if self._is_timestamped else None
        rows = pack_rows(self._data, self._end, payload, keys, values, timestamps_ms=times)
        self._end = rows.end
        self._key_sizes.append(rows.key_sizes)
        self._value_sizes.append(rows.value_sizes)
        self.skipped += len(piece) - len(rows.key_sizes)

    def take(self) -> SortedRows:
        """Return the last row of each key, in order, and begin with an empty buffer; there must be a row."""
        import numpy as np  # noqa: PLC0415  the command line starts without

        assert self._data is not None, "there is a row"
        key_sizes, value_sizes = np.concatenate(self._key_sizes), np.concatenate(self._value_sizes)
        row_sizes = key_sizes + value_sizes.clip(0)
        starts = np.cumsum(row_sizes, dtype=np.int32) - row_sizes
        data = self._data[: self._end].data
        order = latest_in_order(data, starts, key_sizes)
        self._data, self._end = None, 0
        self._key_sizes, self._value_sizes = [], []
        return SortedRows(data, starts[order], key_sizes[order], value_sizes[order])

    def _most_bytes(self, piece: RecordPiece) -> int:
        if isinstance(piece, ChangelogRecords):
            size_bytes = piece.payload_bytes
        else:
            size_bytes = piece.columns.end - piece.columns.key_start[0]  # every row is a part of its record
        return size_bytes + _TIMESTAMP_BYTES * len(piece) if self._is_timestamped else size_bytes


class _Fields(NamedTuple):
    """Arguments of ``pack_rows``."""

    payload: bytes | memoryview
    keys: tuple[Numbers, Numbers]
    values: tuple[Numbers, Numbers]
    timestamps_ms: Numbers


def pieces_of(records: ChangelogRecords) -> tuple[RecordPiece, ...]:
    """Return the pieces of records, none of which is empty."""
    if isinstance(records, EncodedRecords):
        return records.pieces
    return (records,) if len(records) else ()


def _fields(piece: RecordPiece) -> _Fields:
    if isinstance(piece, ChangelogRecords):
        return _fields_of_lists(piece)
    columns = piece.columns
    keys, values = (columns.key_start, columns.key_size), (columns.value_start, columns.value_size)
    return _Fields(piece.payload, keys, values, columns.timestamp_ms)


def _fields_of_lists(records: ChangelogRecords) -> _Fields:
    import numpy as np  # noqa: PLC0415  the command line starts without

    fields = list(chain(records.keys, records.values))
    sizes = [-1 if field is None else len(field) for field in fields]
    ends = list(accumulate(max(size, 0) for size in sizes))
    columns = np.array([[0, *ends[:-1]], sizes], dtype=np.int32).reshape(2, 2, len(records))
    return _Fields(
        b"".join(field for field in fields if field),
        (columns[0, 0], columns[1, 0]),
        (columns[0, 1], columns[1, 1]),
        np.array(records.timestamps_ms, dtype=np.int64),
    )
