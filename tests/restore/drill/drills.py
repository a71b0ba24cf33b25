"""Drilled partitions for tests."""

from dataclasses import replace
from uuid import UUID

from tierd.model import TopicIdPartition, uuid_to_text
from tierd.restore.drill.drilled_partition import DrilledPartition, DrillOutcome

TOPIC_ID = UUID(int=7)
_SOME = DrilledPartition(
    run_id="run",
    trigger="schedule",
    partition="orders-0",
    topic_id=uuid_to_text(TOPIC_ID),
    began_ms=0,
    ended_ms=0,
    outcome=DrillOutcome.PROVEN,
)


def named(number: int, *, topic: str = "orders") -> TopicIdPartition:
    """Return a partition of one topic."""
    return TopicIdPartition(TOPIC_ID, topic, number)


def drilled(
    number: int, at_ms: int, *, outcome: DrillOutcome = DrillOutcome.PROVEN, problem: str = ""
) -> DrilledPartition:
    """Return a drill that began and ended at one moment."""
    return replace(
        _SOME, partition=str(named(number)), began_ms=at_ms, ended_ms=at_ms, outcome=outcome, problem=problem
    )
