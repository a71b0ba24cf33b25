"""OffsetReader: committed positions of a group, read from the store for each request.

The store is asked and not the memory of the coordinator, so that a coordinator that has lost the group without knowing
it never answers a position that is older than an acknowledged commit.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from kio.schema.errors import ErrorCode

from tierd.errors import MetadataError
from tierd.serve.kafka.client_errors import AskedFor, error_code_for
from tierd.serve.kafka.groups.coordination.endpoint_groups import GroupRefusedError
from tierd.serve.kafka.groups.handlers.group_door import GroupDoor, served_topic
from tierd.serve.kafka.groups.storage.group_offset import GroupOffset, OffsetKey
from tierd.serve.kafka.groups.storage.group_rows import GroupRow
from tierd.serve.kafka.request_context import RequestContext
from tierd.serve.kafka.served.served_cluster import ServedCluster, ServedTopic


@dataclass(frozen=True, slots=True)
class WantedTopic:
    """Partitions that a client asks for, of a topic by its name or by its id."""

    name: str | None
    topic_id: UUID | None
    partitions: Sequence[int]


@dataclass(frozen=True, slots=True)
class FetchedPartition:
    """Position of one partition; None where none was committed."""

    partition: int
    committed: GroupOffset | None
    error: ErrorCode = ErrorCode.none


@dataclass(frozen=True, slots=True)
class FetchedTopic:
    """Positions of one topic; ``name`` and ``topic_id`` as far as they are known."""

    name: str | None
    topic_id: UUID | None
    partitions: tuple[FetchedPartition, ...]


@dataclass(frozen=True, slots=True)
class FetchedOffsets:
    """Positions of one group, or the error of the whole group."""

    error: ErrorCode
    topics: tuple[FetchedTopic, ...] = ()

    @property
    def positions(self) -> int:
        """Return the number of partitions."""
        return sum(len(topic.partitions) for topic in self.topics)


class OffsetReader:
    """Reads of committed positions."""

    def __init__(self, door: GroupDoor) -> None:
        self._door = door

    async def read(self, context: RequestContext, group: str, wanted: Sequence[WantedTopic] | None) -> FetchedOffsets:
        """Return positions of the wanted partitions; with None, all of the group that the client may see."""
        if error := self._door.refusal(context, group, may_be_nameless=True):
            return FetchedOffsets(error)
        try:
            self._door.groups.require_place(group)
            if wanted is None:
                return FetchedOffsets(ErrorCode.none, await self._all(context, group))
            return FetchedOffsets(ErrorCode.none, await self._some(context, group, wanted))
        except GroupRefusedError as refused:
            return FetchedOffsets(refused.error)
        except MetadataError as failure:
            return FetchedOffsets(error_code_for(failure, AskedFor.GROUP, version=context.version))

    async def _all(self, context: RequestContext, group: str) -> tuple[FetchedTopic, ...]:
        cluster = self._door.cluster(context)
        by_topic: dict[UUID, list[FetchedPartition]] = {}
        names: dict[UUID, str] = {}
        stored = await self._stored(group)
        unserved = _topic_ids(stored, cluster)
        for key, committed in stored.items():
            served = cluster.topics.get(committed.topic)
            present_id = unserved[committed.topic] if served is None else served.topic_id
            may_see = self._door.authorizer.may_describe_topic(context.principal, committed.topic)
            if may_see and key.topic_id == present_id:
                names[key.topic_id] = committed.topic
                by_topic.setdefault(key.topic_id, []).append(FetchedPartition(key.partition, committed))
        return tuple(
            FetchedTopic(names[topic_id], topic_id, tuple(partitions)) for topic_id, partitions in by_topic.items()
        )

    async def _some(
        self, context: RequestContext, group: str, wanted: Sequence[WantedTopic]
    ) -> tuple[FetchedTopic, ...]:
        aside, items = context.turns.aside, context.items
        cluster = self._door.cluster(context)
        found = await aside(items, lambda: [self._found(context, cluster, each) for each in wanted])
        if any(each.topic is None and each.wanted.name for each in found):
            offsets = await self._stored(group)
        else:
            row, offsets = await self._door.groups.store.some_offsets(group, await aside(items, _keys, found))
            self._require_claim(group, row)
        return await aside(items + len(offsets), _fetched_topics, found, offsets, cluster)

    def _found(self, context: RequestContext, cluster: ServedCluster, wanted: WantedTopic) -> "_FoundTopic":
        topic = served_topic(cluster, name=wanted.name, topic_id=wanted.topic_id)
        return _FoundTopic(wanted, topic, self._error(context, wanted.name if topic is None else topic.name))

    def _error(self, context: RequestContext, name: str | None) -> ErrorCode:
        if name is None:
            return ErrorCode.unknown_topic_id
        may_see = self._door.authorizer.may_describe_topic(context.principal, name)
        return ErrorCode.none if may_see else ErrorCode.topic_authorization_failed

    async def _stored(self, group: str) -> Mapping[OffsetKey, GroupOffset]:
        self._require_claim(group, await self._door.groups.store.row(group))
        return await self._door.groups.store.offsets(group)

    def _require_claim(self, group: str, row: GroupRow | None) -> None:
        """Raise if another coordinator has claimed the group from this one."""
        hosted = self._door.groups.hosted.get(group)
        if hosted is None or (row is not None and row.session_id == hosted.writer.claimed.row.session_id):
            return
        hosted.lose("another endpoint has claimed the group")
        raise GroupRefusedError(ErrorCode.not_coordinator)


@dataclass(frozen=True, slots=True)
class _FoundTopic:
    """A wanted topic as far as it is served, or its error."""

    wanted: WantedTopic
    topic: ServedTopic | None
    error: ErrorCode


def _keys(found: Iterable[_FoundTopic]) -> list[OffsetKey]:
    return [
        OffsetKey(each.topic.topic_id, partition)
        for each in found
        if each.topic is not None and not each.error
        for partition in each.wanted.partitions
    ]


def _fetched_topics(
    found: Iterable[_FoundTopic], offsets: Mapping[OffsetKey, GroupOffset], cluster: ServedCluster
) -> tuple[FetchedTopic, ...]:
    topic_ids = _topic_ids(offsets, cluster)
    answers: list[FetchedTopic] = []
    for each in found:
        wanted = each.wanted
        topic_id = each.topic.topic_id if each.topic is not None else topic_ids.get(wanted.name or "")
        known = wanted.topic_id if wanted.topic_id is not None else topic_id
        partitions = tuple(_fetched(offsets, topic_id, partition, each.error) for partition in wanted.partitions)
        answers.append(FetchedTopic(wanted.name, known, partitions))
    return tuple(answers)


def _topic_ids(offsets: Mapping[OffsetKey, GroupOffset], cluster: ServedCluster) -> dict[str, UUID]:
    """Return the ids of topics that are committed and not served now, by name.

    A daemon that has just begun does not know each topic yet. A client that were answered that nothing is committed
    would begin anew.
    """
    unserved: Iterable[tuple[int, str, UUID]] = (
        (each.commit_ms, each.topic, key.topic_id) for key, each in offsets.items() if each.topic not in cluster.topics
    )
    return {name: topic_id for _, name, topic_id in sorted(unserved)}  # the topic of the last commit wins


def _fetched(
    offsets: Mapping[OffsetKey, GroupOffset], topic_id: UUID | None, partition: int, error: ErrorCode
) -> FetchedPartition:
    if error or topic_id is None:
        return FetchedPartition(partition, None, error)
    return FetchedPartition(partition, offsets.get(OffsetKey(topic_id, partition)))
