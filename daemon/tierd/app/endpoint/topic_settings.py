"""Settings of topics as clients see them, under Kafka's names."""

from collections.abc import Mapping

from tierd.tiering import TopicPolicy


def shown_settings(policy: TopicPolicy) -> Mapping[str, str]:
    """Return the settings that a policy stands for."""
    shown = {
        "retention.ms": str(policy.retention_ms),
        "retention.bytes": str(policy.retention_bytes),
        "local.retention.ms": str(policy.local_retention_ms),
        "local.retention.bytes": str(policy.local_retention_bytes),
        "segment.bytes": str(policy.segment_bytes),
        "remote.storage.enable": "true",
        "remote.log.copy.disable": "false" if policy.copy_enabled else "true",
    }
    if policy.cleanup_policy:
        shown["cleanup.policy"] = ",".join(sorted(policy.cleanup_policy))
    return shown
