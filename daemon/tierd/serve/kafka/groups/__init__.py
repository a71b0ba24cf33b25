"""Consumer groups of the read endpoint: the classic protocol, with commits in the metadata store."""

from tierd.serve.kafka.groups.consumer_groups import ConsumerGroups
from tierd.serve.kafka.groups.coordination.coordination_limits import CoordinationLimits
from tierd.serve.kafka.groups.coordination.group_statistics import GroupStatistics
from tierd.serve.kafka.groups.coordination.placement import Placement

__all__ = ["ConsumerGroups", "CoordinationLimits", "GroupStatistics", "Placement"]
