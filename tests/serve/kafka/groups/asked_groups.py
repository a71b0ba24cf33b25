"""AskedGroups: the groups of one endpoint over a store and fakes, and consumers that ask it.

Requests and answers pass through kio's encoding on the way.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from itertools import count
from typing import Protocol, TypeVar
from uuid import UUID

from kio.index import load_request_schema, load_response_from_request
from kio.schema.errors import ErrorCode
from kio.schema.heartbeat.v4.request import HeartbeatRequest
from kio.schema.heartbeat.v4.response import HeartbeatResponse
from kio.schema.join_group.v9.request import JoinGroupRequest, JoinGroupRequestProtocol
from kio.schema.join_group.v9.response import JoinGroupResponse
from kio.schema.leave_group.v5.request import LeaveGroupRequest, MemberIdentity
from kio.schema.leave_group.v5.response import LeaveGroupResponse
from kio.schema.offset_commit.v9.request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kio.schema.offset_commit.v9.response import OffsetCommitResponse
from kio.schema.offset_fetch.v9.request import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from kio.schema.offset_fetch.v9.response import OffsetFetchResponse
from kio.schema.sync_group.v5.request import SyncGroupRequest, SyncGroupRequestAssignment
from kio.schema.sync_group.v5.response import SyncGroupResponse
from kio.schema.types import GroupId, TopicName
from kio.serial import entity_reader
from kio.static.primitive import i32, i32Timedelta, i64
from kio.static.protocol import Entity, RequestPayload, ResponsePayload

from tests.fakes.manual_clock import ManualClock
from tests.fakes.served_partitions import FIRST_NODE, FakeServedPartitions
from tests.serve.kafka.answers.asking import HidingAuthorizer
from tests.serve.kafka.contexts import request_context
from tests.serve.kafka.kio_messages import encoded
from tierd.metadata import KeyValueStore, MetadataKeyFactory
from tierd.serve.kafka.groups import ConsumerGroups, CoordinationLimits, Placement
from tierd.serve.kafka.message_versions import in_version
from tierd.serve.kafka.request_context import ANONYMOUS, RequestContext
from tierd.serve.kafka.served.served_cluster import EndpointNode

KEYS = MetadataKeyFactory("cluster")
GROUP = "readers"
TOPIC = "orders"
_TURNS = 60  # of the event loop, in which everything that needs no time comes to rest
_ids = count(1)

E = TypeVar("E", bound=Entity)
R = TypeVar("R", bound=ResponsePayload)


class GroupsAuthorizer(HidingAuthorizer):
    """An ``Authorizer`` of a test that hides groups as well.

    Attributes:
        forbidden_groups: that may not be used.
        quarantined: principals that are held back.
    """

    def __init__(self) -> None:
        super().__init__()
        self.forbidden_groups = set[str]()
        self.quarantined = set[str]()

    def may_use_group(self, principal: str, group: str) -> bool:
        del principal
        return group not in self.forbidden_groups

    def is_quarantined(self, context: RequestContext) -> bool:
        return context.principal in self.quarantined


class AskedGroups:
    """Groups of one endpoint.

    Attributes:
        served: topics and live endpoints; the topic ``orders`` has four partitions.
        authorizer: of the endpoint.
        clock: moves by ``pass_time`` only.
        groups: runs inside ``running``.
        closing: of all requests.
    """

    def __init__(
        self,
        store: KeyValueStore,
        *,
        clock: ManualClock | None = None,
        limits: CoordinationLimits | None = None,
        nodes: Sequence[EndpointNode] = (FIRST_NODE,),
    ) -> None:
        self.served = FakeServedPartitions(nodes)
        self.served.add_topic(TOPIC, partitions=4)
        self.authorizer = GroupsAuthorizer()
        self.clock = clock or ManualClock()
        self.groups = ConsumerGroups(
            store,
            KEYS,
            Placement(self.served, listener="plain"),
            limits or CoordinationLimits(),
            clock=self.clock,
            new_id=lambda: UUID(int=next(_ids)),
        )
        self.handlers = self.groups.handlers(self.served, self.authorizer)
        self.closing = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    @asynccontextmanager
    async def running(self) -> AsyncIterator["AskedGroups"]:
        """Run the groups; at the end they are cancelled, as when the daemon is killed."""
        task = self._task = asyncio.create_task(self.groups.run())
        try:
            await settle()
            yield self
        finally:
            await self.kill()
            assert task.cancelled(), task

    async def kill(self) -> None:
        """End at once, whatever is under way."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def pass_time(self, delay_s: float, *, step_s: float = 1.0) -> None:
        """Move the clock on in steps, and let all tasks come to rest after each."""
        await settle()
        while delay_s > 0:
            self.clock.advance(min(step_s, delay_s))
            delay_s -= step_s
            await settle()

    async def ask(
        self, request: RequestPayload, *, client_id: str = "client", principal: str = ANONYMOUS
    ) -> ResponsePayload:
        """Return the answer to a request, as a client decodes it."""
        received = _through_the_wire(request)
        context = request_context(version=int(request.__version__), principal=principal)
        context = replace(context, client_id=client_id, closing=self.closing)
        answer = await self.handlers[request.__api_key__](received, context)
        assert type(answer) is load_response_from_request(request)
        return _through_the_wire(answer)

    async def answer(
        self,
        request: RequestPayload,
        response: type[R],
        *,
        version: int | None = None,
        client_id: str = "client",
        principal: str = ANONYMOUS,
    ) -> R:
        """Ask in a version, that of ``request`` unless it is given; return the answer as a ``response``."""
        wanted = request if version is None else in_version(request, load_request_schema(request.__api_key__, version))
        return in_version(await self.ask(wanted, client_id=client_id, principal=principal), response)

    async def committed(self, *partitions: int, group: str = GROUP, topic: str = TOPIC) -> dict[int, int]:
        """Return the committed offsets of partitions; -1 where there is none."""
        wanted = OffsetFetchRequestTopics(
            name=TopicName(topic), partition_indexes=tuple(map(i32, partitions or range(4)))
        )
        request = OffsetFetchRequest(groups=(OffsetFetchRequestGroup(group_id=GroupId(group), topics=(wanted,)),))
        answer = (await self.answer(request, OffsetFetchResponse)).groups[0]
        if answer.error_code:
            raise GroupAnswerError(answer.error_code)
        return {each.partition_index: each.committed_offset for each in answer.topics[0].partitions}


