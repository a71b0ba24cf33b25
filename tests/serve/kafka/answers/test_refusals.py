"""Refusals of what writes: the answers of a read-only cluster, in every version."""

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any

import pytest
from kio.index import load_request_schema
from kio.schema.alter_configs.v2 import request as alter_configs
from kio.schema.alter_configs.v2.response import AlterConfigsResponse
from kio.schema.create_topics.v7.response import CreateTopicsResponse
from kio.schema.delete_topics.v6.response import DeleteTopicsResponse
from kio.schema.describe_acls.v3.response import DescribeAclsResponse
from kio.schema.elect_leaders.v2.response import ElectLeadersResponse
from kio.schema.end_txn.v5.response import EndTxnResponse
from kio.schema.errors import ErrorCode
from kio.schema.init_producer_id.v6.response import InitProducerIdResponse
from kio.schema.produce import v12, v13
from kio.static.primitive import i8
from kio.static.protocol import RequestPayload

from tests.serve.kafka.answers.asking import AskedEndpoint, versions
from tests.serve.kafka.kio_messages import sample
from tierd.errors import RefusedError
from tierd.serve.kafka.answers.refusals import READ_ONLY, REFUSED_APIS

_TOPIC = ErrorCode.topic_authorization_failed
_CLUSTER = ErrorCode.cluster_authorization_failed
_TRANSACTION = ErrorCode.transactional_id_authorization_failed


def _request(api_key: int, version: int, *, items: int = 2, **changed: object) -> RequestPayload:
    """Return a sample of a request, with other values in some fields."""
    found = sample(load_request_schema(api_key, version), items=items)
    values = {each.name: getattr(found, each.name) for each in fields(found)}
    return type(found)(**(values | {name: value for name, value in changed.items() if name in values}))


def _values(message: Any, name: str) -> Iterator[Any]:  # noqa: ANN401 - messages of any kind
    """Yield the values of all fields with a name, or of all error codes, of a message and what it holds."""
    for each in fields(message):
        value = getattr(message, each.name)
        if each.name == name or each.metadata.get("kafka_type") == name:
            yield value
        for item in value if isinstance(value, tuple) else (value,):
            if is_dataclass(item):
                yield from _values(item, name)


@pytest.mark.parametrize(
    ("api_key", "codes"),
    [
        (0, {_TOPIC}),
        (19, {_TOPIC}),
        (20, {_TOPIC}),
        (21, {_TOPIC}),
        (22, {_CLUSTER}),
        (24, {_TRANSACTION}),
        (25, {_TRANSACTION}),
        (26, {_TRANSACTION}),
        (28, {_TRANSACTION}),
        (29, {ErrorCode.security_disabled}),
        (30, {_CLUSTER}),
        (31, {_CLUSTER}),
        (33, {_CLUSTER}),
        (37, {_TOPIC}),
        (43, {_CLUSTER}),
        (44, {_CLUSTER}),
        (45, {_CLUSTER}),
    ],
)
async def test_write_is_refused_in_every_version(api_key: int, codes: set[ErrorCode]) -> None:
    for version in versions(api_key):
        transactional = None if api_key in {0, 22} else "transaction"
        request = _request(api_key, version, transactional_id=transactional, acks=-1)
        expected = {_CLUSTER} if (api_key, version) in {(24, 4), (24, 5)} else codes
        answer = await AskedEndpoint().ask(request)
        assert set(_values(answer, "error_code")) == expected, version
        assert set(_values(answer, "error_message")) <= {READ_ONLY} or api_key == 29, version


def test_all_refused_requests_are_tested_above() -> None:
    assert {0, 19, 20, 21, 22, 24, 25, 26, 28, 29, 30, 31, 33, 37, 43, 44, 45} == REFUSED_APIS


