"""ScriptedBroker: a broker in the test's own event loop, with answers and faults of the test's choice."""

import asyncio
import contextlib
import io
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from uuid import UUID

from kio.schema.api_versions.v3.response import ApiVersion, ApiVersionsResponse
from kio.schema.describe_configs.v4 import DescribeConfigsRequest, DescribeConfigsResponse
from kio.schema.describe_configs.v4.response import DescribeConfigsResourceResult, DescribeConfigsResult
from kio.schema.errors import ErrorCode
from kio.schema.incremental_alter_configs.v1 import IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse
from kio.schema.incremental_alter_configs.v1.request import AlterConfigsResource
from kio.schema.incremental_alter_configs.v1.response import AlterConfigsResourceResponse
from kio.schema.metadata.v12 import MetadataRequest, MetadataResponse
from kio.schema.metadata.v12.response import (
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from kio.schema.request_header.v2 import RequestHeader
from kio.schema.types import BrokerId, TopicName
from kio.serial import entity_reader, entity_writer
from kio.static.primitive import i8, i16, i32, i32Timedelta
from kio.static.protocol import Entity

from tierd.control.cluster_metadata import BrokerAddress

CLUSTER_ID = "dGllcmQtdGVzdGtpdC0wMQ"
_NO_THROTTLE = i32Timedelta.parse(timedelta(0))
Leaders = Mapping[int, tuple[int, int]]
"""Partition to (leader, leader epoch)."""


def encoded(message: Entity) -> bytes:
    """Return the bytes of a message."""
    buffer = io.BytesIO()
    entity_writer(type(message))(buffer, message)
    return buffer.getvalue()


def metadata_response(
    topics: Mapping[UUID, Leaders | ErrorCode],
    *,
    brokers: Mapping[int, BrokerAddress] | None = None,
    cluster_id: str | None = CLUSTER_ID,
) -> MetadataResponse:
    """Build an answer to a Metadata request; a topic with an error code has no partitions."""
    return MetadataResponse(
        throttle_time=_NO_THROTTLE,
        brokers=tuple(
            MetadataResponseBroker(node_id=BrokerId(node), host=each.host, port=i32(each.port))
            for node, each in (brokers or {}).items()
        ),
        cluster_id=cluster_id,
        topics=tuple(_topic(topic_id, what) for topic_id, what in topics.items()),
    )


def _topic(topic_id: UUID, what: Leaders | ErrorCode) -> MetadataResponseTopic:
    if isinstance(what, ErrorCode):
        return MetadataResponseTopic(error_code=what, name=None, topic_id=topic_id, partitions=())
    return MetadataResponseTopic(
        error_code=ErrorCode.none,
        name=TopicName(f"topic-{topic_id.int}"),
        topic_id=topic_id,
        partitions=tuple(
            MetadataResponsePartition(
                error_code=ErrorCode.none if leader >= 0 else ErrorCode.leader_not_available,
                partition_index=i32(partition),
                leader_id=BrokerId(leader),
                leader_epoch=i32(epoch),
                replica_nodes=(BrokerId(1), BrokerId(2), BrokerId(3)),
                isr_nodes=(BrokerId(1), BrokerId(2)),
            )
            for partition, (leader, epoch) in what.items()
        ),
    )


@dataclass(slots=True)
class ScriptedBroker:
    """Broker whose answers and faults a test sets.

    Attributes:
        topics: topics of its metadata; any other topic id is unknown to the broker.
        brokers: brokers of its metadata; itself by default.
        configs: topic to settings; others are unknown. All of them are the topic's own, and requests may change them.
        defaults: settings of every known topic that has no own value for them.
        refuses_changes: error that every change of settings gets.
        versions: API key to the versions that the broker claims.
        spoil: function that changes the bytes of every later answer; None closes the connection instead.
        is_silent: True for a broker that reads, and never answers.
        requests: (API key, topics asked for) of every request that the broker has read.
    """

    node_id: int = 1
    cluster_id: str | None = CLUSTER_ID
    topics: dict[UUID, Leaders | ErrorCode] = field(default_factory=dict)
    brokers: dict[int, BrokerAddress] = field(default_factory=dict)
    configs: dict[str, dict[str, str]] = field(default_factory=dict)
    defaults: Mapping[str, str] = field(default_factory=dict)
    refuses_changes: ErrorCode = ErrorCode.none
    versions: dict[int, tuple[int, int]] = field(
        default_factory=lambda: {3: (0, 13), 17: (0, 1), 18: (0, 4), 32: (1, 4), 36: (0, 2), 44: (0, 1)}
    )
    spoil: Callable[[bytes], bytes | None] = lambda answer: answer
    is_silent: bool = False
    requests: list[tuple[int, int]] = field(default_factory=list)
    address: BrokerAddress = field(default_factory=lambda: BrokerAddress("127.0.0.1", 0))
    connections: int = 0
    _writers: set[asyncio.StreamWriter] = field(default_factory=set)
    _serving: set[asyncio.Task[object]] = field(default_factory=set)

    @contextlib.asynccontextmanager
    async def listening(self) -> AsyncIterator[str]:
        """Serve until the block ends; yield host:port."""
        server = await asyncio.start_server(self._serve, "127.0.0.1", self.address.port)
        port = server.sockets[0].getsockname()[1]
        self.address = BrokerAddress("127.0.0.1", port, self.node_id)
        self.brokers.setdefault(self.node_id, self.address)
        try:
            yield f"127.0.0.1:{port}"
        finally:
            server.close()
            await asyncio.sleep(0)  # a connection that was just accepted gets its task
            self.drop_connections()
            if self._serving:
                await asyncio.wait(self._serving)
            await server.wait_closed()

    def drop_connections(self) -> None:
        """Reset every connection."""
        for writer in self._writers:
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        task = asyncio.current_task()
        assert task is not None, "the server runs this function in a task"
        self._serving.add(task)
        self._writers.add(writer)
        try:
            while True:
                size = int.from_bytes(await reader.readexactly(4), "big")
                answer = self.spoil(await self._answered(await reader.readexactly(size)))
                if answer is None:
                    break
                if not self.is_silent:
                    writer.write(answer)
                    await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError, OSError):
            pass
        finally:
            self._writers.discard(writer)
            self._serving.discard(task)
            writer.transport.abort()

    async def _answered(self, request: bytes) -> bytes:
        return self._framed(request)

    def _framed(self, request: bytes) -> bytes:
        header, at = entity_reader(RequestHeader)(request, 0)
        body = header.correlation_id.to_bytes(4, "big") + self._answer(header.request_api_key, request, at)
        return len(body).to_bytes(4, "big") + body

    def _answer(self, api_key: int, request: bytes, at: int) -> bytes:
        match api_key:
            case 18:
                self.requests.append((18, 0))
                return encoded(self._versions())
            case 3:
                asked = entity_reader(MetadataRequest)(request, at)[0].topics or ()
                self.requests.append((3, len(asked)))
                known = {
                    t.topic_id: self.topics.get(t.topic_id, ErrorCode.unknown_topic_id) for t in asked if t.topic_id
                }
                return b"\0" + encoded(metadata_response(known, brokers=self.brokers, cluster_id=self.cluster_id))
            case 32:
                wanted = entity_reader(DescribeConfigsRequest)(request, at)[0].resources
                self.requests.append((32, len(wanted)))
                return b"\0" + encoded(self._configs([each.resource_name for each in wanted]))
            case 44:
                changed = entity_reader(IncrementalAlterConfigsRequest)(request, at)[0].resources
                self.requests.append((44, len(changed)))
                return b"\0" + encoded(
                    IncrementalAlterConfigsResponse(
                        throttle_time=_NO_THROTTLE, responses=tuple(self._changed(each) for each in changed)
                    )
                )
            case _:
                raise AssertionError(f"a scripted broker has no answer for {api_key}")

    def _versions(self) -> ApiVersionsResponse:
        keys = tuple(
            ApiVersion(api_key=i16(key), min_version=i16(low), max_version=i16(high))
            for key, (low, high) in self.versions.items()
        )
        return ApiVersionsResponse(error_code=ErrorCode.none, api_keys=keys, throttle_time=_NO_THROTTLE)

    def _changed(self, resource: AlterConfigsResource) -> AlterConfigsResourceResponse:
        own = self.configs.get(resource.resource_name)
        error = self.refuses_changes if own is not None else ErrorCode.unknown_topic_or_partition
        if own is not None and error is ErrorCode.none:
            for each in resource.configs:
                if each.config_operation == 0 and each.value is not None:
                    own[each.name] = each.value
                else:
                    own.pop(each.name, None)
        return AlterConfigsResourceResponse(
            error_code=error, error_message=None, resource_type=i8(2), resource_name=resource.resource_name
        )

    def _configs(self, topics: list[str]) -> DescribeConfigsResponse:
        return DescribeConfigsResponse(
            throttle_time=_NO_THROTTLE, results=tuple(self._config(topic) for topic in topics)
        )

    def _config(self, topic: str) -> DescribeConfigsResult:
        known = self.configs.get(topic)
        told = {} if known is None else {**self.defaults, **known}
        return DescribeConfigsResult(
            error_code=ErrorCode.none if known is not None else ErrorCode.unknown_topic_or_partition,
            error_message=None,
            resource_type=i8(2),
            resource_name=topic,
            configs=tuple(
                DescribeConfigsResourceResult(
                    name=name,
                    value=value,
                    read_only=False,
                    config_source=i8(1 if known is not None and name in known else 5),
                    is_sensitive=False,
                    synonyms=(),
                    documentation=None,
                )
                for name, value in told.items()
            ),
        )
