import pytest

from tests.log.cleaning.test_cleanable_log import segment
from tierd.log.cleaning.cleanable_log import group_segments
from tierd.log.records.log_config import MAX_INT, LogConfig


def bases(*segments: int, sizes: int = 10, end: int, config: LogConfig | None = None) -> list[list[int]]:
    given = [segment(base, sizes) for base in segments]
    groups = group_segments(given, config or LogConfig(), first_uncleanable_offset=end)
    return [[one.base_offset for one in group] for group in groups]


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (LogConfig(), [[0, 10, 20, 30, 40, 50]]),
        (LogConfig(segment_bytes=14), [[0], [10], [20], [30], [40], [50]]),
        (LogConfig(segment_index_bytes=16), [[0], [10], [20], [30], [40], [50]]),
        (LogConfig(segment_bytes=30), [[0, 10, 20], [30, 40, 50]]),
    ],
    ids=["huge", "tiny log", "tiny index", "exactly three"],
)
def test_neighbouring_segments_are_joined_up_to_the_limits(config: LogConfig, expected: list[list[int]]) -> None:
    assert bases(*range(0, 60, 10), end=60, config=config) == expected


def test_segments_whose_offsets_are_too_far_apart_stay_apart() -> None:
    assert bases(0, 10, end=MAX_INT + 1) == [[0, 10]]
    assert bases(0, 10, end=MAX_INT + 2) == [[0], [10]]
    assert bases(0, MAX_INT - 5, MAX_INT + 5, end=MAX_INT + 20) == [[0], [MAX_INT - 5, MAX_INT + 5]]


def test_empty_segments_are_joined_at_any_distance() -> None:
    assert bases(0, 10, 4 * MAX_INT, sizes=0, end=5 * MAX_INT) == [[0, 10, 4 * MAX_INT]]
