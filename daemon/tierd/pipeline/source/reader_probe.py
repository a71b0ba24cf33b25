"""makes_a_reader_for_each_scan: finds out if filters may be pushed into a Python source of this Spark.

Spark up to 4.3.0 keeps one reader for all queries of a data frame (``PythonDataSourceV2.setReadInfo``). The filters
that were pushed last decide what each query of the frame reads, and the other sides of a union or a join as well.
"""

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import DataSource, DataSourceReader, EqualTo, Filter, InputPartition
from pyspark.sql.types import StructType

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FILTER_PUSHDOWN: Final = "spark.sql.python.filterPushdown.enabled"
_KEEPS_READERS_UP_TO: Final = (4, 3, 0)
_NUMBERS: Final = range(5)


def makes_a_reader_for_each_scan(spark: "SparkSession") -> bool:
    """Return True if filters of one query of a data frame stay with this query.

    Versions that are known to keep readers are not probed. Later versions have to answer some queries of one small data
    frame right, with ``FILTER_PUSHDOWN`` switched on meanwhile.
    """
    return _version(spark.version) > _KEEPS_READERS_UP_TO and answers_right(spark, FilteredNumbers)


def answers_right(spark: "SparkSession", source: type[DataSource]) -> bool:
    """Return True if each query of one data frame gets its own rows of ``source``, which has the numbers 0 to 4."""
    spark.dataSource.register(source)
    with _pushing_filters(spark):
        numbers = spark.read.format(source.name()).load()
        one, two = numbers.where("n = 1"), numbers.where("n = 2")
        everything = [*_NUMBERS]
        questions = [
            (one, [1]),
            (numbers, everything),
            (two, [2]),
            (one.union(numbers).union(two), [*everything, 1, 2]),
            (numbers.join(one, "n", "left"), everything),
            (numbers.join(two, "n", "left_anti"), [0, 1, 3, 4]),
        ]
        return all(_values(asked) == sorted(expected) for asked, expected in questions)


def _values(numbers: "DataFrame") -> list[int]:
    return sorted(row.n for row in numbers.collect())


@contextmanager
def _pushing_filters(spark: "SparkSession") -> Iterator[None]:
    before = spark.conf.get(FILTER_PUSHDOWN, None)
    spark.conf.set(FILTER_PUSHDOWN, "true")
    try:
        yield
    finally:
        if before is None:
            spark.conf.unset(FILTER_PUSHDOWN)
        else:
            spark.conf.set(FILTER_PUSHDOWN, before)


def _version(text: str) -> tuple[int, ...]:
    """Parse a version such as ``4.4.0-preview1``; a text without three numbers counts as an old version."""
    found = re.match(r"(\d+)\.(\d+)\.(\d+)", text)
    return tuple(map(int, found.groups())) if found else (0,)


class NumbersReader(DataSourceReader):
    """Reader of a few numbers."""

    def __init__(self) -> None:
        self._wanted: int | None = None

    def read(self, partition: InputPartition) -> Iterator[tuple[int]]:
        """Yield the numbers that are wanted."""
        del partition
        return ((n,) for n in _NUMBERS if self._wanted in (None, n))


class FilteredNumbersReader(NumbersReader):
    """Reader that takes an equality over, so that Spark does not evaluate it again."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark's name
        """Take over an equality; give back the others."""
        for condition in filters:
            if isinstance(condition, EqualTo):
                self._wanted = condition.value
            else:
                yield condition


class NumbersSource(DataSource):
    """Source of a few numbers that takes no filters."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "tierd_numbers"

    def schema(self) -> str:
        """Return the schema of the one column."""
        return "n int"

    def reader(self, schema: StructType) -> NumbersReader:
        """Return the reader of a batch query."""
        del schema
        return NumbersReader()


class FilteredNumbers(NumbersSource):
    """Source of a few numbers that takes filters over."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "tierd_filtered_numbers"

    def reader(self, schema: StructType) -> NumbersReader:
        """Return the reader of a batch query."""
        del schema
        return FilteredNumbersReader()
