"""GroupMembers: the members of a group, their leader, and the protocol that they choose."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from tierd.serve.kafka.groups.protocol.durable_group import StaticMember
from tierd.serve.kafka.groups.protocol.group_effects import JoinedMember
from tierd.serve.kafka.groups.protocol.group_events import JoinProtocol, JoinRequested

MEMBER_BYTES: Final = 3000
"""About the memory of a member without its protocols; each text of the client has a bound."""
_PROTOCOL_BYTES: Final = 200


@dataclass(slots=True, kw_only=True)
class GroupMember:
    """One member of a group, as its coordinator knows it.

    Attributes:
        join_waiter: number of the join that waits for the next generation; None while none waits.
        sync_waiter: number of the sync that waits for the leader's assignments.
        is_new: no generation had this member yet, so that it cannot send heartbeats.
        former_id: member id of the client that this one has replaced last; empty where there was none.
        session_deadline_s: time at which the member is taken for dead; None while it waits for an answer.
    """

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_s: float
    rebalance_timeout_s: float
    protocols: tuple[JoinProtocol, ...]
    may_skip_assignment: bool = True
    assignment: bytes = b""
    join_waiter: int | None = None
    sync_waiter: int | None = None
    is_new: bool = False
    former_id: str = ""
    session_deadline_s: float | None = None

    def metadata(self, protocol_name: str | None) -> bytes:
        """Return the member's data for a protocol; empty where it does not support that."""
        return next((each.metadata for each in self.protocols if each.name == protocol_name), b"")

    def as_static(self) -> StaticMember:
        """Return the member as it is stored; it has an instance id."""
        assert self.instance_id is not None, "only static members are stored"
        return StaticMember(
            instance_id=self.instance_id,
            member_id=self.member_id,
            client_id=self.client_id,
            client_host=self.client_host,
            session_timeout_s=self.session_timeout_s,
            rebalance_timeout_s=self.rebalance_timeout_s,
            protocols=tuple((each.name, each.metadata) for each in self.protocols),
        )


class GroupMembers:
    """Members in the order in which they came; no two have the same instance id.

    Attributes:
        leader_id: member id of the leader, which makes the assignments; None without members.
    """

    def __init__(self) -> None:
        self.leader_id: str | None = None
        self._members: dict[str, GroupMember] = {}
        self._static: dict[str, str] = {}  # member id by instance id
        self._support: Counter[str] = Counter()  # number of members by name of a protocol
        self._protocol_bytes = 0
        self._assignment_bytes = 0

    def __len__(self) -> int:
        return len(self._members)

    def __iter__(self) -> Iterator[GroupMember]:
        return iter(tuple(self._members.values()))

    def __contains__(self, member_id: str) -> bool:
        return member_id in self._members

    def get(self, member_id: str) -> GroupMember | None:
        """Return the member of that id; None where there is none."""
        return self._members.get(member_id)

    def static_id(self, instance_id: str) -> str | None:
        """Return the member id that holds an instance id; None where no member does."""
        return self._static.get(instance_id)

    def add(self, member: GroupMember) -> None:
        """Add a member; the first one leads."""
        if member.instance_id is not None:
            assert member.instance_id not in self._static, "an instance id has one member"
            self._static[member.instance_id] = member.member_id
        self._members[member.member_id] = member
        self._count(member.protocols, 1)
        self._assignment_bytes += len(member.assignment)
        if self.leader_id is None:
            self.leader_id = member.member_id

    def remove(self, member_id: str) -> GroupMember | None:
        """Remove a member, and return it. Where it led, the longest-standing member leads."""
        removed = self._members.pop(member_id, None)
        if removed is None:
            return None
        self._count(removed.protocols, -1)
        self._assignment_bytes -= len(removed.assignment)
        if removed.instance_id is not None:
            del self._static[removed.instance_id]
        if self.leader_id == member_id:
            self.leader_id = next(iter(self._members), None)
        return removed

    def update(self, member: GroupMember, request: JoinRequested) -> None:
        """Take over what a join of the same member says anew; the join waits."""
        self._count(member.protocols, -1)
        self._count(request.protocols, 1)
        member.protocols = request.protocols
        member.session_timeout_s = request.session_timeout_s
        member.rebalance_timeout_s = request.rebalance_timeout_s
        member.may_skip_assignment = request.may_skip_assignment
        member.join_waiter = request.waiter

    def rename(self, member: GroupMember, new_member_id: str) -> None:
        """Give a static member another member id; its place, its assignment and its leadership stay."""
        assert member.instance_id is not None, "only static members are replaced"
        if self.leader_id == member.member_id:
            self.leader_id = new_member_id
        renamed = {(new_member_id if key == member.member_id else key): each for key, each in self._members.items()}
        self._members = renamed
        member.former_id = member.member_id
        self._static[member.instance_id] = member.member_id = new_member_id

    def assign(self, member: GroupMember, assignment: bytes) -> None:
        """Give a member its assignment, or none by an empty one."""
        self._assignment_bytes += len(assignment) - len(member.assignment)
        member.assignment = assignment

    def elect_joined_leader(self) -> bool:
        """Keep a leader that has joined, or elect the first member that has; False where none has joined."""
        leader = self._members.get(self.leader_id or "")
        if leader is not None and leader.join_waiter is not None:
            return True
        joined = next((each.member_id for each in self if each.join_waiter is not None), None)
        if joined is None:
            return False
        self.leader_id = joined
        return True

    @property
    def joined_count(self) -> int:
        """Return the number of members whose join waits."""
        return sum(each.join_waiter is not None for each in self)

    @property
    def rebalance_timeout_s(self) -> float:
        """Return the longest rebalance timeout of any member; 0 without members."""
        return max((each.rebalance_timeout_s for each in self), default=0.0)

    @property
    def protocol_bytes(self) -> int:
        """Return about the memory of the protocols of all members."""
        return self._protocol_bytes

    @property
    def size_bytes(self) -> int:
        """Return about the memory of all members."""
        return len(self) * MEMBER_BYTES + self._protocol_bytes + self._assignment_bytes

    @property
    def static(self) -> tuple[StaticMember, ...]:
        """Return the static members as they are stored, ascending by instance id."""
        return tuple(self._members[self._static[each]].as_static() for each in sorted(self._static))

    def support_any(self, protocols: tuple[JoinProtocol, ...]) -> bool:
        """Return True if every member supports one and the same of ``protocols``."""
        return any(self._support[each.name] == len(self) for each in protocols)

    def choose_protocol(self) -> str:
        """Return the protocol that all members support and most want; the leader's wish decides between equals."""
        common = {name for name, count in self._support.items() if count == len(self)}
        votes = Counter(next(each.name for each in member.protocols if each.name in common) for member in self)
        wishes = [each.name for each in self._members[self.leader_id or ""].protocols]
        return max(votes, key=lambda name: (votes[name], -wishes.index(name)))

    def listed(self, protocol_name: str | None) -> tuple[JoinedMember, ...]:
        """Return the members as their leader sees them."""
        return tuple(JoinedMember(each.member_id, each.instance_id, each.metadata(protocol_name)) for each in self)

    def _count(self, protocols: tuple[JoinProtocol, ...], sign: int) -> None:
        for each in protocols:
            self._support[each.name] += sign
            if not self._support[each.name]:
                del self._support[each.name]
        self._protocol_bytes += sign * size_of(protocols)


def size_of(protocols: tuple[JoinProtocol, ...]) -> int:
    """Return about the memory that the protocols of one member take."""
    return sum(_PROTOCOL_BYTES + len(each.name) + len(each.metadata) for each in protocols)
