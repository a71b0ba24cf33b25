"""DurableGroup: the part of a group that outlives the daemon that coordinates it."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class StaticMember:
    """A static member as it is stored (KIP-345): a client that restarts gets its place back by its instance id.

    Attributes:
        member_id: of the client that holds the instance id; every other one is fenced.
        protocols: names and metadata, most wanted first.
    """

    instance_id: str
    member_id: str
    client_id: str
    client_host: str
    session_timeout_s: float
    rebalance_timeout_s: float
    protocols: tuple[tuple[str, bytes], ...]


@dataclass(frozen=True, slots=True)
class DurableGroup:
    """Stored state of a group. Dynamic members and assignments are not stored: after a restart members join again.

    Attributes:
        generation: no member ever heard of a higher one.
        protocol_type: of the members, such as ``consumer``; None for a group that never had any.
        empty_since_ms: wall clock at which the group lost its last member; None while it has members.
        static_members: ascending by instance id.
    """

    generation: int = 0
    protocol_type: str | None = None
    empty_since_ms: int | None = None
    static_members: tuple[StaticMember, ...] = ()
