"""The endpoint and a real broker are asked the same, and answer the same: every version, reads and refusals.

The broker's client has the rights of a reader: the writes that the endpoint refuses are refused by the broker, too.
"""

from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from kio.index import load_request_schema
from kio.schema.api_versions.v4.request import ApiVersionsRequest
from kio.schema.api_versions.v4.response import ApiVersionsResponse
from kio.schema.describe_cluster.v2.request import DescribeClusterRequest
from kio.schema.describe_configs.v4.request import DescribeConfigsRequest, DescribeConfigsResource
from kio.schema.describe_topic_partitions.v0.request import (
    Cursor,
    DescribeTopicPartitionsRequest,
    TopicRequest,
)
from kio.schema.list_offsets.v11.request import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from kio.schema.metadata.v13.request import MetadataRequest, MetadataRequestTopic
from kio.schema.offset_for_leader_epoch.v4.request import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from kio.schema.types import BrokerId, TopicName
from kio.static.primitive import i8, i32, i32Timedelta, i64
from kio.static.protocol import RequestPayload

from tests.fakes.served_partitions import FakeServedPartitions
from tests.serve.kafka.answers.asking import AskedEndpoint, versions
from tests.serve.kafka.answers.raw_client import RawClient
from tests.serve.kafka.kio_messages import sample
from tests.services.kafka_records import SentRecord
from tests.services.secure_kafka import PASSWORD, USER, SecureKafka, add_users, secure_kafka
from tierd.serve.kafka.answers.refusals import REFUSED_APIS
from tierd.serve.kafka.message_versions import in_version
from tierd.serve.kafka.served.served_cluster import EndpointNode

pytestmark = pytest.mark.service("kafka")

_TIMES_MS = (1_000, 3_000, 2_000)
_NAMES = ("orders", "secret", "absent", "not a name")
_ANY_DIFFERENCE = frozenset(
    {"throttle_time", "cluster_id", "cluster_authorized_operations", "error_message", "log_start_offset"}
)
_NOT_FOR_CLIENTS = {22: 6, 24: 4}
"""API key to the first version of InitProducerId that is not stable yet, of AddPartitionsToTxn that brokers send."""


@dataclass(frozen=True)
class Pair:
    """A broker's client, and an endpoint that serves the same topics."""

    client: RawClient
    endpoint: AskedEndpoint
    topic_ids: tuple[UUID, UUID]

    async def both(self, request: RequestPayload) -> tuple[object, object]:
        """Return what the endpoint and the broker answer, without what may differ."""
        return _compared(await self.endpoint.ask(request)), _compared(await self.client.ask(request))


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory, kafka_jars: Callable[[str], str]) -> Iterator[SecureKafka]:
    """Start a broker with a topic that ``USER`` may read, and one that it may not see."""
    secured = secure_kafka(tmp_path_factory.mktemp("secure"), kafka_jars("4.3.1"))
    with secured.broker as broker:
        for name in _NAMES[:2]:
            broker.create_topic(name, partitions=2, configs={"retention.ms": "-1"})
        with broker.producer() as producer:
            for timestamp_ms in _TIMES_MS:
                record = SentRecord(key=None, value=b"value", timestamp_ms=timestamp_ms)
                producer.send("orders", 0, [record])
                producer.flush()
        add_users(secured, ["orders", "absent", "not a name"])
        broker.allow(USER, "orders", ("READ",))
        yield secured


@pytest.fixture
async def pair(kafka: SecureKafka) -> AsyncIterator[Pair]:
    """Connect to the broker, and serve the same beside it."""
    address = kafka.broker.listeners["LOGIN"]
    host, _, port = address.rpartition(":")
    endpoint = AskedEndpoint()
    endpoint.served.set_nodes(EndpointNode(1, host, int(port)))
    endpoint.authorizer.hidden.add("secret")
    endpoint.authorizer.unreadable |= {"absent", "not a name"}
    topic_ids = kafka.broker.topic_id("orders"), kafka.broker.topic_id("secret")
    for name, topic_id in zip(_NAMES, topic_ids, strict=False):
        endpoint.served.add_topic(name, partitions=2, topic_id=topic_id, settings={"retention.ms": "-1"})
    _fill(endpoint.served)
    async with RawClient.logged_in(address, user=USER, password=PASSWORD) as client:
        yield Pair(client, endpoint, topic_ids)


def _fill(served: FakeServedPartitions) -> None:
    log = served.fake_log("orders")
    for timestamp_ms in _TIMES_MS:
        log.append(timestamp_ms=timestamp_ms)
    empty = served.fake_log("orders", 1)
    empty.lineage = empty.lineage.assign(epoch=0, start_offset=0)  # a broker notes its epoch before the first record


