"""Set-up of the tests of a fetch: requests of any version, their context, and an endpoint over fake logs."""

import asyncio
import importlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import count, groupby
from typing import Any, TypeAlias
from uuid import UUID

from tests.fakes.manual_clock import ManualClock
from tests.fakes.served_partitions import FakeServedPartitions
from tierd.serve.kafka.fetching.fetch_handlers import FETCH, fetch_handlers
from tierd.serve.kafka.fetching.fetch_round import FetchLimits
from tierd.serve.kafka.fetching.fetch_session_cache import FetchSessionCache, FetchSessionLimits
from tierd.serve.kafka.memory_budget import MemoryBudget
from tierd.serve.kafka.request_context import ANONYMOUS, RequestContext
from tierd.serve.kafka.served.served_log import FileSlice
from tierd.serve.kafka.wire.fetch_answer import FetchAnswer

Kio: TypeAlias = Any
"""A message of kio, which has other classes in each version; or one of its fields."""

VERSIONS = range(4, 19)
NEWEST = 18
MIB = 1 << 20
MEMORY_BYTES = 64 * MIB
SHARE_BYTES = 16 * MIB
_DEADLINE_S = 20.0
TOPIC_ID = UUID(int=1)
"""Of the first topic of an endpoint."""


@dataclass(frozen=True)
class Want:
    """One partition of a request."""

    topic: str | UUID
    partition: int = 0
    offset: int = 0
    max_bytes: int = MIB
    epoch: int = -1
    last_epoch: int = -1


def fetch_request(
    wants: Iterable[Want] = (),
    *,
    version: int = NEWEST,
    session: tuple[int, int] = (0, -1),
    forget: Sequence[tuple[str | UUID, int]] = (),
    max_wait_ms: int = 0,
    min_bytes: int = 1,
    max_bytes: int = 50 * MIB,
    isolation: int = 0,
    replica_id: int = -1,
) -> Kio:
    """Return kio's request of a version; topics are named by name or id as the version wants it."""
    schema = importlib.import_module(f"kio.schema.fetch.v{version}.request")
    fields: dict[str, Kio] = {
        "max_wait": timedelta(milliseconds=max_wait_ms),
        "min_bytes": min_bytes,
        "max_bytes": max_bytes,
        "isolation_level": isolation,
        "topics": tuple(_topics(schema, wants, version)),
    }
    if version >= 7:
        fields["session_id"], fields["session_epoch"] = session
        fields["forgotten_topics_data"] = tuple(
            schema.ForgottenTopic(partitions=(number,), **_named(topic, version)) for topic, number in forget
        )
    if version >= 15:
        fields["replica_state"] = schema.ReplicaState(replica_id=replica_id)
    else:
        fields["replica_id"] = replica_id
    return schema.FetchRequest(**fields)


def _topics(schema: Kio, wants: Iterable[Want], version: int) -> Iterable[Kio]:
    for topic, group in groupby(wants, key=lambda want: want.topic):
        partitions = tuple(_partition(schema, want, version) for want in group)
        yield schema.FetchTopic(partitions=partitions, **_named(topic, version))


def _partition(schema: Kio, want: Want, version: int) -> Kio:
    fields = {"partition": want.partition, "fetch_offset": want.offset, "partition_max_bytes": want.max_bytes}
    if version >= 9:
        fields["current_leader_epoch"] = want.epoch
    if version >= 12:
        fields["last_fetched_epoch"] = want.last_epoch
    return schema.FetchPartition(**fields)


def _named(topic: str | UUID, version: int) -> dict[str, Kio]:
    return {"topic_id" if version >= 13 else "topic": topic}


@dataclass
class OpenAuthorizer:
    """An ``Authorizer`` of a test: everything is allowed but what a test forbids."""

    forbidden: set[str] = field(default_factory=set)
    is_held: bool = False

    def may_describe_topic(self, principal: str, topic: str) -> bool:
        return self.may_read_topic(principal, topic)

    def may_read_topic(self, principal: str, topic: str) -> bool:
        del principal
        return topic not in self.forbidden

    def may_use_group(self, principal: str, group: str) -> bool:
        del principal, group
        return True

    def is_quarantined(self, context: RequestContext) -> bool:
        del context
        return self.is_held


