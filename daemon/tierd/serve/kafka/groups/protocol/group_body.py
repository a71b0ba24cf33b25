"""GroupBody: the state of a group between two events, and the effects of the present one."""

import math
from dataclasses import dataclass

from tierd.serve.kafka.groups.protocol.durable_group import DurableGroup
from tierd.serve.kafka.groups.protocol.group_effects import Answer, GroupAnswer, GroupEffect, GroupNote, StoreRow
from tierd.serve.kafka.groups.protocol.group_events import Moment
from tierd.serve.kafka.groups.protocol.group_members import GroupMember, GroupMembers
from tierd.serve.kafka.groups.protocol.group_state import ClassicGroupState


@dataclass(frozen=True, slots=True, kw_only=True)
class MembershipLimits:
    """Bounds of one group.

    Attributes:
        initial_rebalance_delay_s: time that a group without members waits for more of them once the first has joined.
        max_members: members, and also clients that were given a member id and have not joined yet.
        max_group_bytes: bytes of the members' own data (subscriptions), and of the assignments of one generation.
        new_member_timeout_s: time after which a member that never was in a generation is taken for dead.
        row_retry_s: time after which a row is stored again when no client waits for it.
    """

    min_session_timeout_s: float = 6.0
    max_session_timeout_s: float = 1800.0
    initial_rebalance_delay_s: float = 3.0
    max_members: int = 1000
    max_group_bytes: int = 16 << 20
    new_member_timeout_s: float = 300.0
    row_retry_s: float = 5.0


@dataclass(slots=True, kw_only=True)
class JoinPhase:
    """Phase in which members join, before a generation.

    Attributes:
        deadline_s: end of the wait for members that have not joined.
        is_initial: the group had no members before; it waits to its deadline, so that not every member rebalances it.
        delay_s: length of the present wait of an initial phase.
        remaining_s: time by which an initial phase may still be extended.
        has_newcomer: a member came during the present wait, which is then extended.
        is_closed: the wait is over; the generation begins when it is durable.
    """

    deadline_s: float
    is_initial: bool = False
    delay_s: float = 0.0
    remaining_s: float = 0.0
    has_newcomer: bool = False
    is_closed: bool = False


class GroupBody:
    """State of one group. Only the parts of ``ClassicGroup`` change it.

    Attributes:
        generation: of the members; -1 never, 0 before the first one.
        pending_joins: deadline by member id that was given to a client, which has not joined with it yet.
        pending_syncs: members of this generation that have not asked for their assignments.
        empty_since_ms: wall clock at which the state became EMPTY; meaningless in other states.
        stored: content of the row as the store has it.
        is_storing: a write was asked for, and its outcome is not known yet.
        wake_at_s: no deadline is earlier; the earliest one may be later.
    """

    def __init__(self, stored: DurableGroup, now: Moment) -> None:
        self.state = ClassicGroupState.EMPTY
        self.generation = stored.generation
        self.protocol_type = stored.protocol_type
        self.protocol_name: str | None = None
        self.members = GroupMembers()
        self.pending_joins: dict[str, float] = {}
        self.pending_syncs: set[str] = set()
        self.join_phase: JoinPhase | None = None
        self.sync_deadline_s: float | None = None
        self.row_retry_at_s: float | None = None
        self.empty_since_ms = now.wall_ms if stored.empty_since_ms is None else stored.empty_since_ms
        self.stored = stored
        self.is_storing = False
        self.wake_at_s = math.inf
        self.now = now
        self.effects: list[GroupEffect] = []

    def become(self, state: ClassicGroupState) -> None:
        """Take a step between two states."""
        assert self.state.may_become(state), f"{self.state} cannot become {state}"
        self.state = state

    def answer(self, waiter: int, answer: GroupAnswer) -> None:
        """Answer a request."""
        self.effects.append(Answer(waiter, answer))

    def note(self, event: str, *, member_id: str = "", reason: str = "") -> None:
        """Report what has happened, for the log."""
        self.effects.append(GroupNote(event, self.generation, member_id, reason))

    def after(self, delay_s: float) -> float:
        """Return the deadline ``delay_s`` from now; the group is woken no later."""
        deadline_s = self.now.monotonic_s + max(0.0, delay_s)
        self.wake_at_s = min(self.wake_at_s, deadline_s)
        return deadline_s

    def is_over(self, deadline_s: float | None) -> bool:
        """Return True if the deadline has passed."""
        return deadline_s is not None and deadline_s <= self.now.monotonic_s

    def extend_session(self, member: GroupMember) -> None:
        """Give a member its session timeout from now on."""
        member.session_deadline_s = self.after(member.session_timeout_s)

    def forget_pending(self, member_id: str) -> bool:
        """Forget a member id that was given away; False if it was not."""
        return self.pending_joins.pop(member_id, None) is not None

    def is_joined_by_all(self) -> bool:
        """Return True if every member, and every client that was given a member id, has joined."""
        return self.members.joined_count == len(self.members) and not self.pending_joins

    def is_stored(self, row: DurableGroup) -> bool:
        """Return True if the store has ``row``; else ask for a write, unless one is under way."""
        if self.stored == row:
            return True
        if not self.is_storing:
            self.is_storing = True
            self.effects.append(StoreRow(row))
        return False

    def schedule(self) -> None:
        """Find the earliest deadline."""
        deadlines = [self.sync_deadline_s, self.row_retry_at_s, *self.pending_joins.values()]
        deadlines += [each.session_deadline_s for each in self.members]
        if self.join_phase is not None and not self.join_phase.is_closed:
            deadlines.append(self.join_phase.deadline_s)
        self.wake_at_s = min((each for each in deadlines if each is not None), default=math.inf)
