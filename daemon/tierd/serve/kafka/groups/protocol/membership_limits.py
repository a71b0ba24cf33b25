"""MembershipLimits: bounds of a group's members and their times."""

from dataclasses import dataclass


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
