"""FollowedPartition: state of a follower for one partition. Pure: facts of the log and the time come in.

::

           entry of a session with our id, at the log end
    PULL ─────────────────────────────────────────────────► PUSH       records, watermarks and log start by entries
    question(): EPOCH_END, BOUNDS or RECORDS                  │
      ▲                                                       │ end signal, silence, divergence, another leader epoch,
      └──────────────── session id + 1 ◄──────────────────────┘ refused records, failed disk

``question`` returns None in PUSH, and an answer to a question of before does not count any more: mode and fetching are
one state. ``enter_push`` and ``enter_pull`` are the only ways between them. ``push_entries`` and ``pull_answers`` have
the rules for what the leader sends.
"""

from dataclasses import dataclass
from enum import Enum
from typing import Final

from tierd.model import TopicIdPartition
from tierd.replication.follower.rules.leader_knowledge import KnownBounds, SyncTracker
from tierd.replication.follower.rules.log_comparison import LogComparison
from tierd.replication.follower.rules.log_facts import FollowerLogFacts
from tierd.replication.model.replication_state import (
    FINAL_SESSION_ID,
    INITIAL_SESSION_ID,
    ReplicationMode,
    ReplicationState,
)

NOT_COMPARED: Final = 0
_COMPARED_TIMES: Final = 3  # before records that the leader cannot send whole count as damaged in its log


@dataclass(frozen=True, slots=True)
class LeaderClaim:
    """Node that leads a partition, and the epoch in which it does."""

    node_id: int
    leader_epoch: int


class FetchStage(Enum):
    """Next step of a follower in pull mode."""

    TRUNCATING = "truncating"
    COMPARING = "comparing"
    FETCHING = "fetching"
    OUT_OF_RANGE = "out of range"
    REBUILDING = "rebuilding"


class QuestionKind(Enum):
    """Request that a question goes into."""

    EPOCH_END = "EpochEndOffsets"
    BOUNDS = "LogBounds"
    RECORDS = "FetchRecords"


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderQuestion:
    """Question of a follower in pull mode; an answer counts only while ``question`` would ask the same.

    Attributes:
        epoch: the epoch whose end is asked for, or that of the last record; -1 without one.
        compared_version: as the follower's.
        comparison: range of the log whose records are to be compared; None if records are to be appended.
    """

    kind: QuestionKind
    stage: FetchStage
    leader: LeaderClaim
    session_id: int
    log_end_offset: int
    log_start_offset: int
    epoch: int = -1
    compared_version: int = NOT_COMPARED
    comparison: LogComparison | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowerTimes:
    """Times of the follower rules, in seconds.

    Attributes:
        idle_max_s: silence of the leader in a session after which the follower fetches again.
        retry_s: pause of a partition after a fetch that failed.
        started_pause_s: pause after the leader said that it begins to push.
        shortest_absence_s: an absence that is shorter never makes a compacted log begin again.
    """

    idle_max_s: float = 10.0
    retry_s: float = 1.0
    started_pause_s: float = 0.5
    shortest_absence_s: float = 30.0


