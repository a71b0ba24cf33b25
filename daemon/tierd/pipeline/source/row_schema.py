"""Columns of a row, and the choice of a query among them."""

import difflib
from typing import Final

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from tierd.pipeline.pipeline_errors import ReadOptionError

_HEADERS: Final = ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))
_COLUMNS: Final[dict[str, DataType]] = {
    "key": BinaryType(),
    "value": BinaryType(),
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "timestampType": IntegerType(),
    "headers": _HEADERS,
}


def row_schema(*, has_headers: bool) -> StructType:
    """Return the schema of the source, which is that of Spark's Kafka source, with or without headers."""
    return StructType([StructField(n, kind) for n, kind in _COLUMNS.items() if has_headers or n != "headers"])


def arrow_schema(schema: StructType) -> pa.Schema:
    """Return ``schema`` for Arrow, as Spark wants it.

    Raises:
        ReadOptionError: the source has no such column, or has it with another type.
    """
    for asked in schema.fields:
        known = _COLUMNS.get(asked.name)
        if known is None:
            near = difflib.get_close_matches(asked.name, _COLUMNS, n=1, cutoff=0.0)[0]
            raise ReadOptionError(
                f"schema: there is no column {asked.name}; the nearest is {near}",
                remedy=f"the columns are {', '.join(_COLUMNS)}",
            )
        if _without_nullability(asked.dataType) != known:
            raise ReadOptionError(
                f"schema: column {asked.name} is {known.simpleString()}, not {asked.dataType.simpleString()}",
                remedy="ask for it with its own type, and cast it in the query",
            )
    converted: pa.Schema = to_arrow_schema(schema, timezone="UTC")
    return converted


def _without_nullability(kind: DataType) -> DataType:
    match kind:
        case ArrayType(elementType=element):
            return ArrayType(_without_nullability(element))
        case StructType(fields=fields):
            return StructType([StructField(field.name, _without_nullability(field.dataType)) for field in fields])
        case _:
            return kind
