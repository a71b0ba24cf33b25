"""Columns: the positions of the fields of many records, as numbers beside the bytes of the records."""

from dataclasses import dataclass
from enum import IntEnum

SMALLEST_RECORD_BYTES = 7
"""Length, attributes, two deltas, null key, null value, no headers: bytes bound the number of records."""

STEP_RECORDS = 1 << 13
"""How many records to decode at a time where there may be any number: 44 bytes each, within a processor's cache, and
too few to get fresh pages from the system every time, which costs more than decoding."""


class RecordFault(IntEnum):
    """Reason why bytes are no records; the numbers are the kernels' return values."""

    NONE = 0
    NEGATIVE_COUNT = 1
    BYTES_END = 2
    RECORD_SIZE = 3
    NUMBER_TOO_LONG = 4
    FIELD_SIZE = 5
    HEADER_COUNT = 6
    HEADER_NAME = 7
    NOT_FILLED = 8
    BYTES_LEFT = 9

    @property
    def problem(self) -> str:
        """Return the fault in words."""
        return _PROBLEMS[self]


_PROBLEMS = {
    RecordFault.NONE: "no fault",
    RecordFault.NEGATIVE_COUNT: "a negative count of records",
    RecordFault.BYTES_END: "the bytes end inside it",
    RecordFault.RECORD_SIZE: "its length is negative or above what is left",
    RecordFault.NUMBER_TOO_LONG: "a number of too many bytes",
    RecordFault.FIELD_SIZE: "a field whose size is negative or above what is left",
    RecordFault.HEADER_COUNT: "a count of headers that is negative or above what is left",
    RecordFault.HEADER_NAME: "a header without a name",
    RecordFault.NOT_FILLED: "its fields do not fill it",
    RecordFault.BYTES_LEFT: "bytes follow the last record",
}


@dataclass(frozen=True, slots=True)
class Columns:
    """The records that were decoded: one array a field, all of one length.

    Positions count from the start of the bytes that were decoded. Offsets and timestamps are 64 bits wide and wrap as
    in Java; everything else has 32 bits.

    Attributes:
        end: position behind the last record, or behind the last batch.
        fault: why decoding stopped early, ``NONE`` when it did not; the arrays hold what came before.
        key_size: -1 for null, as ``value_size``; the start is then the position at which the key would begin.
        headers_start: position of the first header, behind the count of headers.
    """

    end: int
    fault: RecordFault
    offset: memoryview
    timestamp_ms: memoryview
    key_start: memoryview
    key_size: memoryview
    value_start: memoryview
    value_size: memoryview
    headers_start: memoryview
    header_count: memoryview

    def __len__(self) -> int:
        return len(self.offset)


@dataclass(frozen=True, slots=True)
class BatchColumns:
    """The records of several batches.

    Attributes:
        records: of all batches, without a fault.
        position: of each batch in the bytes.
        first_record: index of each batch's first record in ``records``, or of the next batch's for an empty one.
    """

    records: Columns
    position: memoryview
    first_record: memoryview
