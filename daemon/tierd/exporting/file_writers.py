"""Files of an export: Parquet, Arrow IPC and JSON lines. Every call blocks."""

import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Protocol

import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet as pq

from tierd.arrow import TIMESTAMP_TYPES
from tierd.exporting.export_request import ExportFormat
from tierd.log import Record, as_json_line

_BUFFER_BYTES: Final = 1 << 20
_SMALL_VALUED: Final = ("topic", "key", "headers.list.element.key")  # columns that a dictionary makes smaller
_ASCENDING: Final = ("offset", "timestamp")  # their differences are small numbers
_WITHOUT_STATISTICS: Final = ("value", "headers")
_TYPE_NAMES: Final = {number: name for name, number in TIMESTAMP_TYPES.items()}
_NO_EPOCH: Final = -1

FileLabels = Mapping[str, str]
"""Facts about a file, for its metadata."""


class FileWriter(Protocol):
    """Writer of one file."""

    @property
    def size_bytes(self) -> int:
        """Return the number of bytes that are written."""

    def write(self, rows: pa.RecordBatch, *, next_offset: int) -> None:
        """Write rows; the file has every record of its range below ``next_offset``.

        Raises:
            OSError: the disk is full or failing.
        """

    def close(self, facts: FileLabels) -> None:
        """Write the end of the file, with ``facts`` if the format has a place for them there; close it.

        Raises:
            OSError: as ``write``.
        """

    def abandon(self) -> None:
        """Close the file, which stays unfinished."""


def open_writer(kind: ExportFormat, path: Path, schema: pa.Schema, facts: FileLabels) -> FileWriter:
    """Make a file, or empty one that is there.

    Args:
        kind: the format.
        path: the file.
        schema: the columns; JSON lines need all of them but topic and partition.
        facts: those that are known before the first record.

    Raises:
        OSError: the file cannot be made.
    """
    match kind:
        case ExportFormat.PARQUET:
            return ParquetFileWriter(path, schema)
        case ExportFormat.ARROW:
            return ArrowFileWriter(path, schema, facts)
        case ExportFormat.JSONL:
            return JsonLinesWriter(path)


class ParquetFileWriter:
    """Writer of a Parquet file: a row group for each batch, zstd, statistics of all columns but value and headers."""

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        self._file = pa.OSFile(str(path), "wb")
        names = schema.names
        self._writer = pq.ParquetWriter(
            self._file,
            schema,
            compression="zstd",
            use_dictionary=[n for n in _SMALL_VALUED if n.partition(".")[0] in names],  # type: ignore[arg-type]
            column_encoding={name: "DELTA_BINARY_PACKED" for name in _ASCENDING if name in names},
            write_statistics=[name for name in names if name not in _WITHOUT_STATISTICS],
            sorting_columns=[pq.SortingColumn(names.index("offset"))],
        )

    @property
    def size_bytes(self) -> int:
        """Return the number of bytes that are written."""
        return self._file.tell()

    def write(self, rows: pa.RecordBatch, *, next_offset: int) -> None:
        """Write a row group."""
        del next_offset  # the facts at the end have it
        self._writer.write_batch(rows)

    def close(self, facts: FileLabels) -> None:
        """Write the footer with ``facts``, and close the file."""
        self._writer.add_key_value_metadata(dict(facts))
        self._writer.close()
        self._file.close()

    def abandon(self) -> None:
        """Close the file, which stays unfinished."""
        self._writer.is_open = False  # or its finaliser would write the footer into a closed file
        with contextlib.suppress(OSError):
            self._file.close()


class ArrowFileWriter:
    """Writer of an Arrow IPC file, which is Feather of version 2: a record batch for each batch, zstd.

    The facts are in the metadata of the schema; ``tierd.next_offset`` is in the custom metadata of each batch, because
    the schema is written before the records.
    """

    def __init__(self, path: Path, schema: pa.Schema, facts: FileLabels) -> None:
        self._file = pa.OSFile(str(path), "wb")
        self._schema = schema.with_metadata(dict(facts))
        options = pa.ipc.IpcWriteOptions(compression="zstd")
        self._writer = pa.ipc.new_file(self._file, self._schema, options=options)

    @property
    def size_bytes(self) -> int:
        """Return the number of bytes that are written."""
        return self._file.tell()

    def write(self, rows: pa.RecordBatch, *, next_offset: int) -> None:
        """Write a record batch."""
        batch = rows.replace_schema_metadata(self._schema.metadata)
        self._writer.write_batch(batch, custom_metadata={b"tierd.next_offset": b"%d" % next_offset})

    def close(self, facts: FileLabels) -> None:
        """Write the footer, and close the file."""
        del facts  # they are at the beginning
        self._writer.close()
        self._file.close()

    def abandon(self) -> None:
        """Close the file, which stays unfinished."""
        with contextlib.suppress(OSError):  # a full disk does not take what is in the buffer
            self._file.close()


class JsonLinesWriter:
    """Writer of JSON lines, in the form of ``tierd cat --json``."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("wb", buffering=_BUFFER_BYTES)

    @property
    def size_bytes(self) -> int:
        """Return the number of bytes that are written."""
        return self._file.tell()

    def write(self, rows: pa.RecordBatch, *, next_offset: int) -> None:
        """Write a line for each record."""
        del next_offset  # each line has its offset
        self._file.writelines(map(as_json_line, _records(rows)))

    def close(self, facts: FileLabels) -> None:
        """Close the file."""
        del facts  # lines have no place for them
        self._file.close()

    def abandon(self) -> None:
        """Close the file, which stays unfinished."""
        with contextlib.suppress(OSError):  # a full disk does not take what is in the buffer
            self._file.close()


def _records(rows: pa.RecordBatch) -> "list[Record]":
    def column(name: str) -> list[Any]:
        return rows.column(name).to_pylist()

    return [
        Record(
            offset,
            timestamp_ms,
            _TYPE_NAMES[kind],
            key,
            value,
            tuple((header["key"], header["value"]) for header in headers),
            _NO_EPOCH if epoch is None else epoch,
        )
        for offset, timestamp_ms, kind, key, value, headers, epoch in zip(
            column("offset"),
            rows.column("timestamp").cast(pa.int64()).to_pylist(),
            column("timestampType"),
            column("key"),
            column("value"),
            column("headers"),
            column("leaderEpoch"),
            strict=True,
        )
    ]
