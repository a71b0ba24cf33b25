"""Answers to Metadata."""

from uuid import UUID

import pytest
from kio.schema.errors import ErrorCode
from kio.schema.metadata import v8, v11, v12
from kio.schema.metadata.v8 import request as v8_request
from kio.schema.metadata.v11 import request as v11_request
from kio.schema.metadata.v13.request import MetadataRequest, MetadataRequestTopic
from kio.schema.metadata.v13.response import MetadataResponse, MetadataResponseTopic
from kio.schema.types import TopicName

from tests.fakes.served_partitions import CLUSTER_ID, FIRST_NODE, SECOND_NODE
from tests.serve.kafka.answers.asking import AskedEndpoint, versions

_DESCRIBE, _READ, _DESCRIBE_CONFIGS = 1 << 8, 1 << 3, 1 << 10
_NOT_ASKED = -(2**31)


def _named(*names: str, operations: bool = False) -> MetadataRequest:
    topics = tuple(MetadataRequestTopic(topic_id=None, name=TopicName(name)) for name in names)
    return MetadataRequest(topics=topics, include_topic_authorized_operations=operations)


def _by_id(*topic_ids: UUID) -> MetadataRequest:
    topics = tuple(MetadataRequestTopic(topic_id=topic_id, name=None) for topic_id in topic_ids)
    return MetadataRequest(topics=topics, include_topic_authorized_operations=False)


_ALL = MetadataRequest(topics=None, include_topic_authorized_operations=False)


@pytest.fixture
def endpoint() -> AskedEndpoint:
    endpoint = AskedEndpoint()
    endpoint.served.add_topic("orders", partitions=3, topic_id=UUID(int=7), leader_epoch=5)
    endpoint.served.add_topic("payments", topic_id=UUID(int=8))
    return endpoint


async def _metadata(
    endpoint: AskedEndpoint, request: MetadataRequest, *, version: int | None = None
) -> MetadataResponse:
    return await endpoint.answer(request, MetadataResponse, version=version)


async def _only_topic(endpoint: AskedEndpoint, request: MetadataRequest, *, version: int) -> MetadataResponseTopic:
    (topic,) = (await _metadata(endpoint, request, version=version)).topics
    return topic


@pytest.mark.parametrize("version", versions(3))
class TestEveryVersion:
    async def test_answer_names_the_endpoints_alone(self, endpoint: AskedEndpoint, version: int) -> None:
        answer = await _metadata(endpoint, _named("orders"), version=version)
        nodes = [(each.node_id, each.host, each.port) for each in answer.brokers]
        assert nodes == [(each.node_id, each.host, each.port) for each in (FIRST_NODE, SECOND_NODE)]
        if version >= 1:
            assert [each.rack for each in answer.brokers] == ["rack-a", None]
            assert answer.controller_id == FIRST_NODE.node_id
        if version >= 2:
            assert answer.cluster_id == CLUSTER_ID

    async def test_partitions_have_their_endpoint_as_the_only_replica(
        self, endpoint: AskedEndpoint, version: int
    ) -> None:
        topic = await _only_topic(endpoint, _named("orders"), version=version)
        assert topic.error_code is ErrorCode.none
        assert topic.topic_id == (UUID(int=7) if version >= 10 else None)
        assert [each.partition_index for each in topic.partitions] == [0, 1, 2]
        assert [each.leader_id for each in topic.partitions] == [1, 2, 1]
        for each in topic.partitions:
            assert each.error_code is ErrorCode.none
            assert each.leader_epoch == (5 if version >= 7 else -1)
            assert each.replica_nodes == each.isr_nodes == (each.leader_id,)
            assert each.offline_replicas == ()

    async def test_all_topics_are_those_that_the_client_may_see(self, endpoint: AskedEndpoint, version: int) -> None:
        endpoint.authorizer.hidden.add("payments")
        request = _ALL if version >= 1 else _named()
        answer = await _metadata(endpoint, request, version=version)
        assert [each.name for each in answer.topics] == ["orders"]

    async def test_empty_list_of_topics_asks_for_none_but_in_version_0(
        self, endpoint: AskedEndpoint, version: int
    ) -> None:
        answer = await _metadata(endpoint, _named(), version=version)
        assert [each.name for each in answer.topics] == (["orders", "payments"] if version == 0 else [])

    @pytest.mark.parametrize(
        ("name", "code"),
        [
            ("absent", ErrorCode.unknown_topic_or_partition),
            ("not a name", ErrorCode.invalid_topic_exception),
            ("..", ErrorCode.invalid_topic_exception),
            ("x" * 250, ErrorCode.invalid_topic_exception),
            ("payments", ErrorCode.topic_authorization_failed),
        ],
    )
    async def test_topic_that_cannot_be_shown_is_answered_with_its_error(
        self, endpoint: AskedEndpoint, version: int, name: str, code: ErrorCode
    ) -> None:
        endpoint.authorizer.hidden.add("payments")
        topic = await _only_topic(endpoint, _named(name), version=version)
        assert (topic.error_code, topic.name, topic.topic_id, topic.partitions) == (code, name, None, ())

    async def test_hidden_topic_is_answered_like_an_absent_one_that_is_hidden(
        self, endpoint: AskedEndpoint, version: int
    ) -> None:
        endpoint.authorizer.hidden |= {"payments", "absent"}
        answer = await _metadata(endpoint, _named("payments", "absent"), version=version)
        assert {each.error_code for each in answer.topics} == {ErrorCode.topic_authorization_failed}

    async def test_topic_that_was_asked_for_twice_is_answered_once(self, endpoint: AskedEndpoint, version: int) -> None:
        answer = await _metadata(endpoint, _named("payments", "orders", "payments"), version=version)
        assert [each.name for each in answer.topics] == ["payments", "orders"]


