"""Delivery to leaders that answer slowly or not at all: nothing is lost, and no long wait is silent."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID

import pytest
import structlog

from tests.control.connecting import plaintext
from tests.restore.live_cluster.test_delivery_window import NAME, numbered
from tierd.clock import SystemClock
from tierd.control import (
    BrokerAddress,
    ClusterMetadata,
    KafkaConnection,
    ProduceAnswer,
    ProduceOutcome,
    Request,
    TopicKnowledge,
    TopicLeaders,
)
from tierd.control.cluster_metadata import PartitionLeader
from tierd.errors import KafkaUnreachableError, RefusedError
from tierd.restore.live_cluster.delivery_window import DeliveryWindow
from tierd.restore.live_cluster.leader_delivery import LeaderDelivery
from tierd.restore.live_cluster.target_cluster import TargetCluster

BROKER = BrokerAddress("127.0.0.1", 1, 1)
TAKEN = ProduceAnswer({NAME: ProduceOutcome("", 0, "")}, 0.0)
BUSY = ProduceAnswer({NAME: ProduceOutcome("not_enough_replicas", -1, "one replica is in sync")}, 0.0)
LONG_S = 60.0


class ScriptedConnection(KafkaConnection):
    """Connection on which a leader gives prepared answers; without one it gives none."""

    def __init__(self, answers: "deque[ProduceAnswer]") -> None:
        self._answers = answers
        self._sent = 0

    async def send(self, request: Request[Any]) -> int:
        self._sent += 1
        return self._sent

    async def receive(self, request: Request[Any], number: int, *, timeout_s: float) -> Any:  # noqa: ANN401 - of the connection
        if not self._answers:
            await asyncio.Event().wait()
        return self._answers.popleft()

    def close(self) -> None:
        """Close nothing."""


class ScriptedTarget(TargetCluster):
    """Cluster of one broker, which leads the partition once it has been asked ``leaderless`` times."""

    def __init__(self, answers: Sequence[ProduceAnswer], *, leaderless: int = 0) -> None:
        first = ClusterMetadata("cluster", (BROKER,), ())
        super().__init__(plaintext("127.0.0.1:1"), clock=SystemClock(), patience_s=600.0, first=first)
        self._answers = deque(answers)
        self._leaderless = leaderless

    async def connect(self, node_id: int) -> KafkaConnection:
        assert node_id == BROKER.node_id
        return ScriptedConnection(self._answers)

    async def leaders(self, topics: Collection[str]) -> Mapping[str, TopicLeaders]:
        self._leaderless -= 1
        leader = PartitionLeader(NAME.partition, -1 if self._leaderless >= 0 else 1, 0)
        return {NAME.topic: TopicLeaders(UUID(int=1), TopicKnowledge.KNOWN, (leader,))}


@asynccontextmanager
async def delivered(target: ScriptedTarget, batches: int) -> AsyncIterator[DeliveryWindow]:
    """Deliver batches through a window that has made no progress for long."""
    delivery = LeaderDelivery(target)
    window = delivery.open_window(NAME, max_bytes=10_000)
    for sequence in range(batches):
        await window.put(numbered(sequence))
    window.progress_s -= LONG_S
    running = asyncio.create_task(delivery.run())
    try:
        async with asyncio.timeout(60):
            yield window
    finally:
        running.cancel()
        await asyncio.wait([running])


def told(logs: Sequence[Mapping[str, Any]], event: str) -> list[Mapping[str, Any]]:
    return [entry for entry in logs if entry["event"] == event]


async def test_partition_whose_leader_refuses_for_long_is_reported_once_and_delivered_in_the_end() -> None:
    with structlog.testing.capture_logs() as logs:
        async with delivered(ScriptedTarget([BUSY, BUSY, BUSY, TAKEN]), 1) as window:
            acknowledged = await window.acknowledged()

    assert [each.batch.base_sequence for each in acknowledged] == [0]
    (entry,) = told(logs, "target_waits")
    assert entry["partition"] == "orders-0"
    assert entry["problem"] == "the target answers not_enough_replicas: one replica is in sync"
    assert entry["waited_s"] >= LONG_S


async def test_partition_without_a_leader_for_long_is_reported() -> None:
    with structlog.testing.capture_logs() as logs:
        async with delivered(ScriptedTarget([TAKEN], leaderless=1), 1) as window:
            await window.acknowledged()

    assert [entry["problem"] for entry in told(logs, "target_waits")] == ["it has no leader"]


async def test_refusal_that_passes_soon_is_not_reported() -> None:
    with structlog.testing.capture_logs() as logs:
        async with delivered(ScriptedTarget([BUSY, TAKEN]), 1) as window:
            window.progress_s += LONG_S
            await window.acknowledged()

    assert told(logs, "target_waits") == []


async def test_quota_that_holds_the_restore_up_for_long_is_reported() -> None:
    with structlog.testing.capture_logs() as logs:
        async with delivered(ScriptedTarget([TAKEN._replace(throttle_s=LONG_S)]), 1) as window:
            await window.acknowledged()

    (entry,) = told(logs, "target_throttles")
    assert (entry["broker"], entry["throttle_s"]) == (1, LONG_S)
    assert "quota" in entry["remedy"]


class EndingConnection(ScriptedConnection):
    """Connection that breaks when it is told to."""

    def __init__(self) -> None:
        super().__init__(deque())
        self.is_awaited, self.breaks = asyncio.Event(), asyncio.Event()

    async def receive(self, request: Request[Any], number: int, *, timeout_s: float) -> Any:  # noqa: ANN401 - of the connection
        self.is_awaited.set()
        await self.breaks.wait()
        raise KafkaUnreachableError("the connection broke", remedy="wait")


async def test_delivery_that_is_cancelled_while_a_connection_breaks_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    connection, target = EndingConnection(), ScriptedTarget([])

    async def connect(node_id: int) -> KafkaConnection:
        return connection

    monkeypatch.setattr(target, "connect", connect)
    async with delivered(target, 1):
        await connection.is_awaited.wait()
        (serving,) = [task for task in asyncio.all_tasks() if task.get_name() == "deliver to broker 1"]

        connection.breaks.set()
        serving.cancel()

        await asyncio.wait([serving])
        assert serving.cancelled()


async def test_window_of_a_topic_that_was_made_anew_fails() -> None:
    delivery = LeaderDelivery(ScriptedTarget([TAKEN]))
    window = delivery.open_window(NAME, max_bytes=10_000, topic_id=UUID(int=2))
    await window.put(numbered(0))
    running = asyncio.create_task(delivery.run())
    try:
        async with asyncio.timeout(60):
            with pytest.raises(RefusedError, match="was deleted"):
                await window.acknowledged()
    finally:
        running.cancel()
        await asyncio.wait([running])
