"""Properties of a replicator in any story: sessions agree with modes, and the watermark with the logs (F2, F28).

The standbys follow their rules: they fetch in pull mode, check the entries of pushes, and truncate where they diverge.
A record is told by its offset and its epoch: each truncation of the leader's log begins a new epoch.
"""

from dataclasses import dataclass, field
from itertools import pairwise

import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test
from hypothesis.strategies import booleans, floats, integers, sampled_from, sets

from tests.replication.leader.push_story import data_of
from tests.replication.leader.replicating import ReplicatorStory
from tierd.replication.leader.logs.record_memory import batch_bounds
from tierd.replication.leader.pushing.push_actions import SendAppend
from tierd.replication.model.messages import (
    AppendRecordsResponse,
    PartitionAppend,
    PartitionAppendResult,
    PartitionFetchResult,
)
from tierd.replication.model.push_error_code import PushErrorCode
from tierd.replication.model.push_session import PeerNode, PushSessionEndReason
from tierd.replication.model.replication_state import ReplicationMode

REPLICAS = (1, 2)
STANDBYS = sampled_from(REPLICAS)
CODE = PushErrorCode


@dataclass
class ModelStandby:
    """A standby: the epochs of its records by offset, its mode and its session id."""

    epochs: list[int] = field(default_factory=list)
    leader_epoch: int = 1
    replica_epoch: int = 100
    session_id: int = 0
    is_pushed: bool = False

    @property
    def end(self) -> int:
        return len(self.epochs)

    def enter_pull(self) -> None:
        if self.is_pushed:
            self.is_pushed = False
            self.session_id += 1

    def take(self, part: PartitionAppend, replica_epoch: int) -> PushErrorCode:
        """Take an entry of a push (push-replication 2.9)."""
        if replica_epoch != self.replica_epoch:
            return CODE.STALE_BROKER_EPOCH
        if part.leader_epoch != self.leader_epoch:
            is_old = part.leader_epoch < self.leader_epoch
            return CODE.FENCED_LEADER_EPOCH if is_old else CODE.UNKNOWN_LEADER_EPOCH
        if part.session_id != self.session_id:
            assert part.session_id < self.session_id
            return CODE.NONE if part.end_session else CODE.STALE_REPLICATION_SESSION
        if part.end_session:
            self.enter_pull()
            return CODE.NONE
        if not data_of(part) and self.is_pushed:
            return CODE.NONE
        if part.append_offset != self.end:
            return CODE.APPEND_OFFSET_MISMATCH
        if part.last_epoch != (self.epochs[-1] if self.epochs else -1):
            self.enter_pull()
            return CODE.LOG_DIVERGED
        self.is_pushed = True
        self.epochs += [each.leader_epoch for each in batch_bounds(data_of(part))]
        return CODE.NONE


