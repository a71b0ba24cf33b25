"""Events of a group: the requests of its clients, the passing of time, and the outcomes of writes.

A request names its waiter, the number under which its answer is given, at once or later.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from tierd.serve.kafka.groups.protocol.durable_group import DurableGroup


class Moment(NamedTuple):
    """One moment on both clocks: deadlines are measured on the monotonic one."""

    monotonic_s: float
    wall_ms: int


class JoinProtocol(NamedTuple):
    """One way of assignment that a member supports, with the member's own data for it (its subscription)."""

    name: str
    metadata: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinRequested:
    """A client joins, for the first time or again.

    Attributes:
        member_id: as the coordinator gave it; empty for a client that has none yet.
        new_member_id: for a client that has none; never used before.
        instance_id: of a static member (KIP-345); None for a dynamic one.
        protocols: most wanted first.
        needs_member_id: a new dynamic member is sent away with its id, and joins with it (KIP-394).
        may_skip_assignment: the client knows of ``JoinAnswer.skip_assignment`` (KIP-814).
    """

    waiter: int
    member_id: str
    new_member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_s: float
    rebalance_timeout_s: float
    protocol_type: str
    protocols: tuple[JoinProtocol, ...]
    needs_member_id: bool = True
    may_skip_assignment: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncRequested:
    """A member asks for its assignment; the leader brings the assignments of all.

    Attributes:
        protocol_type: as the client understood it; None where the version has no such field.
        protocol_name: the same.
        assignments: by member id; empty but for the leader.
    """

    waiter: int
    member_id: str
    instance_id: str | None
    generation: int
    protocol_type: str | None
    protocol_name: str | None
    assignments: Mapping[str, bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatReceived:
    """A member is alive."""

    waiter: int
    member_id: str
    instance_id: str | None
    generation: int


class LeavingMember(NamedTuple):
    """One member that leaves, or that a person removes by its instance id, with an empty member id."""

    member_id: str
    instance_id: str | None


@dataclass(frozen=True, slots=True)
class LeaveRequested:
    """Members leave at once, without their session timeout."""

    waiter: int
    members: tuple[LeavingMember, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitRequested:
    """A client wants to commit offsets. A simple consumer has generation -1 and an empty member id."""

    waiter: int
    member_id: str
    instance_id: str | None
    generation: int


@dataclass(frozen=True, slots=True)
class DeleteOffsetsRequested:
    """A person wants to delete commits of the group."""

    waiter: int


@dataclass(frozen=True, slots=True)
class DeleteRequested:
    """A person wants to delete the group."""

    waiter: int


@dataclass(frozen=True, slots=True)
class TimePassed:
    """``ClassicGroup.wake_at_s`` has come."""


@dataclass(frozen=True, slots=True)
class RowStored:
    """The store has ``row`` now, from a write that was asked for, or as it was read back after a doubtful one."""

    row: DurableGroup


@dataclass(frozen=True, slots=True)
class RowNotStored:
    """The write that was asked for has failed, or may have. The store did not answer."""


@dataclass(frozen=True, slots=True)
class GroupGone:
    """The group is not here any more.

    Attributes:
        reason: for the log.
        is_lost: another endpoint coordinates the group.
    """

    reason: str
    is_lost: bool = False


GroupEvent: TypeAlias = (
    JoinRequested
    | SyncRequested
    | HeartbeatReceived
    | LeaveRequested
    | CommitRequested
    | DeleteOffsetsRequested
    | DeleteRequested
    | TimePassed
    | RowStored
    | RowNotStored
    | GroupGone
)
