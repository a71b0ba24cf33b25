"""FetchSession: the partitions that one client wants, and what it was told of each. Decisions only, no I/O."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from kio.schema.errors import ErrorCode

from tierd.serve.kafka.fetching.fetch_demand import FetchDemand, FetchKey, PartitionFetch
from tierd.serve.kafka.fetching.partition_answer import PartitionAnswer

NO_SESSION: Final = 0


@dataclass(frozen=True, slots=True)
class SessionOwner:
    """The client that a session belongs to. Another principal cannot use the session, nor learn that it exists."""

    principal: str
    listener: str
    connection_id: int

    def may_use(self, session: "FetchSession") -> bool:
        """Return True if the session belongs to the same principal. A client may come back on another connection."""
        return (self.principal, self.listener) == (session.owner.principal, session.owner.listener)


@dataclass(slots=True)
class _CachedPartition:
    """A partition of a session, and what the client was told of it last."""

    wanted: PartitionFetch
    high_watermark: int = -1
    log_start_offset: int = -1

    def take(self, answer: PartitionAnswer) -> bool:
        """Remember what the client is told; return False if it knows all of it already.

        The offsets of an error are -1, so that the client is told when the error is gone.
        """
        is_told = (
            answer.is_worth_telling
            or answer.high_watermark != self.high_watermark
            or answer.log_start_offset != self.log_start_offset
        )
        self.high_watermark = answer.high_watermark
        self.log_start_offset = answer.log_start_offset
        return is_told


@dataclass(slots=True)
class FetchSession:
    """One incremental fetch session of a client (KIP-227).

    Attributes:
        partitions: in the order in which they are read: a partition that gave records goes to the end.
        epoch: of the next request.
    """

    session_id: int
    owner: SessionOwner
    uses_topic_ids: bool
    created_s: float
    used_s: float
    epoch: int = 1
    partitions: dict[FetchKey, _CachedPartition] = field(default_factory=dict)
    counted: int = 0  # partitions as the cache counts them

    def update(self, demand: FetchDemand) -> None:
        """Take new places and partitions, then forget those that the client no longer wants."""
        for key, wanted in demand.partitions.items():
            cached = self.partitions.get(key)
            if cached is None:
                self.partitions[key] = _CachedPartition(wanted)
            else:
                cached.wanted = wanted
        for key in demand.forgotten:
            self.partitions.pop(key, None)

    def told(self, answers: Mapping[FetchKey, PartitionAnswer]) -> list[FetchKey]:
        """Return the partitions that the client has to be told of, in order; remember what it is told."""
        told = [key for key, answer in answers.items() if key in self.partitions and self.partitions[key].take(answer)]
        for key in told:
            if answers[key].records:
                self.partitions[key] = self.partitions.pop(key)
        return told


@dataclass(frozen=True, slots=True)
class SessionAnswer:
    """Session part of an answer.

    Attributes:
        told: the partitions of the answer, in order.
        error: of the whole answer.
    """

    session_id: int
    told: Iterable[FetchKey]
    error: ErrorCode = ErrorCode.none


@dataclass(frozen=True, slots=True)
class SessionRefusal:
    """A request that does not fit its session; no partition of it is read."""

    error: ErrorCode
