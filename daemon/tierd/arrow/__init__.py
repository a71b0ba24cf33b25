"""Records as rows of Arrow, for Spark and for readers in Python. The room needs pyarrow and numpy."""

from tierd.arrow.arrow_rows import TIMESTAMP_TYPES, ArrowRows, TimestampNotExpressibleError
from tierd.arrow.piece_rows import rows_of_pieces
from tierd.arrow.wanted_records import ALL, Range, WantedRecords

__all__ = [
    "ALL",
    "TIMESTAMP_TYPES",
    "ArrowRows",
    "Range",
    "TimestampNotExpressibleError",
    "WantedRecords",
    "rows_of_pieces",
]
