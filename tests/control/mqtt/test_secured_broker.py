"""The control plane with TLS, client certificates and the shipped access list of Mosquitto."""

from uuid import uuid4

import pytest
from pydantic import JsonValue

from tests.control.mqtt.daemons import led, new_cluster, new_control, running, tls_of
from tests.fakes.eventually import eventually
from tests.services.mqtt import MqttService
from tierd.control.mqtt.control_messages import PeerRequest
from tierd.control.mqtt.control_topics import PushEventTopic
from tierd.control.mqtt.mqtt_control import MqttControl

pytestmark = pytest.mark.service("mqtt")


def _secured(service: MqttService, cluster: str, node_id: int, name: str = "", **settings: object) -> MqttControl:
    tls = tls_of(service.certificates, name or str(node_id))
    return new_control(cluster, node_id, f"localhost:{service.tls_port}", tls=tls, **settings)


async def test_daemons_with_certificates_hear_each_other_and_answer_requests(mqtt_service: MqttService) -> None:
    cluster, topic_id = new_cluster(), uuid4()
    one, two = (_secured(mqtt_service, cluster, node_id) for node_id in (1, 2))
    one.state.announce_leader(led(topic_id, 1, 5))
    one.state.announce_topic(topic_id, name="orders")
    one.state.announce_session(PushEventTopic(topic_id, 0, 2), "started", leader_epoch=5, replica_epoch=7, session_id=0)

    async def status(request: PeerRequest) -> JsonValue:
        return request.node

    async with running(one), running(two, {"status": status}):
        await eventually(lambda: two.state.view.leader_of(topic_id, 0) is not None, what="the leader")
        await eventually(lambda: two.state.view.topic_name(topic_id) == "orders", what="the topic")
        assert await one.ask(2, "status") == 1
        await eventually(lambda: one.statistics().queue.waiting == 0, what="everything to be sent")
        assert one.statistics().denied == 0


async def test_node_without_the_right_to_lead_is_denied_and_says_so(mqtt_service: MqttService) -> None:
    cluster, topic_id = new_cluster(), uuid4()
    one, three = (_secured(mqtt_service, cluster, node_id) for node_id in (1, 3))
    three.state.announce_leader(led(topic_id, 3, 5))
    async with running(one), running(three):
        await eventually(lambda: three.statistics().denied == 1, what="the denial")
        assert one.state.view.leader_of(topic_id, 0) is None


async def test_node_cannot_announce_the_presence_of_another_one(mqtt_service: MqttService) -> None:
    cluster = new_cluster()
    one, forged = _secured(mqtt_service, cluster, 1), _secured(mqtt_service, cluster, 2, name="3")
    async with running(one), running(forged, is_awaited=False):
        await eventually(lambda: "rpc-reply" in forged.statistics().remedy, what="the access list to be named")
        assert one.state.view.node(2) is None


async def test_certificate_of_another_authority_is_refused_and_the_daemon_goes_on(mqtt_service: MqttService) -> None:
    foreign = mqtt_service.certificates / "foreign"
    tls = tls_of(mqtt_service.certificates, "1") | {
        "certificate_file": str(foreign / "1.pem"),
        "key_file": str(foreign / "1-key.pem"),
    }
    control = new_control(new_cluster(), 1, f"localhost:{mqtt_service.tls_port}", tls=tls, connect_timeout_s=1.0)
    async with running(control, is_awaited=False) as task:
        await eventually(lambda: control.statistics().problem != "", what="the problem")
        assert not task.done()
        assert not control.is_connected


async def test_broker_with_a_certificate_of_another_authority_is_refused(mqtt_service: MqttService) -> None:
    tls = tls_of(mqtt_service.certificates, "1")
    tls["ca_file"] = str(mqtt_service.certificates / "foreign" / "foreign-ca.pem")
    control = new_control(new_cluster(), 1, f"localhost:{mqtt_service.tls_port}", tls=tls)
    async with running(control, is_awaited=False):
        await eventually(lambda: "certificate" in control.statistics().problem.lower(), what="the problem")


async def test_missing_certificate_file_is_named_and_the_daemon_goes_on(mqtt_service: MqttService) -> None:
    tls = {"ca_file": "/nowhere/ca.pem"}
    control = new_control(new_cluster(), 1, f"localhost:{mqtt_service.tls_port}", tls=tls)
    async with running(control, is_awaited=False) as task:
        await eventually(lambda: "control.mqtt.tls" in control.statistics().problem, what="the problem")
        assert not task.done()
