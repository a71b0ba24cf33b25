"""Settings of the rooms of push replication from the section of the file."""

from pathlib import Path

import pytest

from tierd.app.push.room_settings import (
    followed_leaders,
    manager_settings,
    peer_nodes,
    replicator_settings,
    standby_nodes,
    standby_settings,
    tail_settings,
)
from tierd.config import PushReplicationSettings
from tierd.replication import PeerNode, PushSettings, ReplicatorSettings, StandbySettings, TailLimit, TailSettings


def section(**changes: object) -> PushReplicationSettings:
    return PushReplicationSettings.model_validate(
        {
            "node_id": 1,
            "listen": "127.0.0.1:9406",
            "peers": [{"node_id": 3, "address": "127.0.0.1:9"}, {"node_id": 2, "address": "[::1]:8"}],
            **changes,
        }
    )


def test_defaults_of_the_file_are_those_of_the_rooms() -> None:
    assert manager_settings(section()) == PushSettings()
    assert replicator_settings(section()) == ReplicatorSettings()
    assert tail_settings(section()) == TailSettings()
    kept = section(standby={"log_dir": "/copies"})
    assert standby_settings(kept, state_dir=Path("/state")) == StandbySettings(
        state_dir=Path("/state"), log_dirs=(Path("/copies"),)
    )


def test_settings_of_the_file_reach_the_rooms() -> None:
    push = section(
        enabled=False,
        request={"partition_max_bytes": "100kB", "linger": "1s"},
        session={"keepalive": "2s", "idle_max": "7s", "unacked_max": "3s", "lag_max": "6s", "transition_max_lag": 5},
        tail={"interval": "50ms", "limit": "high-watermark"},
    )
    manager = manager_settings(push)
    assert (manager.is_enabled, manager.file_chunk_bytes, manager.linger_s) == (False, 100_000, 1.0)
    assert (manager.keepalive_s, manager.session_unacked_max_s, manager.transition_max_lag_bytes) == (2.0, 3.0, 5)
    assert replicator_settings(push).replica_lag_time_max_s == 6.0
    assert (tail_settings(push).interval_s, tail_settings(push).limit) == (0.05, TailLimit.HWM)
    assert standby_settings(push, state_dir=Path("/s")).times.idle_max_s == 7.0
    assert not standby_settings(push, state_dir=Path("/s")).is_push_enabled


def test_peers_standbys_and_followed_leaders() -> None:
    push = section(topics=["a"], standbys=[2])
    assert peer_nodes(push)[2] == PeerNode(2, "::1", 8)
    assert standby_nodes(push) == (PeerNode(2, "::1", 8),)
    assert followed_leaders(push) == (3, 2)
    assert followed_leaders(section(standby={"leaders": [2]})) == (2,)


@pytest.mark.parametrize("keepalive", ["1ms", "10ms"])
def test_linger_of_a_watermark_is_below_a_short_keepalive(keepalive: str) -> None:
    manager = manager_settings(section(session={"keepalive": keepalive}))
    assert manager.high_watermark_linger_s < manager.keepalive_s


def test_linger_that_is_no_shorter_than_keepalive_is_a_fault_of_the_file() -> None:
    with pytest.raises(ValueError, match=r"must be less than push\.session\.keepalive"):
        section(request={"linger": "3s"})
