"""Rows of the records of a log that comes in pieces."""

from collections.abc import Iterable, Iterator
from typing import Final

import pyarrow as pa

from tierd.arrow.arrow_rows import ArrowRows
from tierd.arrow.wanted_records import WantedRecords
from tierd.log import RecordBatch, RecordColumns, iter_piece_columns

_LEGACY_RECORDS: Final = 1 << 13


def rows_of_pieces(
    pieces: Iterable[bytes | memoryview],
    wanted: WantedRecords,
    rows: ArrowRows,
    *,
    name: str,
    position: int,
    check_crc: bool = True,
) -> Iterator[pa.RecordBatch]:
    """Yield the wanted records of a log as rows, in order of their offsets.

    Args:
        pieces: consecutive bytes that begin with a batch and end with a whole one, each below 1 GiB.
        wanted: the choice.
        rows: maker of the rows.
        name: the file, for errors.
        position: where in the file the first piece begins.
        check_crc: refuse a batch whose bytes do not have its checksum.

    Raises:
        BatchTooLargeError: a batch that is wanted unpacks to more than tierd opens.
        CorruptRecordError: an impossible header, a wrong checksum, records that cannot be decoded, an incomplete batch.
    """
    found = iter_piece_columns(pieces, name=name, position=position, check_crc=check_crc, wanted=wanted.may_want)
    for each in found:
        if isinstance(each, RecordColumns):
            yield from rows.batches(wanted.choose(each))
        else:
            yield from _legacy_rows(each, wanted, rows)


def _legacy_rows(entry: RecordBatch, wanted: WantedRecords, rows: ArrowRows) -> Iterator[pa.RecordBatch]:
    records = [record for record in entry.records() if wanted.wants(record.offset, record.timestamp_ms)]
    for first in range(0, len(records), _LEGACY_RECORDS):
        yield rows.of_records(records[first : first + _LEGACY_RECORDS])
