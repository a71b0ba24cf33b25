"""Kafka steps of ``check-config --online``: real brokers of both versions, TLS, logins, closed and silent ports."""

import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.scenarios.installation import Installation
from tests.services.kafka_cluster import KafkaBroker
from tests.services.ports import free_port
from tests.services.secure_kafka import PASSWORD, USER, SecureKafka, add_users, secure_kafka

LOGIN = {"sasl_username": USER, "sasl_password": PASSWORD}
Steps = dict[str, dict[str, Any]]


def kafka_steps(tierd: Installation, kafka: dict[str, object], *, exit_code: int) -> Steps:
    tierd.configure({"leadership": {"source": "kafka", "kafka": {"connect_timeout": "5s", **kafka}}})
    ended = tierd.tierd("check-config", "--online", "--json")
    assert ended.exit_code == exit_code, ended.output
    return {step["name"]: step for step in ended.json()["steps"] if step["area"] == "Kafka"}


def test_closed_port_exits_with_3(tierd: Installation) -> None:
    address = f"127.0.0.1:{free_port()}"
    step = kafka_steps(tierd, {"bootstrap_servers": [address]}, exit_code=3)[address]

    assert step["outcome"] == "unreachable"
    assert "cannot connect" in step["detail"]
    assert "bootstrap_servers" in step["next_step"]


def test_silent_port_exits_with_3_at_the_deadline(tierd: Installation) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        settings: dict[str, object] = {"bootstrap_servers": [address], "connect_timeout": "300ms"}
        step = kafka_steps(tierd, settings, exit_code=3)[address]

    assert step["outcome"] == "unreachable"
    assert "no answer within connect_timeout, 0.3 s" in step["detail"]


def test_check_without_a_configured_connection_has_no_kafka_step(tierd: Installation) -> None:
    ended = tierd.tierd("check-config", "--online", "--json")

    assert ended.exit_code == 0, ended.output
    assert not [step for step in ended.json()["steps"] if step["area"] == "Kafka"]


@pytest.mark.service("kafka")
@pytest.mark.parametrize("version", ["3.9.2", "4.3.1"])
def test_steps_of_a_real_broker_name_version_cluster_controller_and_own_node(
    tmp_path: Path, kafka_jars: Callable[[str], str], version: str
) -> None:
    with KafkaBroker(tmp_path / "kafka", version=kafka_jars(version)) as broker:
        broker.create_topic("orders")
        (node,) = broker.running
        tierd = Installation(tmp_path / "tierd", list(broker.log_dirs_of(node)))
        steps = kafka_steps(tierd, {"bootstrap_servers": [broker.bootstrap]}, exit_code=0)

        assert {step["outcome"] for step in steps.values()} == {"ok"}
        release = version.rpartition(".")[0]
        assert steps[broker.bootstrap]["detail"] == f"Kafka {release}; no TLS, no login"
        assert steps["cluster"]["detail"].endswith(", as in the log dirs")
        assert steps["controller"]["detail"].startswith(f"node {node}, epoch ")
        assert steps["this broker"]["detail"] == f"broker {node} is alive at {broker.bootstrap}; 1 brokers in all"


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory, kafka_jars: Callable[[str], str]) -> Iterator[SecureKafka]:
    """Start a broker with a listener for every security protocol."""
    described = secure_kafka(tmp_path_factory.mktemp("secure"), kafka_jars("4.3.1"))
    with described.broker:
        described.broker.create_topic("orders")
        add_users(described, ["orders"])
        yield described


@pytest.mark.service("kafka")
class TestSecurity:
    """Outcomes of TLS and login."""

    @pytest.mark.parametrize(
        ("listener", "settings", "security"),
        [
            ("TLS", {"security_protocol": "ssl"}, "TLSv1.3, the certificate is trusted, no login"),
            (
                "TLSLOGIN",
                {"security_protocol": "sasl_ssl", **LOGIN},
                "TLSv1.3, the certificate is trusted, logged in as tierd by SCRAM-SHA-512",
            ),
            (
                "LOGIN",
                {"security_protocol": "sasl_plaintext", "sasl_mechanism": "PLAIN", **LOGIN},
                "no TLS, logged in as tierd by PLAIN",
            ),
        ],
    )
    def test_step_of_a_working_connection_names_its_security(
        self, secured: SecureKafka, tmp_path: Path, listener: str, settings: dict[str, object], security: str
    ) -> None:
        steps = self.asked(secured, tmp_path, listener, settings, exit_code=0)

        assert steps[secured.broker.listeners[listener]]["detail"] == f"Kafka 4.3; {security}"
        if "sasl_username" in settings:
            assert "not told without Describe on the cluster" in steps["controller"]["detail"]

    @pytest.mark.parametrize(
        ("listener", "settings", "cause"),
        [
            (
                "LOGIN",
                {"security_protocol": "sasl_plaintext", "sasl_username": USER, "sasl_password": "wrong"},
                "login of tierd refused",
            ),
            ("MTLS", {"security_protocol": "ssl"}, "refused our certificate"),
            ("TLS", {}, "the listener speaks TLS, and we do not"),
        ],
    )
    def test_refused_connection_exits_with_1_and_names_the_next_step(
        self, secured: SecureKafka, tmp_path: Path, listener: str, settings: dict[str, object], cause: str
    ) -> None:
        steps = self.asked(secured, tmp_path, listener, settings, exit_code=1)

        (step,) = steps.values()
        assert step["outcome"] == "failed"
        assert cause in step["detail"]
        assert step["next_step"]

    def asked(
        self, kafka: SecureKafka, folder: Path, listener: str, settings: dict[str, object], *, exit_code: int
    ) -> Steps:
        (node,) = kafka.broker.running
        tierd = Installation(folder / "tierd", list(kafka.broker.log_dirs_of(node)))
        trust = {"ca_file": str(kafka.authority.ca_file)} if "ssl" in str(settings.get("security_protocol")) else {}
        servers = [kafka.broker.listeners[listener]]
        return kafka_steps(tierd, {"bootstrap_servers": servers, **trust, **settings}, exit_code=exit_code)
