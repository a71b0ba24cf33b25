"""Errors that the target's brokers answer with: the reaction to each, and its words for a person."""

from collections.abc import Mapping
from enum import Enum, auto
from typing import Final
from uuid import UUID

from tierd.control import TopicLeaders
from tierd.errors import KafkaError, KafkaUnreachableError, RefusedError
from tierd.model import TopicPartition


class Reaction(Enum):
    """Reaction to the failure of a batch."""

    SEND_AGAIN = auto()  # the same batch, to the leader of then; the leader recognizes it
    RECONCILE = auto()  # the leader's memory of the producer is not ours: read the target's log, and go on from there
    GIVE_UP = auto()


PASSING_ERRORS: Final = frozenset(
    {
        "concurrent_transactions",
        "coordinator_load_in_progress",
        "coordinator_not_available",
        "fenced_leader_epoch",
        "kafka_storage_error",
        "leader_not_available",
        "listener_not_found",
        "network_exception",
        "not_controller",
        "not_coordinator",
        "not_enough_replicas",
        "not_enough_replicas_after_append",
        "not_leader_or_follower",
        "offset_not_available",
        "replica_not_available",
        "request_timed_out",
        "throttling_quota_exceeded",
        "unknown_leader_epoch",
        "unknown_topic_id",
        "unknown_topic_or_partition",  # a topic that was just created is not known to every broker yet
    }
)
"""Kafka's names of errors that pass by themselves."""

_RECONCILED: Final = frozenset(
    {"duplicate_sequence_number", "invalid_producer_epoch", "out_of_order_sequence_number", "unknown_producer_id"}
)

_REMEDIES: Final[Mapping[str, str]] = {
    "cluster_authorization_failed": "grant the user of the target the right IdempotentWrite, or Write on the topic",
    "invalid_record": "look at the leader's log: it names the record that it refuses",
    "invalid_timestamp": "set message.timestamp.before.max.ms and message.timestamp.after.max.ms of the topic to "
    "their largest value until the restore is done",
    "message_too_large": "raise max.message.bytes of the topic, then run the same command again",
    "policy_violation": "look at the policy of the target's brokers",
    "record_list_too_large": "raise segment.bytes of the topic, then run the same command again",
    "topic_authorization_failed": "grant the user of the target the rights Describe, Read and Write on the topic",
}


def reaction_to(error: str) -> Reaction:
    """Return the reaction to Kafka's name of an error of a produced batch."""
    if error in PASSING_ERRORS:
        return Reaction.SEND_AGAIN
    return Reaction.RECONCILE if error in _RECONCILED else Reaction.GIVE_UP


class LogOfTargetDiffersError(KafkaError):
    """The leader's memory of our producer is not ours; the target's log decides where to go on."""


def refused_batch(name: TopicPartition, error: str, message: str) -> KafkaError:
    """Return the error that ends the delivery to ``name``."""
    text = f"{name}: the target answers {error}{': ' if message else ''}{message}"
    if reaction_to(error) is Reaction.RECONCILE:
        return LogOfTargetDiffersError(text, remedy="the restore reads the target's log")
    if error in PASSING_ERRORS:
        return KafkaUnreachableError(
            text, remedy="look at the brokers of the target, then run the same command again: it goes on from there"
        )
    return KafkaError(text, remedy=_REMEDIES.get(error, "look at the leader's log, then run the same command again"))


def is_another_topic(known: TopicLeaders, topic_id: UUID | None) -> bool:
    """Return True if a topic is known by another id than ``topic_id``; an id that is not told is none."""
    return topic_id is not None and known.topic_id.int != 0 and known.topic_id != topic_id


def replaced_topic(topic: str, *, since: str = "the restore began") -> RefusedError:
    """Return the error for a topic that is not there any more, or that another one of its name has replaced."""
    return RefusedError(
        f"topic {topic} of the target was deleted since {since}, and its records with it",
        remedy="begin anew with another --journal; if the topic is there again, add --append",
    )
