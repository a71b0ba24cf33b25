"""Rebalance: from one generation of a group to the next, and from the last member to none.

A generation is announced once the store has it (``RowStored``). Between the end of the wait for members and that moment
the join phase is closed: members may still come and go, and the row is stored again where the static members changed.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from kio.schema.errors import ErrorCode

from tierd.serve.kafka.groups.protocol.durable_group import DurableGroup
from tierd.serve.kafka.groups.protocol.group_body import GroupBody, JoinPhase, MembershipLimits
from tierd.serve.kafka.groups.protocol.group_effects import JoinAnswer, SyncAnswer
from tierd.serve.kafka.groups.protocol.group_members import GroupMember
from tierd.serve.kafka.groups.protocol.group_state import ClassicGroupState

_IN_GENERATION: Final = frozenset({ClassicGroupState.COMPLETING_REBALANCE, ClassicGroupState.STABLE})


class Rebalance:
    """Steps of one group between its states."""

    def __init__(self, body: GroupBody, limits: MembershipLimits) -> None:
        self._body = body
        self._limits = limits

    def prepare(self, reason: str) -> None:
        """Ask all members to join again, or complete what is under way if the group does that already."""
        body = self._body
        if body.state is ClassicGroupState.PREPARING_REBALANCE:
            self.close_if_joined()
            return
        is_initial = body.state is ClassicGroupState.EMPTY
        self._abandon_generation()
        body.become(ClassicGroupState.PREPARING_REBALANCE)
        body.note("rebalance_begun", reason=reason)
        if is_initial:
            body.join_phase = self._initial_join_phase()
        else:
            body.join_phase = JoinPhase(deadline_s=body.after(body.members.rebalance_timeout_s))
            self.close_if_joined()

    def restore(self) -> None:
        """Ask static members that were read from the store to join again; dynamic ones may come meanwhile."""
        self._body.become(ClassicGroupState.PREPARING_REBALANCE)
        self._body.join_phase = self._initial_join_phase()

    def close_if_joined(self) -> None:
        """Close the join phase if all have joined. An initial one lasts to its deadline."""
        phase = self._body.join_phase
        if phase is not None and not phase.is_initial and self._body.is_joined_by_all():
            phase.is_closed = True

    def end_wait(self) -> None:
        """Close the join phase at its deadline, or extend an initial one that a member joined meanwhile."""
        phase, body = self._body.join_phase, self._body
        assert phase is not None, "a join phase has the deadline"
        if phase.is_initial and phase.has_newcomer and phase.remaining_s > 0:
            last_delay_s, phase.has_newcomer = phase.delay_s, False
            phase.delay_s = min(self._limits.initial_rebalance_delay_s, phase.remaining_s)
            phase.remaining_s = max(0.0, phase.remaining_s - last_delay_s)
            phase.deadline_s = body.after(phase.delay_s)
        else:
            phase.is_closed = True

    def settle(self) -> None:
        """Do what is possible now that an event was taken in: begin a generation, store a row, or answer."""
        body, phase = self._body, self._body.join_phase
        if phase is not None and phase.is_closed:
            self._complete(phase)
        if body.state is ClassicGroupState.STABLE:
            self._answer_replaced()
        elif body.state is ClassicGroupState.EMPTY and body.row_retry_at_s is None:
            body.is_stored(DurableGroup(body.generation, body.protocol_type, body.empty_since_ms))

    def row_failed(self) -> None:
        """Send waiting clients away, which ask again; the row of a group without members is stored again later."""
        body, phase = self._body, self._body.join_phase
        if body.state is ClassicGroupState.EMPTY:
            body.row_retry_at_s = body.after(self._limits.row_retry_s)
        if phase is not None and phase.is_closed:
            body.join_phase = self._join_phase()
            self._refuse_joins(ErrorCode.coordinator_not_available)
        elif body.state is ClassicGroupState.STABLE:
            self._refuse_joins(ErrorCode.coordinator_not_available)

    def assign(self, assignments: Mapping[str, bytes]) -> None:
        """Hand the leader's assignments out, to members that ask later as well."""
        body = self._body
        for member in body.members:
            body.members.assign(member, assignments.get(member.member_id, b""))
        body.become(ClassicGroupState.STABLE)
        for member in body.members:
            self._answer_sync(member, self.assignment_of(member))

    def assignment_of(self, member: GroupMember) -> SyncAnswer:
        """Return the answer that holds the assignment of a member."""
        body = self._body
        return SyncAnswer(ErrorCode.none, body.protocol_type, body.protocol_name, member.assignment)

    def joined(self, member: GroupMember) -> JoinAnswer:
        """Return the answer to a member of the present generation."""
        body = self._body
        is_leader = body.members.leader_id == member.member_id
        return JoinAnswer(
            error=ErrorCode.none,
            member_id=member.member_id,
            generation=body.generation,
            protocol_type=body.protocol_type,
            protocol_name=body.protocol_name,
            leader_id=body.members.leader_id or "",
            members=body.members.listed(body.protocol_name) if is_leader else (),
        )

    def expel(self, member: GroupMember, error: ErrorCode) -> None:
        """Remove a member; the caller then calls ``after_removal``."""
        body = self._body
        if member.join_waiter is not None:
            body.answer(member.join_waiter, JoinAnswer(error, ""))
        if member.sync_waiter is not None:
            body.answer(member.sync_waiter, SyncAnswer(error))
        body.members.remove(member.member_id)
        self.sync_came(member.member_id)

    def after_removal(self, reason: str) -> None:
        """Rebalance the group without the members that are gone."""
        if self._body.state in _IN_GENERATION:
            self.prepare(reason)
        else:
            self.close_if_joined()

    def sync_came(self, member_id: str) -> None:
        """Wait for the sync of that member no longer."""
        self._body.pending_syncs.discard(member_id)
        if not self._body.pending_syncs:
            self._body.sync_deadline_s = None

    def _complete(self, phase: JoinPhase) -> None:
        body = self._body
        for member in body.members:
            if member.join_waiter is None and member.instance_id is None:
                body.note("member_removed", member_id=member.member_id, reason="has not joined in time")
                self.expel(member, ErrorCode.unknown_member_id)
        if not len(body.members):
            self._become_empty()
        elif not body.members.elect_joined_leader():
            body.join_phase = self._join_phase()
        elif body.is_stored(DurableGroup(body.generation + 1, body.protocol_type, None, body.members.static)):
            self._begin_generation()

    def _become_empty(self) -> None:
        body = self._body
        body.join_phase = None
        body.generation += 1
        body.protocol_name = None
        body.empty_since_ms = body.now.wall_ms
        body.become(ClassicGroupState.EMPTY)
        body.note("empty")

    def _begin_generation(self) -> None:
        body = self._body
        body.join_phase = None
        body.generation += 1
        body.protocol_name = body.members.choose_protocol()
        body.become(ClassicGroupState.COMPLETING_REBALANCE)
        body.note("generation_begun", reason=f"size {len(body.members)}")
        for member in body.members:
            member.is_new = False
            body.members.assign(member, b"")
            self._answer_join(member, self.joined(member))
            body.extend_session(member)  # also of a static member that has not joined again
        body.pending_syncs = {each.member_id for each in body.members}
        body.sync_deadline_s = body.after(body.members.rebalance_timeout_s)

    def _abandon_generation(self) -> None:
        body = self._body
        body.pending_syncs.clear()
        body.sync_deadline_s = None
        for member in body.members:
            if body.state is ClassicGroupState.COMPLETING_REBALANCE:
                body.members.assign(member, b"")
            self._answer_sync(member, SyncAnswer(ErrorCode.rebalance_in_progress))

    def _answer_replaced(self) -> None:
        """Answer static members that came back into their generation, once the store has their member ids."""
        body = self._body
        waiting = [each for each in body.members if each.join_waiter is not None]
        if waiting and body.is_stored(DurableGroup(body.generation, body.protocol_type, None, body.members.static)):
            for member in waiting:
                self._answer_join(member, self._rejoined(member))

    def _rejoined(self, member: GroupMember) -> JoinAnswer:
        """Return the answer to a static member that replaced its former self without a rebalance.

        A leader must not assign anew. A client that cannot be told so is told that its former self leads.
        """
        answer = self.joined(member)
        if member.member_id != self._body.members.leader_id:
            return answer
        if member.may_skip_assignment:
            return replace(answer, skip_assignment=True)
        return replace(answer, leader_id=member.former_id, members=())

    def _initial_join_phase(self) -> JoinPhase:
        delay_s = self._limits.initial_rebalance_delay_s
        return JoinPhase(
            deadline_s=self._body.after(delay_s),
            is_initial=True,
            delay_s=delay_s,
            remaining_s=max(0.0, self._body.members.rebalance_timeout_s - delay_s),
        )

    def _join_phase(self) -> JoinPhase:
        timeout_s = max(self._body.members.rebalance_timeout_s, self._limits.row_retry_s)
        return JoinPhase(deadline_s=self._body.after(timeout_s))

    def _refuse_joins(self, error: ErrorCode) -> None:
        for member in self._body.members:
            self._answer_join(member, JoinAnswer(error, member.member_id))

    def _answer_join(self, member: GroupMember, answer: JoinAnswer) -> None:
        if member.join_waiter is not None:
            self._body.answer(member.join_waiter, answer)
            member.join_waiter = None
            self._body.extend_session(member)

    def _answer_sync(self, member: GroupMember, answer: SyncAnswer) -> None:
        if member.sync_waiter is not None:
            self._body.answer(member.sync_waiter, answer)
            member.sync_waiter = None
            self._body.extend_session(member)
