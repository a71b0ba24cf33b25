"""Holds of the retention, as decisions: settings before, changes that lift a hold, commands for a person."""

from uuid import UUID

from tierd.restore.plan.topic_retention import (
    HeldRetention,
    hold_command,
    is_held,
    lift_command,
    lifting_changes,
    settings_before,
)

HELD = {"retention.ms": "-1", "retention.bytes": "-1"}
KAFKA_CONFIGS = "kafka-configs.sh --bootstrap-server b:9092 --alter --entity-type topics --entity-name orders"


def kept(before: dict[str, str | None]) -> HeldRetention:
    return HeldRetention(cluster_id="c", topic="orders", topic_id=UUID(int=7), before=before, held_ms=1)


def test_settings_before_a_hold_are_those_that_the_topic_has_of_its_own() -> None:
    own = {"retention.ms": "5", "segment.bytes": "6"}
    assert settings_before(own, None) == {"retention.ms": "5", "retention.bytes": None}


def test_second_hold_keeps_the_settings_before_the_first_one() -> None:
    earlier = kept({"retention.ms": "5", "retention.bytes": None})
    assert settings_before(HELD, earlier) == earlier.before
    assert settings_before(HELD | {"retention.ms": "9"}, earlier) == {"retention.ms": "9", "retention.bytes": None}


def test_topic_without_limits_of_its_own_counts_as_held() -> None:
    assert is_held(HELD)
    assert not is_held({"retention.ms": "-1"})


def test_hold_is_lifted_where_nothing_was_changed_since() -> None:
    before = {"retention.ms": "5", "retention.bytes": None}
    assert lifting_changes(before, HELD) == before
    assert lifting_changes(before, HELD | {"retention.ms": "9"}) == {"retention.bytes": None}
    assert lifting_changes({"retention.ms": "-1", "retention.bytes": None}, HELD) == {"retention.bytes": None}


def test_commands_hold_and_lift_the_retention() -> None:
    assert hold_command("orders", "b:9092") == f"{KAFKA_CONFIGS} --add-config retention.ms=-1,retention.bytes=-1"
    unknown = f"{KAFKA_CONFIGS} --delete-config retention.ms,retention.bytes"
    assert lift_command("orders", None, "b:9092") == unknown
    before = {"retention.ms": "5", "retention.bytes": None}
    mixed = f"{KAFKA_CONFIGS} --add-config retention.ms=5 --delete-config retention.bytes"
    assert lift_command("orders", before, "b:9092") == mixed