class AskedEndpoint(Protocol):
    """An endpoint that consumers ask: ``AskedGroups``, or a connection."""

    async def answer(
        self, request: RequestPayload, response: type[R], *, version: int | None = None, client_id: str = "client"
    ) -> R:
        """Return the answer to a request, as a ``response``."""


class GroupAnswerError(Exception):
    """An answer with an error code."""

    def __init__(self, error: ErrorCode) -> None:
        super().__init__(error.name)
        self.error = error


class FakeConsumer:
    """One client of a group.

    Attributes:
        endpoint: that it asks; a test may move it.
        member_id: as it was told last.
        generation: the same; -1 outside the group.
    """

    def __init__(
        self, endpoint: AskedEndpoint, name: str = "alice", *, group: str = GROUP, instance_id: str | None = None
    ) -> None:
        self.endpoint = endpoint
        self.name = name
        self.group = group
        self.instance_id = instance_id
        self.member_id = ""
        self.generation = -1
        self.joined: JoinGroupResponse | None = None

    async def join(self, *, version: int = 9, session_s: float = 10.0, is_patient: bool = True) -> ErrorCode:
        """Join; with ``is_patient``, again with the member id that the first answer gave."""
        request = JoinGroupRequest(
            group_id=GroupId(self.group),
            session_timeout=_timeout(session_s),
            rebalance_timeout=_timeout(60.0),
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            protocol_type="consumer",
            protocols=(JoinGroupRequestProtocol(name="range", metadata=b"\0\0\0\0\0\1\0\6orders\xff\xff\xff\xff"),),
            reason="a test",
        )
        answer = await self.endpoint.answer(request, JoinGroupResponse, version=version, client_id=self.name)
        self.joined = answer
        if answer.error_code is ErrorCode.member_id_required:
            self.member_id = answer.member_id
            if is_patient:
                return await self.join(version=version, session_s=session_s)
        if answer.error_code is ErrorCode.none:
            self.member_id, self.generation = answer.member_id, answer.generation_id
        return answer.error_code

    async def sync(self, assignments: dict[str, bytes] | None = None, *, version: int = 5) -> bytes:
        """Return the assignment."""
        request = SyncGroupRequest(
            group_id=GroupId(self.group),
            generation_id=i32(self.generation),
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            protocol_type="consumer",
            protocol_name="range",
            assignments=tuple(
                SyncGroupRequestAssignment(member_id=each, assignment=data)
                for each, data in (assignments or {}).items()
            ),
        )
        answer = await self.endpoint.answer(request, SyncGroupResponse, version=version)
        if answer.error_code:
            raise GroupAnswerError(answer.error_code)
        return answer.assignment

    async def beat(self, *, version: int = 4) -> ErrorCode:
        """Send a heartbeat."""
        request = HeartbeatRequest(
            group_id=GroupId(self.group),
            generation_id=i32(self.generation),
            member_id=self.member_id,
            group_instance_id=self.instance_id,
        )
        return (await self.endpoint.answer(request, HeartbeatResponse, version=version)).error_code

    async def leave(self, *, version: int = 5) -> ErrorCode:
        """Leave the group."""
        member = MemberIdentity(member_id=self.member_id, group_instance_id=self.instance_id, reason="a test")
        request = LeaveGroupRequest(group_id=GroupId(self.group), members=(member,))
        answer = await self.endpoint.answer(request, LeaveGroupResponse, version=version)
        return answer.error_code or answer.members[0].error_code

    async def commit(
        self, offset: int, *, partition: int = 0, topic: str = TOPIC, metadata: str | None = "", version: int = 9
    ) -> ErrorCode:
        """Commit the offset of one partition."""
        wanted = OffsetCommitRequestPartition(
            partition_index=i32(partition), committed_offset=i64(offset), committed_metadata=metadata
        )
        request = OffsetCommitRequest(
            group_id=GroupId(self.group),
            generation_id_or_member_epoch=i32(self.generation),
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            topics=(OffsetCommitRequestTopic(name=TopicName(topic), partitions=(wanted,)),),
        )
        answer = await self.endpoint.answer(request, OffsetCommitResponse, version=version)
        return answer.topics[0].partitions[0].error_code


async def settle() -> None:
    """Let all tasks run until they wait for time, for another request, or for a store that hangs."""
    for _ in range(_TURNS):
        await asyncio.sleep(0)


async def become_stable(*consumers: FakeConsumer, endpoint: AskedGroups) -> None:
    """Bring new consumers of one group to their first assignments; the first one leads."""
    joins = []
    for each in consumers:
        joins.append(asyncio.create_task(each.join()))
        await settle()
    await endpoint.pass_time(6.0)
    assert [await join for join in joins] == [ErrorCode.none] * len(joins)
    assignments = {each.member_id: each.name.encode() for each in consumers}
    for each in consumers:
        assert await each.sync(assignments) == each.name.encode()


def _timeout(duration_s: float) -> i32Timedelta:
    return i32Timedelta.parse(timedelta(seconds=duration_s))


def _through_the_wire(message: E) -> E:
    content = encoded(message)
    decoded, end = entity_reader(type(message))(content, 0)
    assert end == len(content)
    return decoded
