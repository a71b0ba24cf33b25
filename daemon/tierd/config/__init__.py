"""The one YAML file, parsed at the door into frozen settings per room; every fault at once, each with its place."""

from tierd.config.leadership_settings import KafkaConnectionSettings, LeadershipSettings
from tierd.config.loading import load_config
from tierd.config.metadata_settings import MetadataSettings, PostgresSettings, RedisSettings, SqliteSettings
from tierd.config.pipeline_settings import PipelineSettings
from tierd.config.remote_settings import (
    AzureSettings,
    CompressionSettings,
    EncryptionKeySettings,
    EncryptionSettings,
    FilesystemSettings,
    GcsSettings,
    RemoteSettings,
    RetrySettings,
    S3Settings,
    SseSettings,
)
from tierd.config.schema import (
    CopySettings,
    CostSettings,
    ExpireSettings,
    FetchSettings,
    HoldSettings,
    HttpSettings,
    LogDirSettings,
    LoggingSettings,
    TierdConfig,
)
from tierd.config.side_file import load_side_file
from tierd.config.topic_settings import TopicDefaults, TopicOverride, TopicsSettings
from tierd.config.units import format_bytes, format_duration, parse_bytes, parse_duration_s

__all__ = [
    "AzureSettings",
    "CompressionSettings",
    "CopySettings",
    "CostSettings",
    "EncryptionKeySettings",
    "EncryptionSettings",
    "ExpireSettings",
    "FetchSettings",
    "FilesystemSettings",
    "GcsSettings",
    "HoldSettings",
    "HttpSettings",
    "KafkaConnectionSettings",
    "LeadershipSettings",
    "LogDirSettings",
    "LoggingSettings",
    "MetadataSettings",
    "PipelineSettings",
    "PostgresSettings",
    "RedisSettings",
    "RemoteSettings",
    "RetrySettings",
    "S3Settings",
    "SqliteSettings",
    "SseSettings",
    "TierdConfig",
    "TopicDefaults",
    "TopicOverride",
    "TopicsSettings",
    "format_bytes",
    "format_duration",
    "load_config",
    "load_side_file",
    "parse_bytes",
    "parse_duration_s",
]