@dataclass
class FixedQuotas:
    """Quotas of a test."""

    wait_ms: int = 0
    late_wait_ms: int = 0
    admitted_bytes: int = 0
    largest_bytes: int | None = None

    def throttle_ms(self, principal: str, now_s: float) -> int:
        del principal, now_s
        return self.wait_ms

    def admit(self, principal: str, size_bytes: int, now_s: float) -> int:
        del principal, now_s
        self.admitted_bytes += 0 if self.late_wait_ms else size_bytes
        return self.late_wait_ms

    def largest_answer_bytes(self, principal: str, now_s: float) -> int | None:
        del principal, now_s
        return self.largest_bytes


@dataclass
class Told:
    """One partition of an answer."""

    fields: Kio
    records: bytes

    @property
    def error(self) -> str:
        name: str = self.fields.error_code.name
        return name


class FetchEndpoint:
    """Fetch over fake logs, for one client or several."""

    def __init__(self, limits: FetchLimits | None = None, session_limits: FetchSessionLimits | None = None) -> None:
        self.served = FakeServedPartitions()
        self.authorizer = OpenAuthorizer()
        self.quotas = FixedQuotas()
        self.clock = ManualClock()
        self.budget = MemoryBudget(MEMORY_BYTES, share_bytes=SHARE_BYTES)
        self.closing = asyncio.Event()
        self.sessions = FetchSessionCache(session_limits or FetchSessionLimits(), new_id=count(1).__next__)
        handlers = fetch_handlers(
            self.served, self.authorizer, self.quotas, self.sessions, clock=self.clock, limits=limits or FetchLimits()
        )
        self._handle = handlers[FETCH]

    def context(self, version: int, *, principal: str = ANONYMOUS, connection_id: int = 1) -> RequestContext:
        return RequestContext(
            version=version,
            client_id="test",
            principal=principal,
            listener="plain",
            peer="127.0.0.1",
            connection_id=connection_id,
            memory=self.budget.share(),
            closing=self.closing,
        )

    async def ask(self, request: Kio, **circumstances: Kio) -> FetchAnswer:
        """Return the answer to a request; its memory is given back, as after sending it."""
        context = self.context(request.__version__, **circumstances)
        async with asyncio.timeout(_DEADLINE_S):
            answer = await self._handle(request, context)
        assert isinstance(answer, FetchAnswer)
        in_memory = sum(
            len(piece) for pieces in answer.records.values() for piece in pieces if isinstance(piece, bytes)
        )
        assert context.memory.size_bytes == in_memory, "an answer holds the memory of its records"
        context.memory.settle(0)
        return answer

    async def fetch(self, *wants: Want, **fields: Kio) -> dict[tuple[str | UUID, int], Told]:
        """Return the partitions of the answer to a request, in order."""
        return told(await self.ask(fetch_request(wants, **fields)))


def told(answer: FetchAnswer) -> dict[tuple[str | UUID, int], Told]:
    """Return the partitions of an answer, in order."""
    response: Kio = answer.response
    found = {}
    for at, topic in enumerate(response.responses):
        name = topic.topic_id if response.__version__ >= 13 else topic.topic
        for number, fields in enumerate(topic.partitions):
            assert fields.records == b""
            found[name, fields.partition_index] = Told(fields, content(answer.records.get((at, number), ())))
    return found


def content(pieces: Iterable[bytes | FileSlice]) -> bytes:
    """Return the bytes of pieces, as a client receives them."""
    return b"".join(piece if isinstance(piece, bytes) else _of_file(piece) for piece in pieces)


def _of_file(piece: FileSlice) -> bytes:
    with piece.path.open("rb") as file:
        file.seek(piece.position)
        return file.read(piece.size_bytes)


def errors(answers: Mapping[tuple[str | UUID, int], Told]) -> list[str]:
    """Return the errors of all partitions, in order."""
    return [each.error for each in answers.values()]
