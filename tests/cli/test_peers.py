"""Answers of peers as lines, and the lines of the control plane in tierd status."""

from pydantic import JsonValue

from tierd.cli.peer_requests import answer_lines
from tierd.cli.status_problems import control_lines
from tierd.serve import ControlSummary


def test_answer_of_a_peer_has_a_line_for_each_field() -> None:
    answer: JsonValue = {"ready": True, "not_ready": [], "states": {"idle": 2, "copying": 1}, "pid": 7, "lag": None}
    assert answer_lines(answer) == [
        "ready: yes",
        "not_ready: none",
        "states: idle 2, copying 1",
        "pid: 7",
        "lag: -",
    ]


def test_list_of_partitions_has_a_line_for_each_of_them() -> None:
    assert answer_lines([{"partition": "orders-0", "role": "leader"}]) == ["partition orders-0, role leader"]


def test_status_says_nothing_of_a_control_plane_that_is_off() -> None:
    assert control_lines(ControlSummary()) == []


def test_status_says_why_the_mqtt_broker_is_lost() -> None:
    summary = ControlSummary(enabled=True, problem="MQTT broker h:1883: connection refused")
    assert control_lines(summary) == ["control plane: MQTT broker h:1883: connection refused"]


def test_status_names_messages_that_the_broker_denied() -> None:
    (line,) = control_lines(ControlSummary(enabled=True, is_connected=True, denied=3))
    assert "denied 3 messages" in line
