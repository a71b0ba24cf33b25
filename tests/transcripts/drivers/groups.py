"""Driver of ``ClassicGroup``: one consumer group, its clients by name, and the store of its row.

::

    join alice [instance=i1] [protocols=range,roundrobin] [type=consumer] [session=10s] [rebalance=60s] [skip=no]
    join alice at=0                       with the old way of a first join, that needs no member id
    sync alice [assign=alice:A,bob:B]     the leader brings assignments
    beat alice | commit alice             with the member id and generation that the client was told last
    beat alice id=alice-1 gen=1           with other ones; so do sync, commit and leave
    commit none                           of a simple consumer
    leave alice | leave none instance=i1
    delete
    hold | stored | failed                rows are stored at once, but after ``hold`` only by ``stored`` or ``failed``
    restart                               another daemon, or this one anew, loads the group from its row
    moved                                 another daemon coordinates the group
    status
    wait 3s

A client called alice is given the member ids alice-1, alice-2 and so on.
"""

import math
from collections import Counter
from collections.abc import Iterable, Iterator

from kio.schema.errors import ErrorCode

from tests.transcripts.transcript import Command
from tests.transcripts.units import parse_duration
from tierd.serve.kafka.groups.protocol.classic_group import ClassicGroup
from tierd.serve.kafka.groups.protocol.durable_group import DurableGroup
from tierd.serve.kafka.groups.protocol.group_body import MembershipLimits
from tierd.serve.kafka.groups.protocol.group_effects import (
    Answer,
    GroupAnswer,
    GroupEffect,
    GroupNote,
    JoinAnswer,
    LeaveAnswer,
    StoreRow,
    SyncAnswer,
)
from tierd.serve.kafka.groups.protocol.group_events import (
    CommitRequested,
    DeleteRequested,
    GroupEvent,
    GroupGone,
    HeartbeatReceived,
    JoinProtocol,
    JoinRequested,
    LeaveRequested,
    LeavingMember,
    Moment,
    RowNotStored,
    RowStored,
    SyncRequested,
    TimePassed,
)

LIMITS = MembershipLimits(max_members=3)