class ReplicatedLog(RuleBasedStateMachine):
    """A led log of records of their own batches, and two standbys."""

    def __init__(self) -> None:
        super().__init__()
        self.story = ReplicatorStory(
            replicas=REPLICAS,
            request_max_bytes=1000,
            partition_max_bytes=500,
            file_chunk_bytes=300,
            buffer_max_bytes=3000,
            session_buffer_max_bytes=1200,
            transition_max_lag_bytes=300,
        )
        self.standbys = {replica: ModelStandby() for replica in REPLICAS}
        self.epochs: list[int] = []
        self.watermark = 0
        self.starts_s: dict[int, list[float]] = {replica: [] for replica in REPLICAS}

    # Leader

    @rule(count=integers(1, 3), size=integers(61, 400))
    def append(self, count: int, size: int) -> None:
        for _ in range(count):
            self.epochs.append(self.story.log.leader_epoch)
            self.story.log.append(size=size)

    @rule()
    def begin_epoch(self) -> None:
        self.story.log.leader_epoch += 1
        self.story.replicator.check_leader_epoch()

    @rule(cut=integers(1, 5))
    def truncate(self, cut: int) -> None:
        end = max(len(self.epochs) - cut, 0)
        self.story.log.leader_epoch += 1
        del self.epochs[end:]
        self.watermark = min(self.watermark, end)
        self.story.log.truncate(end)

    @rule(is_confirmed=booleans())
    def doubt(self, is_confirmed: bool) -> None:  # drawn by Hypothesis
        self.story.replicator.doubt_leadership(self.story.replicator.leader_epoch)
        if is_confirmed:
            self.story.replicator.confirm_leadership()

    @rule()
    def confirm(self) -> None:
        self.story.replicator.confirm_leadership()

    @rule(replicas=sets(STANDBYS, min_size=1))
    def assign(self, replicas: set[int]) -> None:
        for replica in set(REPLICAS) - replicas:
            self.starts_s[replica].clear()  # a replica that is assigned again has no cooldown
        self.story.replicator.assign([PeerNode(each, f"host{each}", 9406) for each in sorted(replicas)])

    @rule(replica=STANDBYS, is_throttled=booleans())
    def throttle(self, replica: int, is_throttled: bool) -> None:  # drawn by Hypothesis
        self.story.replicator.throttle(replica, is_throttled=is_throttled)

    # Standbys

    @rule(replica=STANDBYS, share=floats(0, 1))
    def fetch(self, replica: int, share: float) -> None:
        standby = self.standbys[replica]
        if standby.is_pushed:
            return
        answer = self.story.fetch(
            standby.end,
            replica=replica,
            session_id=standby.session_id,
            last_epoch=standby.epochs[-1] if standby.epochs else -1,
            leader_epoch=standby.leader_epoch,
            replica_epoch=standby.replica_epoch,
        )
        self._note_starts()
        if answer is None:
            wanted = standby.end + round((len(self.epochs) - standby.end) * share)
            standby.epochs += self.epochs[standby.end : wanted]
            return
        self._take_refusal(standby, answer)

    @rule(replica=STANDBYS)
    def learn_epoch(self, replica: int) -> None:
        standby = self.standbys[replica]
        if standby.leader_epoch < self.story.replicator.leader_epoch:
            standby.leader_epoch = self.story.replicator.leader_epoch
            standby.enter_pull()

    @rule(replica=STANDBYS, appends=integers(0, 3))
    def go_on(self, replica: int, appends: int) -> None:
        """Let the partition work as it should for a while."""
        self.story.replicator.confirm_leadership()
        self.story.replicator.throttle(replica, is_throttled=False)
        self.learn_epoch(replica)
        for _ in range(3):
            self.fetch(replica, 1.0)
            self.append(1, 100)
        for _ in range(appends):
            self.append(1, 100)
            while self.story.outstanding:
                self.deliver(is_answered=True)

    @rule(replica=STANDBYS)
    def lose_patience(self, replica: int) -> None:
        self.standbys[replica].enter_pull()

    @rule(replica=STANDBYS)
    def restart(self, replica: int) -> None:
        standby = self.standbys[replica]
        standby.replica_epoch += 1
        standby.is_pushed, standby.session_id = False, 0

    # Links and time

    @precondition(lambda self: self.story.outstanding)
    @rule(is_answered=booleans())
    def deliver(self, is_answered: bool) -> None:  # drawn by Hypothesis
        action = self.story.outstanding.pop(0)
        response = self._respond(action)
        if is_answered:
            self.story.respond(action, response)
        else:
            self.story.router.on_link_closed(action.pusher, action.link_id, self.story.now_s)
            self.story.step()

    @rule()
    def break_links(self) -> None:
        self.story.break_links()

    @rule(seconds=sampled_from([0.1, 1.0, 6.0, 40.0]))
    def wait(self, seconds: float) -> None:
        self.story.wait(seconds)
        self.story.replicator.advance()

    # Properties

    @invariant()
    def every_replica_in_push_mode_has_a_session_and_no_other_replica_has_one(self) -> None:
        pushed = {
            (status.replica_id, status.session_id)
            for status in self.story.replicator.statuses()
            if status.mode is ReplicationMode.PUSH
        }
        live = {
            (slot.session.identity.replica_id, slot.session.identity.session_id)
            for slot in self.story.router.sessions()
            if slot.is_live
        }
        assert pushed == live

    @invariant()
    def leader_never_overestimates_a_standby(self) -> None:
        for status in self.story.replicator.statuses():
            standby = self.standbys[status.replica_id]
            assert status.log_end_offset <= standby.end
            if status.log_end_offset > 0:
                assert standby.epochs[: status.log_end_offset] == self.epochs[: status.log_end_offset]

    @invariant()
    def watermark_rises_and_is_in_the_logs_of_all_standbys_in_sync(self) -> None:
        watermark = self.story.log.high_watermark
        assert watermark >= self.watermark
        self.watermark = watermark
        for replica in self.story.replicator.in_sync_ids:
            assert self.standbys[replica].end >= watermark

    @invariant()
    def sessions_of_a_replica_begin_a_second_apart(self) -> None:
        for starts_s in self.starts_s.values():
            assert all(late - early >= 1.0 for early, late in pairwise(starts_s))

    @invariant()
    def memory_stays_within_its_cap(self) -> None:
        assert 0 <= self.story.used_bytes <= 3000

    def teardown(self) -> None:
        self.story.replicator.close(PushSessionEndReason.LEADER_RESIGNED)
        while self.story.outstanding:
            action = self.story.outstanding.pop(0)
            self.story.respond(action, self._respond(action))
        assert self.story.used_bytes == 0
        assert not any(slot.is_live for slot in self.story.router.sessions())

    def _respond(self, action: SendAppend) -> AppendRecordsResponse:
        request = action.request
        node_id = next(
            node
            for node, lane in self.story.router.pushers[action.pusher].slots.lanes.items()
            if lane.link_id == action.link_id
        )
        standby = self.standbys[node_id]
        results = []
        for part in request.partitions:
            code = standby.take(part, request.replica_epoch)
            results.append(
                PartitionAppendResult(
                    topic_id=part.topic_id,
                    partition=part.partition,
                    error_code=code,
                    log_end_offset=standby.end,
                    log_start_offset=0,
                    session_id=standby.session_id,
                )
            )
        return AppendRecordsResponse(partitions=tuple(results))

    def _note_starts(self) -> None:
        for session in self.story.pushes.started:
            self.starts_s[session.identity.replica_id].append(self.story.now_s)
        self.story.pushes.started.clear()

    def _take_refusal(self, standby: ModelStandby, answer: PartitionFetchResult) -> None:
        assert answer.error_code != CODE.STALE_REPLICATION_SESSION
        assert not any(map(len, answer.records))
        if answer.diverging is not None:
            kept = sum(epoch <= answer.diverging.epoch for epoch in standby.epochs)
            del standby.epochs[min(kept, answer.diverging.end_offset) :]
        elif answer.error_code == CODE.OFFSET_OUT_OF_RANGE:
            newest = self.epochs[-1] if self.epochs else -1
            kept = sum(epoch <= newest for epoch in standby.epochs)
            del standby.epochs[min(kept, len(self.epochs)) :]


@pytest.mark.spec("push-replication F2")
@pytest.mark.spec("push-replication F28")
def test_replicator_keeps_its_promises_in_any_story() -> None:
    run_state_machine_as_test(ReplicatedLog, settings=settings(max_examples=60, stateful_step_count=60, deadline=None))