class FollowedPartition:
    """State of one followed partition replica.

    Attributes:
        partition: the partition.
        leader: the leader that is followed; None before the first announcement.
        state: mode and session id.
        stage: of pull mode.
        compared_version: version of the leader's log with which the log was compared; ``NOT_COMPARED`` before that.
        comparison: of stage ``COMPARING``.
        failed_comparisons: answers with damaged records, or of a leader that could not read its log, since both agreed.
        bounds: high watermark and log start of the leader.
        sync: the time at which the log had every record of its leader.
        leader_end_offset: log end offset of the leader, as far as known; -1 before.
        heard_s: time of the last accepted entry of a session.
        is_push_enabled: False makes the follower fetch; it may change at any time with ``enable_push``.
        delete_retention_s: ``delete.retention.ms`` of a compacted topic; None for another topic.
        pull_transitions: sessions that ended.
    """

    def __init__(
        self,
        partition: TopicIdPartition,
        *,
        now_s: float,
        times: FollowerTimes | None = None,
        is_push_enabled: bool = True,
        first_session_id: int = INITIAL_SESSION_ID,
    ) -> None:
        """Begin in pull mode.

        Args:
            partition: the partition.
            now_s: monotonic time, as everywhere in this class.
            times: of the rules.
            is_push_enabled: as the attribute.
            first_session_id: above those that this process has had for the partition: the ids of a process never fall.
        """
        self.partition = partition
        self.leader: LeaderClaim | None = None
        self.state = ReplicationState(session_id=first_session_id)
        self.stage = FetchStage.TRUNCATING
        self.compared_version = NOT_COMPARED
        self.comparison: LogComparison | None = None
        self.failed_comparisons = 0
        self.bounds = KnownBounds()
        self.sync = SyncTracker()
        self.leader_end_offset = -1
        self.heard_s = now_s
        self.is_push_enabled = is_push_enabled
        self.delete_retention_s: float | None = None
        self.pull_transitions = 0
        self.times = times or FollowerTimes()
        self._paused_until_s = now_s

    @property
    def is_pushed(self) -> bool:
        """Return True in PUSH mode."""
        return self.state.mode is ReplicationMode.PUSH

    @property
    def session_id(self) -> int:
        """Return the session id that the leader gets to see: with push switched off it forbids a session."""
        return self.state.session_id if self.is_push_enabled else FINAL_SESSION_ID

    def lag(self, log: FollowerLogFacts) -> int | None:
        """Return the offsets that the log lacks, as far as known; None before the leader's end is known."""
        if self.leader_end_offset < 0:
            return None
        return max(self.leader_end_offset - log.log_end_offset, 0)

    # Modes

    def follow(self, leader: LeaderClaim, *, now_s: float) -> bool:
        """Follow ``leader`` from now on unless its epoch is lower than the present one; return True if that is new.

        ``AssignmentBook`` decides between two nodes that claim the same epoch.
        """
        if self.leader is not None and (leader == self.leader or leader.leader_epoch < self.leader.leader_epoch):
            return False
        self.leader = leader
        self.leader_end_offset = -1
        self.compared_version, self.failed_comparisons = NOT_COMPARED, 0
        self.bounds = KnownBounds()
        self.enter_pull(FetchStage.TRUNCATING, now_s=now_s)
        return True

    def enable_push(self, is_enabled: bool, *, now_s: float) -> None:
        """Allow sessions, or forbid them and end the present one."""
        if not is_enabled and self.is_pushed:
            self.enter_pull(FetchStage.FETCHING, now_s=now_s)
        self.is_push_enabled = is_enabled

    def check_silence(self, *, now_s: float) -> bool:
        """Go back to pull mode if the leader was silent for too long in a session; return True if it was."""
        if not self.is_pushed or now_s - self.heard_s < self.times.idle_max_s:
            return False
        self.enter_pull(FetchStage.FETCHING, now_s=now_s)
        return True

    def enter_push(self) -> None:
        """Begin the session that the leader has opened; no fetch is outstanding from now on.

        Raises:
            ValueError: the state does not allow it.
        """
        self.state = self.state.transition(ReplicationMode.PUSH)
        self.stage, self.comparison = FetchStage.FETCHING, None
        self.bounds.begin_session()

    def enter_pull(self, stage: FetchStage, *, now_s: float) -> None:
        """Fetch from now on, beginning with ``stage``; a session ends, and the next one has a higher id.

        The leader may have cut its log back behind the last records of the session, which are compared.
        """
        if self.is_pushed:
            self.compared_version = NOT_COMPARED
            self.state = self.state.transition(ReplicationMode.PULL)
            self.pull_transitions += 1
        self.stage, self.comparison = stage, None
        self._paused_until_s = now_s

    def pause(self, *, now_s: float, for_s: float | None = None) -> None:
        """Ask nothing for a while, by default for the time after a failure."""
        self._paused_until_s = now_s + (self.times.retry_s if for_s is None else for_s)

    def paused_until_s(self) -> float | None:
        """Return the time at which there is a question again; None in PUSH mode and without a leader."""
        return None if self.is_pushed or self.leader is None else self._paused_until_s

    # Questions of pull mode

    def question(self, log: FollowerLogFacts, *, now_s: float) -> LeaderQuestion | None:
        """Return what to ask the leader next; None in PUSH mode, in a pause, and without a leader."""
        if self.is_pushed or self.leader is None or now_s < self._paused_until_s:
            return None
        self._check_absence(log, now_s=now_s)
        if self.stage is FetchStage.TRUNCATING and log.is_empty:
            self.stage = FetchStage.FETCHING
        if self.comparison is not None and self.comparison.log_end_offset != log.log_end_offset:
            self.end_comparison()
        kind, epoch = QuestionKind.BOUNDS, -1
        if self.stage in {FetchStage.FETCHING, FetchStage.COMPARING}:
            kind, epoch = QuestionKind.RECORDS, log.last_epoch
        elif self.stage is FetchStage.TRUNCATING:
            latest = log.lineage.latest
            kind, epoch = QuestionKind.EPOCH_END, -1 if latest is None else latest.epoch
        return LeaderQuestion(
            kind=kind,
            stage=self.stage,
            leader=self.leader,
            session_id=self.session_id,
            log_end_offset=log.log_end_offset,
            log_start_offset=log.log_start_offset,
            epoch=epoch,
            compared_version=self.compared_version,
            comparison=self.comparison,
        )

    def end_comparison(self) -> None:
        """Fetch from now on, if the log was being compared."""
        self.comparison = None
        if self.stage is FetchStage.COMPARING:
            self.stage = FetchStage.FETCHING

    def agree_with(self, version: int) -> None:
        """Fetch from now on: the log does not differ from that version of the leader's."""
        self.end_comparison()
        self.compared_version, self.failed_comparisons = version, 0

    def fail_comparison(self) -> bool:
        """Take note that records of the leader could not be compared; return True if that is tried no more.

        A batch that is damaged in the leader's log must not keep the follower from the records behind it.
        """
        self.failed_comparisons += 1
        return self.failed_comparisons >= _COMPARED_TIMES

    def is_current(self, question: LeaderQuestion, log: FollowerLogFacts) -> bool:
        """Return True if an answer to ``question`` still counts."""
        return (
            not self.is_pushed
            and self.leader == question.leader
            and self.session_id == question.session_id
            and self.stage is question.stage
            and self.comparison == question.comparison
            and log.log_end_offset == question.log_end_offset
        )

    def _check_absence(self, log: FollowerLogFacts, *, now_s: float) -> None:
        if self.delete_retention_s is None:
            return
        if log.is_empty:
            if not self.sync.is_rebuilding:
                self.sync.begin_rebuild(now_s)  # no record of before is left that a missed tombstone could concern
            return
        longest_s = max(self.delete_retention_s, self.times.shortest_absence_s)
        if self.sync.was_away(longest_s, now_s=now_s):
            self.stage, self.comparison = FetchStage.REBUILDING, None
