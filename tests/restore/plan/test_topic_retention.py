from dataclasses import replace

import pytest

from tests.fakes.remote_segments import segment
from tierd.model import RemoteLogSegmentMetadata
from tierd.restore.plan.topic_retention import TopicRetention, expired_first

HOUR_MS = 3_600_000


def segments(*ages_h: float | None, size_bytes: int = 100) -> list[RemoteLogSegmentMetadata]:
    """Segments one after the other; None is one without records."""
    return [
        replace(
            segment(10 * at, 10 * at + 9, size_bytes=size_bytes),
            max_timestamp_ms=-1 if age is None else 1000 * HOUR_MS - round(age * HOUR_MS),
        )
        for at, age in enumerate(ages_h)
    ]


@pytest.mark.parametrize(
    ("ages_h", "retention", "expected"),
    [
        pytest.param([9, 8, 7], TopicRetention(), 0, id="no limit"),
        pytest.param([9, 8, 2], TopicRetention(5 * HOUR_MS), 2, id="the first two are too old"),
        pytest.param([9, 2, 8], TopicRetention(5 * HOUR_MS), 1, id="a young segment ends the deletion"),
        pytest.param([9, None, 8], TopicRetention(5 * HOUR_MS), 1, id="a segment without records ends the deletion"),
        pytest.param([5], TopicRetention(5 * HOUR_MS), 0, id="exactly as old as the limit"),
        pytest.param([9, 8], TopicRetention(0), 2, id="nothing is kept"),
        pytest.param([1, 1, 1], TopicRetention(-1, 250), 0, id="less than a segment above the size"),
        pytest.param([1, 1, 1], TopicRetention(-1, 200), 1, id="a segment above the size"),
        pytest.param([1, 1, 1], TopicRetention(-1, 0), 3, id="no bytes are kept"),
        pytest.param([9, 8, 1], TopicRetention(5 * HOUR_MS, 250), 2, id="the stricter limit counts"),
    ],
)
def test_first_segments_are_expired_as_a_broker_decides(
    ages_h: list[float | None], retention: TopicRetention, expected: int
) -> None:
    assert expired_first(segments(*ages_h), retention, now_ms=1000 * HOUR_MS) == expected
