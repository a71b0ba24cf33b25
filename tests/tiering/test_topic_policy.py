"""Settings of a topic that tiering obeys."""

from tierd.tiering.topic_policy import UNLIMITED, TopicPolicy


def test_default_policy_keeps_and_copies_all_segments() -> None:
    policy = TopicPolicy()
    assert (policy.expires_ms, policy.expires_bytes, policy.copy_enabled) == (UNLIMITED, UNLIMITED, True)
    assert not policy.delete_with_topic


def test_local_retention_is_the_total_retention_unless_it_is_set() -> None:
    policy = TopicPolicy(retention_ms=10, retention_bytes=20)
    assert (policy.effective_local_retention_ms, policy.effective_local_retention_bytes) == (10, 20)
    policy = TopicPolicy(retention_ms=10, retention_bytes=20, local_retention_ms=1, local_retention_bytes=-1)
    assert (policy.effective_local_retention_ms, policy.effective_local_retention_bytes) == (1, -1)


def test_compact_only_policy_has_no_expiration() -> None:
    limits = TopicPolicy(retention_ms=10, retention_bytes=20, cleanup_policy=frozenset({"compact"}))
    assert (limits.expires_ms, limits.expires_bytes) == (-1, -1)
    both = TopicPolicy(retention_ms=10, retention_bytes=20, cleanup_policy=frozenset({"compact", "delete"}))
    assert (both.expires_ms, both.expires_bytes) == (10, 20)
