"""ClassicGroup: one group of the classic protocol (Kafka: ClassicGroup, GroupMetadataManager). No I/O, no clock.

``step`` takes an event and returns effects. The caller carries them out in order, stores rows one at a time, and wakes
the group with ``TimePassed`` at ``wake_at_s``.

Unlike Kafka's, a generation is stored before members hear of it, and members other than static ones are not stored at
all: after a restart clients are answered UNKNOWN_MEMBER_ID, and join again.
"""

from collections.abc import Sequence

from kio.schema.errors import ErrorCode

from tierd.serve.kafka.groups.protocol.belonging import Belonging
from tierd.serve.kafka.groups.protocol.durable_group import DurableGroup
from tierd.serve.kafka.groups.protocol.group_body import GroupBody, MembershipLimits
from tierd.serve.kafka.groups.protocol.group_checks import CONSUMER_PROTOCOL_TYPE, subscribed_topics
from tierd.serve.kafka.groups.protocol.group_effects import (
    GroupEffect,
    JoinAnswer,
    LeaveAnswer,
    PlainAnswer,
    SyncAnswer,
)
from tierd.serve.kafka.groups.protocol.group_events import (
    CommitRequested,
    DeleteOffsetsRequested,
    DeleteRequested,
    GroupEvent,
    GroupGone,
    HeartbeatReceived,
    JoinProtocol,
    JoinRequested,
    LeaveRequested,
    Moment,
    RowNotStored,
    RowStored,
    SyncRequested,
    TimePassed,
)
from tierd.serve.kafka.groups.protocol.group_members import MEMBER_BYTES, GroupMember, size_of
from tierd.serve.kafka.groups.protocol.group_state import ClassicGroupState
from tierd.serve.kafka.groups.protocol.joining import Joining
from tierd.serve.kafka.groups.protocol.rebalance import Rebalance

_PENDING_BYTES = 500


