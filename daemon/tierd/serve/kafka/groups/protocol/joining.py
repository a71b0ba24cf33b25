"""Joining: a client becomes a member of a group, comes back to it, or replaces its former self."""

from kio.schema.errors import ErrorCode

from tierd.serve.kafka.groups.protocol.group_body import GroupBody, MembershipLimits
from tierd.serve.kafka.groups.protocol.group_checks import member_error
from tierd.serve.kafka.groups.protocol.group_effects import JoinAnswer, SyncAnswer
from tierd.serve.kafka.groups.protocol.group_events import JoinRequested
from tierd.serve.kafka.groups.protocol.group_members import GroupMember, size_of
from tierd.serve.kafka.groups.protocol.group_state import ClassicGroupState
from tierd.serve.kafka.groups.protocol.rebalance import Rebalance


class Joining:
    """Joins of one group."""

    def __init__(self, body: GroupBody, rebalance: Rebalance, limits: MembershipLimits) -> None:
        self._body = body
        self._rebalance = rebalance
        self._limits = limits

    def join(self, request: JoinRequested) -> None:
        """Take a join in; its answer may wait for the other members."""
        if not self._limits.min_session_timeout_s <= request.session_timeout_s <= self._limits.max_session_timeout_s:
            self._refuse(request, ErrorCode.invalid_session_timeout)
        elif not self._has_room(request):
            self._turn_away(request)
        elif not self._supports(request):
            self._refuse(request, ErrorCode.inconsistent_group_protocol)
        elif not request.member_id:
            self._join_without_id(request)
        elif request.instance_id is None and self._body.forget_pending(request.member_id):
            self._add(request, request.member_id)
        elif error := member_error(self._body.members, request.member_id, request.instance_id):
            self._refuse(request, error)
        else:
            self._join_again(request)

    def _has_room(self, request: JoinRequested) -> bool:
        body, most = self._body, self._limits.max_members
        member = body.members.get(request.member_id)
        replaced = 0 if member is None else size_of(member.protocols)
        if body.members.protocol_bytes - replaced + size_of(request.protocols) > self._limits.max_group_bytes:
            return False
        if not request.member_id and len(body.pending_joins) >= most:
            return False
        if request.instance_id is not None and body.members.static_id(request.instance_id) is not None:
            return True
        match body.state:
            case ClassicGroupState.PREPARING_REBALANCE:
                # By those that have joined: of members over a bound that was lowered, the last to join again must go.
                return (member is not None and member.join_waiter is not None) or body.members.joined_count < most
            case ClassicGroupState.EMPTY:
                return True
            case _:
                return member is not None or len(body.members) < most

    def _turn_away(self, request: JoinRequested) -> None:
        body = self._body
        body.forget_pending(request.member_id)
        member = body.members.get(request.member_id)
        if member is not None:
            self._rebalance.expel(member, ErrorCode.group_max_size_reached)
            self._rebalance.after_removal("a member over the bound was removed")
        body.answer(request.waiter, JoinAnswer(ErrorCode.group_max_size_reached, ""))

    def _supports(self, request: JoinRequested) -> bool:
        body = self._body
        if not request.protocol_type or not request.protocols:
            return False
        if body.state is ClassicGroupState.EMPTY:
            return True
        return body.protocol_type == request.protocol_type and body.members.support_any(request.protocols)

    def _join_without_id(self, request: JoinRequested) -> None:
        body, former_id = self._body, None
        if request.instance_id is not None:
            former_id = body.members.static_id(request.instance_id)
        former = body.members.get(former_id or "")
        if former is not None:
            self._replace(former, request)
        elif request.instance_id is None and request.needs_member_id:
            body.pending_joins[request.new_member_id] = body.after(request.session_timeout_s)
            self._refuse(request, ErrorCode.member_id_required, member_id=request.new_member_id)
        else:
            self._add(request, request.new_member_id)

    def _add(self, request: JoinRequested, member_id: str) -> None:
        body, phase = self._body, self._body.join_phase
        if not len(body.members):
            body.protocol_type = request.protocol_type
        if phase is not None and phase.is_initial:
            phase.has_newcomer = True
        member = GroupMember(
            member_id=member_id,
            instance_id=request.instance_id,
            client_id=request.client_id,
            client_host=request.client_host,
            session_timeout_s=request.session_timeout_s,
            rebalance_timeout_s=request.rebalance_timeout_s,
            protocols=request.protocols,
            may_skip_assignment=request.may_skip_assignment,
            join_waiter=request.waiter,
            is_new=True,
            # A client that vanishes while its join waits is not seen to; a new member has no heartbeats to miss.
            session_deadline_s=body.after(self._limits.new_member_timeout_s),
        )
        body.members.add(member)
        self._rebalance.prepare("a member joins")

    def _join_again(self, request: JoinRequested) -> None:
        body = self._body
        member = body.members.get(request.member_id)
        assert member is not None, "the member was checked"
        is_unchanged = member.protocols == request.protocols
        is_leader = body.members.leader_id == member.member_id
        match body.state:
            case ClassicGroupState.COMPLETING_REBALANCE if is_unchanged:
                body.answer(request.waiter, self._rebalance.joined(member))  # the first answer may have been lost
            case ClassicGroupState.STABLE if is_unchanged and not is_leader and member.join_waiter is None:
                body.answer(request.waiter, self._rebalance.joined(member))
            case _:
                # A leader that joins anew may want other assignments, such as for new partitions of a topic.
                self._supersede(member)
                body.members.update(member, request)
                self._rebalance.prepare("the leader joins anew" if is_unchanged else "a member has changed")

    def _replace(self, former: GroupMember, request: JoinRequested) -> None:
        """Let a static member with a new member id take the place of the former one, which is fenced (KIP-345)."""
        body = self._body
        if former.join_waiter is not None:
            body.answer(former.join_waiter, JoinAnswer(ErrorCode.fenced_instance_id, former.member_id))
        if former.sync_waiter is not None:
            body.answer(former.sync_waiter, SyncAnswer(ErrorCode.fenced_instance_id))
            former.sync_waiter = None
        if former.member_id in body.pending_syncs:
            body.pending_syncs.add(request.new_member_id)
            body.pending_syncs.discard(former.member_id)
        body.members.rename(former, request.new_member_id)
        former.client_id, former.client_host = request.client_id, request.client_host
        body.members.update(former, request)
        body.extend_session(former)
        body.note("static_member_replaced", member_id=former.member_id)
        is_same_choice = body.protocol_name == body.members.choose_protocol()
        if body.state is not ClassicGroupState.STABLE or not is_same_choice:
            self._rebalance.prepare("a static member has come back")

    def _supersede(self, member: GroupMember) -> None:
        """Answer an earlier join of the same member, whose client has given it up most likely."""
        if member.join_waiter is not None:
            self._body.answer(member.join_waiter, JoinAnswer(ErrorCode.rebalance_in_progress, member.member_id))

    def _refuse(self, request: JoinRequested, error: ErrorCode, *, member_id: str | None = None) -> None:
        answered_id = request.member_id if member_id is None else member_id
        self._body.answer(request.waiter, JoinAnswer(error, answered_id))
