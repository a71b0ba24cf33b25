"""Belonging: the requests of clients that are members already, and the verdicts on commits and deletions."""

from kio.schema.errors import ErrorCode

from tierd.serve.kafka.groups.protocol.group_body import GroupBody, MembershipLimits
from tierd.serve.kafka.groups.protocol.group_checks import CONSUMER_PROTOCOL_TYPE, member_error
from tierd.serve.kafka.groups.protocol.group_effects import LeaveAnswer, SyncAnswer
from tierd.serve.kafka.groups.protocol.group_events import (
    CommitRequested,
    HeartbeatReceived,
    LeaveRequested,
    LeavingMember,
    SyncRequested,
)
from tierd.serve.kafka.groups.protocol.group_members import GroupMember
from tierd.serve.kafka.groups.protocol.group_state import ClassicGroupState
from tierd.serve.kafka.groups.protocol.rebalance import Rebalance


class Belonging:
    """Requests to one group that is neither joined nor made by them."""

    def __init__(self, body: GroupBody, rebalance: Rebalance, limits: MembershipLimits) -> None:
        self._body = body
        self._rebalance = rebalance
        self._limits = limits

    def sync(self, request: SyncRequested) -> None:
        """Take a sync in; it waits for the leader's assignments if they are not there."""
        body = self._body
        error = self._error_of(request) or self._sync_error(request)
        if error:
            body.answer(request.waiter, SyncAnswer(error))
            return
        member = body.members.get(request.member_id)
        assert member is not None, "the member was checked"
        self._rebalance.sync_came(member.member_id)
        if body.state is ClassicGroupState.STABLE:
            body.answer(request.waiter, self._rebalance.assignment_of(member))
        else:
            self._wait_for_leader(member, request)

    def heartbeat(self, request: HeartbeatReceived) -> ErrorCode:
        """Extend the session of a member, and return the answer."""
        body = self._body
        if error := self._error_of(request):
            return error
        self._extend(request.member_id)
        is_rebalancing = body.state is ClassicGroupState.PREPARING_REBALANCE
        return ErrorCode.rebalance_in_progress if is_rebalancing else ErrorCode.none

    def leave(self, request: LeaveRequested) -> None:
        """Remove members at once."""
        count = len(self._body.members)
        answers = tuple((leaving, self._leave(leaving)) for leaving in request.members)
        if len(self._body.members) < count:
            self._rebalance.after_removal("members have left")
        else:
            self._rebalance.close_if_joined()
        self._body.answer(request.waiter, LeaveAnswer(ErrorCode.none, answers))

    def commit_error(self, request: CommitRequested) -> ErrorCode:
        """Return the verdict on a commit. It keeps the session of a member."""
        body = self._body
        if body.state is ClassicGroupState.EMPTY and request.generation < 0:
            return ErrorCode.none
        if request.generation < 0 and not request.member_id and request.instance_id is None:
            return ErrorCode.unknown_member_id  # a simple consumer may not write over the commits of members
        if error := self._error_of(request):
            return error
        is_closed = body.join_phase is not None and body.join_phase.is_closed
        if body.state is ClassicGroupState.COMPLETING_REBALANCE or is_closed:
            return ErrorCode.rebalance_in_progress
        self._extend(request.member_id)
        return ErrorCode.none

    def offset_delete_error(self) -> ErrorCode:
        """Return the verdict on the deletion of commits; topics that members subscribe to are checked elsewhere."""
        is_empty = self._body.state is ClassicGroupState.EMPTY
        if is_empty or self._body.protocol_type == CONSUMER_PROTOCOL_TYPE:
            return ErrorCode.none
        return ErrorCode.non_empty_group

    def delete_error(self) -> ErrorCode:
        """Return the verdict on the deletion of the group."""
        is_empty = self._body.state is ClassicGroupState.EMPTY
        return ErrorCode.none if is_empty else ErrorCode.non_empty_group

    def _error_of(self, request: SyncRequested | HeartbeatReceived | CommitRequested) -> ErrorCode | None:
        error = member_error(self._body.members, request.member_id, request.instance_id)
        if error is None and request.generation != self._body.generation:
            return ErrorCode.illegal_generation
        return error

    def _sync_error(self, request: SyncRequested) -> ErrorCode | None:
        body = self._body
        if request.protocol_type not in (None, body.protocol_type):
            return ErrorCode.inconsistent_group_protocol
        if body.protocol_name is not None and request.protocol_name not in (None, body.protocol_name):
            return ErrorCode.inconsistent_group_protocol
        if body.state is ClassicGroupState.PREPARING_REBALANCE:
            return ErrorCode.rebalance_in_progress
        if sum(map(len, request.assignments.values())) > self._limits.max_group_bytes:
            return ErrorCode.invalid_request
        return None

    def _wait_for_leader(self, member: GroupMember, request: SyncRequested) -> None:
        if member.sync_waiter is not None:
            self._body.answer(member.sync_waiter, SyncAnswer(ErrorCode.rebalance_in_progress))
        member.sync_waiter = request.waiter
        if self._body.members.leader_id == member.member_id:
            self._rebalance.assign(request.assignments)

    def _extend(self, member_id: str) -> None:
        member = self._body.members.get(member_id)
        if member is not None:
            self._body.extend_session(member)

    def _leave(self, leaving: LeavingMember) -> ErrorCode:
        body = self._body
        member_id = leaving.member_id
        if not member_id:  # a person removes a static member whose member id is not known
            member_id = body.members.static_id(leaving.instance_id or "") or ""
        elif body.forget_pending(member_id):
            return ErrorCode.none
        if error := member_error(body.members, member_id, leaving.instance_id):
            return error
        member = body.members.get(member_id)
        assert member is not None, "the member was checked"
        self._rebalance.expel(member, ErrorCode.unknown_member_id)
        body.note("member_left", member_id=member_id)
        return ErrorCode.none
