"""The one YAML file, parsed at the door into frozen settings per room; every fault at once, each with its place."""

from tierd.config.loading import load_config
from tierd.config.schema import (
    CopySettings,
    FetchSettings,
    FilesystemSettings,
    HoldSettings,
    HttpSettings,
    LeadershipSettings,
    LogDirSettings,
    LoggingSettings,
    MetadataSettings,
    RemoteSettings,
    RetrySettings,
    S3Settings,
    SqliteSettings,
    TierdConfig,
    TopicsSettings,
)
from tierd.config.units import format_bytes, format_duration, parse_bytes, parse_duration_s

__all__ = [
    "CopySettings",
    "FetchSettings",
    "FilesystemSettings",
    "HoldSettings",
    "HttpSettings",
    "LeadershipSettings",
    "LogDirSettings",
    "LoggingSettings",
    "MetadataSettings",
    "RemoteSettings",
    "RetrySettings",
    "S3Settings",
    "SqliteSettings",
    "TierdConfig",
    "TopicsSettings",
    "format_bytes",
    "format_duration",
    "load_config",
    "parse_bytes",
    "parse_duration_s",
]
