"""Messages in another version."""

from collections.abc import Callable
from dataclasses import fields
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.index import load_request_schema, load_response_schema
from kio.schema.errors import ErrorCode
from kio.schema.metadata import v0, v8, v13
from kio.schema.metadata.v0 import request as v0_request
from kio.schema.metadata.v13 import request as v13_request
from kio.schema.metadata.v13.response import MetadataResponse, MetadataResponseTopic
from kio.schema.types import TopicName
from kio.static.protocol import Entity

from tests.serve.kafka.kio_messages import encoded, messages
from tierd.serve.kafka.message_versions import NO_THROTTLE, answer_in_version, in_version
from tierd.serve.kafka.wire.api_table import API_TABLE

_TOPIC = MetadataResponseTopic(
    error_code=ErrorCode.none, name=TopicName("orders"), topic_id=UUID(int=7), is_internal=True, partitions=()
)
_ANSWER = MetadataResponse(
    throttle_time=NO_THROTTLE, brokers=(), cluster_id="cluster", topics=(_TOPIC,), error_code=ErrorCode.none
)


def test_message_of_the_wanted_version_stays_the_same_object() -> None:
    assert in_version(_ANSWER, v13.MetadataResponse) is _ANSWER


def test_fields_that_the_wanted_version_has_not_are_left_out() -> None:
    (topic,) = in_version(_ANSWER, v0.MetadataResponse).topics
    assert {each.name for each in fields(topic)} == {"error_code", "name", "partitions"}
    assert topic.name == "orders"


def test_fields_that_only_the_wanted_version_has_get_their_defaults() -> None:
    old = v0_request.MetadataRequest(topics=(v0_request.MetadataRequestTopic(name=TopicName("orders")),))
    new = in_version(old, v13_request.MetadataRequest)
    assert new.topics == (v13_request.MetadataRequestTopic(topic_id=None, name=TopicName("orders")),)
    assert new.allow_auto_topic_creation
    assert not new.include_topic_authorized_operations


def test_null_array_stays_null_in_an_older_version() -> None:
    everything = v13_request.MetadataRequest(topics=None, include_topic_authorized_operations=True)
    assert in_version(everything, v8.MetadataRequest).topics is None


def test_value_of_a_field_that_the_newest_version_has_lost_may_be_added() -> None:
    old = in_version(_ANSWER, v8.MetadataResponse, cluster_authorized_operations=3)
    assert old.cluster_authorized_operations == 3
    assert in_version(_ANSWER, v0.MetadataResponse, cluster_authorized_operations=3).topics[0].name == "orders"


def test_answer_has_the_version_of_its_request() -> None:
    request = v8.MetadataRequest(
        topics=(), include_cluster_authorized_operations=False, include_topic_authorized_operations=False
    )
    assert isinstance(answer_in_version(request, _ANSWER), v8.MetadataResponse)


@pytest.mark.parametrize("load", [load_request_schema, load_response_schema], ids=["request", "answer"])
@pytest.mark.parametrize("api_key", [2, 3, 23, 32, 60])
@settings(max_examples=20, deadline=None)
@given(data=st.data())
def test_message_in_a_newer_version_and_back_is_the_same(
    load: Callable[[int, int], type[Entity]], api_key: int, data: st.DataObject
) -> None:
    api = API_TABLE[api_key]
    version = data.draw(st.integers(api.min_version, api.max_version))
    source, newest = load(api_key, version), load(api_key, api.max_version)
    message = data.draw(messages(source))
    shared = {each.name for each in fields(source)} & {each.name for each in fields(newest)}
    there = in_version(message, newest)
    back = in_version(there, source)
    assert {name: getattr(back, name) for name in shared} == {name: getattr(message, name) for name in shared}
    assert encoded(there)