class ConsumerGroupOfClients:
    """One group and its clients."""

    def __init__(self) -> None:
        """Begin with a group that nothing is known of."""
        self._now_s = 0.0
        self._stored = DurableGroup(empty_since_ms=0)
        self._group = ClassicGroup(self._stored, LIMITS, self._now())
        self._asked: dict[int, tuple[str, str]] = {}  # client and request by waiter
        self._ids: dict[str, str] = {}
        self._generations: dict[str, int] = {}
        self._given: Counter[str] = Counter()
        self._is_holding = False
        self._held: DurableGroup | None = None

    def run(self, command: Command) -> Iterator[str]:
        """Carry out a command, and yield answers, rows and notes."""
        match command.name:
            case "wait":
                yield from self._wait(parse_duration(command.word()) / 1000)
            case "hold":
                self._is_holding = True
            case "stored":
                yield from self._store(self._take_held())
            case "failed":
                self._take_held()
                yield from self._step(RowNotStored())
            case "restart":
                self._held, self._is_holding = None, False
                self._group = ClassicGroup(self._stored, LIMITS, self._now())
                yield f"loaded: {self._group.state.value}, generation {self._group.generation}"
            case "moved":
                yield from self._step(GroupGone("moved"))
            case "status":
                yield from self._status()
            case _:
                yield from self._step(self._request(command))

    def _request(self, command: Command) -> GroupEvent:
        if command.name == "delete":
            return DeleteRequested(self._waiter("somebody", "delete"))
        client = command.word()
        waiter = self._waiter(client, command.name)
        member_id = command.option("id", "" if client == "none" else self._ids.get(client, ""))
        instance = command.option("instance", "") or None
        if command.name == "join":
            return self._join(command, client, waiter, member_id, instance)
        if command.name == "leave":
            return LeaveRequested(waiter, (LeavingMember(member_id, instance),))
        generation = int(command.option("gen", str(self._generations.get(client, -1))))
        match command.name:
            case "beat":
                return HeartbeatReceived(
                    waiter=waiter, member_id=member_id, instance_id=instance, generation=generation
                )
            case "commit":
                return CommitRequested(waiter=waiter, member_id=member_id, instance_id=instance, generation=generation)
            case "sync":
                pairs = [each.split(":") for each in command.option("assign", "").split(",") if each]
                return SyncRequested(
                    waiter=waiter,
                    member_id=member_id,
                    instance_id=instance,
                    generation=generation,
                    protocol_type=None,
                    protocol_name=None,
                    assignments={self._ids[name]: value.encode() for name, value in pairs},
                )
        raise command.unknown()

    def _join(self, command: Command, client: str, waiter: int, member_id: str, instance: str | None) -> JoinRequested:
        self._given[client] += 1
        protocols = command.option("protocols", "range").split(",")
        return JoinRequested(
            waiter=waiter,
            member_id=member_id,
            new_member_id=f"{client}-{self._given[client]}",
            instance_id=instance,
            client_id=client,
            client_host="host",
            session_timeout_s=parse_duration(command.option("session", "10s")) / 1000,
            rebalance_timeout_s=parse_duration(command.option("rebalance", "60s")) / 1000,
            protocol_type=command.option("type", "consumer"),
            protocols=tuple(JoinProtocol(each, b"") for each in protocols),
            needs_member_id=command.option("at", "9") != "0",
            may_skip_assignment=command.option("skip", "yes") == "yes",
        )

    def _step(self, event: GroupEvent) -> Iterator[str]:
        yield from self._shown(self._group.step(event, self._now()))

    def _wait(self, delay_s: float) -> Iterator[str]:
        end_s = self._now_s + delay_s
        while self._group.wake_at_s <= end_s:
            self._now_s = max(self._now_s, self._group.wake_at_s)
            lines = list(self._step(TimePassed()))
            if lines:
                yield f"after {self._now_s:g} s:"
                yield from (f"  {line}" for line in lines)
        self._now_s = end_s

    def _shown(self, effects: Iterable[GroupEffect]) -> Iterator[str]:
        for effect in effects:
            match effect:
                case GroupNote():
                    yield f"[{', '.join(_words(effect))}]"
                case Answer():
                    yield self._answered(*self._asked.pop(effect.waiter), effect.answer)
                case StoreRow() if self._is_holding:
                    self._held = effect.row
                    yield f"to store: {_row(effect.row)}"
                case StoreRow():
                    yield from self._store(effect.row)

    def _store(self, row: DurableGroup) -> Iterator[str]:
        self._stored = row
        yield f"stored: {_row(row)}"
        yield from self._step(RowStored(row))

    def _take_held(self) -> DurableGroup:
        assert self._held is not None, "no row is to be stored"
        held, self._held, self._is_holding = self._held, None, False
        return held

    def _answered(self, client: str, request: str, answer: GroupAnswer) -> str:
        told = f"{client} {request}: "
        match answer:
            case JoinAnswer():
                self._learn(client, answer)
                return told + _joined(answer)
            case SyncAnswer(error=ErrorCode.none):
                return told + (answer.assignment.decode() or "nothing assigned")
            case LeaveAnswer():
                errors = [error for _, error in answer.members] or [answer.error]
                return told + ", ".join(map(_shown_error, errors))
            case _:
                return told + _shown_error(answer.error)

    def _learn(self, client: str, answer: JoinAnswer) -> None:
        if answer.error in (ErrorCode.none, ErrorCode.member_id_required):
            self._ids[client] = answer.member_id
            self._generations[client] = answer.generation
        elif answer.error is ErrorCode.unknown_member_id:
            self._ids.pop(client, None)

    def _status(self) -> Iterator[str]:
        group = self._group
        yield f"{group.state.value}, generation {group.generation}, leader {group.leader_id or 'none'}"
        for member in group.members:
            instance = f" as {member.instance_id}" if member.instance_id else ""
            waiting = " has joined" if member.join_waiter is not None else ""
            yield f"member {member.member_id}{instance}{waiting}"

    def _waiter(self, client: str, request: str) -> int:
        waiter = len(self._given) + sum(self._given.values()) + max(self._asked, default=0) + 1
        self._asked[waiter] = (client, request)
        return waiter

    def _now(self) -> Moment:
        return Moment(self._now_s, math.floor(self._now_s * 1000))


def _words(note: GroupNote) -> Iterator[str]:
    yield note.event.replace("_", " ")
    if note.event == "generation_begun":
        yield f"generation {note.generation}"
    if note.member_id:
        yield note.member_id
    if note.reason:
        yield note.reason


def _joined(answer: JoinAnswer) -> str:
    if answer.error is not ErrorCode.none:
        known = f" {answer.member_id}" if answer.error is ErrorCode.member_id_required else ""
        return _shown_error(answer.error) + known
    members = ", ".join(each.member_id for each in answer.members)
    role = f"leads {members}" if answer.members else f"follows {answer.leader_id}"
    skipped = ", skips the assignment" if answer.skip_assignment else ""
    return f"{answer.member_id} in generation {answer.generation}, {answer.protocol_name}, {role}{skipped}"


def _row(row: DurableGroup) -> str:
    static = "".join(f", {each.instance_id} is {each.member_id}" for each in row.static_members)
    empty = "" if row.empty_since_ms is None else f", empty since {row.empty_since_ms / 1000:g} s"
    return f"generation {row.generation}{empty}{static}"


def _shown_error(error: ErrorCode) -> str:
    return "ok" if error is ErrorCode.none else error.name.upper()
