"""The high watermark after an election or a restart of the leader waits for the replicas of before (F1, F2)."""

import pytest

from tests.fakes.manual_clock import ManualClock
from tests.replication.leader.memory_leader_log import MemoryLeaderLog
from tests.replication.leader.push_story import PushStory
from tests.replication.leader.replicating import ReplicatorStory, RoutedPushes
from tierd.replication.leader.assignments import LeaderAssignments
from tierd.replication.leader.led_replicators import LedReplicators
from tierd.replication.leader.replicas.partition_replicator import PartitionReplicator
from tierd.replication.leader.replicas.replicator_settings import ReplicatorHooks, ReplicatorSettings
from tierd.replication.model.messages import ReplicaFetch
from tierd.replication.model.push_session import PeerIdentity, PeerNode, PushSessionEndReason
from tierd.replication.model.replication_state import FINAL_SESSION_ID

NODES = (PeerNode(1, "host1", 9406), PeerNode(2, "host2", 9406))


class RestartedStory(ReplicatorStory):
    """A leader whose process begins again in the same epoch: ten records, the watermark of its checkpoint is 5."""

    def __init__(self, *, replicas: tuple[int, ...] = (1,), min_in_sync: int = 1) -> None:
        super().__init__(replicas=())
        self.replicator.close(PushSessionEndReason.BROKER_SHUTDOWN)
        for _ in range(10):
            self.log.append()
        self.log.high_watermark = 5
        self.replicator = PartitionReplicator(
            self.log,
            self.pushes,
            ReplicatorSettings(min_in_sync_replicas=min_in_sync),
            ReplicatorHooks(raise_high_watermark=self.log.raise_high_watermark),
            now_s=lambda: self.now_s,
        )
        self.replicator.assign([node for node in NODES if node.node_id in replicas])


def in_sync(story: ReplicatorStory) -> tuple[list[int], int]:
    """Return the replicas in sync, and the high watermark."""
    return list(story.replicator.in_sync_ids), story.log.high_watermark


@pytest.mark.spec("push-replication F1")
@pytest.mark.spec("push-replication F2")
def test_watermark_of_a_restarted_leader_stands_still_until_the_standby_has_fetched() -> None:
    story = RestartedStory()
    story.log.append()
    story.wait(29.0)
    story.replicator.advance()
    assert story.log.high_watermark == 5

    story.fetch(8, session_id=FINAL_SESSION_ID)
    assert in_sync(story) == ([], 8)

    story.fetch(11, session_id=FINAL_SESSION_ID)
    assert in_sync(story) == ([1], 11)


def test_watermark_of_a_restarted_leader_goes_on_when_a_standby_would_have_lagged_out() -> None:
    story = RestartedStory()
    assert story.replicator.advance() is True
    story.wait(30.0)

    assert story.replicator.advance() is False
    assert story.log.high_watermark == 10


def test_watermark_of_a_restarted_leader_waits_for_each_standby_of_before() -> None:
    story = RestartedStory(replicas=(1, 2))
    story.fetch(10, replica=1, session_id=FINAL_SESSION_ID)
    assert story.log.high_watermark == 5

    story.fetch(9, replica=2, session_id=FINAL_SESSION_ID)
    assert story.log.high_watermark == 9


def test_watermark_does_not_wait_for_a_standby_that_is_assigned_later() -> None:
    story = RestartedStory(replicas=())
    assert story.log.high_watermark == 10

    story.replicator.assign(NODES)
    story.log.append()

    assert story.log.high_watermark == 11


def test_watermark_of_a_restarted_leader_does_not_wait_for_a_throttled_standby() -> None:
    story = RestartedStory()
    story.replicator.throttle(1, is_throttled=True)
    assert story.log.high_watermark == 10


def test_too_few_standbys_after_the_wait_keep_the_watermark_where_it_is() -> None:
    story = RestartedStory(min_in_sync=2)
    story.wait(30.0)
    story.replicator.advance()
    assert story.log.high_watermark == 5


async def test_ticks_raise_the_watermark_of_an_idle_log_when_the_wait_is_over() -> None:
    clock, story = ManualClock(), PushStory()
    led = LedReplicators(
        RoutedPushes(story), LeaderAssignments(clock), ReplicatorSettings(), process_epoch=1, clock=clock
    )
    log = MemoryLeaderLog()
    log.append()
    replicator = led.lead(log, NODES, raise_high_watermark=log.raise_high_watermark)
    for node in NODES:
        fetch = ReplicaFetch(
            topic_id=log.partition.topic_id,
            partition=0,
            current_leader_epoch=1,
            fetch_offset=0,
            last_fetched_epoch=-1,
            log_start_offset=0,
            max_bytes=1,
            session_id=FINAL_SESSION_ID,
        )
        replicator.take_fetch(fetch, PeerIdentity(node.node_id, 100))
    led.advance()
    assert log.high_watermark == 0

    clock.advance(30.0)
    led.advance()

    assert log.high_watermark == 1


def test_another_leader_epoch_forgets_what_the_standbys_have_and_waits_for_them() -> None:
    """Between two epochs of a node another node may have led, and its followers may have truncated their logs."""
    story = ReplicatorStory(replicas=(1, 2))
    story.promote(1)
    story.log.append()
    story.answer_all()
    assert in_sync(story) == ([1], 0)
    story.fetch(1, replica=2, session_id=FINAL_SESSION_ID)
    assert in_sync(story) == ([1, 2], 1)

    story.log.leader_epoch = 3
    story.log.append()
    assert in_sync(story) == ([], 1)

    story.fetch(2, replica=1, session_id=FINAL_SESSION_ID)
    assert in_sync(story) == ([1], 1)
    story.fetch(1, replica=2, session_id=FINAL_SESSION_ID)
    story.fetch(2, replica=2, session_id=FINAL_SESSION_ID)
    assert in_sync(story) == ([1, 2], 2)


def test_standby_that_was_not_in_sync_is_not_waited_for_in_the_next_leader_epoch() -> None:
    story = ReplicatorStory(replicas=(1, 2))
    story.fetch(0, replica=1, session_id=FINAL_SESSION_ID)
    story.wait(30.0)
    story.replicator.advance()

    story.log.leader_epoch = 3
    story.log.append()
    story.fetch(1, replica=1, session_id=FINAL_SESSION_ID)

    assert story.log.high_watermark == 1
