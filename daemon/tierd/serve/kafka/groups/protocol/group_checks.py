"""Checks of a request against the members of a group (KIP-345), and the topics that members subscribe to."""

from collections.abc import Iterable

from kio.schema.consumer_protocol_subscription.v0.data import ConsumerProtocolSubscription
from kio.schema.errors import ErrorCode
from kio.serial import entity_reader
from kio.serial.errors import SerialError

from tierd.control import require_sound
from tierd.errors import DamagedMessageError
from tierd.serve.kafka.groups.protocol.group_members import GroupMembers

CONSUMER_PROTOCOL_TYPE = "consumer"
"""Protocol type of consumers, whose metadata name the topics that they subscribe to."""

_VERSION_BYTES = 2


def member_error(members: GroupMembers, member_id: str, instance_id: str | None) -> ErrorCode | None:
    """Return the error of a request in the name of a member; None if that member may ask."""
    if instance_id is not None:
        holder = members.static_id(instance_id)
        if holder is not None and holder != member_id:
            return ErrorCode.fenced_instance_id
        if holder is None:
            return ErrorCode.unknown_member_id
    return None if member_id in members else ErrorCode.unknown_member_id


def subscribed_topics(metadata: Iterable[bytes]) -> frozenset[str] | None:
    """Return the topics of the subscriptions of all members; None where one of them cannot be understood.

    Every version of the subscription begins with the version's number and the fields of version 0.
    """
    topics: set[str] = set()
    for each in metadata:
        try:
            sound = require_sound(ConsumerProtocolSubscription, each, _VERSION_BYTES)
            topics.update(entity_reader(ConsumerProtocolSubscription)(sound.content, _VERSION_BYTES)[0].topics)
        except (DamagedMessageError, SerialError, ValueError, LookupError):
            return None
    return frozenset(topics)