def _compared(message: Any) -> object:  # noqa: ANN401 - messages of any kind
    """Return a message as nested mappings without fields that may differ, arrays in an order of their own."""
    if isinstance(message, tuple):
        return sorted((_compared(each) for each in message), key=repr)
    if not is_dataclass(message):
        return message
    return {
        each.name: _compared(getattr(message, each.name))
        for each in fields(message)
        if each.name not in _ANY_DIFFERENCE
    }


def _of_every_version(request: RequestPayload, *, first: int = 0) -> Iterator[RequestPayload]:
    for version in versions(request.__api_key__):
        if version >= first:
            yield in_version(request, load_request_schema(request.__api_key__, version))


def _named(names: Sequence[str]) -> tuple[MetadataRequestTopic, ...]:
    return tuple(MetadataRequestTopic(topic_id=None, name=TopicName(name)) for name in names)


def _metadata(topics: tuple[MetadataRequestTopic, ...] | None, *, operations: bool = False) -> MetadataRequest:
    return MetadataRequest(
        topics=topics, allow_auto_topic_creation=False, include_topic_authorized_operations=operations
    )


async def test_metadata_is_answered_as_by_a_broker(pair: Pair) -> None:
    for request in _of_every_version(_metadata(_named(_NAMES))):
        ours, theirs = await pair.both(request)
        assert ours == theirs, request
    for request in _of_every_version(_metadata((), operations=True)):
        ours, theirs = await pair.both(request)
        assert ours == theirs, request
    for request in _of_every_version(_metadata(None), first=1):
        ours, theirs = await pair.both(request)
        assert ours == theirs, request
    for request in _of_every_version(_metadata(_named(["orders"]), operations=True), first=8):
        ours, theirs = await pair.both(request)
        assert ours == theirs, request


async def test_metadata_by_id_is_answered_as_by_a_broker(pair: Pair) -> None:
    by_id = tuple(MetadataRequestTopic(topic_id=each, name=None) for each in (*pair.topic_ids, UUID(int=5)))
    for request in _of_every_version(_metadata(by_id), first=10):
        if request.__version__ >= 12:
            ours, theirs = await pair.both(request)
            assert ours == theirs, request


async def test_cluster_is_described_as_by_a_broker(pair: Pair) -> None:
    for kind in (1, 2, 3):
        wanted = DescribeClusterRequest(
            include_cluster_authorized_operations=False, endpoint_type=i8(kind), include_fenced_brokers=False
        )
        for request in _of_every_version(wanted, first=0 if kind == 1 else 1):
            ours, theirs = await pair.both(request)
            assert ours == theirs, request


async def test_topic_partitions_are_described_as_by_a_broker(pair: Pair) -> None:
    everything = tuple(TopicRequest(name=TopicName(name)) for name in _NAMES)
    for topics in ((), everything):
        for limit in (2000, 1):
            for at in (None, 1):
                request = DescribeTopicPartitionsRequest(
                    topics=topics,
                    response_partition_limit=i32(limit),
                    cursor=None if at is None else Cursor(topic_name=TopicName("orders"), partition_index=i32(at)),
                )
                ours, theirs = await pair.both(request)
                assert ours == theirs, request


async def test_settings_of_topics_are_described_as_by_a_broker(pair: Pair) -> None:
    resources = tuple(
        DescribeConfigsResource(resource_type=i8(2), resource_name=name, configuration_keys=("retention.ms",))
        for name in ("orders", "secret", "absent", "not a name")
    )
    wanted = DescribeConfigsRequest(resources=resources, include_synonyms=False, include_documentation=False)
    for request in _of_every_version(wanted):
        ours, theirs = await pair.both(request)
        # The endpoint's settings cannot be changed.
        assert ours == _with_values(theirs, read_only=True), request


def _with_values(compared: object, **values: object) -> object:
    if isinstance(compared, list):
        return [_with_values(each, **values) for each in compared]
    if not isinstance(compared, dict):
        return compared
    return {name: values.get(name, _with_values(each, **values)) for name, each in compared.items()}


async def test_offsets_are_listed_as_by_a_broker(pair: Pair) -> None:
    # Not -6: the broker's topic is not tiered, and has no record that waits for its upload.
    places = (-1, -2, -3, -4, -5, -7, 0, 1_001, 3_000, 3_001)
    partitions = {"orders": (0, 1, 2), "secret": (0,), "absent": (0,)}
    for timestamp in places:
        wanted = ListOffsetsRequest(
            replica_id=BrokerId(-1),
            isolation_level=i8(1),
            topics=tuple(_offsets_of(topic, numbers, timestamp) for topic, numbers in partitions.items()),
            timeout=i32Timedelta.parse(timedelta(0)),
        )
        for request in _of_every_version(wanted):
            ours, theirs = await pair.both(request)
            assert ours == theirs, request


