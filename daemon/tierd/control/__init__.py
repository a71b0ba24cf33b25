"""Sources of leadership: the partitions that this broker leads. The metadata store fences, whatever a source says."""

from importlib import import_module
from typing import TYPE_CHECKING

from tierd.control.cluster_metadata import BrokerAddress, ClusterMetadata, TopicConfig, TopicKnowledge, TopicLeaders
from tierd.control.leadership import Leadership, LeadershipSource, Role
from tierd.control.static import StaticLeadership

if TYPE_CHECKING:
    from tierd.control.admin_messages import (
        CoordinatedGroupState,
        CreatedTopic,
        GroupCoordinator,
        NewPosition,
        NewTopic,
        change_topic_config,
        commit_positions,
        committed_position,
        create_topic,
        describe_broker_config,
        describe_group,
        find_coordinator,
    )
    from tierd.control.broker_connections import bootstrap_addresses
    from tierd.control.broker_watermarks import BrokerWatermarks
    from tierd.control.cluster_topics import ClusterTopics
    from tierd.control.kafka import KafkaLeadership
    from tierd.control.kafka_check import BrokerProbe, probe_broker, probe_controller, release_of
    from tierd.control.kafka_connection import KafkaConnection
    from tierd.control.kafka_framing import Request
    from tierd.control.kafka_messages import describe_topic_configs, metadata, named_topics
    from tierd.control.message_guard import require_sound
    from tierd.control.mqtt.announced_leadership import AnnouncedLeadership
    from tierd.control.mqtt.control_messages import NodeState, PeerEndpoint, PeerRequest
    from tierd.control.mqtt.control_state import ControlIdentity
    from tierd.control.mqtt.control_topics import PushEventTopic
    from tierd.control.mqtt.mqtt_control import MqttControl
    from tierd.control.mqtt.mqtt_leadership import MqttLeadership
    from tierd.control.record_messages import (
        FetchedRecords,
        ListedPosition,
        LogBound,
        ProduceAnswer,
        ProduceOutcome,
        ProducerIdentity,
        fetch,
        init_producer_id,
        list_offsets,
        produce,
    )
    from tierd.control.topic_configs import BrokerTopicConfigs

__all__ = [
    "AnnouncedLeadership",
    "BrokerAddress",
    "BrokerProbe",
    "BrokerTopicConfigs",
    "BrokerWatermarks",
    "ClusterMetadata",
    "ClusterTopics",
    "ControlIdentity",
    "CoordinatedGroupState",
    "CreatedTopic",
    "FetchedRecords",
    "GroupCoordinator",
    "KafkaConnection",
    "KafkaLeadership",
    "Leadership",
    "LeadershipSource",
    "ListedPosition",
    "LogBound",
    "MqttControl",
    "MqttLeadership",
    "NewPosition",
    "NewTopic",
    "NodeState",
    "PeerEndpoint",
    "PeerRequest",
    "ProduceAnswer",
    "ProduceOutcome",
    "ProducerIdentity",
    "PushEventTopic",
    "Request",
    "Role",
    "StaticLeadership",
    "TopicConfig",
    "TopicKnowledge",
    "TopicLeaders",
    "bootstrap_addresses",
    "change_topic_config",
    "commit_positions",
    "committed_position",
    "create_topic",
    "describe_broker_config",
    "describe_group",
    "describe_topic_configs",
    "fetch",
    "find_coordinator",
    "init_producer_id",
    "list_offsets",
    "metadata",
    "named_topics",
    "probe_broker",
    "probe_controller",
    "produce",
    "release_of",
    "require_sound",
]

# The modules of Kafka's protocol take 0.3 s and 27 MB to import, which most commands never need.
_ON_DEMAND = {
    "AnnouncedLeadership": "tierd.control.mqtt.announced_leadership",
    "ControlIdentity": "tierd.control.mqtt.control_state",
    "PushEventTopic": "tierd.control.mqtt.control_topics",
    "MqttControl": "tierd.control.mqtt.mqtt_control",
    "MqttLeadership": "tierd.control.mqtt.mqtt_leadership",
    "NodeState": "tierd.control.mqtt.control_messages",
    "PeerEndpoint": "tierd.control.mqtt.control_messages",
    "PeerRequest": "tierd.control.mqtt.control_messages",
    "LogBound": "tierd.control.record_messages",
    "CreatedTopic": "tierd.control.admin_messages",
    "BrokerProbe": "tierd.control.kafka_check",
    "BrokerTopicConfigs": "tierd.control.topic_configs",
    "BrokerWatermarks": "tierd.control.broker_watermarks",
    "FetchedRecords": "tierd.control.record_messages",
    "GroupCoordinator": "tierd.control.admin_messages",
    "CoordinatedGroupState": "tierd.control.admin_messages",
    "KafkaConnection": "tierd.control.kafka_connection",
    "ClusterTopics": "tierd.control.cluster_topics",
    "KafkaLeadership": "tierd.control.kafka",
    "ListedPosition": "tierd.control.record_messages",
    "NewPosition": "tierd.control.admin_messages",
    "NewTopic": "tierd.control.admin_messages",
    "ProduceAnswer": "tierd.control.record_messages",
    "ProduceOutcome": "tierd.control.record_messages",
    "ProducerIdentity": "tierd.control.record_messages",
    "Request": "tierd.control.kafka_framing",
    "bootstrap_addresses": "tierd.control.broker_connections",
    "change_topic_config": "tierd.control.admin_messages",
    "commit_positions": "tierd.control.admin_messages",
    "committed_position": "tierd.control.admin_messages",
    "create_topic": "tierd.control.admin_messages",
    "describe_broker_config": "tierd.control.admin_messages",
    "describe_group": "tierd.control.admin_messages",
    "describe_topic_configs": "tierd.control.kafka_messages",
    "fetch": "tierd.control.record_messages",
    "find_coordinator": "tierd.control.admin_messages",
    "init_producer_id": "tierd.control.record_messages",
    "list_offsets": "tierd.control.record_messages",
    "metadata": "tierd.control.kafka_messages",
    "named_topics": "tierd.control.kafka_messages",
    "probe_broker": "tierd.control.kafka_check",
    "probe_controller": "tierd.control.kafka_check",
    "produce": "tierd.control.record_messages",
    "release_of": "tierd.control.kafka_check",
    "require_sound": "tierd.control.message_guard",
}


def __getattr__(name: str) -> object:
    """Import a name of ``_ON_DEMAND`` when it is first asked for (PEP 562)."""
    if name not in _ON_DEMAND:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_ON_DEMAND[name]), name)
