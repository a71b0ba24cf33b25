"""Records as rows of Arrow, for Spark and for readers in Python. The room needs pyarrow and numpy."""

from typing import TYPE_CHECKING

from tierd.on_demand import exports_on_demand

if TYPE_CHECKING:
    from tierd.arrow.arrow_rows import TIMESTAMP_TYPES, ArrowRows, TimestampNotExpressibleError, rows_of_pieces
    from tierd.arrow.wanted_records import ALL, Range, WantedRecords
else:
    __getattr__ = exports_on_demand(__name__)
