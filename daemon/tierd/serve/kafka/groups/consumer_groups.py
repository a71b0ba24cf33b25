"""ConsumerGroups: everything about the groups of one endpoint, as composition takes it."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Final
from uuid import UUID, uuid4

from tierd.clock import Clock
from tierd.metadata import KeyValueStore, MetadataKeyFactory
from tierd.serve.kafka.access import Authorizer
from tierd.serve.kafka.groups.coordination.coordination_limits import CoordinationLimits
from tierd.serve.kafka.groups.coordination.endpoint_groups import EndpointGroups
from tierd.serve.kafka.groups.coordination.group_statistics import GroupsStatistics
from tierd.serve.kafka.groups.coordination.group_upkeep import GroupUpkeep
from tierd.serve.kafka.groups.coordination.placement import Placement
from tierd.serve.kafka.groups.handlers.coordinator_lookup import CoordinatorLookup
from tierd.serve.kafka.groups.handlers.fetched_offsets import OffsetReader
from tierd.serve.kafka.groups.handlers.group_door import GroupDoor
from tierd.serve.kafka.groups.handlers.group_listings import GroupListings
from tierd.serve.kafka.groups.handlers.membership_requests import MembershipRequests
from tierd.serve.kafka.groups.handlers.offset_commits import OffsetCommits, OffsetDeletes
from tierd.serve.kafka.groups.handlers.offset_fetches import OffsetFetches
from tierd.serve.kafka.groups.storage.group_store import GroupStore
from tierd.serve.kafka.request_context import Handler
from tierd.serve.kafka.served.served_cluster import ServedPartitions

_OFFSET_COMMIT: Final = 8
_OFFSET_FETCH: Final = 9
_FIND_COORDINATOR: Final = 10
_JOIN_GROUP: Final = 11
_HEARTBEAT: Final = 12
_LEAVE_GROUP: Final = 13
_SYNC_GROUP: Final = 14
_DESCRIBE_GROUPS: Final = 15
_LIST_GROUPS: Final = 16
_DELETE_GROUPS: Final = 42
_OFFSET_DELETE: Final = 47

_STORE_TIMEOUT_S: Final = 5.0  # as a broker's offsets.commit.timeout.ms: clients wait for 30 s, and try again


class ConsumerGroups:
    """Groups of one endpoint: hand ``handlers`` to the dispatch, run ``run`` beside it, show ``statistics``.

    Args:
        store: has the groups; shared with the other endpoints of the cluster.
        keys: of the cluster's rows in the store.
        placement: decides which endpoint coordinates a group.
        limits: bounds.
        clock: of timers and commits.
        new_id: makes random ids, for sessions and members.
    """

    def __init__(
        self,
        store: KeyValueStore,
        keys: MetadataKeyFactory,
        placement: Placement,
        limits: CoordinationLimits,
        *,
        clock: Clock,
        new_id: Callable[[], UUID] = uuid4,
    ) -> None:
        stored = GroupStore(store, keys, timeout_s=_STORE_TIMEOUT_S, clock=clock)
        self._groups = EndpointGroups(stored, placement, limits, clock=clock, new_id=new_id)
        self._upkeep = GroupUpkeep(self._groups)

    async def run(self) -> None:
        """Coordinate groups until cancelled. Cancel it after the connections: it writes what they have committed."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._groups.run(), name="timers of groups")
            tasks.create_task(self._upkeep.run(), name="upkeep of groups")

    def handlers(self, served: ServedPartitions, authorizer: Authorizer) -> Mapping[int, Handler]:
        """Return the handlers by api key."""
        return group_handlers(self._groups, served, authorizer)

    def statistics(self) -> GroupsStatistics:
        """Return the groups that this endpoint coordinates, with members and committed offsets."""
        return self._upkeep.statistics()


def group_handlers(groups: EndpointGroups, served: ServedPartitions, authorizer: Authorizer) -> Mapping[int, Handler]:
    """Return the handlers by api key."""
    door = GroupDoor(groups, served, authorizer)
    members, listings = MembershipRequests(door), GroupListings(door)
    return {
        _OFFSET_COMMIT: OffsetCommits(door).commit,
        _OFFSET_FETCH: OffsetFetches(OffsetReader(door)).fetch,
        _FIND_COORDINATOR: CoordinatorLookup(door).find_coordinator,
        _JOIN_GROUP: members.join,
        _HEARTBEAT: members.heartbeat,
        _LEAVE_GROUP: members.leave,
        _SYNC_GROUP: members.sync,
        _DESCRIBE_GROUPS: listings.describe,
        _LIST_GROUPS: listings.list_groups,
        _DELETE_GROUPS: listings.delete,
        _OFFSET_DELETE: OffsetDeletes(door).delete,
    }
