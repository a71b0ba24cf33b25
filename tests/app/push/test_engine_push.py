"""Input of push replication from the engine: settings of topics, and announcements of sessions."""

import json
from typing import cast
from uuid import UUID

from tests.fakes.manual_clock import ManualClock
from tierd.app.push.engine_push import broker_topic_config, own_topic_config, session_announcer
from tierd.control import ControlIdentity, MqttControl
from tierd.control.mqtt.control_state import ControlState
from tierd.control.mqtt.publish_queue import OutgoingMessage
from tierd.log import LogConfig
from tierd.model import TopicIdPartition
from tierd.replication import PushSessionEndReason, PushSessionIdentity, StandbyTopics

SESSION = PushSessionIdentity(
    TopicIdPartition(UUID(int=1), "orders", 3), replica_id=2, leader_epoch=5, replica_epoch=70, session_id=4
)


class Announcements:
    """Connection to an MQTT broker, as far as announcements need it."""

    def __init__(self) -> None:
        identity = ControlIdentity(cluster_id="c", node_id=1, process_epoch=9, instance="i", started_at_ms=1)
        self.state = ControlState(identity, clock=ManualClock())
        self.woken = 0

    def wake(self) -> None:
        self.woken += 1

    def sent(self, now_s: float) -> list[OutgoingMessage]:
        messages = []
        while isinstance(message := self.state.queue.next(now_s), OutgoingMessage):
            messages.append(message)
        return messages


def test_begin_and_end_of_a_session_are_announced_at_most_once_a_second() -> None:
    mqtt = Announcements()
    announce = session_announcer(cast("MqttControl", mqtt))

    announce(SESSION, None)
    (first,) = mqtt.sent(0.0)
    announce(SESSION, PushSessionEndReason.BUFFER_OVERFLOW)
    announce(SESSION, None)
    announce(SESSION, PushSessionEndReason.LEADER_RESIGNED)
    assert mqtt.sent(0.5) == []
    (second,) = mqtt.sent(1.5)

    assert first.topic.endswith("/3/push/2")
    assert (json.loads(first.payload)["event"], json.loads(first.payload)["session_id"]) == ("started", 4)
    told = json.loads(second.payload)
    assert (told["event"], told["reason"], told["leader_epoch"]) == ("ended", "LEADER_RESIGNED", 5)
    assert mqtt.woken == 4


def test_sessions_are_not_announced_without_an_mqtt_broker() -> None:
    session_announcer(None)(SESSION, None)


def test_settings_of_a_brokers_topic_are_passed_on_as_they_are() -> None:
    assert broker_topic_config({"retention.ms": "5", "cleanup.policy": "compact"}) == (
        ("cleanup.policy", "compact"),
        ("retention.ms", "5"),
    )
    assert broker_topic_config(None) == ()


def test_settings_of_an_own_log_make_the_same_log_on_the_standby() -> None:
    config = LogConfig(
        segment_bytes=4000,
        retention_ms=-1,
        cleanup_policy=frozenset({"compact", "delete"}),
        min_cleanable_dirty_ratio=0.25,
        delete_retention_ms=7,
        max_message_bytes=2_000_000,
    )
    topics = StandbyTopics({}, flush="never", flush_interval_s=1)
    topics.update("orders", dict(own_topic_config(config)))
    assert topics.config_for("orders") == config


def test_tiered_own_log_is_kept_on_the_standby_until_the_log_start_of_the_leader_rises() -> None:
    config = LogConfig(retention_ms=1000, local_retention_ms=50, remote_storage_enable=True)
    topics = StandbyTopics({}, flush="never", flush_interval_s=1)
    topics.update("orders", dict(own_topic_config(config)))
    kept = topics.config_for("orders")
    assert (kept.retention_ms, kept.retention_bytes, kept.remote_storage_enable) == (-1, -1, False)