@pytest.mark.parametrize("version", versions(0))
async def test_refusal_of_records_names_each_partition_once(version: int) -> None:
    request = _request(0, version, transactional_id=None, acks=1)
    answer = await AskedEndpoint().ask(request)
    if isinstance(answer, v13.ProduceResponse):
        assert [each.topic_id for each in answer.responses] == list(_values(request, "topic_id"))
    else:
        assert list(_values(answer, "name")) == list(_values(request, "name"))
    assert list(_values(answer, "index")) == list(_values(request, "index"))
    assert set(_values(answer, "base_offset")) == {-1}
    if version >= 8:
        assert set(_values(answer, "error_message")) == {READ_ONLY}


@pytest.mark.parametrize(("api_key", "version"), [(0, 3), (0, 13), (22, 0), (22, 6)])
async def test_transactional_producer_is_told_of_its_transactional_id(api_key: int, version: int) -> None:
    answer = await AskedEndpoint().ask(_request(api_key, version, transactional_id="mine", acks=-1))
    assert set(_values(answer, "error_code")) == {_TRANSACTION}


@pytest.mark.parametrize("version", versions(0))
async def test_producer_that_waits_for_no_answer_loses_its_connection(version: int) -> None:
    with pytest.raises(RefusedError):
        await AskedEndpoint().ask(_request(0, version, acks=0))


async def test_refused_producer_id_is_none() -> None:
    answer = await AskedEndpoint().answer(_request(22, 4, transactional_id=None), InitProducerIdResponse)
    assert (answer.producer_id, answer.producer_epoch) == (-1, -1)
    end = await AskedEndpoint().answer(_request(26, 5), EndTxnResponse)
    assert (end.producer_id, end.producer_epoch) == (-1, -1)


@pytest.mark.parametrize("version", versions(19))
async def test_refusal_to_create_topics_names_each_of_them(version: int) -> None:
    answer = await AskedEndpoint().answer(_request(19, version), CreateTopicsResponse)
    assert [(each.name, each.error_message) for each in answer.topics] == [("orders", READ_ONLY)] * 2
    assert {(each.num_partitions, each.replication_factor, each.configs) for each in answer.topics} == {(-1, -1, None)}


@pytest.mark.parametrize("version", versions(20))
async def test_refusal_to_delete_topics_names_each_of_them(version: int) -> None:
    request = _request(20, version)
    answer = await AskedEndpoint().answer(request, DeleteTopicsResponse)
    assert [each.name for each in answer.responses] == ["orders", "orders"]
    assert [each.topic_id for each in answer.responses] == (list(_values(request, "topic_id")) or [None, None])


async def test_refusal_to_change_settings_has_the_code_of_its_resource() -> None:
    resources = tuple(
        alter_configs.AlterConfigsResource(resource_type=i8(kind), resource_name=name, configs=())
        for kind, name in ((2, "orders"), (4, "1"), (32, "group"))
    )
    request = alter_configs.AlterConfigsRequest(resources=resources, validate_only=False)
    answer = await AskedEndpoint().answer(request, AlterConfigsResponse)
    assert [(each.resource_name, each.error_code) for each in answer.responses] == [
        ("orders", _TOPIC),
        ("1", _CLUSTER),
        ("group", ErrorCode.group_authorization_failed),
    ]


@pytest.mark.parametrize("version", versions(43))
async def test_refusal_to_elect_leaders_may_name_no_partition(version: int) -> None:
    answer = await AskedEndpoint().answer(_request(43, version, topic_partitions=None), ElectLeadersResponse)
    assert answer.replica_election_results == ()


async def test_acls_are_answered_as_by_a_cluster_without_them() -> None:
    answer = await AskedEndpoint().answer(_request(29, 3), DescribeAclsResponse)
    assert (answer.error_code, answer.resources) == (ErrorCode.security_disabled, ())
    assert "kafka.access" in (answer.error_message or "")


async def test_refused_records_are_not_kept() -> None:
    endpoint = AskedEndpoint()
    (log,) = endpoint.served.add_topic("orders")
    assert isinstance(await endpoint.ask(_request(0, 12, acks=-1)), v12.ProduceResponse)
    assert (log.log_end_offset, dict(log.calls)) == (0, {})
