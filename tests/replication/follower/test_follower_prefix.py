"""Property of truncation: whatever leaders a partition had, a follower becomes a prefix of its leader's log."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fakes.memory_follower_log import MemoryFollowerLog
from tests.replication.follower.following import PARTITION, batch
from tests.replication.follower.model_leader import ModelLeader, answer_compared, catch_up, compare_once
from tests.replication.follower.standby_setup import StandbyDisk, read_content
from tierd.replication.follower.rules.followed_partition import FollowedPartition, LeaderClaim
from tierd.replication.follower.service_log import ServiceFollowerLog

REPLICAS = 3


@dataclass(frozen=True)
class Leadership:
    """One leader epoch of a story.

    Attributes:
        leader: the replica that leads, elected without regard to what it lacks.
        appends: records of each batch that it appends.
        followers: questions that each replica asks; it may stay behind.
        notes_epoch: the leader notes its epoch before the first record, as Kafka's does and tail mode cannot.
        watermark: part of the leader's batches, in percent, below its high watermark.
        lost: batches that the leader loses in the middle of its epoch, after its followers have asked.
        again: records of each batch that it appends after that, in the same epoch, before its followers ask again.
        starts: number of batches that the leader deletes at its log start, if so many are below its high watermark.
    """

    leader: int
    appends: tuple[int, ...]
    followers: tuple[int, ...]
    notes_epoch: bool
    lost: int
    again: tuple[int, ...]
    watermark: int
    starts: int


leaderships = st.builds(
    Leadership,
    leader=st.integers(0, REPLICAS - 1),
    appends=st.lists(st.integers(1, 4), max_size=4).map(tuple),
    followers=st.tuples(*[st.integers(0, 8)] * REPLICAS),
    notes_epoch=st.booleans(),
    lost=st.integers(0, 4),
    again=st.lists(st.integers(1, 4), max_size=5).map(tuple),
    watermark=st.integers(0, 100),
    starts=st.integers(0, 30),
)
stories = st.lists(leaderships, min_size=1, max_size=8)


class Story:
    """Replicas in memory, each with the state of a follower."""

    def __init__(self) -> None:
        self.logs = [MemoryFollowerLog() for _ in range(REPLICAS)]
        self.followed = [FollowedPartition(PARTITION, now_s=0.0) for _ in range(REPLICAS)]

    def lead(self, epoch: int, leadership: Leadership) -> ModelLeader:
        """Play one epoch; return its leader."""
        log = self.logs[leadership.leader]
        leader = ModelLeader(log)
        leader.version = 10 * epoch + 1
        if leadership.notes_epoch:
            leader.lead(epoch)
        for count in leadership.appends:
            leader.append(batch(log.log_end_offset, count, epoch=epoch, value=b"of epoch %d" % epoch))
        self._follow(leader, epoch, leadership)
        if leadership.lost:
            leader.lose_tail(min(leadership.lost, len(leadership.appends)))
        for count in leadership.again:
            leader.append(batch(log.log_end_offset, count, epoch=epoch, value=b"again in epoch %d" % epoch))
        ends = [log.log_start_offset, *(each.last_offset + 1 for each in log.batches)]
        log.set_high_watermark(ends[(len(ends) - 1) * leadership.watermark // 100])
        bases = [each.base_offset for each in log.batches if each.base_offset <= log.high_watermark]
        if leadership.starts < len(bases):
            log._raise_start(bases[leadership.starts])
        self._follow(leader, epoch, leadership)
        return leader

    def _follow(self, leader: ModelLeader, epoch: int, leadership: Leadership) -> None:
        for index, questions in enumerate(leadership.followers):
            if index != leadership.leader:
                self.followed[index].follow(LeaderClaim(leadership.leader, epoch), now_s=0.0)
                catch_up(self.followed[index], leader, self.logs[index], rounds=questions)


def is_prefix(log: MemoryFollowerLog, leader: MemoryFollowerLog) -> bool:
    """Return True if the batches of ``log`` are those that begin the leader's log, above the higher log start."""
    start = max(log.log_start_offset, leader.log_start_offset)
    mine = [each for each in log.batches if each.last_offset >= start]
    theirs = [each for each in leader.batches if each.last_offset >= start]
    return mine == theirs[: len(mine)]


@pytest.mark.spec("push-replication 86")
@settings(max_examples=400, deadline=None)
@given(stories)
def test_every_follower_becomes_the_same_as_the_last_leader(story: Sequence[Leadership]) -> None:
    replicas = Story()
    for epoch, leadership in enumerate(story):
        leader = replicas.lead(epoch, leadership)
    for index in range(REPLICAS):
        if index != story[-1].leader:
            log = replicas.logs[index]
            assert catch_up(replicas.followed[index], leader, log), f"replica {index} never reached its leader's end"
            assert log.log_end_offset == leader.log.log_end_offset
            assert is_prefix(log, leader.log)
            assert log.log_start_offset >= min(leader.log.log_start_offset, leader.log.high_watermark)


@pytest.mark.spec("push-replication 86")
@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(stories)
def test_log_on_disk_becomes_the_same_as_the_last_leader(story: Sequence[Leadership]) -> None:
    asyncio.run(_play_on_disk(story))


async def _play_on_disk(story: Sequence[Leadership]) -> None:
    """Play a story whose last replica never leads, and has its log in a log dir."""
    disk = StandbyDisk()
    async with disk.service() as service:
        await service.get_or_create(PARTITION.topic_partition, topic_id=PARTITION.topic_id)
        log = ServiceFollowerLog(service, PARTITION.topic_partition, clock=disk.clock)
        followed, replicas = FollowedPartition(PARTITION, now_s=0.0), Story()
        for epoch, leadership in enumerate(story):
            leader = replicas.lead(epoch, leadership)
            followed.follow(LeaderClaim(leadership.leader, epoch), now_s=0.0)
            is_last = epoch == len(story) - 1
            await _catch_up_on_disk(followed, leader, log, rounds=60 if is_last else leadership.followers[0])
        assert log.facts.log_end_offset == leader.log.log_end_offset
        content = await read_content(service, PARTITION.topic_partition)
        theirs = [each.data for each in leader.log.batches if each.last_offset >= log.facts.log_start_offset]
        mine = [each for each in content if int.from_bytes(each[:8], "big") >= leader.log.log_start_offset]
        assert mine == [each for each in theirs if int.from_bytes(each[:8], "big") >= log.facts.log_start_offset]


async def _catch_up_on_disk(
    followed: FollowedPartition, leader: ModelLeader, log: ServiceFollowerLog, *, rounds: int
) -> None:
    now_s = 1000.0
    for _ in range(rounds):
        now_s += 10
        question = followed.question(log.facts, now_s=now_s)
        assert question is not None
        if question.comparison is not None:
            start, result, batches = compare_once(log, leader, question.comparison)
            match = await log.compare(batches) if batches.headers else None
            change = answer_compared(followed, result, match, log.facts, start=start, now_s=now_s)
        else:
            change = leader.answer(followed, question, log.facts, now_s=now_s)
        if change is not None and change.needs_disk:
            await log.apply(change)
        elif change is not None and change.high_watermark is not None:
            log.set_high_watermark(change.high_watermark)
