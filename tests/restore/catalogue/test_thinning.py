"""Thinning: the positions objects that stay, by their age."""

from hypothesis import given
from hypothesis import strategies as st

from tierd.remote import CataloguePositionsKey
from tierd.restore.catalogue.thinning import superfluous

MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS
KEEP_MS = 90 * DAY_MS
NOW_MS = 20_000 * DAY_MS


def staying(ages_ms: list[int], *, node_id: int = 1, by: int = 1) -> list[int]:
    """Return the ages that stay."""
    found = [CataloguePositionsKey(NOW_MS - age, node_id) for age in ages_ms]
    gone = superfluous(found, now_ms=NOW_MS, keep_ms=KEEP_MS, node_id=by)
    return [age for age, each in zip(ages_ms, found, strict=True) if each not in gone]


def test_all_objects_of_the_last_day_stay() -> None:
    ages = [minute * MINUTE_MS for minute in range(24 * 60 + 1)]
    assert staying(ages) == ages


def test_after_a_day_the_last_object_of_each_hour_stays() -> None:
    day = 2 * DAY_MS
    assert staying([0, day, day + 10 * MINUTE_MS, day + 50 * MINUTE_MS, day + 70 * MINUTE_MS]) == [
        0,
        day,
        day + 10 * MINUTE_MS,
        day + 70 * MINUTE_MS,
    ]


def test_after_a_month_the_last_object_of_each_day_stays() -> None:
    day = 40 * DAY_MS
    assert staying([0, day + HOUR_MS, day + 5 * HOUR_MS, day + 30 * HOUR_MS]) == [0, day + HOUR_MS, day + 30 * HOUR_MS]


def test_of_objects_older_than_keep_the_newest_stays() -> None:
    assert staying([0, 80 * DAY_MS, 95 * DAY_MS, 96 * DAY_MS, 200 * DAY_MS]) == [0, 80 * DAY_MS, 95 * DAY_MS]


def test_newest_object_stays_at_any_age() -> None:
    assert staying([1000 * DAY_MS, 1001 * DAY_MS]) == [1000 * DAY_MS]


def test_objects_of_another_node_stay_while_it_writes_and_are_thinned_after_a_day() -> None:
    living, dead = [0, 95 * DAY_MS, 96 * DAY_MS], [2 * DAY_MS, 95 * DAY_MS, 96 * DAY_MS]
    assert staying(living, node_id=2) == living
    assert staying(dead, node_id=2) == dead[:2]


@given(st.lists(st.integers(0, 200 * 24 * 60), min_size=1, max_size=60, unique=True), st.integers(0, 90 * 24 * 60))
def test_every_moment_within_keep_that_had_an_object_has_one(ages_min: list[int], moment_min: int) -> None:
    ages = [age * MINUTE_MS for age in ages_min]
    moment_ms = moment_min * MINUTE_MS
    assert any(age >= moment_ms for age in ages) == any(age >= moment_ms for age in staying(ages))


@given(st.lists(st.integers(0, 200 * 24 * 60), min_size=1, max_size=60, unique=True))
def test_thinning_twice_removes_nothing_more(ages_min: list[int]) -> None:
    once = staying([age * MINUTE_MS for age in ages_min])
    assert staying(once) == once
