"""The one YAML file, parsed at the door into frozen settings per room; every fault at once, each with its place."""

from typing import TYPE_CHECKING

from tierd.on_demand import exports_on_demand

if TYPE_CHECKING:
    from tierd.config.config_warning import config_warnings
    from tierd.config.connectors import INTERFACE_VERSION, METADATA, OBJECT_STORE, PluginSettings, find_connector
    from tierd.config.loading import load_config, load_state_dir
    from tierd.config.masked_file import read_masked
    from tierd.config.part_loading import load_part
    from tierd.config.places import PlacedFaultsError
    from tierd.config.schema import CatalogueSettings, CopySettings, ExpireSettings, TierdConfig
    from tierd.config.scram_verifier import SCRAM_HASHES, ScramVerifier
    from tierd.config.sections.control_settings import MqttSettings, MqttTlsSettings
    from tierd.config.sections.cost_settings import PricedTierSettings
    from tierd.config.sections.drill_settings import DrillSettings
    from tierd.config.sections.endpoint_listener_settings import EndpointListenerSettings, EndpointPeerSettings
    from tierd.config.sections.endpoint_login_settings import (
        EndpointAccessRule,
        EndpointQuotaRule,
        EndpointSaslSettings,
        EndpointTlsSettings,
    )
    from tierd.config.sections.host_settings import HostSettings, LogDirSettings
    from tierd.config.sections.kafka_endpoint_settings import (
        EndpointGroupsSettings,
        EndpointQuarantineSettings,
        KafkaEndpointSettings,
    )
    from tierd.config.sections.leadership_settings import KafkaConnectionSettings, LeadershipSettings
    from tierd.config.sections.metadata_settings import MetadataSettings, PostgresSettings, RedisSettings
    from tierd.config.sections.own_log_settings import LogCleanerSettings
    from tierd.config.sections.pipeline_settings import PipelineSettings
    from tierd.config.sections.push_settings import PushReplicationSettings, PushTlsSettings
    from tierd.config.sections.remote_settings import (
        AzureSettings,
        EncryptionSettings,
        GcsSettings,
        RemoteSettings,
        S3Settings,
    )
    from tierd.config.sections.tiered_log_settings import FetchSettings, TieredLogSettings
    from tierd.config.sections.topic_settings import TopicDefaults, TopicsSettings
    from tierd.config.side_file import load_side_file
    from tierd.config.spark_protection import is_on_this_host, protection_faults
    from tierd.config.state_dir import find_state_dir
    from tierd.config.traversal import secrets_of
    from tierd.config.units import format_duration, parse_bytes, parse_duration_s
    from tierd.config.values import (
        AbsolutePath,
        Address,
        ByteLimit,
        ByteSize,
        Duration,
        OwnPath,
        Switch,
        Text,
        Url,
        WholeNumber,
        full_match,
        split_address,
    )
else:
    __getattr__ = exports_on_demand(__name__)

__all__ = [
    "INTERFACE_VERSION",
    "METADATA",
    "OBJECT_STORE",
    "SCRAM_HASHES",
    "AbsolutePath",
    "Address",
    "AzureSettings",
    "ByteLimit",
    "ByteSize",
    "CatalogueSettings",
    "CopySettings",
    "DrillSettings",
    "Duration",
    "EncryptionSettings",
    "EndpointAccessRule",
    "EndpointGroupsSettings",
    "EndpointListenerSettings",
    "EndpointPeerSettings",
    "EndpointQuarantineSettings",
    "EndpointQuotaRule",
    "EndpointSaslSettings",
    "EndpointTlsSettings",
    "ExpireSettings",
    "FetchSettings",
    "GcsSettings",
    "HostSettings",
    "KafkaConnectionSettings",
    "KafkaEndpointSettings",
    "LeadershipSettings",
    "LogCleanerSettings",
    "LogDirSettings",
    "MetadataSettings",
    "MqttSettings",
    "MqttTlsSettings",
    "OwnPath",
    "PipelineSettings",
    "PlacedFaultsError",
    "PluginSettings",
    "PostgresSettings",
    "PricedTierSettings",
    "PushReplicationSettings",
    "PushTlsSettings",
    "RedisSettings",
    "RemoteSettings",
    "S3Settings",
    "ScramVerifier",
    "Switch",
    "Text",
    "TierdConfig",
    "TieredLogSettings",
    "TopicDefaults",
    "TopicsSettings",
    "Url",
    "WholeNumber",
    "config_warnings",
    "find_connector",
    "find_state_dir",
    "format_duration",
    "full_match",
    "is_on_this_host",
    "load_config",
    "load_part",
    "load_side_file",
    "load_state_dir",
    "parse_bytes",
    "parse_duration_s",
    "protection_faults",
    "read_masked",
    "secrets_of",
    "split_address",
]
