"""Conditions of the transition from pull to push (push-replication 1.8)."""

from dataclasses import replace
from typing import Any

import pytest

from tierd.replication.leader.replicas.transition_rules import (
    TransitionFacts,
    TransitionObstacle,
    may_close_gap,
    transition_obstacle,
)
from tierd.replication.model.replication_state import FINAL_SESSION_ID, UNKNOWN_SESSION_ID

READY = TransitionFacts(
    is_active=True,
    is_supported=True,
    session_id=3,
    ended_session_id=2,
    is_throttled=False,
    is_moving=False,
    is_in_sync=True,
    has_room=True,
    cooldown_until_s=10.0,
)


def test_replica_that_meets_every_condition_has_no_obstacle() -> None:
    assert transition_obstacle(READY, 10.0) is None


@pytest.mark.parametrize(
    ("change", "obstacle"),
    [
        ({"is_active": False}, TransitionObstacle.NOT_ACTIVE),
        ({"is_supported": False}, TransitionObstacle.NOT_SUPPORTED),
        ({"session_id": UNKNOWN_SESSION_ID}, TransitionObstacle.STANDBY_CANNOT),
        ({"session_id": FINAL_SESSION_ID}, TransitionObstacle.STANDBY_SWITCHED_OFF),
        ({"session_id": 1}, TransitionObstacle.SESSION_ENDED),
        ({"is_throttled": True}, TransitionObstacle.THROTTLED),
        ({"is_moving": True}, TransitionObstacle.LOG_MOVES),
        ({"is_in_sync": False}, TransitionObstacle.NOT_IN_SYNC),
        ({"has_room": False}, TransitionObstacle.MEMORY_FULL),
        ({"cooldown_until_s": 10.1}, TransitionObstacle.COOLDOWN),
    ],
)
def test_each_condition_alone_prevents_the_transition(change: dict[str, Any], obstacle: TransitionObstacle) -> None:
    assert transition_obstacle(replace(READY, **change), 10.0) is obstacle


def test_id_of_an_ended_session_may_begin_another_one() -> None:
    assert transition_obstacle(replace(READY, session_id=2), 10.0) is None


def test_gap_may_be_as_large_as_the_limit_and_no_larger() -> None:
    assert may_close_gap(1000, max_lag_bytes=1000)
    assert not may_close_gap(1001, max_lag_bytes=1000)


def test_limit_of_zero_takes_a_replica_at_the_log_end_only() -> None:
    assert may_close_gap(0, max_lag_bytes=0)
    assert not may_close_gap(1, max_lag_bytes=0)


@pytest.mark.spec("push-replication 89")
def test_range_that_begins_inside_a_batch_closes_no_gap() -> None:
    assert not may_close_gap(None, max_lag_bytes=1000)
