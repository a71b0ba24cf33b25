"""Effects of a group's step: answers to give, rows to store, and events for the log."""

from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from kio.schema.errors import ErrorCode

from tierd.serve.kafka.groups.protocol.durable_group import DurableGroup
from tierd.serve.kafka.groups.protocol.group_events import LeavingMember


class JoinedMember(NamedTuple):
    """One member as its leader sees it, with its metadata for the chosen protocol."""

    member_id: str
    instance_id: str | None
    metadata: bytes


@dataclass(frozen=True, slots=True)
class JoinAnswer:
    """Answer to a join.

    Attributes:
        generation: -1 with an error.
        members: all of them for the leader, empty for others.
        skip_assignment: the leader came back and must not assign anew.
    """

    error: ErrorCode
    member_id: str
    generation: int = -1
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader_id: str = ""
    members: tuple[JoinedMember, ...] = ()
    skip_assignment: bool = False


@dataclass(frozen=True, slots=True)
class SyncAnswer:
    """Answer to a sync: the assignment of one member."""

    error: ErrorCode
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


@dataclass(frozen=True, slots=True)
class LeaveAnswer:
    """Answer to members that leave, each with its own error."""

    error: ErrorCode
    members: tuple[tuple[LeavingMember, ErrorCode], ...] = ()


@dataclass(frozen=True, slots=True)
class PlainAnswer:
    """Answer to a heartbeat, or the verdict on a commit or a deletion."""

    error: ErrorCode


GroupAnswer: TypeAlias = JoinAnswer | SyncAnswer | LeaveAnswer | PlainAnswer


@dataclass(frozen=True, slots=True)
class Answer:
    """Give ``answer`` to the waiter of that number, which may be gone."""

    waiter: int
    answer: GroupAnswer


@dataclass(frozen=True, slots=True)
class StoreRow:
    """Make ``row`` durable, and tell the group of the outcome. No second write is asked for before that."""

    row: DurableGroup


@dataclass(frozen=True, slots=True)
class GroupNote:
    """An event of the group for the log of the daemon.

    Attributes:
        event: fixed words, joined by underscores.
        member_id: of the member that it happened to; empty for the whole group.
        reason: cause of a rebalance; empty otherwise.
    """

    event: str
    generation: int
    member_id: str = ""
    reason: str = ""


GroupEffect: TypeAlias = Answer | StoreRow | GroupNote
