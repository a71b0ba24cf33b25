import pytest

from tierd.log.segments.roll_decision import draw_jitter_ms, should_roll, time_waited_ms

MAX_INT = 2**31 - 1


def rolls(
    *, size: int = 100, append: int = 10, waited: int = 0, jitter: int = 0, full: bool = False, relative: int = 5
) -> bool:
    return should_roll(
        segment_size_bytes=size,
        max_segment_bytes=1000,
        append_size_bytes=append,
        waited_ms=waited,
        max_segment_ms=60_000,
        jitter_ms=jitter,
        is_index_full=full,
        relative_offset=relative,
    )


def test_segment_is_rolled_when_an_append_does_not_fit() -> None:
    assert not rolls()
    assert not rolls(size=990)
    assert rolls(size=991)
    assert not rolls(size=0, append=1000)


def test_old_segment_is_rolled_unless_it_is_empty() -> None:
    assert not rolls(waited=60_000)
    assert rolls(waited=60_001)
    assert not rolls(size=0, waited=60_001)


@pytest.mark.spec("log-format ROLL-06")
def test_jitter_makes_a_segment_roll_earlier() -> None:
    assert not rolls(waited=50_000, jitter=10_000)
    assert rolls(waited=50_001, jitter=10_000)


def test_a_full_index_or_a_distant_offset_rolls_even_an_empty_segment() -> None:
    assert rolls(size=0, full=True)
    assert not rolls(size=0, relative=MAX_INT)
    assert rolls(size=0, relative=MAX_INT + 1)
    assert rolls(size=0, relative=-1)


@pytest.mark.parametrize(("first", "waited"), [(None, 700), (-1, 700), (0, 5000), (4000, 1000), (6000, -1000)])
def test_age_of_a_segment_is_counted_from_its_first_timestamp_or_its_creation(first: int | None, waited: int) -> None:
    found = time_waited_ms(first_timestamp_ms=first, created_ms=300, now_ms=1000, max_timestamp_ms=5000)
    assert found == waited


@pytest.mark.parametrize(
    ("random_int", "jitter", "segment", "drawn"), [(7, 0, 10, 0), (27, 20, 100, 7), (-27, 20, 100, 7), (27, 20, 10, 7)]
)
def test_jitter_is_drawn_below_both_limits(random_int: int, jitter: int, segment: int, drawn: int) -> None:
    assert draw_jitter_ms(segment_jitter_ms=jitter, segment_ms=segment, random_int=random_int) == drawn
