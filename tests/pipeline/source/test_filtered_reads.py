"""Filters of a query select the same rows as filters in Python, for timestamps in any order."""

import random
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql.datasource import Filter, GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual

from tests.pipeline.source.queries import Row
from tests.pipeline.source.small_tier import SmallTier

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
RECORDS, LATEST_S = 120, 200
KINDS = (GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual)

Tier = tuple[SmallTier, list[Row]]


@pytest.fixture(scope="module")
def tier(tmp_path_factory: pytest.TempPathFactory) -> Tier:
    made, chance = SmallTier(tmp_path_factory.mktemp("tier")), random.Random(5)
    for segment in range(3):
        times = [segment * 40 + chance.randrange(60) for _ in range(RECORDS // 3)]
        made.append(RECORDS // 3, times_s=times)
        made.roll()
    made.copy()
    return made, made.queries().rows()


def holds(condition: Filter, row: Row) -> bool:
    own, value = row[condition.attribute[0]], condition.value  # type: ignore[attr-defined]
    return bool(
        {GreaterThan: own > value, GreaterThanOrEqual: own >= value, LessThan: own < value}.get(
            type(condition), own <= value
        )
    )


conditions = st.one_of(
    st.builds(lambda kind, n: kind(("offset",), n), st.sampled_from(KINDS), st.integers(-3, RECORDS + 3)),
    st.builds(
        lambda kind, n: kind(("timestamp",), EPOCH + timedelta(milliseconds=n)),
        st.sampled_from(KINDS),
        st.integers(-1, LATEST_S * 1000),
    ),
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(filters=st.lists(conditions, max_size=3), size=st.sampled_from(["200", "1kB", "64MiB"]))
def test_filters_of_a_query_select_the_same_rows_as_filters_in_python(
    tier: Tier, filters: list[Any], size: str
) -> None:
    made, everything = tier
    found = made.queries(partitionBytes=size).rows(filters=filters)
    assert found == [row for row in everything if all(holds(condition, row) for condition in filters)]
    assert len(everything) == RECORDS
