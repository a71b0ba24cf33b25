"""Who leads which partition: the sources of leadership. None is an authority over data; the metadata store fences."""

from tierd.control.kafka import KafkaLeadership, LeadershipStatistics
from tierd.control.leadership import Leadership, LeadershipSource, Role
from tierd.control.static import StaticLeadership
from tierd.control.topic_configs import BrokerTopicConfigs

__all__ = [
    "BrokerTopicConfigs",
    "KafkaLeadership",
    "Leadership",
    "LeadershipSource",
    "LeadershipStatistics",
    "Role",
    "StaticLeadership",
]
