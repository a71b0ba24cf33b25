"""HostedGroup: one group that this endpoint coordinates: the protocol, its writes, and the clients that wait."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import structlog

from tierd.clock import Clock
from tierd.rare_lines import LinesPerSecond
from tierd.serve.kafka.groups.coordination.alarms import Alarms
from tierd.serve.kafka.groups.coordination.group_statistics import GroupCounters, GroupMemberStatistics, GroupStatistics
from tierd.serve.kafka.groups.coordination.group_writer import GroupWriter, Spawn
from tierd.serve.kafka.groups.protocol.classic_group import ClassicGroup
from tierd.serve.kafka.groups.protocol.group_body import MembershipLimits
from tierd.serve.kafka.groups.protocol.group_effects import Answer, GroupAnswer, GroupEffect, GroupNote, StoreRow
from tierd.serve.kafka.groups.protocol.group_events import GroupEvent, GroupGone, Moment
from tierd.serve.kafka.groups.protocol.group_state import ClassicGroupState
from tierd.serve.kafka.groups.storage.claimed_group import ClaimedGroup
from tierd.serve.kafka.groups.storage.group_offset import RetentionCircumstances

_log = structlog.get_logger(__name__)
_A = TypeVar("_A", bound=GroupAnswer)


@dataclass(frozen=True, slots=True)
class GroupHost:
    """Everything that hosted groups share.

    Attributes:
        lines: of the log about groups, which clients cause.
        spawn: begins a task.
        on_gone: called with a group that is not here any more.
        on_sized: called with the change of the memory that the members of a group take.
    """

    clock: Clock
    alarms: Alarms
    counters: GroupCounters
    limits: MembershipLimits
    lines: LinesPerSecond
    spawn: Spawn
    on_gone: Callable[["HostedGroup"], None]
    on_sized: Callable[[int], None]

    def now(self) -> Moment:
        """Return the present moment."""
        return Moment(self.clock.monotonic_s(), self.clock.now_ms())


class HostedGroup:
    """One group of this coordinator, with its row in the store. Methods run on the event loop; a step never waits."""

    def __init__(self, claimed: ClaimedGroup, host: GroupHost) -> None:
        self.name = claimed.group
        self._host = host
        self.core = ClassicGroup(claimed.durable, host.limits, host.now())
        self.writer = GroupWriter(claimed, spawn=host.spawn, on_event=self.step)
        self.used_at_s = host.clock.monotonic_s()
        self._waiters: dict[int, asyncio.Future[GroupAnswer]] = {}
        self._last_waiter = 0
        self._sized_bytes = 0
        self._note_size(self.core.size_bytes)
        host.alarms.set(self.name, self.core.wake_at_s)

    @property
    def is_idle(self) -> bool:
        """Return True if the group has no members, no writes and no waiting client."""
        return self.core.is_idle and not self.writer.is_busy and not self._waiters

    @property
    def retention(self) -> RetentionCircumstances:
        """Return the state as far as it decides on expiry."""
        is_stable = self.core.state is ClassicGroupState.STABLE
        return RetentionCircumstances(
            protocol_type=self.core.protocol_type,
            empty_since_ms=self.core.empty_since_ms,
            subscriptions=self.core.subscriptions() if is_stable else None,
        )

    def step(self, event: GroupEvent) -> None:
        """Take an event in, and carry its effects out."""
        if isinstance(event, GroupGone) and self.core.state is not ClassicGroupState.DEAD:
            _log.info("group_gone", group=self.name, reason=event.reason)
            self._host.counters.claims_lost += event.is_lost
        for effect in self.core.step(event, self._host.now()):
            self._carry_out(effect)
        if self.core.state is ClassicGroupState.DEAD:
            self._note_size(0)
            self._host.on_gone(self)
        else:
            self._note_size(self.core.size_bytes)
            self._host.alarms.set(self.name, self.core.wake_at_s)

    async def ask(self, event_of: Callable[[int], GroupEvent], answer_type: type[_A]) -> _A:
        """Take a request in, and return its answer when it comes.

        Cancelled, the request stays as it is: a member whose client has gone is removed by its session timeout.
        """
        self.used_at_s = self._host.clock.monotonic_s()
        self._last_waiter += 1
        waiter = self._last_waiter
        future = asyncio.get_running_loop().create_future()
        self._waiters[waiter] = future
        try:
            self.step(event_of(waiter))
            answer = await future
        finally:
            del self._waiters[waiter]
        assert isinstance(answer, answer_type), "a request is answered by its own kind"
        return answer

    def lose(self, reason: str) -> None:
        """Send waiting clients to another coordinator."""
        self.step(GroupGone(reason, is_lost=True))

    def statistics(self) -> GroupStatistics:
        """Return the group as it is now."""
        core = self.core
        return GroupStatistics(
            group=self.name,
            state=core.state.value,
            generation=core.generation,
            protocol_type=core.protocol_type or "",
            protocol_name=core.protocol_name or "",
            members=tuple(
                GroupMemberStatistics(each.member_id, each.instance_id, each.client_id, each.client_host)
                for each in core.members
            ),
            offsets=dict(self.writer.claimed.offsets),
        )

    def _note_size(self, size_bytes: int) -> None:
        change, self._sized_bytes = size_bytes - self._sized_bytes, size_bytes
        if change:
            self._host.on_sized(change)

    def _carry_out(self, effect: GroupEffect) -> None:
        match effect:
            case Answer():
                future = self._waiters.get(effect.waiter)
                if future is not None and not future.done():  # its client may have gone
                    future.set_result(effect.answer)
            case StoreRow():
                self.writer.store(effect.row)
            case GroupNote():
                self._record(effect)

    def _record(self, note: GroupNote) -> None:
        self._host.counters.generations += note.event == "generation_begun"
        self._host.counters.members_lost += note.event == "member_removed"
        if (silent := self._host.lines.take()) is not None:
            _log.info(
                f"group_{note.event}",
                group=self.name,
                generation=note.generation,
                member_id=note.member_id,
                reason=note.reason,
                silent=silent,
            )
