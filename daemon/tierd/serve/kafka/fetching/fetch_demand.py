"""FetchDemand: a Fetch request of any version as one value."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple
from uuid import UUID

from kio.static.protocol import Entity

from tierd.model import IsolationLevel

FIRST_VERSION_WITH_TOPIC_IDS: Final = 13
INITIAL_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
_FULL: Final = (INITIAL_EPOCH, FINAL_EPOCH)
_ISOLATION_LEVELS: Final = {0: IsolationLevel.READ_UNCOMMITTED, 1: IsolationLevel.READ_COMMITTED}
_NO_TOPIC_ID: Final = UUID(int=0)


class FetchKey(NamedTuple):
    """A partition as a client names it: the topic by its name up to version 12, by its id from version 13 on."""

    topic: str | UUID
    partition: int


class PartitionFetch(NamedTuple):
    """A place in one partition that a client wants records from.

    Attributes:
        max_bytes: bound of the client on the records of this partition.
        current_leader_epoch: epoch of the leader as the client knows it; -1: the client does not say.
        last_fetched_epoch: epoch of the record before ``offset``; -1: the client does not say.
    """

    offset: int
    max_bytes: int
    current_leader_epoch: int = -1
    last_fetched_epoch: int = -1


@dataclass(frozen=True, slots=True)
class FetchDemand:
    """One Fetch request.

    Attributes:
        isolation: None for a number that is no isolation level.
        session_id: 0 without a session.
        session_epoch: place of the request in its session (KIP-227): ``INITIAL_EPOCH`` asks for a new session,
            ``FINAL_EPOCH`` for none; both close the session that is named.
        partitions: the named partitions in the order of the request. A partition that is named twice counts once, with
            the values of its last place.
        forgotten: partitions that leave the session; none where the request names all, as with a broker.
        is_replica: the client says that it is a broker.
    """

    version: int
    max_wait_s: float
    min_bytes: int
    max_bytes: int
    isolation: IsolationLevel | None
    session_id: int
    session_epoch: int
    partitions: Mapping[FetchKey, PartitionFetch]
    forgotten: tuple[FetchKey, ...]
    is_replica: bool

    @property
    def uses_topic_ids(self) -> bool:
        """Return True if topics are named by their ids."""
        return self.version >= FIRST_VERSION_WITH_TOPIC_IDS

    @property
    def is_full(self) -> bool:
        """Return True if the request names every partition that it is about."""
        return self.session_epoch in _FULL


def fetch_demand(request: Entity) -> FetchDemand:
    """Return the demand of kio's FetchRequest of any version."""
    fields: Any = request  # fifteen classes without a common one; later versions have more fields
    version = int(fields.__version__)
    session_epoch = fields.session_epoch if version >= 7 else FINAL_EPOCH
    return FetchDemand(
        version=version,
        max_wait_s=max(0.0, fields.max_wait.total_seconds()),
        min_bytes=fields.min_bytes,
        max_bytes=max(0, fields.max_bytes),
        isolation=_ISOLATION_LEVELS.get(fields.isolation_level),
        session_id=fields.session_id if version >= 7 else 0,
        session_epoch=session_epoch,
        partitions=_partitions(fields.topics, version),
        forgotten=() if session_epoch in _FULL else _forgotten(fields.forgotten_topics_data, version),
        is_replica=(fields.replica_state.replica_id if version >= 15 else fields.replica_id) >= 0,
    )


def _partitions(topics: Iterable[Any], version: int) -> dict[FetchKey, PartitionFetch]:
    return {
        FetchKey(_topic(topic, version), each.partition): PartitionFetch(
            each.fetch_offset,
            max(0, each.partition_max_bytes),
            each.current_leader_epoch if version >= 9 else -1,
            each.last_fetched_epoch if version >= 12 else -1,
        )
        for topic in topics
        for each in topic.partitions
    }


def _forgotten(topics: Iterable[Any], version: int) -> tuple[FetchKey, ...]:
    return tuple(FetchKey(_topic(topic, version), number) for topic in topics for number in topic.partitions)


def _topic(topic: Any, version: int) -> str | UUID:  # noqa: ANN401  kio has a class for each version
    """Return the topic as the client names it; kio decodes the id of zeros to None."""
    return (topic.topic_id or _NO_TOPIC_ID) if version >= FIRST_VERSION_WITH_TOPIC_IDS else topic.topic
