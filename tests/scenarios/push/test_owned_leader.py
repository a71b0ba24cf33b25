"""A leader that tierd owns loses its host: all that its producers took for safe comes back, with MQTT down as well."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.scenarios.push.own_lab import LEADER, STANDBY, OwnLab
from tests.scenarios.warm_tierd import WarmTierd
from tests.services.faulty_path import FaultyPath
from tests.services.mqtt import MqttService
from tests.services.waiting import wait_until


def test_nothing_that_was_safe_is_lost_with_the_host_of_a_leader_with_owned_logs(
    tmp_path: Path, warm_tierd: WarmTierd
) -> None:
    with OwnLab(tmp_path, warm_tierd, standbys=2) as lab:
        lab.wait_protected()
        lab.wait_more_safe()
        lab.lose_host()
        lab.restore()
        lab.assert_restored()


@pytest.mark.service("mqtt")
@pytest.mark.spec("push-replication 95")
@pytest.mark.spec("push-replication F15")
def test_records_are_safe_and_come_back_while_the_mqtt_broker_is_down(
    tmp_path: Path, warm_tierd: WarmTierd, mqtt_service: MqttService
) -> None:
    mqtt = {"control": {"mqtt": {"address": mqtt_service.address}}}
    try:
        with OwnLab(tmp_path, warm_tierd, settings=mqtt) as lab:
            lab.wait_protected()
            mqtt_service.services.kill("mqtt")
            lab.wait_status("control plane: ")
            lab.wait_more_safe()
            assert all(each["mode"] == "push" for each in lab.sent()), lab.status()

            assert lab.daemons[LEADER].stop() == 0  # a leader starts without MQTT, too
            lab.daemons[LEADER].start()
            lab.daemons[LEADER].wait_ready()
            lab.wait_protected()
            lab.lose_host()
            lab.restore()
            lab.assert_restored()
    finally:
        mqtt_service.services.start("mqtt")


@pytest.mark.service("mqtt")
@pytest.mark.spec("push-replication 98")
def test_sessions_go_on_when_the_will_of_a_living_leader_says_that_it_is_offline(
    tmp_path: Path,
    warm_tierd: WarmTierd,
    mqtt_service: MqttService,
    faulty_path_to: Callable[[str], FaultyPath],
) -> None:
    path = faulty_path_to(mqtt_service.address)
    lab = OwnLab(tmp_path, warm_tierd, settings={"control": {"mqtt": {"address": mqtt_service.address}}})
    lab.leader.configure({"control": {"mqtt": {"address": path.address}}})
    standby = lab.standbys[STANDBY]

    def is_leader_online() -> bool:
        peers = {peer["node_id"]: peer["online"] for peer in standby.ask("peers", "--json").json()}
        return bool(peers.get(LEADER))

    with lab:
        lab.wait_protected()
        wait_until(is_leader_online, what="the standby to see the leader", deadline_s=30.0)
        path.disable()  # the MQTT broker sends the will
        wait_until(lambda: not is_leader_online(), what="the standby to hear the will", deadline_s=30.0)
        for _ in range(3):
            lab.wait_more_safe()
        assert all(each["mode"] == "push" for each in lab.sent()), lab.status()
        assert "push_session_ended" not in lab.daemons[LEADER].log_file.read_text()
