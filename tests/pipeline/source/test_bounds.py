"""Pushed bounds and remaining filters together are the original filters, for any filters and any rows."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)

from tierd.model import TopicPartition
from tierd.pipeline.source.bounds import RecordBounds, push

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Row(NamedTuple):
    topic: str
    partition: int
    offset: int
    timestamp_ms: int

    @property
    def timestamp(self) -> datetime:
        return EPOCH + timedelta(milliseconds=self.timestamp_ms)


small = st.integers(min_value=-2, max_value=6)
moments = st.integers(min_value=-2_500, max_value=6_500).map(lambda us: EPOCH + timedelta(microseconds=us))
names = st.sampled_from(["", "a", "ab", "b"])
VALUES: dict[str, st.SearchStrategy[Any]] = {"offset": small, "partition": small, "timestamp": moments, "topic": names}
rows = st.builds(Row, names, small, small, small)


@st.composite
def filters(draw: st.DrawFn) -> Filter:
    column = draw(st.sampled_from(sorted(VALUES)))
    values = st.one_of(VALUES[column], st.none())
    path = (column,)
    kind = draw(st.sampled_from([EqualTo, EqualNullSafe, GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual]))
    compared = kind(path, draw(values))
    listed = In(path, tuple(draw(st.lists(values, max_size=3))))
    text = draw(st.sampled_from([StringStartsWith, StringEndsWith, StringContains]))(("topic",), draw(names))
    found: Filter = draw(st.sampled_from([compared, listed, text, IsNotNull(path), IsNull(path)]))
    return Not(found) if draw(st.booleans()) else found


def holds(condition: Filter, row: Row) -> bool | None:
    """Evaluate a condition as SQL does; None is unknown."""
    if isinstance(condition, Not):
        inner = holds(condition.child, row)
        return None if inner is None else not inner
    own = getattr(row, condition.attribute[0])  # type: ignore[attr-defined]
    match condition:
        case IsNotNull():
            return True
        case IsNull():
            return False
        case In(value=values):
            return True if own in values else (None if None in values else False)
        case EqualNullSafe(value=None):
            return False
        case _ if condition.value is None:  # type: ignore[attr-defined]
            return None
    value: Any = condition.value  # type: ignore[attr-defined]
    comparisons: dict[type[Filter], Callable[[], bool]] = {
        EqualTo: lambda: own == value,
        EqualNullSafe: lambda: own == value,
        GreaterThan: lambda: own > value,
        GreaterThanOrEqual: lambda: own >= value,
        LessThan: lambda: own < value,
        LessThanOrEqual: lambda: own <= value,
        StringStartsWith: lambda: own.startswith(value),
        StringEndsWith: lambda: own.endswith(value),
        StringContains: lambda: value in own,
    }
    return comparisons[type(condition)]()


@given(st.lists(filters(), max_size=4), st.lists(rows, max_size=20))
def test_bounds_and_remaining_filters_select_the_same_rows_as_all_filters(
    asked: list[Filter], found: list[Row]
) -> None:
    bounds, left = push(RecordBounds(), asked)

    def is_within(row: Row) -> bool:
        return (
            bounds.wants(TopicPartition(row.topic, row.partition))
            and bounds.offsets.low <= row.offset <= bounds.offsets.high
            and bounds.timestamps_ms.low <= row.timestamp_ms <= bounds.timestamps_ms.high
        )

    expected = [row for row in found if all(holds(condition, row) for condition in asked)]
    assert [row for row in found if is_within(row) and all(holds(condition, row) for condition in left)] == expected
    assert all(any(condition is each for each in asked) for condition in left)


@pytest.mark.parametrize(
    "condition",
    [
        EqualTo(("offset",), 5),
        GreaterThan(("timestamp",), EPOCH),
        IsNotNull(("timestamp",)),
        In(("topic",), ("a", "b")),
        LessThan(("partition",), 3),
        StringStartsWith(("topic",), "or"),
    ],
)
def test_exact_conditions_are_not_evaluated_again(condition: Filter) -> None:
    assert push(RecordBounds(), [condition])[1] == []


@pytest.mark.parametrize(
    "condition",
    [
        EqualTo(("key",), b"k"),
        IsNotNull(("key",)),
        Not(EqualTo(("offset",), 5)),
        In(("offset",), (1, 9)),
        EqualTo(("headers", "key"), "x"),
        GreaterThan(("timestamp",), datetime(2024, 1, 1)),
    ],
)
def test_inexact_conditions_are_returned_for_evaluation(condition: Filter) -> None:
    assert push(RecordBounds(), [condition])[1] == [condition]
