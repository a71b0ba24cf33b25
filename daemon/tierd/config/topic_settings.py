"""Selection of tiered topics, and the settings of each topic."""

from typing import Literal

from pydantic import Field, model_validator

from tierd.config.own_log_settings import OwnLogOverride, OwnLogSettings
from tierd.config.places import Location, PlacedFaultsError
from tierd.config.section import Settings
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
        description="how long the tier keeps records; -1: for ever; from-broker: no longer than Kafka",
    )
    retention_bytes: RetentionBytes = Field(
        -1, description="how much of a partition both tiers keep; -1: no limit; from-broker: no more than Kafka"
    )
    local_retention_ms: LocalRetentionMs = Field(
        -2, alias="local_retention", description="how long tierd's own log dirs keep records; -2: as retention"
    )
    local_retention_bytes: LocalRetentionBytes = Field(
        -2, description="how much of a partition tierd's own log dirs keep; -2: as retention_bytes"
    )
    cleanup_policy: CleanupPolicy = Field(
        "from-broker", description="delete, compact or both; from-broker without a connection to Kafka means delete"
    )
    delete_retention_s: Duration = Field(
        86_400.0, alias="delete_retention", ge=0, description="how long compaction keeps tombstones of deleted keys"
    )
    min_cleanable_dirty_ratio: Ratio = Field(
        0.5, description="share of a partition that must be new since its last compaction before the next one"
    )
    min_compaction_lag_s: Duration = Field(
        0.0, alias="min_compaction_lag", ge=0, description="age that a segment must have before it is compacted"
    )
    max_compaction_lag_s: Duration | None = Field(
        None,
        alias="max_compaction_lag",
        gt=0,
        description="age at which it is compacted whatever the ratio; none: never",
    )
    segment_bytes: SegmentBytes = Field(
        1 << 30, description="size that small segments are merged to, and at which own log dirs roll"
    )
    copy_enabled: Switch = Field(True, alias="copy", description="false: copy nothing new; what is there still expires")
    copy_lag_ms: LagMs = Field(
        0, alias="copy_lag", description="age at which a segment may be copied; 0: at once; -1: local_retention"
    )
    copy_lag_bytes: LagBytes = Field(
        -1, description="bytes behind a segment at which it may be copied anyway; -1: local_retention_bytes"
    )
    delete_with_topic: Switch = Field(
        False, description="true: when Kafka deletes the topic, the tier does too; false: the tier keeps it"
    )
    log: OwnLogSettings = Field(
        default_factory=OwnLogSettings, description="tierd's own logs, those in log dirs with owner: tierd"
    )


class TopicOverride(Settings):
    """Settings of topics whose whole name matches; of several overrides the last one that sets a key wins."""

    match: Pattern = Field(description="full-match regular expression over the topic name", examples=["orders"])
    retention_ms: RetentionMs | None = Field(None, alias="retention", description="as in defaults")
    retention_bytes: RetentionBytes | None = Field(None, description="as in defaults")
    local_retention_ms: LocalRetentionMs | None = Field(None, alias="local_retention", description="as in defaults")
    local_retention_bytes: LocalRetentionBytes | None = Field(None, description="as in defaults")
    cleanup_policy: CleanupPolicy | None = Field(None, description="as in defaults")
    delete_retention_s: Duration | None = Field(None, alias="delete_retention", ge=0, description="as in defaults")
    min_cleanable_dirty_ratio: Ratio | None = Field(None, description="as in defaults")
    min_compaction_lag_s: Duration | None = Field(None, alias="min_compaction_lag", ge=0, description="as in defaults")
    max_compaction_lag_s: Duration | None = Field(None, alias="max_compaction_lag", gt=0, description="as in defaults")
    segment_bytes: SegmentBytes | None = Field(None, description="as in defaults")
    copy_enabled: Switch | None = Field(None, alias="copy", description="as in defaults")
    copy_lag_ms: LagMs | None = Field(None, alias="copy_lag", description="as in defaults")
    copy_lag_bytes: LagBytes | None = Field(None, description="as in defaults")
    delete_with_topic: Switch | None = Field(None, description="as in defaults")
    log: OwnLogOverride = Field(default_factory=OwnLogOverride, description="as in defaults")


def left_to_brokers(topics: "TopicsSettings") -> list[Location]:
    """Return the keys of ``topics`` that say ``from-broker`` and need a broker that can be asked.

    ``cleanup_policy`` is not one of them: without a connection to Kafka it is Kafka's default, ``delete``.
    """
    written = [location for location, _, value in leaf_values(topics) if value == "from-broker"]
    return [location for location in written if location[-1] != "cleanup_policy"]


class TopicsSettings(Settings):
    """Selection of tiered topics: included and not excluded, by full-match regular expressions over the name."""

    include: tuple[Pattern, ...] = Field((".*",), description="topics to tier: full-match regular expressions")
    exclude: tuple[Pattern, ...] = Field(("__.*",), description="topics to leave alone, even when included")
    defaults: TopicDefaults = Field(default_factory=TopicDefaults, description="what every topic keeps")
    overrides: tuple[TopicOverride, ...] = Field((), description="what differs for some topics; the last match wins")

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
