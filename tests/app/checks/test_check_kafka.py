"""Steps of ``check-config --online`` that ask Kafka, with brokers whose answers a test scripts."""

import socket

from tests.control.connecting import plaintext
from tests.fakes.kafka_broker import CLUSTER_ID, ScriptedBroker
from tests.services.ports import free_port
from tierd.app.checks.check_kafka import check_kafka
from tierd.app.checks.checklist import Checklist, CheckStep
from tierd.config import KafkaConnectionSettings
from tierd.log import BrokerIdentity


async def steps(settings: KafkaConnectionSettings, identity: BrokerIdentity | None) -> dict[str, CheckStep]:
    checklist = Checklist()
    await check_kafka(settings, identity, checklist)
    assert {step.area for step in checklist.steps} == {"Kafka"}
    return {step.name: step for step in checklist.steps}


async def test_own_broker_that_is_not_alive_is_unreachable_and_living_brokers_are_named() -> None:
    async with ScriptedBroker(node_id=2).listening() as address:
        taken = await steps(plaintext(address), BrokerIdentity(CLUSTER_ID, 7))

    assert taken["cluster"].outcome == "ok"
    assert taken["this broker"].outcome == "unreachable"
    assert taken["this broker"].detail == ("broker 7, whose log dirs these are, is not among the brokers alive: 2")


async def test_broker_of_another_cluster_is_a_failed_step() -> None:
    async with ScriptedBroker(cluster_id="another").listening() as address:
        taken = await steps(plaintext(address), BrokerIdentity(CLUSTER_ID, 1))

    assert taken[address].outcome == "ok"
    assert taken["cluster"].outcome == "failed"
    assert f"belongs to cluster another, the log dirs to {CLUSTER_ID}" in taken["cluster"].detail


async def test_unknown_identity_of_the_host_is_no_failure_of_kafka() -> None:
    async with ScriptedBroker(node_id=2).listening() as address:
        taken = await steps(plaintext(address), None)

    assert taken["cluster"].outcome == "ok"
    assert taken["this broker"].detail == "not known, since the log dirs do not say it; alive: 2"


async def test_each_server_is_a_step_and_the_first_that_answers_describes_the_cluster() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        async with ScriptedBroker().listening() as address:
            refused, mute = f"127.0.0.1:{free_port()}", f"127.0.0.1:{silent.getsockname()[1]}"
            settings = plaintext(refused, mute, address, request_timeout_s=2.0)
            taken = await steps(settings, BrokerIdentity(CLUSTER_ID, 1))

    assert [taken[each].outcome for each in (refused, mute, address)] == ["unreachable", "unreachable", "ok"]
    assert taken["this broker"].outcome == "ok"


async def test_cluster_has_no_step_without_any_answer() -> None:
    refused = f"127.0.0.1:{free_port()}"

    assert set(await steps(plaintext(refused), None)) == {refused}
