"""GroupStatistics: groups of one endpoint as status and metrics show them."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from tierd.serve.kafka.groups.storage.group_offset import GroupOffset, OffsetKey


@dataclass(frozen=True, slots=True)
class GroupMemberStatistics:
    """One member; ``instance_id`` is that of a static one, else None."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupStatistics:
    """Counts and positions of one group.

    Attributes:
        state: by Kafka's name.
        protocol_type: empty for a group that only simple consumers use.
        protocol_name: empty while the members have not chosen one.
        offsets: committed offsets. The lag of a partition is the end of its log less the offset.
    """

    group: str
    state: str
    generation: int
    protocol_type: str
    protocol_name: str
    members: tuple[GroupMemberStatistics, ...]
    offsets: Mapping[OffsetKey, GroupOffset]


@dataclass(slots=True)
class GroupCounters:
    """Events since the start.

    Attributes:
        commits: offsets that were committed.
        failed_commits: offsets that a member or simple consumer could not commit, since the store did not answer.
        generations: generations that began.
        members_lost: members that were removed, since they did not send a request in time.
        claims: groups that this endpoint has taken over from the store.
        claims_lost: groups that another endpoint has taken over.
    """

    commits: int = 0
    failed_commits: int = 0
    generations: int = 0
    members_lost: int = 0
    claims: int = 0
    claims_lost: int = 0


@dataclass(frozen=True, slots=True)
class GroupsStatistics:
    """All groups that this endpoint coordinates.

    Attributes:
        groups: those in use as they are now, others as of the last round of upkeep; ascending by name.
        is_complete: False where more groups or commits are in the store than are kept in memory.
        counters: a copy.
    """

    groups: tuple[GroupStatistics, ...] = ()
    is_complete: bool = True
    counters: GroupCounters = field(default_factory=GroupCounters)
