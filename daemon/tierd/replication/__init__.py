"""Push replication: the leader sends each append, the tail that is not rolled included, to the logs of standbys."""

from typing import TYPE_CHECKING

from tierd.on_demand import exports_on_demand

if TYPE_CHECKING:
    from tierd.replication.follower.leader_connection import OpenLeaderChannel
    from tierd.replication.follower.rules.followed_partition import FollowerTimes
    from tierd.replication.follower.standby import Standby
    from tierd.replication.follower.standby_identity import StandbyIdentity
    from tierd.replication.follower.standby_memory import StandbyMemory
    from tierd.replication.follower.standby_settings import StandbySettings
    from tierd.replication.follower.standby_status import ReplicaStatus, StandbyStatus
    from tierd.replication.follower.standby_topics import StandbyTopics
    from tierd.replication.leader.assignments import LeaderAssignments
    from tierd.replication.leader.leader_server import PushLeaderServer
    from tierd.replication.leader.led_replicators import LedReplicators
    from tierd.replication.leader.logs.leader_log import LeaderLog
    from tierd.replication.leader.logs.open_segments import OpenSegments
    from tierd.replication.leader.logs.owned_leader_log import OwnedLeaderLog
    from tierd.replication.leader.pushing.push_actions import PushLeader
    from tierd.replication.leader.pushing.push_counters import PushHistogram
    from tierd.replication.leader.pushing.push_manager import OnSession, PushManager
    from tierd.replication.leader.pushing.push_settings import PushSettings
    from tierd.replication.leader.pushing.pusher import OpenAppendChannel
    from tierd.replication.leader.replicas.replicator_settings import ReplicatorSettings
    from tierd.replication.leader.replicas.replicator_status import ReplicatorStatus, UnprotectedRecords, unprotected
    from tierd.replication.links.link_errors import PushLinkError, PushLinkLostError, PushLinkRefusedError
    from tierd.replication.links.link_identity import LinkIdentity
    from tierd.replication.links.node_certificates import NodeCertificates
    from tierd.replication.links.peer_connector import PeerConnector
    from tierd.replication.links.peer_link import PeerLink
    from tierd.replication.links.push_listener import PushListener, PushListenPlan
    from tierd.replication.model.messages import AppendRecordsRequest, AppendRecordsResponse
    from tierd.replication.model.push_error_code import PushErrorCode
    from tierd.replication.model.push_session import PeerIdentity, PeerNode, PushSessionEndReason, PushSessionIdentity
    from tierd.replication.model.replication_state import ReplicationMode
    from tierd.replication.tail.tail_follower import TailFollower
    from tierd.replication.tail.tail_values import TailLimit, TailSettings
else:
    __getattr__ = exports_on_demand(__name__)
