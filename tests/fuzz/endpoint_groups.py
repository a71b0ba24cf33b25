"""Targets: what members of consumer groups send, as the read endpoint reads it."""

import io
from typing import Any

from kio.schema.consumer_protocol_subscription import v0, v1, v2, v3
from kio.schema.types import TopicName
from kio.serial import entity_writer
from kio.static.primitive import i32

from tests.fuzz.target import Target
from tierd.serve.kafka.groups.protocol.group_checks import subscribed_topics


def _subscription(data: bytes) -> None:
    """Read the subscription of one member, alone and beside a sound one."""
    alone, beside = subscribed_topics([data]), subscribed_topics([_SOUND, data])
    assert (alone is None) == (beside is None)
    if alone is not None:
        assert sum(len(topic.encode()) for topic in alone) <= len(data)
        assert beside == alone | {"orders"}


def _encoded(version: int, message: Any) -> bytes:  # noqa: ANN401 - of any version
    buffer = io.BytesIO()
    entity_writer(type(message))(buffer, message)
    return version.to_bytes(2, "big") + buffer.getvalue()


_SOUND = _encoded(0, v0.ConsumerProtocolSubscription(topics=("orders",)))


def _seeds() -> list[bytes]:
    topics, data = ("orders", "größe"), b"user data"
    return [
        _SOUND,
        _encoded(0, v0.ConsumerProtocolSubscription(topics=(), user_data=data)),
        _encoded(
            1,
            v1.ConsumerProtocolSubscription(
                topics=topics,
                user_data=data,
                owned_partitions=(v1.data.TopicPartition(topic=TopicName("orders"), partitions=(i32(0), i32(1))),),
            ),
        ),
        _encoded(2, v2.ConsumerProtocolSubscription(topics=topics, user_data=None, owned_partitions=())),
        _encoded(
            3,
            v3.ConsumerProtocolSubscription(
                topics=topics,
                user_data=data,
                owned_partitions=(v3.data.TopicPartition(topic=TopicName("orders"), partitions=(i32(2),)),),
                rack_id="rack",
            ),
        ),
    ]


TARGETS = (Target("consumer-subscription", _subscription, _seeds),)
"""As ``tests.fuzz`` lists them."""