def _offsets_of(topic: str, numbers: Sequence[int], timestamp: int, *, epoch: int = -1) -> ListOffsetsTopic:
    partitions = tuple(
        ListOffsetsPartition(partition_index=i32(number), current_leader_epoch=i32(epoch), timestamp=i64(timestamp))
        for number in numbers
    )
    return ListOffsetsTopic(name=TopicName(topic), partitions=partitions)


async def test_other_leader_epochs_are_fenced_as_by_a_broker(pair: Pair) -> None:
    for epoch in (0, 1):
        wanted = ListOffsetsRequest(
            replica_id=BrokerId(-1),
            isolation_level=i8(0),
            topics=(_offsets_of("orders", (0,), -1, epoch=epoch),),
            timeout=i32Timedelta.parse(timedelta(0)),
        )
        for request in _of_every_version(wanted, first=4):
            ours, theirs = await pair.both(request)
            assert ours == theirs, request


async def test_ends_of_epochs_are_answered_as_by_a_broker(pair: Pair) -> None:
    partitions = {"orders": ((0, 0), (1, 0), (2, 0)), "secret": ((0, 0),), "absent": ((0, 0),)}
    wanted = OffsetForLeaderEpochRequest(
        replica_id=BrokerId(-1),
        topics=tuple(
            OffsetForLeaderTopic(
                topic=TopicName(topic),
                partitions=tuple(
                    OffsetForLeaderPartition(partition=i32(number), leader_epoch=i32(epoch))
                    for number, epoch in wanted_ends
                ),
            )
            for topic, wanted_ends in partitions.items()
        ),
    )
    for request in _of_every_version(wanted):
        ours, theirs = await pair.both(request)
        assert ours == theirs, request
    beyond = replace(
        wanted,
        topics=(
            OffsetForLeaderTopic(
                topic=TopicName("orders"),
                partitions=(OffsetForLeaderPartition(partition=i32(0), leader_epoch=i32(1)),),
            ),
        ),
    )
    ours, theirs = await pair.both(beyond)
    assert ours == theirs


@pytest.mark.parametrize("api_key", sorted(REFUSED_APIS - {29}))  # the endpoint has no ACLs to describe
async def test_writes_are_refused_as_by_a_broker_to_a_reader(pair: Pair, api_key: int) -> None:
    for version in versions(api_key):
        if version >= _NOT_FOR_CLIENTS.get(api_key, 99):
            continue
        request = _write(api_key, version, pair)
        ours, theirs = await pair.both(request)
        assert _codes(ours) == _codes(theirs), request


def _write(api_key: int, version: int, pair: Pair) -> Any:  # noqa: ANN401 - requests of any kind
    """Return a request that a reader may not make, on the topic that it may read."""
    found = sample(load_request_schema(api_key, version))
    if api_key in {0, 22}:
        found = replace(found, transactional_id=None)
    if api_key == 0:
        found = replace(found, acks=-1)
    return _on_orders(found, pair)


def _on_orders(message: Any, pair: Pair) -> Any:  # noqa: ANN401 - messages of any kind
    """Return a message with the real topic and a known type in the place of those of the sample."""
    values = {each.name: getattr(message, each.name) for each in fields(message)}
    for name, value in values.items():
        if isinstance(value, tuple):
            values[name] = tuple(_on_orders(each, pair) if is_dataclass(each) else each for each in value)
    known = {"topic_id": pair.topic_ids[0], "resource_type": 2, "resource_type_filter": 2, "partition_index": 0}
    if message.__api_key__ == 20:
        known["topic_id"] = None  # DeleteTopics has a name or an id
    values |= {name: value for name, value in known.items() if name in values}
    return type(message)(**values)


def _codes(compared: object) -> set[object]:
    if isinstance(compared, list):
        return set().union(*(_codes(each) for each in compared))
    if not isinstance(compared, dict):
        return set()
    own = {value for name, value in compared.items() if name.endswith("error_code")}
    return own.union(*(_codes(value) for value in compared.values()))


async def test_versions_on_offer_are_ones_that_brokers_have(pair: Pair) -> None:
    request = ApiVersionsRequest(client_software_name="client", client_software_version="1")
    theirs = await pair.client.ask(request)
    ours = await pair.endpoint.answer(request, ApiVersionsResponse)
    assert isinstance(theirs, ApiVersionsResponse)
    offered = {each.api_key: range(each.min_version, each.max_version + 1) for each in theirs.api_keys}
    for each in ours.api_keys:
        assert offered[each.api_key][0] <= each.min_version <= each.max_version, each
        is_newer = each.max_version > offered[each.api_key][-1]
        assert not is_newer or each.max_version >= _NOT_FOR_CLIENTS[each.api_key], each
