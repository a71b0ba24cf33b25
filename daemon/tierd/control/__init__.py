"""Sources of leadership: the partitions that this broker leads. The metadata store fences, whatever a source says."""

from typing import TYPE_CHECKING

from tierd.on_demand import exports_on_demand

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
    from tierd.control.cluster_metadata import BrokerAddress, ClusterMetadata, TopicConfig, TopicKnowledge, TopicLeaders
    from tierd.control.cluster_topics import ClusterTopics
    from tierd.control.kafka import KafkaLeadership
    from tierd.control.kafka_check import BrokerProbe, probe_broker, probe_controller, release_of
    from tierd.control.kafka_connection import KafkaConnection
    from tierd.control.kafka_framing import Request
    from tierd.control.kafka_messages import describe_topic_configs, metadata, named_topics
    from tierd.control.leadership import Leadership, LeadershipSource, Role, StaticLeadership
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
else:
    __getattr__ = exports_on_demand(__name__)
