"""Topics and messages of the control plane: any of them comes back, and nothing else gets in."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.control.mqtt.messages import CLUSTER, ORDERS, leader, messages_of, presence, topics
from tierd.control.mqtt.control_messages import (
    MAX_PAYLOAD_BYTES,
    DamagedControlMessageError,
    decode,
    encode,
)
from tierd.control.mqtt.control_topics import ControlTopic, ControlTopics, LeaderTopic, NodeStateTopic

LEADER = LeaderTopic(ORDERS, 0)


@given(topic=topics, cluster=st.text(min_size=1, max_size=20).filter(lambda text: text.isprintable()))
def test_any_topic_comes_back_from_its_name(topic: ControlTopic, cluster: str) -> None:
    known = ControlTopics(cluster)
    assert known.parse(known.name(topic)) == topic


@given(cluster=st.text(max_size=20).filter(lambda text: text.isprintable()))
def test_no_cluster_id_puts_wildcards_or_levels_into_a_topic(cluster: str) -> None:
    assert not set("+#\0") & set(ControlTopics(cluster).prefix)
    assert ControlTopics(cluster).prefix.count("/") == 3


@given(name=st.text(max_size=80))
def test_any_other_name_is_refused_as_a_value_error(name: str) -> None:
    known = ControlTopics(CLUSTER)
    for text in (name, known.prefix + name):
        try:
            topic = known.parse(text)
        except ValueError:
            continue
        assert known.name(topic) == text


@given(data=st.data(), topic=topics)
def test_any_message_comes_back_from_its_payload(data: st.DataObject, topic: ControlTopic) -> None:
    message = data.draw(messages_of(topic))
    assert decode(topic, encode(message), cluster_id=CLUSTER) == message


@given(topic=topics, payload=st.binary(min_size=1, max_size=200) | st.text(min_size=1).map(str.encode))
def test_any_other_payload_is_damaged_and_nothing_else_is_raised(topic: ControlTopic, payload: bytes) -> None:
    with pytest.raises(DamagedControlMessageError):
        decode(topic, payload, cluster_id=CLUSTER)


@given(position=st.integers(0, 400), value=st.integers(0, 255))
def test_payload_with_a_changed_byte_is_a_message_or_damaged(position: int, value: int) -> None:
    payload = bytearray(encode(leader(1, 5)))
    payload[position % len(payload)] = value
    try:
        decode(LEADER, bytes(payload), cluster_id=CLUSTER)
    except DamagedControlMessageError:
        return


@pytest.mark.parametrize(
    ("change", "place"),
    [
        ({"v": 2}, "v"),
        ({"cluster": "lkc-2"}, "cluster"),
        ({"leader": "1"}, "leader"),
        ({"leader": True}, "leader"),
        ({"leader_epoch": -1}, "leader_epoch"),
        ({"leader_epoch": 2**31}, "leader_epoch"),
        ({"process_epoch": 2**63}, "process_epoch"),
        ({"replicas": list(range(65))}, "replicas"),
        ({"seq": 1.5}, "seq"),
    ],
)
def test_field_that_is_wrong_is_named(change: dict[str, object], place: str) -> None:
    content = json.loads(encode(leader(1, 5))) | change
    with pytest.raises(DamagedControlMessageError, match=f"^{place}"):
        decode(LEADER, json.dumps(content).encode(), cluster_id=CLUSTER)


def test_field_that_a_newer_daemon_adds_is_ignored() -> None:
    content = json.loads(encode(leader(1, 5))) | {"new": [1, 2]}
    assert decode(LEADER, json.dumps(content).encode(), cluster_id=CLUSTER) == leader(1, 5)


def test_presence_of_another_node_than_the_topic_names_is_damaged() -> None:
    with pytest.raises(DamagedControlMessageError, match="not the node of the topic"):
        decode(NodeStateTopic(2), encode(presence(1, 1, 1)), cluster_id=CLUSTER)


def test_cleared_retained_state_is_no_message() -> None:
    assert decode(LEADER, b"", cluster_id=CLUSTER) is None


def test_payload_above_4_kib_is_damaged_before_it_is_parsed() -> None:
    with pytest.raises(DamagedControlMessageError, match=f"more than {MAX_PAYLOAD_BYTES}"):
        decode(LEADER, encode(leader(1, 5)) + b" " * MAX_PAYLOAD_BYTES, cluster_id=CLUSTER)
