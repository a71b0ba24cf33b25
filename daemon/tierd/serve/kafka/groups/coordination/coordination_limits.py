"""CoordinationLimits: bounds of all groups of one endpoint, and the times of their upkeep."""

from dataclasses import dataclass, field

from tierd.config import EndpointGroupsSettings
from tierd.serve.kafka.groups.protocol.group_body import MembershipLimits


@dataclass(frozen=True, slots=True, kw_only=True)
class CoordinationLimits:
    """Bounds of the groups of one endpoint.

    Attributes:
        max_groups: groups in the metadata store, as far as this endpoint knows; also groups in memory.
        offsets_retention_s: time that commits are kept where no member or commit keeps them (KIP-211).
        max_offsets: partitions that one group may commit.
        max_metadata_chars: of one commit, as in Kafka.
        max_metadata_bytes: of all commits of one group.
        max_offset_bytes: of all commits in memory, about.
        max_stored_offset_bytes: the same in the metadata store, as far as this endpoint knows.
        max_member_bytes: of the members of all groups, with their subscriptions and assignments, about.
        max_loads: groups that are read from the store at a time.
        upkeep_interval_s: time between two rounds of expiry.
        claim_check_interval_s: time after which a coordinator learns that another one has its groups.
    """

    membership: MembershipLimits = field(default_factory=MembershipLimits)
    max_groups: int = 10_000
    offsets_retention_s: float = 7 * 86400.0
    max_offsets: int = 10_000
    max_metadata_chars: int = 4096
    max_metadata_bytes: int = 1 << 20
    max_offset_bytes: int = 128 << 20
    max_stored_offset_bytes: int = 1 << 30
    max_member_bytes: int = 64 << 20
    max_loads: int = 16
    upkeep_interval_s: float = 600.0
    claim_check_interval_s: float = 3.0

    @classmethod
    def of(cls, settings: EndpointGroupsSettings) -> "CoordinationLimits":
        """Return the bounds that the configuration sets."""
        membership = MembershipLimits(
            min_session_timeout_s=settings.min_session_timeout_s,
            max_session_timeout_s=settings.max_session_timeout_s,
            initial_rebalance_delay_s=settings.initial_rebalance_delay_s,
            max_members=settings.max_size,
        )
        return cls(
            membership=membership,
            max_groups=settings.max_groups,
            offsets_retention_s=settings.offsets_retention_s,
        )
