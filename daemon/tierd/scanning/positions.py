"""Positions at which a read begins and ends, as a caller gives them. Pure."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from numbers import Integral
from typing import Final, Literal, NamedTuple, TypeAlias

from tierd.errors import ScanRequestError

LogEnd: TypeAlias = Literal["earliest", "latest"]


class AtTime(NamedTuple):
    """The first record with this timestamp or a later one."""

    timestamp_ms: int


OnePosition: TypeAlias = int | datetime | AtTime | LogEnd
Position: TypeAlias = OnePosition | Mapping[int, OnePosition]
"""An offset, a time or an end of the log; of all partitions, or of each partition."""

EARLIEST: Final = "earliest"
LATEST: Final = "latest"
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)
_REMEDY: Final = 'give an offset, a datetime with a time zone, "earliest" or "latest", or a dict of these by partition'


RangeBound: TypeAlias = int | AtTime | LogEnd
"""A position in one partition."""


def place_in(position: Position, partition: int, *, argument: str) -> RangeBound:
    """Return the place that ``position`` means in a partition.

    Raises:
        ScanRequestError: ``position`` is none, or has no offset for the partition; the error names ``argument``.
    """
    match position:
        case datetime():
            return AtTime(_milliseconds(position, argument))
        case AtTime() | "earliest" | "latest":
            return position
        case Integral():  # of numpy, too
            return _offset(position, argument)
        case Mapping():
            if partition not in position:
                raise ScanRequestError(
                    f"{argument} has nothing for partition {partition}",
                    remedy=f"name the partitions to read: partitions={sorted(position)}",
                )
            return place_in(position[partition], partition, argument=argument)
        case _:
            raise ScanRequestError(f"{argument}={position!r} is no position", remedy=_REMEDY)


def _milliseconds(moment: datetime, argument: str) -> int:
    """Return the first millisecond at or after ``moment``; times before 1970 are before every record."""
    if moment.tzinfo is None:
        raise ScanRequestError(
            f"{argument}={moment} has no time zone",
            remedy="give one, such as datetime(2024, 5, 1, tzinfo=UTC), or moment.astimezone() for local time",
        )
    return max(-((_EPOCH - moment) // _MILLISECOND), 0)


def _offset(value: object, argument: str) -> int:
    offset = int(value) if not isinstance(value, bool) and isinstance(value, Integral) else -1
    if not 0 <= offset < 1 << 63:
        raise ScanRequestError(f"{argument}: {value!r} is no offset", remedy=_REMEDY)
    return offset
