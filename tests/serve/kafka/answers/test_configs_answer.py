"""Answers to DescribeConfigs."""

from collections.abc import Sequence

import pytest
from kio.schema.describe_configs.v4.request import DescribeConfigsRequest, DescribeConfigsResource
from kio.schema.describe_configs.v4.response import DescribeConfigsResponse, DescribeConfigsResult
from kio.schema.errors import ErrorCode
from kio.static.primitive import i8

from tests.serve.kafka.answers.asking import AskedEndpoint, versions

_TOPIC, _BROKER, _LOGGER = 2, 4, 8


async def _configs(
    endpoint: AskedEndpoint,
    kind: int,
    name: str,
    *,
    keys: Sequence[str] | None = None,
    version: int | None = None,
    documentation: bool = False,
) -> DescribeConfigsResult:
    resource = DescribeConfigsResource(
        resource_type=i8(kind), resource_name=name, configuration_keys=None if keys is None else tuple(keys)
    )
    request = DescribeConfigsRequest(resources=(resource,), include_synonyms=True, include_documentation=documentation)
    (result,) = (await endpoint.answer(request, DescribeConfigsResponse, version=version)).results
    assert (result.resource_type, result.resource_name) == (kind, name)
    return result


@pytest.fixture
def endpoint() -> AskedEndpoint:
    endpoint = AskedEndpoint()
    endpoint.served.add_topic("orders", settings={"retention.ms": "1000", "cleanup.policy": "delete", "new.one": "x"})
    return endpoint


@pytest.mark.parametrize("version", versions(32))
async def test_settings_of_a_topic_are_those_that_are_known(endpoint: AskedEndpoint, version: int) -> None:
    result = await _configs(endpoint, _TOPIC, "orders", version=version)
    assert result.error_code is ErrorCode.none
    assert {each.name: each.value for each in result.configs} == {
        "retention.ms": "1000",
        "cleanup.policy": "delete",
        "new.one": "x",
    }
    types = {each.name: each.config_type for each in result.configs}
    has_types = version >= 3
    assert types == {
        "retention.ms": 5 if has_types else 0,
        "cleanup.policy": 7 if has_types else 0,
        "new.one": 0,
    }


@pytest.mark.parametrize("version", versions(32))
async def test_settings_are_read_only_and_without_synonyms(endpoint: AskedEndpoint, version: int) -> None:
    for kind, name, source in ((_TOPIC, "orders", 1), (_BROKER, "1", 4)):
        for each in (await _configs(endpoint, kind, name, version=version)).configs:
            assert each.read_only
            assert not each.is_sensitive
            assert (each.config_source, each.synonyms) == (source, ())


@pytest.mark.parametrize(("keys", "expected"), [(["retention.ms", "segment.ms"], ["retention.ms"]), (["x"], [])])
async def test_only_the_keys_that_were_asked_for_are_answered(
    endpoint: AskedEndpoint, keys: list[str], expected: list[str]
) -> None:
    result = await _configs(endpoint, _TOPIC, "orders", keys=keys)
    assert [each.name for each in result.configs] == expected


async def test_empty_list_of_keys_asks_for_all(endpoint: AskedEndpoint) -> None:
    assert len((await _configs(endpoint, _TOPIC, "orders", keys=[])).configs) == 3


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("absent", ErrorCode.unknown_topic_or_partition),
        ("not a name", ErrorCode.invalid_topic_exception),
        ("payments", ErrorCode.topic_authorization_failed),
    ],
)
async def test_topic_that_cannot_be_shown_is_answered_with_its_error(
    endpoint: AskedEndpoint, name: str, code: ErrorCode
) -> None:
    endpoint.served.add_topic("payments", settings={"retention.ms": "1"})
    endpoint.authorizer.hidden.add("payments")
    result = await _configs(endpoint, _TOPIC, name)
    assert (result.error_code, result.configs) == (code, ())


async def test_settings_of_this_endpoint_say_that_it_is_read_only(endpoint: AskedEndpoint) -> None:
    endpoint.settings["group.max.session.timeout.ms"] = "1800000"
    result = await _configs(endpoint, _BROKER, "1", documentation=True)
    values = {each.name: each.value for each in result.configs}
    assert values["node.id"] == values["broker.id"] == "1"
    assert values["broker.rack"] == "rack-a"
    assert values["auto.create.topics.enable"] == values["delete.topic.enable"] == "false"
    assert values["group.max.session.timeout.ms"] == "1800000"
    assert {each.name: each.documentation for each in result.configs}["node.id"]


async def test_documentation_is_left_out_unless_it_is_asked_for(endpoint: AskedEndpoint) -> None:
    result = await _configs(endpoint, _BROKER, "1")
    assert {each.documentation for each in result.configs} == {None}


async def test_defaults_of_all_brokers_are_empty(endpoint: AskedEndpoint) -> None:
    result = await _configs(endpoint, _BROKER, "")
    assert (result.error_code, result.configs) == (ErrorCode.none, ())


@pytest.mark.parametrize(("kind", "name"), [(_BROKER, "2"), (_BROKER, "x"), (_LOGGER, "1"), (32, "group"), (0, "")])
async def test_resource_without_settings_here_is_an_invalid_request(
    endpoint: AskedEndpoint, kind: int, name: str
) -> None:
    result = await _configs(endpoint, kind, name)
    assert (result.error_code, result.configs) == (ErrorCode.invalid_request, ())
    assert result.error_message


async def test_endpoint_that_is_not_live_still_tells_its_other_settings(endpoint: AskedEndpoint) -> None:
    endpoint.served.set_nodes()
    endpoint.settings["a"] = "b"
    assert [each.name for each in (await _configs(endpoint, _BROKER, "1")).configs] == ["a"]
