"""The settings of a topic that tiering obeys."""

from tierd.tiering.topic_policy import UNLIMITED, TopicPolicy


def test_by_default_everything_is_kept_and_copied() -> None:
    policy = TopicPolicy()
    assert (policy.expires_ms, policy.expires_bytes, policy.copy_enabled) == (UNLIMITED, UNLIMITED, True)
    assert not policy.delete_with_topic


def test_local_retention_is_the_total_unless_it_has_its_own() -> None:
    policy = TopicPolicy(retention_ms=10, retention_bytes=20)
    assert (policy.effective_local_retention_ms, policy.effective_local_retention_bytes) == (10, 20)
    policy = TopicPolicy(retention_ms=10, retention_bytes=20, local_retention_ms=1, local_retention_bytes=-1)
    assert (policy.effective_local_retention_ms, policy.effective_local_retention_bytes) == (1, -1)


def test_only_what_may_be_deleted_expires() -> None:
    limits = TopicPolicy(retention_ms=10, retention_bytes=20, cleanup_policy=frozenset({"compact"}))
    assert (limits.expires_ms, limits.expires_bytes) == (-1, -1)
    both = TopicPolicy(retention_ms=10, retention_bytes=20, cleanup_policy=frozenset({"compact", "delete"}))
    assert (both.expires_ms, both.expires_bytes) == (10, 20)
