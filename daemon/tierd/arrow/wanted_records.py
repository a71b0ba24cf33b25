"""Choice of the records that a reader gets: within its bounds, no markers, no aborted transactions."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

import numpy as np

from tierd.log import AbortedTransaction, BatchHeader, BatchRun, RecordColumns

Int32s: TypeAlias = np.ndarray[tuple[int], np.dtype[np.int32]]
Int64s: TypeAlias = np.ndarray[tuple[int], np.dtype[np.int64]]
Booleans: TypeAlias = np.ndarray[tuple[int], np.dtype[np.bool_]]

_SMALLEST: Final = -(1 << 63)
_LARGEST: Final = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class Range:
    """Whole numbers from ``low`` to ``high``, both inclusive; none when ``low`` is above ``high``."""

    low: int = _SMALLEST
    high: int = _LARGEST

    def __and__(self, other: "Range") -> "Range":
        return Range(max(self.low, other.low), min(self.high, other.high))

    @property
    def is_all(self) -> bool:
        """Return True if nothing is left out."""
        return (self.low, self.high) == (_SMALLEST, _LARGEST)

    @property
    def is_empty(self) -> bool:
        """Return True if nothing is left."""
        return self.low > self.high


ALL: Final = Range()


class Chosen(NamedTuple):
    """Chosen records of some columns.

    Attributes:
        columns: the records.
        rows: places of the chosen records, ascending; None: all.
        runs: the runs of ``columns``.
    """

    columns: RecordColumns
    rows: Int64s | None
    runs: Sequence[BatchRun]

    def __len__(self) -> int:
        return len(self.columns) if self.rows is None else len(self.rows)

    def numbers(self, column: memoryview) -> "np.ndarray[tuple[int], np.dtype[np.int64 | np.int32]]":
        """Return the values of ``column`` for the chosen records."""
        whole = np.asarray(column)
        return whole if self.rows is None else whole[self.rows]

    def of_batches(self, field: Callable[[BatchRun], int]) -> int | Int32s:
        """Return a field of the batch of each chosen record; one number if it is the same for all records."""
        values = [field(run) for run in self.runs]
        if len(set(values)) <= 1:
            return values[0] if values else 0
        each = np.repeat(np.array(values, dtype=np.int32), [run.end - run.first for run in self.runs])
        return each if self.rows is None else each[self.rows]


class WantedRecords:
    """Filter of the records that a reader gets.

    Attributes:
        offsets: of wanted records.
        timestamps_ms: of wanted records.
    """

    def __init__(self, offsets: Range, timestamps_ms: Range, aborted: Iterable[AbortedTransaction]) -> None:
        self.offsets = offsets
        self.timestamps_ms = timestamps_ms
        self._aborted = _by_producer(aborted)

    def may_want(self, batch: BatchHeader) -> bool:
        """Return True if a batch may hold a wanted record. A legacy entry's header does not say where it begins."""
        if batch.is_control or batch.last_offset < self.offsets.low:
            return False
        if batch.magic >= 2 and batch.base_offset > self.offsets.high:
            return False
        return batch.magic < 2 or batch.max_timestamp_ms >= self.timestamps_ms.low

    def wants(self, offset: int, timestamp_ms: int) -> bool:
        """Return True if a record that is in no transaction is within the bounds."""
        offsets, times = self.offsets, self.timestamps_ms
        return offsets.low <= offset <= offsets.high and times.low <= timestamp_ms <= times.high

    def choose(self, columns: RecordColumns) -> Chosen:
        """Return the wanted records among ``columns``."""
        runs = list(columns.runs())
        return Chosen(columns, self._rows(columns, runs), runs)

    def _rows(self, columns: RecordColumns, runs: list[BatchRun]) -> Int64s | None:
        """Return the indexes of the wanted records; None for all, which is the usual case."""
        offsets, times = np.asarray(columns.columns.offset), np.asarray(columns.columns.timestamp_ms)
        masks = [*_within(offsets, self.offsets), *_within(times, self.timestamps_ms)]
        hidden = [run for run in runs if run.is_control or run.producer_id in self._aborted]
        if hidden:
            masks.append(self._shown(offsets, hidden))
        return np.flatnonzero(np.logical_and.reduce(masks)) if masks else None

    def _shown(self, offsets: Int64s, hidden: list[BatchRun]) -> Booleans:
        shown = np.ones(len(offsets), dtype=np.bool_)
        for run in hidden:
            if run.is_control:
                shown[run.first : run.end] = False
                continue
            within = offsets[run.first : run.end]
            firsts, lasts = self._aborted[run.producer_id]
            # A producer's transactions follow one another: the last that began at or below an offset decides.
            begun = np.searchsorted(firsts, within, side="right") - 1
            shown[run.first : run.end] = (begun < 0) | (within > lasts[np.maximum(begun, 0)])
        return shown


def _by_producer(aborted: Iterable[AbortedTransaction]) -> Mapping[int, tuple[Int64s, Int64s]]:
    """Return first and last offsets of each producer's aborted transactions, ascending."""
    spans: dict[int, set[tuple[int, int]]] = {}
    for each in aborted:
        spans.setdefault(each.producer_id, set()).add((each.first_offset, each.last_offset))
    return {
        producer: (np.array([f for f, _ in sorted(found)]), np.array([last for _, last in sorted(found)]))
        for producer, found in spans.items()
    }


def _within(values: Int64s, wanted: Range) -> list[Booleans]:
    """Return a mask for each end of ``wanted`` that excludes a value."""
    if not len(values):
        return []
    return [
        *([values >= wanted.low] if values.min() < wanted.low else []),
        *([values <= wanted.high] if values.max() > wanted.high else []),
    ]
