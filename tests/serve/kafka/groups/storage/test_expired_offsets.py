"""Commits expire as in Kafka (KIP-211): from the moment that decides for their kind of group."""

from uuid import UUID

from tierd.serve.kafka.groups.storage.group_offset import (
    GroupOffset,
    OffsetKey,
    RetentionCircumstances,
    expired_offsets,
)

DAY_MS = 86_400_000
NOW_MS = 100 * DAY_MS


def offset(topic: str, days_old: int, *, expire_ms: int | None = None) -> GroupOffset:
    return GroupOffset(topic, 10, -1, "", NOW_MS - days_old * DAY_MS, expire_ms)


def topics_expired(
    offsets: list[GroupOffset],
    *,
    protocol_type: str | None = "consumer",
    empty_days: int | None = None,
    subscriptions: frozenset[str] | None = None,
) -> list[str]:
    keyed = {OffsetKey(UUID(int=number), 0): each for number, each in enumerate(offsets)}
    empty_since_ms = None if empty_days is None else NOW_MS - empty_days * DAY_MS
    group = RetentionCircumstances(
        protocol_type=protocol_type, empty_since_ms=empty_since_ms, subscriptions=subscriptions
    )
    expired = expired_offsets(keyed, group, now_ms=NOW_MS, retention_s=7 * 86400.0)
    return [keyed[key].topic for key in expired]


OLD, YOUNG = offset("old", 8), offset("young", 6)


def test_commits_of_a_simple_group_expire_by_their_own_age() -> None:
    assert topics_expired([OLD, YOUNG], protocol_type=None, empty_days=50) == ["old"]


def test_commits_of_a_group_without_members_expire_together() -> None:
    assert topics_expired([OLD, YOUNG], empty_days=6) == []
    assert topics_expired([OLD, YOUNG], empty_days=7) == ["old", "young"]


def test_commits_of_a_stable_group_expire_only_for_topics_that_no_member_reads() -> None:
    assert topics_expired([OLD, YOUNG], subscriptions=frozenset({"old"})) == []
    assert topics_expired([OLD, YOUNG], subscriptions=frozenset({"other"})) == ["old"]


def test_commits_of_a_group_whose_subscriptions_are_not_known_are_kept() -> None:
    assert topics_expired([OLD, YOUNG]) == []
    assert topics_expired([OLD, YOUNG], protocol_type="connect") == []


def test_commit_with_a_retention_of_its_own_expires_by_it() -> None:
    wished = [offset("soon", 1, expire_ms=NOW_MS), offset("late", 90, expire_ms=NOW_MS + 1)]
    assert topics_expired(wished, empty_days=50) == ["soon"]