class ClassicGroup:
    """State machine of one group. It begins with the row of the store, whose static members are asked to join again."""

    def __init__(self, stored: DurableGroup, limits: MembershipLimits, now: Moment) -> None:
        self._body = GroupBody(stored, now)
        self._rebalance = Rebalance(self._body, limits)
        self._joining = Joining(self._body, self._rebalance, limits)
        self._belonging = Belonging(self._body, self._rebalance, limits)
        for each in stored.static_members:
            protocols = tuple(JoinProtocol(*protocol) for protocol in each.protocols)
            member = GroupMember(
                member_id=each.member_id,
                instance_id=each.instance_id,
                client_id=each.client_id,
                client_host=each.client_host,
                session_timeout_s=each.session_timeout_s,
                rebalance_timeout_s=each.rebalance_timeout_s,
                protocols=protocols,
            )
            self._body.members.add(member)
            self._body.extend_session(member)
        if stored.static_members:
            self._rebalance.restore()

    @property
    def state(self) -> ClassicGroupState:
        """Return the state."""
        return self._body.state

    @property
    def generation(self) -> int:
        """Return the generation of the members."""
        return self._body.generation

    @property
    def protocol_type(self) -> str | None:
        """Return the protocol type of the members, also of former ones; None for a group that never had any."""
        return self._body.protocol_type

    @property
    def protocol_name(self) -> str | None:
        """Return the protocol that the members have chosen; None without one."""
        return self._body.protocol_name

    @property
    def leader_id(self) -> str | None:
        """Return the member id of the leader; None without members."""
        return self._body.members.leader_id

    @property
    def members(self) -> Sequence[GroupMember]:
        """Return the members; the caller does not change them."""
        return tuple(self._body.members)

    @property
    def is_idle(self) -> bool:
        """Return True if the group has no members, expects none, and has nothing to store."""
        body = self._body
        is_stored = not body.is_storing and body.row_retry_at_s is None
        return body.state is ClassicGroupState.EMPTY and not body.pending_joins and is_stored

    @property
    def empty_since_ms(self) -> int | None:
        """Return the wall clock at which the group lost its last member; None while it has members."""
        return self._body.empty_since_ms if self._body.state is ClassicGroupState.EMPTY else None

    @property
    def wake_at_s(self) -> float:
        """Return the monotonic time at which the group wants ``TimePassed``; infinite without a deadline."""
        return self._body.wake_at_s

    @property
    def size_bytes(self) -> int:
        """Return about the memory of the members, and of the member ids that were given away."""
        return self._body.members.size_bytes + _PENDING_BYTES * len(self._body.pending_joins)

    def growth_bytes(self, member_id: str, protocols: tuple[JoinProtocol, ...]) -> int:
        """Return about the memory that a join adds, with the member id that the client has or without one."""
        member = self._body.members.get(member_id)
        return size_of(protocols) - (-MEMBER_BYTES if member is None else size_of(member.protocols))

    def subscriptions(self) -> frozenset[str] | None:
        """Return the topics that consumers of the group subscribe to; None where that is not known."""
        body = self._body
        if body.protocol_type != CONSUMER_PROTOCOL_TYPE:
            return None
        if len(body.members) and body.protocol_name is None:
            return None
        return subscribed_topics(each.metadata(body.protocol_name) for each in body.members)

    def step(self, event: GroupEvent, now: Moment) -> list[GroupEffect]:
        """Take an event in, and return its effects in order. Neither clock goes back by more than a correction."""
        body = self._body
        body.now = now
        if body.state is ClassicGroupState.DEAD:
            self._refuse(event)
        else:
            self._take(event)
            self._rebalance.settle()
        effects, body.effects = body.effects, []
        return effects

    def _take(self, event: GroupEvent) -> None:
        body = self._body
        match event:
            case JoinRequested():
                self._joining.join(event)
            case SyncRequested():
                self._belonging.sync(event)
            case HeartbeatReceived():
                body.answer(event.waiter, PlainAnswer(self._belonging.heartbeat(event)))
            case LeaveRequested():
                self._belonging.leave(event)
            case CommitRequested():
                body.answer(event.waiter, PlainAnswer(self._belonging.commit_error(event)))
            case DeleteOffsetsRequested():
                body.answer(event.waiter, PlainAnswer(self._belonging.offset_delete_error()))
            case DeleteRequested():
                body.answer(event.waiter, PlainAnswer(self._belonging.delete_error()))
            case TimePassed():
                self._expire()
            case RowStored():
                body.stored, body.is_storing = event.row, False
            case RowNotStored():
                body.is_storing = False
                self._rebalance.row_failed()
            case GroupGone():
                self._end()

    def _expire(self) -> None:
        body = self._body
        for member_id in [each for each, deadline_s in body.pending_joins.items() if body.is_over(deadline_s)]:
            body.forget_pending(member_id)
        self._expire_sessions()
        self._expire_syncs()
        self._rebalance.close_if_joined()
        phase = body.join_phase
        if phase is not None and not phase.is_closed and body.is_over(phase.deadline_s):
            self._rebalance.end_wait()
        if body.is_over(body.row_retry_at_s):
            body.row_retry_at_s = None
        body.schedule()

    def _expire_sessions(self) -> None:
        removed = 0
        for member in self._body.members:
            if not self._body.is_over(member.session_deadline_s):
                continue
            is_waiting = member.join_waiter is not None or member.sync_waiter is not None
            if is_waiting and not member.is_new:
                member.session_deadline_s = None  # its answer begins a new session
                continue
            self._body.note("member_removed", member_id=member.member_id, reason="session timeout")
            self._rebalance.expel(member, ErrorCode.unknown_member_id)
            removed += 1
        if removed:
            self._rebalance.after_removal("a session has timed out")

    def _expire_syncs(self) -> None:
        body = self._body
        if not body.is_over(body.sync_deadline_s):
            return
        for member in body.members:
            if member.member_id in body.pending_syncs:
                body.note("member_removed", member_id=member.member_id, reason="has not asked for its assignment")
                self._rebalance.expel(member, ErrorCode.unknown_member_id)
        self._rebalance.after_removal("members have not asked for their assignments")

    def _end(self) -> None:
        for member in self._body.members:
            self._rebalance.expel(member, ErrorCode.not_coordinator)
        self._body.pending_joins.clear()
        self._body.join_phase = None
        self._body.become(ClassicGroupState.DEAD)
        self._body.schedule()

    def _refuse(self, event: GroupEvent) -> None:
        error = ErrorCode.not_coordinator
        match event:
            case JoinRequested():
                self._body.answer(event.waiter, JoinAnswer(error, event.member_id))
            case SyncRequested():
                self._body.answer(event.waiter, SyncAnswer(error))
            case LeaveRequested():
                self._body.answer(event.waiter, LeaveAnswer(error))
            case HeartbeatReceived() | CommitRequested() | DeleteOffsetsRequested() | DeleteRequested():
                self._body.answer(event.waiter, PlainAnswer(error))
            case _:
                pass