async def test_asking_for_an_absent_topic_creates_none(endpoint: AskedEndpoint) -> None:
    await _metadata(endpoint, _named("absent"))
    assert [each.name for each in (await _metadata(endpoint, _ALL)).topics] == ["orders", "payments"]


@pytest.mark.parametrize("version", [12, 13])
async def test_topics_are_found_by_id(endpoint: AskedEndpoint, version: int) -> None:
    endpoint.authorizer.hidden.add("payments")
    answer = await _metadata(endpoint, _by_id(UUID(int=7), UUID(int=8), UUID(int=9)), version=version)
    assert [(each.error_code, each.name, each.topic_id) for each in answer.topics] == [
        (ErrorCode.none, "orders", UUID(int=7)),
        (ErrorCode.topic_authorization_failed, None, UUID(int=8)),
        (ErrorCode.unknown_topic_id, None, UUID(int=9)),
    ]


@pytest.mark.parametrize("version", [10, 11])
async def test_ids_are_refused_in_the_versions_that_only_have_their_field(
    endpoint: AskedEndpoint, version: int
) -> None:
    topic = await _only_topic(endpoint, _by_id(UUID(int=7)), version=version)
    assert (topic.error_code, topic.name) == (ErrorCode.invalid_request, "")


async def test_topic_without_name_and_id_is_an_invalid_request(endpoint: AskedEndpoint) -> None:
    neither = MetadataRequest(
        topics=(MetadataRequestTopic(topic_id=None, name=None),), include_topic_authorized_operations=False
    )
    assert (await _only_topic(endpoint, neither, version=12)).error_code is ErrorCode.invalid_request


async def test_partition_without_a_live_endpoint_has_no_leader(endpoint: AskedEndpoint) -> None:
    endpoint.served.set_nodes(FIRST_NODE)
    topic = await _only_topic(endpoint, _named("orders"), version=12)
    assert [(each.error_code, each.leader_id) for each in topic.partitions] == [
        (ErrorCode.none, 1),
        (ErrorCode.leader_not_available, -1),
        (ErrorCode.none, 1),
    ]
    assert topic.partitions[1].offline_replicas == topic.partitions[1].replica_nodes == (2,)
    assert topic.partitions[1].isr_nodes == ()


async def test_endpoint_that_is_not_live_is_not_the_controller(endpoint: AskedEndpoint) -> None:
    endpoint.served.set_nodes(SECOND_NODE)
    assert (await _metadata(endpoint, _named())).controller_id == -1


async def test_internal_topics_are_marked(endpoint: AskedEndpoint) -> None:
    endpoint.served.add_topic("__consumer_offsets")
    answer = await _metadata(endpoint, _ALL)
    assert {each.name for each in answer.topics if each.is_internal} == {"__consumer_offsets"}


@pytest.mark.parametrize("version", range(8, 14))
async def test_operations_on_topics_are_told_when_asked_for(endpoint: AskedEndpoint, version: int) -> None:
    endpoint.authorizer.hidden.add("payments")
    endpoint.authorizer.unreadable.add("seen")
    endpoint.served.add_topic("seen")
    answer = await _metadata(endpoint, _named("orders", "payments", "seen", operations=True), version=version)
    see = _DESCRIBE | _DESCRIBE_CONFIGS
    assert [each.topic_authorized_operations for each in answer.topics] == [see | _READ, 0, see]
    silent = await _metadata(endpoint, _named("orders"), version=version)
    assert silent.topics[0].topic_authorized_operations == _NOT_ASKED


@pytest.mark.parametrize(("asked", "operations"), [(True, _DESCRIBE | _DESCRIBE_CONFIGS), (False, _NOT_ASKED)])
async def test_operations_on_the_cluster_are_told_when_asked_for(
    endpoint: AskedEndpoint, asked: bool, operations: int
) -> None:
    request = v8_request.MetadataRequest(
        topics=(), include_cluster_authorized_operations=asked, include_topic_authorized_operations=False
    )
    answer = await endpoint.ask(request)
    assert isinstance(answer, v8.MetadataResponse)
    assert answer.cluster_authorized_operations == operations


async def test_listener_decides_which_addresses_are_shown(endpoint: AskedEndpoint) -> None:
    request = v11_request.MetadataRequest(topics=(), include_topic_authorized_operations=False)
    assert isinstance(await endpoint.ask(request, listener="tls"), v11.MetadataResponse)
    assert endpoint.served.listeners == ["tls"]


async def test_newest_version_has_no_error_of_the_whole_answer(endpoint: AskedEndpoint) -> None:
    assert (await _metadata(endpoint, _ALL, version=13)).error_code is ErrorCode.none
    assert isinstance(
        await endpoint.ask(v12.MetadataRequest(topics=(), include_topic_authorized_operations=False)),
        v12.MetadataResponse,
    )
