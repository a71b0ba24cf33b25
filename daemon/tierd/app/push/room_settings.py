"""Settings of the rooms of push replication, from the section ``push`` of the configuration."""

from pathlib import Path
from typing import Final

from tierd.config import PushReplicationSettings
from tierd.ports import ConnectionLimits
from tierd.replication import (
    FollowerTimes,
    PeerNode,
    PushSettings,
    ReplicatorSettings,
    StandbySettings,
    TailLimit,
    TailSettings,
)

_HIGH_WATERMARK_LINGER_S: Final = 0.005
_FILE_CHUNK_BYTES: Final = 256 << 10
_UNKNOWN_CONNECTIONS: Final = 32  # of peers that have not said who they are
_CONNECTIONS_PER_PEER: Final = 16


def manager_settings(push: PushReplicationSettings) -> PushSettings:
    """Return the settings of the push manager."""
    session, request = push.session, push.request
    return PushSettings(
        is_enabled=push.enabled,
        buffer_max_bytes=push.buffer.max_bytes,
        session_buffer_max_bytes=push.buffer.session_max_bytes,
        request_max_bytes=request.max_bytes,
        partition_max_bytes=request.partition_max_bytes,
        file_chunk_bytes=min(_FILE_CHUNK_BYTES, request.partition_max_bytes),
        linger_s=request.linger_s,
        high_watermark_linger_s=min(_HIGH_WATERMARK_LINGER_S, session.keepalive_s / 2),
        request_timeout_s=request.timeout_s,
        session_unacked_max_s=session.unacked_max_s,
        keepalive_s=session.keepalive_s,
        follower_idle_max_s=session.idle_max_s,
        transition_max_lag_bytes=session.transition_max_lag_bytes,
        transition_memory_fraction=session.transition_memory_fraction,
        sends_internal_topics=push.internal_topics,
        replica_lag_time_max_s=session.lag_max_s,
    )


def replicator_settings(push: PushReplicationSettings) -> ReplicatorSettings:
    """Return the settings of each led partition."""
    return ReplicatorSettings(
        transition_max_lag_bytes=push.session.transition_max_lag_bytes,
        replica_lag_time_max_s=push.session.lag_max_s,
    )


def tail_settings(push: PushReplicationSettings) -> TailSettings:
    """Return the settings of tail mode."""
    return TailSettings(interval_s=push.tail.interval_s, limit=TailLimit(push.tail.limit))


def standby_settings(push: PushReplicationSettings, *, state_dir: Path) -> StandbySettings:
    """Return the settings of the standby, which keeps its file in ``state_dir``."""
    standby = push.standby
    return StandbySettings(
        state_dir=state_dir,
        log_dirs=() if standby.log_dir is None else (standby.log_dir,),
        flush=standby.flush,
        max_memory_bytes=standby.max_memory_bytes,
        is_push_enabled=push.enabled,
        times=FollowerTimes(idle_max_s=push.session.idle_max_s),
    )


def followed_leaders(push: PushReplicationSettings) -> tuple[int, ...]:
    """Return the node ids of the daemons whose partitions this host keeps: those of the file, or all peers."""
    return push.standby.leaders or tuple(peer.node_id for peer in push.peers)


def peer_nodes(push: PushReplicationSettings) -> dict[int, PeerNode]:
    """Return the other daemons, by node id."""
    return {peer.node_id: PeerNode(peer.node_id, peer.host, peer.port) for peer in push.peers}


def standby_nodes(push: PushReplicationSettings) -> tuple[PeerNode, ...]:
    """Return the daemons that get the partitions of this host, in the order of the file."""
    nodes = peer_nodes(push)
    return tuple(nodes[node_id] for node_id in push.standbys)


def port_limits(push: PushReplicationSettings) -> ConnectionLimits:
    """Return the limits of the push port. Peers may share an address, as on one host or behind a gateway."""
    connections = _UNKNOWN_CONNECTIONS + _CONNECTIONS_PER_PEER * len(push.peers)
    return ConnectionLimits(connections=connections, per_peer=connections)
