"""Selection of tiered topics, and the settings of each topic."""

from typing import Literal

from pydantic import Field, model_validator

from tierd.config.places import Location, PlacedFaultsError
from tierd.config.section import Settings
from tierd.config.sections.own_log_settings import OwnLogOverride, OwnLogSettings
from tierd.config.traversal import leaf_values
from tierd.config.values import (
    Duration,
    LagBytes,
    LagMs,
    LocalRetentionBytes,
    LocalRetentionMs,
    Pattern,
    Ratio,
    RetentionBytes,
    RetentionMs,
    SegmentBytes,
    Switch,
    full_match,
)

CleanupPolicy = Literal["from-broker", "delete", "compact", "compact,delete"]


class TopicDefaults(Settings):
    """Retention and copy settings of a topic. ``from-broker`` needs the section leadership.kafka."""

    retention_ms: RetentionMs = Field(
        -1,
        alias="retention",
        description="time that the tier keeps records; -1: for ever; from-broker: no longer than Kafka",
    )
    retention_bytes: RetentionBytes = Field(
        -1, description="size that the total log of a partition keeps; -1: no limit; from-broker: no more than Kafka"
    )
    local_retention_ms: LocalRetentionMs = Field(
        -2,
        alias="local_retention",
        description="time that tierd's own log dirs keep records; -2: the value of retention",
    )
    local_retention_bytes: LocalRetentionBytes = Field(
        -2, description="size that tierd's own log dirs keep of a partition; -2: the value of retention_bytes"
    )
    cleanup_policy: CleanupPolicy = Field(
        "from-broker", description="delete, compact or both; from-broker without a connection to Kafka means delete"
    )
    delete_retention_s: Duration = Field(
        86_400.0,
        alias="delete_retention",
        ge=0,
        description="time that compaction keeps the tombstones of deleted keys",
    )
    min_cleanable_dirty_ratio: Ratio = Field(
        0.5, description="share of a partition that must be new since its last compaction, before the next compaction"
    )
    min_compaction_lag_s: Duration = Field(
        0.0, alias="min_compaction_lag", ge=0, description="age that a segment must have before it is compacted"
    )
    max_compaction_lag_s: Duration | None = Field(
        None,
        alias="max_compaction_lag",
        gt=0,
        description="age of a new record at which its partition is compacted at any ratio; none: no such age",
    )
    segment_bytes: SegmentBytes = Field(
        1 << 30, description="size of a merged segment, and size at which a segment in tierd's own log dirs rolls"
    )
    copy_enabled: Switch = Field(
        True, alias="copy", description="false: no new copies; segments in the tier still expire"
    )
    copy_lag_ms: LagMs = Field(
        0,
        alias="copy_lag",
        description="age at which a segment is copied; 0: at once; -1: the value of local_retention",
    )
    copy_lag_bytes: LagBytes = Field(
        -1, description="bytes of the log behind a segment at which it is copied earlier; -1: local_retention_bytes"
    )
    delete_with_topic: Switch = Field(
        False, description="true: tierd deletes the tier of a topic that Kafka deletes; false: the tier stays"
    )
    log: OwnLogSettings = Field(
        default_factory=OwnLogSettings,
        description="settings of tierd's own logs, which are in log dirs with owner: tierd",
    )


class TopicOverride(Settings):
    """Settings of topics whose whole name matches. If several overrides set a key, the last one is used."""

    match: Pattern = Field(description="full-match regular expression over the topic name", examples=["orders"])
    retention_ms: RetentionMs | None = Field(None, alias="retention", description="as in topics.defaults")
    retention_bytes: RetentionBytes | None = Field(None, description="as in topics.defaults")
    local_retention_ms: LocalRetentionMs | None = Field(
        None, alias="local_retention", description="as in topics.defaults"
    )
    local_retention_bytes: LocalRetentionBytes | None = Field(None, description="as in topics.defaults")
    cleanup_policy: CleanupPolicy | None = Field(None, description="as in topics.defaults")
    delete_retention_s: Duration | None = Field(
        None, alias="delete_retention", ge=0, description="as in topics.defaults"
    )
    min_cleanable_dirty_ratio: Ratio | None = Field(None, description="as in topics.defaults")
    min_compaction_lag_s: Duration | None = Field(
        None, alias="min_compaction_lag", ge=0, description="as in topics.defaults"
    )
    max_compaction_lag_s: Duration | None = Field(
        None, alias="max_compaction_lag", gt=0, description="as in topics.defaults"
    )
    segment_bytes: SegmentBytes | None = Field(None, description="as in topics.defaults")
    copy_enabled: Switch | None = Field(None, alias="copy", description="as in topics.defaults")
    copy_lag_ms: LagMs | None = Field(None, alias="copy_lag", description="as in topics.defaults")
    copy_lag_bytes: LagBytes | None = Field(None, description="as in topics.defaults")
    delete_with_topic: Switch | None = Field(None, description="as in topics.defaults")
    log: OwnLogOverride = Field(default_factory=OwnLogOverride, description="as in topics.defaults")


def left_to_brokers(topics: "TopicsSettings") -> list[Location]:
    """Return the keys of ``topics`` that say ``from-broker`` and need a broker that can be asked.

    ``cleanup_policy`` is not one of them: without a connection to Kafka it is Kafka's default, ``delete``.
    """
    written = [location for location, _, value in leaf_values(topics) if value == "from-broker"]
    return [location for location in written if location[-1] != "cleanup_policy"]


class TopicsSettings(Settings):
    """Selection of tiered topics: included and not excluded, by full-match regular expressions over the name."""

    include: tuple[Pattern, ...] = Field((".*",), description="topics to tier: full-match regular expressions")
    exclude: tuple[Pattern, ...] = Field(
        ("__.*",), description="topics that are not tiered, although they are included: full-match regular expressions"
    )
    defaults: TopicDefaults = Field(default_factory=TopicDefaults, description="settings of every topic")
    overrides: tuple[TopicOverride, ...] = Field(
        (), description="other settings for some topics; the last matching override wins"
    )

    def wants(self, topic: str) -> bool:
        """Return True if ``topic`` is tiered."""
        return full_match(self.include, topic) and not full_match(self.exclude, topic)

    def for_topic(self, topic: str) -> TopicDefaults:
        """Return the settings of ``topic``: the defaults, and over them every matching override, in file order."""
        changes: dict[str, object] = {}
        log_changes: dict[str, object] = {}
        for override in self.overrides:
            if full_match((override.match,), topic):
                changes |= override.model_dump(exclude_none=True, exclude={"match", "log"})
                log_changes |= override.log.model_dump(exclude_none=True)
        log = self.defaults.log.model_copy(update=log_changes)
        return self.defaults.model_copy(update={**changes, "log": log})

    @model_validator(mode="after")
    def _lags_fit_the_local_retention(self) -> "TopicsSettings":
        faults: list[tuple[Location, str]] = []
        sections: list[tuple[Location, TopicDefaults | TopicOverride]] = [(("defaults",), self.defaults)]
        sections += [(("overrides", index), override) for index, override in enumerate(self.overrides)]
        for location, section in sections:
            # A value that could not be read hides the rule for its own section only.
            lag, local = getattr(section, "copy_lag_ms", None), getattr(section, "local_retention_ms", None)
            if isinstance(lag, int) and isinstance(local, int) and 0 < local < lag:
                message = "copy_lag is longer than local_retention: records would go before they are copied"
                faults.append(((*location, "copy_lag"), message))
        if faults:
            raise PlacedFaultsError(faults)
        return self
