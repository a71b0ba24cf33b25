"""TopicPolicies: the policy of each topic, from the file and, where the file has ``from-broker``, from the brokers."""

import asyncio
from collections.abc import Callable, Collection, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Final

import tierd.pipeline
from tierd.app.engine.local_logs import LocalLogs
from tierd.config import PipelineSettings, TopicDefaults, TopicsSettings
from tierd.tiering import TopicPolicy

# Copies need no rules of the Spark job: its modules are imported where they are used.
if TYPE_CHECKING:
    from tierd.pipeline import CleaningPolicy
    from tierd.tiering import RemoteLogManager

_LONG_MAX: Final = 2**63 - 1  # Kafka's other way to say that nothing is too old

BrokerSettings = Callable[[str], Mapping[str, str] | None]
"""A topic's settings as the brokers have them; None while the brokers have not answered."""


class TopicPolicies:
    """Policies of topics as they are in force now.

    While the brokers have not answered, a setting that is left to them counts as the value that keeps the most: no
    limit, and a cleanup policy that neither deletes nor compacts. So nothing expires because a broker was silent.
    """

    def __init__(self, topics: Callable[[], TopicsSettings], broker: BrokerSettings | None) -> None:
        """Read the file's section in force from ``topics``; ``broker`` is None without a connection to Kafka."""
        self._topics = topics
        self._broker = broker

    def __call__(self, topic: str) -> TopicPolicy:
        """Return the policy of ``topic``; blocks for nothing."""
        settings = self._topics().for_topic(topic)
        brokers: Mapping[str, str] | None = {}
        if self._broker is not None and needs_broker(settings):
            brokers = self._broker(topic)
        return resolve_policy(settings, brokers, has_broker=self._broker is not None)

    def cleaning(self, topic: str, pipeline: PipelineSettings) -> "CleaningPolicy":
        """Return the rules of the Spark job for ``topic``; blocks for nothing."""
        return resolve_cleaning(self._topics().for_topic(topic), self(topic), pipeline)


class PolicyChanges:
    """Application of changed policies, one after the other; changes that come together are applied once."""

    def __init__(self, logs: LocalLogs) -> None:
        self._logs = logs
        self._changed = asyncio.Event()

    def report(self, topics: Collection[str] = ()) -> None:
        """Report that policies may have changed; ``topics`` is unused: the policies of all topics are read anew."""
        self._changed.set()

    async def run(self, manager: "RemoteLogManager") -> None:
        """Apply the policies after each report, until cancelled."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            await self._logs.follow_policies()
            await manager.follow_policies()


def needs_broker(settings: TopicDefaults) -> bool:
    """Return True if any field is left to the brokers."""
    return "from-broker" in (
        settings.retention_ms,
        settings.retention_bytes,
        settings.local_retention_ms,
        settings.local_retention_bytes,
        settings.cleanup_policy,
        settings.segment_bytes,
    )


def resolve_policy(settings: TopicDefaults, brokers: Mapping[str, str] | None, *, has_broker: bool) -> TopicPolicy:
    """Combine the settings of the file and of the brokers into the policy of a topic.

    Args:
        settings: the file's, for this topic.
        brokers: the brokers' settings of the topic, None while they have not answered.
        has_broker: there is a broker to ask; without one, ``cleanup_policy`` is Kafka's default, ``delete``.
    """
    return TopicPolicy(
        retention_ms=_number(settings.retention_ms, brokers, "retention.ms", otherwise=-1),
        retention_bytes=_number(settings.retention_bytes, brokers, "retention.bytes", otherwise=-1),
        local_retention_ms=_number(settings.local_retention_ms, brokers, "local.retention.ms", otherwise=-1),
        local_retention_bytes=_number(settings.local_retention_bytes, brokers, "local.retention.bytes", otherwise=-1),
        cleanup_policy=_cleanup_policy(settings, brokers, has_broker=has_broker),
        copy_enabled=settings.copy_enabled,
        copy_lag_ms=settings.copy_lag_ms,
        copy_lag_bytes=settings.copy_lag_bytes,
        segment_bytes=_number(settings.segment_bytes, brokers, "segment.bytes", otherwise=1 << 30),
        delete_with_topic=settings.delete_with_topic,
    )


def resolve_cleaning(settings: TopicDefaults, policy: TopicPolicy, pipeline: PipelineSettings) -> "CleaningPolicy":
    """Return the job's rules for a topic, from its policy and from the settings that concern the job alone."""
    compacts = pipeline.compact and "compact" in policy.cleanup_policy
    max_lag_s = settings.max_compaction_lag_s
    return tierd.pipeline.CleaningPolicy(
        compacts=compacts,
        retention_ms=policy.expires_ms if policy.expires_ms >= 0 else None,
        delete_retention_ms=round(settings.delete_retention_s * 1000),
        min_cleanable_dirty_ratio=settings.min_cleanable_dirty_ratio,
        min_compaction_lag_ms=round(settings.min_compaction_lag_s * 1000),
        max_compaction_lag_ms=None if max_lag_s is None else round(max_lag_s * 1000),
        merge_below_bytes=pipeline.merge_below_bytes if pipeline.merge else None,
        segment_bytes=policy.segment_bytes,
    )


def _number(configured: int | str, brokers: Mapping[str, str] | None, key: str, *, otherwise: int) -> int:
    if isinstance(configured, int):
        return configured
    try:
        value = int((brokers or {})[key])
    except (KeyError, ValueError):
        return otherwise
    return otherwise if value == _LONG_MAX else value


def _cleanup_policy(settings: TopicDefaults, brokers: Mapping[str, str] | None, *, has_broker: bool) -> frozenset[str]:
    text: str = settings.cleanup_policy
    if text == "from-broker":
        text = (brokers or {}).get("cleanup.policy", "") if has_broker else "delete"
    return _policies_named(text)


@lru_cache(maxsize=64)
def _policies_named(text: str) -> frozenset[str]:
    """Return the policies in a list of names: one set for thousands of topics, each of which has one of few lists."""
    return frozenset(text.replace(" ", "").split(",")) - {""}
