"""Topics are read from subscriptions of every version, and never from damaged bytes."""

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.schema.consumer_protocol_subscription import v0, v3
from kio.serial import entity_writer

from tierd.serve.kafka.groups.protocol.group_checks import subscribed_topics


def encoded(version: int, *topics: str) -> bytes:
    buffer = io.BytesIO()
    if version == 0:
        entity_writer(v0.ConsumerProtocolSubscription)(buffer, v0.ConsumerProtocolSubscription(topics=topics))
    else:
        message = v3.ConsumerProtocolSubscription(topics=topics, user_data=b"data", owned_partitions=(), rack_id="rack")
        entity_writer(v3.ConsumerProtocolSubscription)(buffer, message)
    return version.to_bytes(2, "big") + buffer.getvalue()


@pytest.mark.parametrize("version", [0, 3])
def test_subscription_of_any_version_names_its_topics(version: int) -> None:
    topics = subscribed_topics([encoded(version, "orders", "users"), encoded(0, "orders")])
    assert topics == frozenset({"orders", "users"})


def test_no_member_subscribes_to_nothing() -> None:
    assert subscribed_topics([]) == frozenset()


def test_one_damaged_subscription_makes_the_topics_unknown() -> None:
    assert subscribed_topics([encoded(0, "orders"), b"\0\0\xff\xff\xff\xff"]) is None
    assert subscribed_topics([encoded(0, "orders")[:-6]]) is None


@given(st.binary(max_size=40))
def test_arbitrary_bytes_never_raise(metadata: bytes) -> None:
    topics = subscribed_topics([metadata])
    assert topics is None or all(isinstance(topic, str) for topic in topics)
