"""Settings of a topic while it is restored, and what is changed back afterwards; pure."""

from collections.abc import Mapping
from typing import Final, NamedTuple

from tierd.restore.plan.topic_retention import HELD_SETTINGS

_LARGEST: Final = str(2**63 - 1)

_MEANWHILE: Final[Mapping[str, str]] = {
    "compression.type": "producer",  # a leader compresses nothing anew: records stay as they were
    "message.timestamp.type": "CreateTime",  # a leader keeps the timestamps
}
_BOUNDS_OF_TIMESTAMPS: Final = frozenset(
    {"message.timestamp.after.max.ms", "message.timestamp.before.max.ms", "message.timestamp.difference.max.ms"}
)
"""Left out meanwhile: the records of a restore are as old as they are."""
_UNKNOWN_IN_KAFKA_4: Final = frozenset(
    {"message.format.version", "message.downconversion.enable", "message.timestamp.difference.max.ms"}
)
_OF_THE_OLD_BROKERS: Final = frozenset(
    {"follower.replication.throttled.replicas", "leader.replication.throttled.replicas"}
)
"""Left out: brokers by their ids in the old cluster, which would slow down others in the target."""


class TopicSettings(NamedTuple):
    """Settings of one topic.

    Attributes:
        at_creation: for ``CreateTopics``.
        afterwards: changes once every partition is restored; None sets the cluster's default.
        held: settings that a person sets when the retention may go on; empty unless it was held.
    """

    at_creation: Mapping[str, str]
    afterwards: Mapping[str, str | None]
    held: Mapping[str, str | None]


def topic_settings(wanted: Mapping[str, str], *, holds_retention: bool) -> TopicSettings:
    """Return the settings for a topic that is to have ``wanted`` in the end.

    Settings that Kafka 4 does not have any more, or that name brokers, are left out; all others are the target's to
    refuse.
    """
    final = {key: value for key, value in wanted.items() if key not in _UNKNOWN_IN_KAFKA_4 | _OF_THE_OLD_BROKERS}
    held = {key: final.get(key) for key in HELD_SETTINGS} if holds_retention else {}
    created = {key: value for key, value in final.items() if key not in _BOUNDS_OF_TIMESTAMPS}
    created |= _MEANWHILE
    if holds_retention:
        created |= HELD_SETTINGS
    afterwards = {
        key: final.get(key)
        for key in sorted({*created, *final})
        if key not in held and final.get(key) != created.get(key)
    }
    return TopicSettings(created, afterwards, held)


def objection(settings: Mapping[str, str]) -> str:
    """Return why an existing topic with these settings cannot take restored records; empty if it can."""
    if settings.get("message.timestamp.type") == "LogAppendTime":
        return "it has message.timestamp.type=LogAppendTime, which would replace every timestamp"
    limit = settings.get("message.timestamp.before.max.ms", _LARGEST)
    if limit != _LARGEST:
        return f"it has message.timestamp.before.max.ms={limit}, which refuses older records"
    return ""
