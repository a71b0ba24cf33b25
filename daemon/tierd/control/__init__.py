"""Sources of leadership: the partitions that this broker leads. The metadata store fences, whatever a source says."""

from importlib import import_module
from typing import TYPE_CHECKING

from tierd.control.cluster_metadata import BrokerAddress
from tierd.control.leadership import Leadership, LeadershipSource, Role
from tierd.control.static import StaticLeadership

if TYPE_CHECKING:
    from tierd.control.broker_connections import bootstrap_addresses
    from tierd.control.kafka import KafkaLeadership
    from tierd.control.kafka_check import BrokerProbe, probe_broker, probe_controller, release_of
    from tierd.control.topic_configs import BrokerTopicConfigs

__all__ = [
    "BrokerAddress",
    "BrokerProbe",
    "BrokerTopicConfigs",
    "KafkaLeadership",
    "Leadership",
    "LeadershipSource",
    "Role",
    "StaticLeadership",
    "bootstrap_addresses",
    "probe_broker",
    "probe_controller",
    "release_of",
]

# The modules of Kafka's protocol take 0.3 s and 27 MB to import, which most commands never need.
_ON_DEMAND = {
    "BrokerProbe": "tierd.control.kafka_check",
    "BrokerTopicConfigs": "tierd.control.topic_configs",
    "KafkaLeadership": "tierd.control.kafka",
    "bootstrap_addresses": "tierd.control.broker_connections",
    "probe_broker": "tierd.control.kafka_check",
    "probe_controller": "tierd.control.kafka_check",
    "release_of": "tierd.control.kafka_check",
}


def __getattr__(name: str) -> object:
    """Import a name of ``_ON_DEMAND`` when it is first asked for (PEP 562)."""
    if name not in _ON_DEMAND:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_ON_DEMAND[name]), name)
