"""Bounds of a query's records, as far as its filters name offsets, times, topics and partitions."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Final

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)

from tierd.arrow import ALL, Range
from tierd.model import TopicPartition

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MS_US: Final = 1_000

_NEVER_NULL: Final = frozenset({"topic", "partition", "offset", "timestamp", "timestampType"})
_COMPARISONS: Final = (EqualTo, EqualNullSafe, LessThan, LessThanOrEqual, GreaterThan, GreaterThanOrEqual)


@dataclass(frozen=True, slots=True)
class RecordBounds:
    """Conditions of every row. Picklable.

    Attributes:
        offsets: of the record.
        timestamps_ms: of the record.
        names: conditions on topic and partition; all of them have to hold.
    """

    offsets: Range = ALL
    timestamps_ms: Range = ALL
    names: tuple[Filter, ...] = field(default=())

    def wants(self, name: TopicPartition) -> bool:
        """Return True if any row of the partition may be wanted."""
        return all(_holds(condition, name) for condition in self.names)


def push(bounds: RecordBounds, filters: Sequence[Filter]) -> tuple[RecordBounds, list[Filter]]:
    """Take over filters on offset, timestamp, topic and partition.

    Returns:
        The narrower bounds, and the filters that Spark still has to evaluate: filters that are not understood, and
        sets of numbers, of which the bounds have only the ends.
    """
    left = []
    for condition in filters:
        taken, is_exact = _pushed(bounds, condition)
        bounds = taken
        if not is_exact:
            left.append(condition)
    return bounds, left


def _pushed(bounds: RecordBounds, condition: Filter) -> tuple[RecordBounds, bool]:
    """Return the bounds with ``condition``, and True if they express it completely."""
    column: tuple[str, ...] = getattr(condition, "attribute", ())
    if len(column) != 1:
        return bounds, False
    match column[0]:
        case name if isinstance(condition, IsNotNull):
            return bounds, name in _NEVER_NULL
        case "offset":
            taken, is_exact = _range_of(condition, _offset_range)
            return replace(bounds, offsets=bounds.offsets & taken), is_exact
        case "timestamp":
            taken, is_exact = _range_of(condition, _time_range)
            return replace(bounds, timestamps_ms=bounds.timestamps_ms & taken), is_exact
        case "topic" if _is_comparable(condition, str):
            return replace(bounds, names=(*bounds.names, condition)), True
        case "partition" if _is_comparable(condition, int):
            return replace(bounds, names=(*bounds.names, condition)), True
        case _:
            return bounds, False


def _range_of(condition: Filter, range_of: Callable[[Filter, object], Range | None]) -> tuple[Range, bool]:
    if isinstance(condition, In):
        ranges = [range_of(EqualTo(condition.attribute, value), value) for value in condition.value]
        found = [each for each in ranges if each is not None and not each.is_empty]
        if len(found) != len(ranges) or not found:
            return Range(), False
        return Range(min(each.low for each in found), max(each.high for each in found)), False
    if not isinstance(condition, _COMPARISONS):
        return Range(), False
    taken = range_of(condition, condition.value)
    return (Range(), False) if taken is None else (taken, True)


def _offset_range(condition: Filter, value: object) -> Range | None:
    return _numbers(condition, value, 1) if isinstance(value, int) and not isinstance(value, bool) else None


def _time_range(condition: Filter, value: object) -> Range | None:
    """Return a condition's range in milliseconds, as records have, from the microseconds that Spark compares."""
    if not isinstance(value, datetime) or value.tzinfo is None:
        return None
    return _numbers(condition, (value - _EPOCH) // timedelta(microseconds=1), _MS_US)


def _numbers(condition: Filter, value: int, unit: int) -> Range:
    """Return the whole numbers n for which ``n * unit`` compares as asked with ``value``."""
    floor, ceiling = value // unit, -(-value // unit)
    match condition:
        case GreaterThan():
            return Range(low=floor + 1)
        case GreaterThanOrEqual():
            return Range(low=ceiling)
        case LessThan():
            return Range(high=ceiling - 1)
        case LessThanOrEqual():
            return Range(high=floor)
        case _:
            return Range(ceiling, floor)


def _is_comparable(condition: Filter, kind: type) -> bool:
    """Return True if the condition compares only with values of ``kind``, none of which is null."""
    if isinstance(condition, In):
        return all(isinstance(value, kind) for value in condition.value)
    if isinstance(condition, (StringStartsWith, StringEndsWith, StringContains)):
        return kind is str
    return isinstance(condition, _COMPARISONS) and isinstance(condition.value, kind)


def _holds(condition: Filter, name: TopicPartition) -> bool:
    """Return True if ``condition``, which ``_is_comparable`` accepts, holds for the partition."""
    own = name.topic if condition.attribute == ("topic",) else name.partition  # type: ignore[attr-defined]
    match condition:
        case EqualTo(value=value) | EqualNullSafe(value=value):
            return bool(own == value)
        case In(value=values):
            return own in values
        case LessThan(value=value):
            return bool(own < value)
        case LessThanOrEqual(value=value):
            return bool(own <= value)
        case GreaterThan(value=value):
            return bool(own > value)
        case GreaterThanOrEqual(value=value):
            return bool(own >= value)
        case StringStartsWith(value=value):
            return str(own).startswith(value)
        case StringEndsWith(value=value):
            return str(own).endswith(value)
        case StringContains(value=value):
            return value in str(own)
        case _:
            raise AssertionError(f"{condition} was not taken over")
