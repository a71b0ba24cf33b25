"""Policy of a topic: from the file, from the brokers, and the assumption while the brokers do not answer."""

from collections.abc import Mapping

import pytest

from tierd.app.engine.topic_policies import TopicPolicies, needs_broker, resolve_cleaning, resolve_policy
from tierd.config import PipelineSettings, TopicDefaults, TopicsSettings
from tierd.config.sections.topic_settings import TopicOverride

FROM_BROKER = TopicDefaults(
    retention_ms="from-broker",
    retention_bytes="from-broker",
    local_retention_ms="from-broker",
    local_retention_bytes="from-broker",
    segment_bytes="from-broker",
)
SAID = {
    "retention.ms": "604800000",
    "retention.bytes": "1000",
    "local.retention.ms": "-2",
    "local.retention.bytes": "500",
    "segment.bytes": "16384",
    "cleanup.policy": "compact,delete",
}


def test_settings_of_the_brokers_apply_where_the_file_defers_to_them() -> None:
    policy = resolve_policy(FROM_BROKER, SAID, has_broker=True)

    assert (policy.retention_ms, policy.retention_bytes) == (604_800_000, 1000)
    assert (policy.local_retention_ms, policy.local_retention_bytes) == (-2, 500)
    assert policy.effective_local_retention_ms == 604_800_000
    assert policy.segment_bytes == 16_384
    assert policy.cleanup_policy == {"compact", "delete"}


def test_settings_of_the_file_override_those_of_the_brokers() -> None:
    settings = TopicDefaults(retention_ms=5, cleanup_policy="delete")

    policy = resolve_policy(settings, SAID, has_broker=True)

    assert (policy.retention_ms, policy.retention_bytes) == (5, -1)
    assert policy.cleanup_policy == {"delete"}


def test_no_segment_expires_before_the_brokers_have_answered() -> None:
    for settings in (FROM_BROKER, TopicDefaults(retention_ms=5, retention_bytes=5)):
        policy = resolve_policy(settings, None, has_broker=True)

        assert (policy.expires_ms, policy.expires_bytes) == (-1, -1)
        assert policy.cleanup_policy == frozenset(), "the cleanup policy is not known either"
    assert resolve_policy(FROM_BROKER, None, has_broker=True).effective_local_retention_ms == -1


def test_cleanup_policy_without_a_connection_to_kafka_has_the_default_of_kafka() -> None:
    policy = resolve_policy(TopicDefaults(retention_ms=5), {}, has_broker=False)

    assert policy.deletes
    assert policy.expires_ms == 5


@pytest.mark.parametrize("cleanup", ["compact", "compact,delete", "delete"])
def test_limits_expire_only_with_a_delete_policy_and_copies_stay_enabled(cleanup: str) -> None:
    policy = resolve_policy(FROM_BROKER, SAID | {"cleanup.policy": cleanup}, has_broker=True)

    assert (policy.expires_ms == -1) == ("delete" not in cleanup)
    assert policy.copy_enabled


@pytest.mark.parametrize("value", [str(2**63 - 1), "-1"])
def test_infinite_retention_in_any_form_of_kafka_has_no_expiration(value: str) -> None:
    assert resolve_policy(FROM_BROKER, SAID | {"retention.ms": value}, has_broker=True).expires_ms == -1


@pytest.mark.parametrize("value", ["", "soon"])
def test_retention_that_is_no_number_has_no_expiration(value: str) -> None:
    assert resolve_policy(FROM_BROKER, SAID | {"retention.ms": value}, has_broker=True).expires_ms == -1


def test_brokers_are_asked_only_for_topics_that_defer_to_them() -> None:
    asked: list[str] = []

    def broker(topic: str) -> Mapping[str, str] | None:
        asked.append(topic)
        return SAID

    explicit = TopicOverride(match="explicit", cleanup_policy="delete", retention_ms=7)
    topics = TopicsSettings(overrides=(explicit,))
    policies = TopicPolicies(lambda: topics, broker)

    assert policies("explicit").expires_ms == 7
    assert policies("orders").cleanup_policy == {"compact", "delete"}
    assert asked == ["orders"]
    assert not needs_broker(topics.for_topic("explicit"))


def test_reloaded_file_applies_from_the_next_lookup_on() -> None:
    current = [TopicsSettings()]
    policies = TopicPolicies(lambda: current[0], None)
    assert policies("orders").retention_ms == -1

    current[0] = TopicsSettings(defaults=TopicDefaults(retention_ms=9, copy_enabled=False, delete_with_topic=True))

    policy = policies("orders")
    assert (policy.retention_ms, policy.copy_enabled, policy.delete_with_topic) == (9, False, True)


@pytest.mark.parametrize(("cleanup", "expected"), [("compact", None), ("compact,delete", 5), ("delete", 5)])
def test_cleaning_policy_has_the_retention_of_every_topic_with_a_delete_policy(
    cleanup: str, expected: int | None
) -> None:
    settings = TopicDefaults(retention_ms=5, cleanup_policy=cleanup)
    policy = resolve_policy(settings, {}, has_broker=False)

    cleaning = resolve_cleaning(settings, policy, PipelineSettings())

    assert (cleaning.compacts, cleaning.retention_ms) == ("compact" in cleanup, expected)
