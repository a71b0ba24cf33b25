"""LeaderAssignments: which partitions this node sends to each standby, and the long polls of the standbys for them.

A version counts the changes for one standby. The counts begin again with each process of the leader: a standby asks for
everything after it has connected anew.
"""

import asyncio
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Final, NamedTuple
from uuid import UUID

from tierd.clock import Clock, wait_for_event
from tierd.model import PartitionKey
from tierd.replication.model.messages import (
    AssignedPartition,
    AssignmentsRequest,
    AssignmentsResponse,
    DeletedReplica,
)
from tierd.replication.model.push_error_code import PushErrorCode
from tierd.replication.model.push_session import PeerIdentity

MAX_DELETED: Final = 10_000
"""Deleted partitions that are named to a standby; older ones are not named any more."""
_MAX_WAIT_S: Final = 60.0


class _Assigned(NamedTuple):
    partition: AssignedPartition
    replica_ids: frozenset[int]


@dataclass(slots=True)
class _StandbyView:
    """Announcements to one standby. The polls of a standby that is assigned nothing wait here too."""

    version: int = 0
    partitions: dict[PartitionKey, AssignedPartition] = field(default_factory=dict)
    deleted: dict[PartitionKey, None] = field(default_factory=dict)
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def note_change(self) -> None:
        self.version += 1
        self.changed.set()
        self.changed = asyncio.Event()


class LeaderAssignments:
    """Partitions that this node leads, by the standbys that they are sent to. For one event loop."""

    def __init__(self, clock: Clock) -> None:
        """Begin without a partition."""
        self._clock = clock
        self._assigned: dict[PartitionKey, _Assigned] = {}
        self._standbys: dict[int, _StandbyView] = {}

    def assign(self, partition: AssignedPartition, replica_ids: Collection[int]) -> None:
        """Announce a partition to its standbys, with its present leader epoch and settings."""
        key = (partition.topic_id, partition.partition)
        replicas = frozenset(replica_ids)
        before = self._assigned.get(key)
        if before == (partition, replicas):
            return
        self._assigned[key] = _Assigned(partition, replicas)
        for replica_id in replicas:
            view = self._view(replica_id)
            if view.partitions.get(key) != partition:
                view.partitions[key] = partition
                view.deleted.pop(key, None)
                view.note_change()
        if before is not None:
            self._take_from(key, before.replica_ids - replicas)

    def withdraw(self, topic_id: UUID, partition: int) -> None:
        """Announce a partition no more, because another node leads it. The standbys keep their copies."""
        before = self._assigned.pop((topic_id, partition), None)
        if before is not None:
            self._take_from((topic_id, partition), before.replica_ids)

    def delete(self, topic_id: UUID, partition: int, replica_ids: Collection[int] = ()) -> None:
        """Announce that a partition was deleted, to the standbys that it was assigned to and to ``replica_ids``."""
        key = (topic_id, partition)
        before = self._assigned.pop(key, None)
        for replica_id in frozenset(replica_ids).union(() if before is None else before.replica_ids):
            view = self._view(replica_id)
            view.partitions.pop(key, None)
            if key not in view.deleted:
                view.deleted[key] = None
                while len(view.deleted) > MAX_DELETED:
                    del view.deleted[next(iter(view.deleted))]
                view.note_change()

    def response_to(self, replica_id: int, known_version: int) -> AssignmentsResponse:
        """Return all that a standby is to know; without the partitions if it knows this version already."""
        view = self._standbys.get(replica_id)
        if view is None:
            return AssignmentsResponse(version=0, partitions=None if known_version == 0 else ())
        if view.version == known_version:
            return AssignmentsResponse(version=view.version)
        return AssignmentsResponse(
            version=view.version,
            partitions=tuple(view.partitions.values()),
            deleted=tuple(DeletedReplica(*key) for key in view.deleted),
        )

    async def answer(self, request: AssignmentsRequest, peer: PeerIdentity) -> AssignmentsResponse:
        """Answer a standby as soon as it does not know everything, or after the wait that it asked for."""
        if request.replica_id != peer.node_id:
            return AssignmentsResponse(error_code=PushErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        if request.replica_epoch != peer.process_epoch:
            return AssignmentsResponse(error_code=PushErrorCode.STALE_BROKER_EPOCH)
        response = self.response_to(peer.node_id, request.known_version)
        if response.partitions is None and request.max_wait_ms > 0:
            timeout_s = min(request.max_wait_ms / 1000, _MAX_WAIT_S)
            await wait_for_event(self._view(peer.node_id).changed, self._clock, timeout_s)
            response = self.response_to(peer.node_id, request.known_version)
        return response

    def _view(self, replica_id: int) -> _StandbyView:
        return self._standbys.setdefault(replica_id, _StandbyView())

    def _take_from(self, key: PartitionKey, replica_ids: Collection[int]) -> None:
        for replica_id in replica_ids:
            view = self._view(replica_id)
            if view.partitions.pop(key, None) is not None:
                view.note_change()
