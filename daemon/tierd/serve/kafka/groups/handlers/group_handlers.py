"""group_handlers: the handlers of all requests about groups."""

from collections.abc import Mapping
from typing import Final

from tierd.serve.kafka.access import Authorizer
from tierd.serve.kafka.groups.coordination.endpoint_groups import EndpointGroups
from tierd.serve.kafka.groups.handlers.coordinator_lookup import CoordinatorLookup
from tierd.serve.kafka.groups.handlers.fetched_offsets import OffsetReader
from tierd.serve.kafka.groups.handlers.group_door import GroupDoor
from tierd.serve.kafka.groups.handlers.group_listings import GroupListings
from tierd.serve.kafka.groups.handlers.membership_requests import MembershipRequests
from tierd.serve.kafka.groups.handlers.offset_commits import OffsetCommits
from tierd.serve.kafka.groups.handlers.offset_deletes import OffsetDeletes
from tierd.serve.kafka.groups.handlers.offset_fetches import OffsetFetches
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
