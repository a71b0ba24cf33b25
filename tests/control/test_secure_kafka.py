"""Logins and certificates against a real broker that has a listener of every kind."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.coded import coded
from tests.services.kafka_cluster import KafkaBroker
from tests.services.secure_kafka import PASSWORD, POWERLESS, USER, SecureKafka, add_users, secure_kafka
from tierd.config import KafkaConnectionSettings
from tierd.control.cluster_metadata import BrokerAddress, ClusterMetadata, TopicKnowledge
from tierd.control.kafka_connection import KafkaConnection
from tierd.control.kafka_messages import describe_topic_configs, metadata
from tierd.errors import KafkaError, KafkaUnreachableError, TierErrorCode

pytestmark = pytest.mark.service("kafka")

Settings = dict[str, Any]
Mistake = tuple[str, Settings, TierErrorCode | None, str, str]
"""A listener, how it is talked to, and the error: its code, part of its cause, part of its remedy."""
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
LOGIN = {"sasl_username": USER, "sasl_password": PASSWORD}


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory, kafka_jars: Callable[[str], str]) -> Iterator[SecureKafka]:
    """Start a broker that requires proof of identity, with a topic that ``USER`` may see and one that it may not."""
    secured = secure_kafka(tmp_path_factory.mktemp("secure"), kafka_jars("3.9.2"))
    with secured.broker:
        secured.broker.create_topic("orders", partitions=2)
        secured.broker.create_topic("secret")
        add_users(secured, ["orders"])
        yield secured


async def connected(kafka: SecureKafka, listener: str, *, host: str = "127.0.0.1", **settings: Any) -> KafkaConnection:  # noqa: ANN401 - any type that pydantic accepts
    broker: KafkaBroker = kafka.broker
    address = broker.listeners.get(listener, broker.bootstrap)
    port = int(address.rpartition(":")[2])
    return await KafkaConnection.open(
        BrokerAddress(host, port), KafkaConnectionSettings(bootstrap_servers=(address,), **settings)
    )


async def described(kafka: SecureKafka, connection: KafkaConnection) -> ClusterMetadata:
    """Ask about both topics, and close the connection."""
    try:
        return await connection.call(metadata([kafka.broker.topic_id("orders"), kafka.broker.topic_id("secret")]))
    finally:
        connection.close()


@pytest.mark.parametrize("mechanism", MECHANISMS)
async def test_every_kind_of_login_works_within_its_rights(kafka: SecureKafka, mechanism: str) -> None:
    connection = await connected(kafka, "LOGIN", security_protocol="sasl_plaintext", sasl_mechanism=mechanism, **LOGIN)

    orders, secret = (await described(kafka, connection)).topics

    assert (orders.knowledge, len(orders.partitions)) == (TopicKnowledge.KNOWN, 2)
    assert secret.knowledge is TopicKnowledge.DENIED, "and not UNKNOWN, which would count as deleted"


async def test_settings_of_a_topic_need_the_right_to_describe_them(kafka: SecureKafka) -> None:
    connection = await connected(kafka, "LOGIN", security_protocol="sasl_plaintext", **LOGIN)
    orders, secret = await connection.call(describe_topic_configs(["orders", "secret"], ["retention.ms"]))
    connection.close()

    assert orders.settings == {"retention.ms": "-1"}
    assert (secret.settings, secret.error) == (None, "topic_authorization_failed")


async def test_user_without_rights_logs_in_and_is_denied_all_topics(kafka: SecureKafka) -> None:
    login = LOGIN | {"sasl_username": POWERLESS}
    connection = await connected(kafka, "LOGIN", security_protocol="sasl_plaintext", **login)

    assert {topic.knowledge for topic in (await described(kafka, connection)).topics} == {TopicKnowledge.DENIED}


async def test_login_over_tls_ends_at_the_time_set_by_the_broker(kafka: SecureKafka) -> None:
    connection = await connected(
        kafka, "TLSLOGIN", security_protocol="sasl_ssl", ca_file=kafka.authority.ca_file, **LOGIN
    )
    assert connection.is_open
    assert connection._login_ends_s != float("inf"), "connections.max.reauth.ms is obeyed"
    await described(kafka, connection)


async def test_tls_works_with_and_without_a_client_certificate(kafka: SecureKafka) -> None:
    trust: Settings = {"security_protocol": "ssl", "ca_file": kafka.authority.ca_file}
    ours: Settings = {
        "cert_file": kafka.client.cert_file,
        "key_file": kafka.client.key_file,
        "key_password": "of the key",
    }
    for listener, settings in (("TLS", trust), ("TLS", trust | ours), ("MTLS", trust | ours)):
        await described(kafka, await connected(kafka, listener, **settings))


async def test_host_name_that_the_certificate_lacks_is_refused_unless_verification_is_off(kafka: SecureKafka) -> None:
    trust: Settings = {"security_protocol": "ssl", "ca_file": kafka.authority.ca_file}
    with pytest.raises(KafkaError, check=coded(TierErrorCode.KAFKA_TLS), match="for another host"):
        await connected(kafka, "TLS", host="localhost", **trust)
    await described(kafka, await connected(kafka, "TLS", host="localhost", verify_hostname=False, **trust))


MISTAKES: list[Mistake] = [
    *(
        ("LOGIN", {"security_protocol": "sasl_plaintext", "sasl_mechanism": mechanism, "sasl_username": USER,
                   "sasl_password": "wrong"},
         TierErrorCode.KAFKA_AUTHENTICATION, "login of tierd refused", "sasl_password")
        for mechanism in MECHANISMS
    ),
    ("TLSLOGIN", {"security_protocol": "sasl_ssl", "sasl_mechanism": "SCRAM-SHA-256", **LOGIN},
     TierErrorCode.KAFKA_AUTHENTICATION, "not enabled; enabled: PLAIN, SCRAM-SHA-512", "sasl_mechanism"),
    ("CLIENT", {"security_protocol": "sasl_plaintext", **LOGIN},
     TierErrorCode.KAFKA_AUTHENTICATION, "does not ask for a login", "security_protocol"),
    ("LOGIN", {}, None, "closed the connection at Metadata", "sasl_plaintext"),
    ("TLS", {}, TierErrorCode.KAFKA_TLS, "speaks TLS, and we do not", "security_protocol"),
    ("CLIENT", {"security_protocol": "ssl"}, None, "lost in the TLS handshake", "security_protocol"),
    ("MTLS", {"security_protocol": "ssl"}, TierErrorCode.KAFKA_TLS, "refused our certificate", "cert_file"),
]  # fmt: skip


@pytest.mark.parametrize("mistake", MISTAKES, ids=[f"{m[0]}: {m[3]}" for m in MISTAKES])
async def test_mistake_in_the_settings_is_an_error_that_names_the_key(kafka: SecureKafka, mistake: Mistake) -> None:
    listener, settings, code, cause, remedy = mistake
    kind = KafkaUnreachableError if code is None else KafkaError
    trust: Settings = {"ca_file": kafka.authority.ca_file} if "ssl" in settings.get("security_protocol", "") else {}
    with pytest.raises(kind, check=coded(code), match=cause) as caught:
        await described(kafka, await connected(kafka, listener, **trust, **settings))
    assert remedy in caught.value.remedy


async def test_brokers_that_another_authority_signed_are_not_trusted(kafka: SecureKafka) -> None:
    with pytest.raises(KafkaError, check=coded(TierErrorCode.KAFKA_TLS), match="not trusted") as caught:
        await connected(kafka, "TLS", security_protocol="ssl", ca_file=kafka.elsewhere.ca_file)
    assert "ca_file" in caught.value.remedy


async def test_certificates_that_cannot_be_read_are_named(kafka: SecureKafka, tmp_path: Path) -> None:
    missing = tmp_path / "none.pem"
    with pytest.raises(KafkaError, check=coded(TierErrorCode.KAFKA_TLS), match=str(missing)):
        await connected(kafka, "TLS", security_protocol="ssl", ca_file=missing)
    for key_password in (None, "wrong"):
        with pytest.raises(KafkaError, check=coded(TierErrorCode.KAFKA_TLS), match="client-key"):
            await connected(
                kafka,
                "MTLS",
                security_protocol="ssl",
                ca_file=kafka.authority.ca_file,
                cert_file=kafka.client.cert_file,
                key_file=kafka.client.key_file,
                key_password=key_password,
            )
