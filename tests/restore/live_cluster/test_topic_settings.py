"""Settings of restored topics: meanwhile and afterwards."""

import pytest

from tierd.restore.live_cluster.topic_settings import objection, topic_settings

LARGEST = str(2**63 - 1)


def test_records_stay_as_they_were_while_a_topic_is_restored() -> None:
    found = topic_settings({"cleanup.policy": "compact"}, holds_retention=False)

    assert found.at_creation == {
        "cleanup.policy": "compact",
        "compression.type": "producer",
        "message.timestamp.type": "CreateTime",
    }
    assert found.afterwards == {"compression.type": None, "message.timestamp.type": None}
    assert found.held == {}


def test_settings_that_name_brokers_of_the_old_cluster_are_left_out() -> None:
    throttled = {f"{role}.replication.throttled.replicas": "0:1,1:2" for role in ("leader", "follower")}
    assert topic_settings(throttled, holds_retention=False) == topic_settings({}, holds_retention=False)


def test_settings_that_would_change_or_refuse_records_come_back_afterwards() -> None:
    wanted = {
        "compression.type": "zstd",
        "message.timestamp.type": "LogAppendTime",
        "message.timestamp.before.max.ms": "3600000",
        "retention.ms": "1000",
    }

    found = topic_settings(wanted, holds_retention=False)

    assert found.at_creation["compression.type"] == "producer"
    assert found.at_creation["message.timestamp.type"] == "CreateTime"
    assert "message.timestamp.before.max.ms" not in found.at_creation
    assert found.at_creation["retention.ms"] == "1000"
    assert found.afterwards == {
        "compression.type": "zstd",
        "message.timestamp.before.max.ms": "3600000",
        "message.timestamp.type": "LogAppendTime",
    }


def test_held_retention_is_for_a_person_to_set_back() -> None:
    found = topic_settings({"retention.ms": "1000"}, holds_retention=True)

    assert (found.at_creation["retention.ms"], found.at_creation["retention.bytes"]) == ("-1", "-1")
    assert found.held == {"retention.ms": "1000", "retention.bytes": None}
    assert not set(found.afterwards) & {"retention.ms", "retention.bytes"}


def test_settings_that_kafka_4_lost_are_left_out() -> None:
    found = topic_settings({"message.format.version": "3.0", "segment.bytes": "100"}, holds_retention=False)

    assert "message.format.version" not in found.at_creation
    assert "message.format.version" not in found.afterwards
    assert found.at_creation["segment.bytes"] == "100"


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({}, ""),
        ({"message.timestamp.type": "CreateTime", "message.timestamp.before.max.ms": LARGEST}, ""),
        ({"message.timestamp.type": "LogAppendTime"}, "would replace every timestamp"),
        ({"message.timestamp.before.max.ms": "1000"}, "refuses older records"),
    ],
)
def test_existing_topic_that_would_change_or_refuse_records_is_objected_to(settings: dict[str, str], text: str) -> None:
    assert text in objection(settings)
    assert bool(objection(settings)) == bool(text)
