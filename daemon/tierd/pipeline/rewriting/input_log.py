"""InputLog: one segment that is rewritten, in pieces."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NoReturn

import numpy as np

from tierd.errors import CorruptRecordError
from tierd.log import RecordBatch
from tierd.pipeline.rewriting.checked_run import CheckedRun, iter_runs


@dataclass(slots=True, kw_only=True)
class InputLog:
    """One input segment, read once.

    Attributes:
        name: for errors.
        start_offset: no batch begins below it.
        end_offset: no batch ends above it; inclusive.
        pieces: the consecutive bytes of its ``.log``, cut anywhere; below 2 GiB each.
    """

    name: str
    start_offset: int
    end_offset: int
    pieces: Iterable[bytes | memoryview] = field(repr=False)

    def runs(self) -> Iterator[CheckedRun | RecordBatch]:
        """Yield the batches in order; they refer to their piece, and are valid until the next ones are taken.

        Raises:
            CorruptRecordError: as ``iter_runs``, or the offsets of a batch do not fit its place.
        """
        expected = self.start_offset
        for found in iter_runs(self.pieces, name=self.name):
            if isinstance(found, CheckedRun):
                bases, lasts, bounds = found.base_offsets, found.last_offsets, found.bounds
                at_least = np.append(expected, lasts[:-1] + 1)
                for index in np.flatnonzero((bases < at_least) | (lasts > self.end_offset)).tolist():
                    self._fail(found.position + int(bounds[index]), bases[index], lasts[index], at_least[index])
                expected = int(lasts[-1]) + 1
            else:
                if found.base_offset < expected or found.last_offset > self.end_offset:
                    self._fail(found.position, found.base_offset, found.last_offset, expected)
                expected = found.last_offset + 1
            yield found

    def count_batches(self) -> int:
        """Walk to the end, and return the number of batches.

        Raises:
            CorruptRecordError: as ``runs``.
        """
        return sum(1 if isinstance(found, RecordBatch) else len(found) for found in self.runs())

    def _fail(self, position: int, base_offset: int, last_offset: int, expected: int) -> NoReturn:
        problem = f"offsets {base_offset} to {last_offset} where {expected} to {self.end_offset} are possible"
        raise CorruptRecordError(self.name, position, problem)
