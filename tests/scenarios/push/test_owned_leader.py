"""A leader that tierd owns loses its host: all that its producers took for safe comes back, with MQTT down as well."""

from pathlib import Path

import pytest

from tests.scenarios.push.own_lab import LEADER, OwnLab
from tests.scenarios.warm_tierd import WarmTierd
from tests.services.mqtt import MqttService


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
