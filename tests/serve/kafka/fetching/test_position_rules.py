"""Places in a log that a client may ask for, and the epochs that it knows."""

import pytest
from kio.schema.errors import ErrorCode

from tierd.model import EpochEndOffset, IsolationLevel
from tierd.serve.kafka.fetching.fetch_demand import PartitionFetch
from tierd.serve.kafka.fetching.position_rules import Readiness, divergence, fencing, readiness
from tierd.serve.kafka.served.served_log import LogBounds

BOUNDS = LogBounds(log_start_offset=10, high_watermark=30, last_stable_offset=20, leader_epoch=3, is_end_known=True)


@pytest.mark.parametrize(
    ("offset", "uncommitted", "committed"),
    [
        (-1, Readiness.BEFORE_START, Readiness.BEFORE_START),
        (9, Readiness.BEFORE_START, Readiness.BEFORE_START),
        (10, Readiness.READABLE, Readiness.READABLE),
        (19, Readiness.READABLE, Readiness.READABLE),
        (20, Readiness.READABLE, Readiness.AT_END),
        (30, Readiness.AT_END, Readiness.AT_END),
        (31, Readiness.BEYOND_END, Readiness.BEYOND_END),
    ],
)
def test_offset_is_placed_between_log_start_and_the_end_for_the_isolation_level(
    offset: int, uncommitted: Readiness, committed: Readiness
) -> None:
    assert readiness(offset, BOUNDS, IsolationLevel.READ_UNCOMMITTED) is uncommitted
    assert readiness(offset, BOUNDS, IsolationLevel.READ_COMMITTED) is committed


@pytest.mark.parametrize(
    ("of_client", "of_leader", "error"),
    [
        (-1, 5, ErrorCode.none),
        (5, 5, ErrorCode.none),
        (4, 5, ErrorCode.fenced_leader_epoch),
        (6, 5, ErrorCode.unknown_leader_epoch),
        (6, -1, ErrorCode.none),
    ],
)
def test_client_with_another_leader_epoch_is_fenced(of_client: int, of_leader: int, error: ErrorCode) -> None:
    assert fencing(PartitionFetch(0, 1, current_leader_epoch=of_client), of_leader) is error


@pytest.mark.parametrize(
    ("last_fetched", "offset", "found", "expected"),
    [
        (3, 25, (3, 30), None),
        (3, 35, (3, 30), None),  # above the end of the latest epoch, which moves on
        (2, 12, (2, 15), None),
        (2, 16, (2, 15), EpochEndOffset(2, 15)),
        (2, 14, (1, 12), EpochEndOffset(1, 12)),  # the log has no epoch 2
        (1, 14, (-1, -1), None),  # older than everything that is known
        (4, 14, (3, 30), ErrorCode.unknown_leader_epoch),
    ],
)
def test_log_of_the_client_diverges_where_the_epochs_differ(
    last_fetched: int, offset: int, found: tuple[int, int], expected: EpochEndOffset | ErrorCode | None
) -> None:
    wanted = PartitionFetch(offset, 1, last_fetched_epoch=last_fetched)
    assert divergence(wanted, EpochEndOffset(*found), latest_epoch=3) == expected


def test_log_without_epochs_diverges_from_nothing() -> None:
    assert divergence(PartitionFetch(5, 1, last_fetched_epoch=2), EpochEndOffset(-1, -1), latest_epoch=-1) is None
