"""Positions as callers give them."""

from datetime import UTC, datetime, timedelta, timezone

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tierd.errors import ScanRequestError
from tierd.scanning.positions import AtTime, Position, place_in

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("position", "place"),
    [
        (7, 7),
        ({3: 9}, 9),
        (np.int64(7), 7),
        ({3: np.int64(9)}, 9),
        ({3: "latest", 4: 7}, "latest"),
        ({3: datetime(2024, 5, 1, 12, tzinfo=UTC)}, AtTime(1_714_564_800_000)),
        ("earliest", "earliest"),
        ("latest", "latest"),
        (datetime(2024, 5, 1, 12, tzinfo=UTC), AtTime(1_714_564_800_000)),
        (datetime(2024, 5, 1, 14, tzinfo=timezone(timedelta(hours=2))), AtTime(1_714_564_800_000)),
        (pd.Timestamp("2024-05-01T12:00:00Z"), AtTime(1_714_564_800_000)),
        (datetime(1969, 12, 31, tzinfo=UTC), AtTime(0)),
    ],
)
def test_position_means_one_place_in_a_partition(position: Position, place: object) -> None:
    found = place_in(position, 3, argument="start")
    assert (found, type(found)) == (place, type(place))


@given(st.datetimes(min_value=datetime(1970, 1, 1), max_value=datetime(2500, 1, 1), timezones=st.just(UTC)))
def test_time_becomes_the_first_millisecond_that_is_not_before_it(moment: datetime) -> None:
    place = place_in(moment, 0, argument="start")
    assert isinstance(place, AtTime)
    found = EPOCH + timedelta(milliseconds=place.timestamp_ms)
    assert moment <= found < moment + timedelta(milliseconds=1)


@pytest.mark.parametrize(
    ("position", "problem"),
    [
        (-1, "start: -1 is no offset"),
        (True, "start: True is no offset"),
        (1 << 63, "start: 9223372036854775808 is no offset"),
        ("first", "start='first' is no position"),
        (1.5, "start=1.5 is no position"),
        (None, "start=None is no position"),
        ({0: 5}, "start has nothing for partition 3"),
        ({3: "5"}, "start='5' is no position"),
        (datetime(2024, 5, 1), "start=2024-05-01 00:00:00 has no time zone"),
    ],
)
def test_position_without_a_meaning_is_refused_by_the_name_of_the_argument(position: Position, problem: str) -> None:
    with pytest.raises(ScanRequestError) as refused:
        place_in(position, 3, argument="start")
    assert str(refused.value) == problem
    assert refused.value.remedy
