"""Connections to other hosts without protection are warnings; no text has a part of the address."""

from pathlib import Path

import pytest

from tests.config.test_loading import MINIMAL, S3, load
from tierd.config import config_warnings
from tierd.config.config_warning import ConfigWarning


def warned(tmp_path: Path, backend: str, address: str, text: str = MINIMAL) -> list[ConfigWarning]:
    key = {"postgres": "dsn", "redis": "url"}[backend]
    section = f"metadata:\n  backend: {backend}\n  {backend}:\n    {key}: '{address}'\n"
    return config_warnings(load(tmp_path, text + section))


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("postgresql://tierd:hush@db.example.com/tierd", "no sslmode"),
        ("postgresql://tierd:hush@db.example.com:5432/tierd?application_name=x", "no sslmode"),
        ("postgresql://tierd:hush@db.example.com/tierd?sslmode=disable", "sslmode=disable"),
        ("postgresql://tierd:hush@db.example.com/tierd?sslmode=prefer", "sslmode=prefer"),
        ("postgresql://tierd:hush@db.example.com/tierd?sslmode=require", "any certificate is accepted"),
        ("postgresql://tierd:hush@localhost,10.0.0.2:5433/tierd", "no sslmode"),
        ("postgresql://tierd:hush@[2001:db8::1]:5432/tierd", "no sslmode"),
        ("postgresql://tierd:hush@/tierd?host=db.example.com", "no sslmode"),
    ],
)
def test_postgres_on_another_host_without_checked_tls_is_a_warning(tmp_path: Path, address: str, said: str) -> None:
    (warning,) = warned(tmp_path, "postgres", address)

    assert warning.key == "metadata.postgres.dsn"
    assert said in warning.problem
    assert "sslmode=verify-full" in warning.remedy
    assert not any(part in f"{warning} {warning.remedy}" for part in ("hush", "example.com", "10.0.0.2", "2001"))


@pytest.mark.parametrize(
    "address",
    [
        "postgresql://tierd:hush@db.example.com/tierd?sslmode=verify-full",
        "postgresql://tierd:hush@db.example.com/tierd?sslmode=verify-ca&sslrootcert=/ca.pem",
        "postgresql://tierd:hush@localhost:5432/tierd",
        "postgresql://tierd:hush@127.0.0.1,[::1]:5432/tierd",
        "postgresql:///tierd",
        "postgresql://tierd@%2Fvar%2Frun%2Fpostgresql/tierd",
        "postgresql:///tierd?host=/var/run/postgresql",
        "postgresql://[broken/tierd",
    ],
)
def test_postgres_with_checked_tls_or_on_this_host_is_no_warning(tmp_path: Path, address: str) -> None:
    assert warned(tmp_path, "postgres", address) == []


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("redis://tierd:hush@cache.example.com:6379/0", "redis:// to another host"),
        ("redis://10.0.0.2", "redis:// to another host"),
        ("rediss://tierd:hush@cache.example.com:6379/0?ssl_cert_reqs=none", "any certificate is accepted"),
    ],
)
def test_redis_on_another_host_without_checked_tls_is_a_warning(tmp_path: Path, address: str, said: str) -> None:
    (warning,) = warned(tmp_path, "redis", address)

    assert warning.key == "metadata.redis.url"
    assert said in warning.problem
    assert "rediss://" in warning.remedy
    assert not any(part in f"{warning} {warning.remedy}" for part in ("hush", "example.com", "10.0.0.2"))


@pytest.mark.parametrize(
    "address",
    [
        "rediss://tierd:hush@cache.example.com:6379/0",
        "rediss://cache.example.com?ssl_ca_certs=/ca.pem",
        "redis://:hush@localhost",
        "redis://127.0.0.1:6380/1",
        "unix:///run/redis.sock",
        "redis://[broken",
    ],
)
def test_redis_with_checked_tls_or_on_this_host_is_no_warning(tmp_path: Path, address: str) -> None:
    assert warned(tmp_path, "redis", address) == []


def test_section_of_a_backend_that_is_not_used_is_no_warning(tmp_path: Path) -> None:
    section = "metadata: {postgres: {dsn: 'postgresql://db.example.com/x'}, redis: {url: 'redis://db.example.com'}}\n"

    assert config_warnings(load(tmp_path, MINIMAL + section)) == []


@pytest.mark.parametrize(
    ("address", "is_warned"),
    [
        ("http://s3.example.com", True),
        ("http://10.1.2.3:9000", True),
        ("https://s3.example.com", False),
        ("http://localhost:9000", False),
        ("http://[::1]:9000", False),
    ],
)
def test_object_store_on_another_host_over_http_is_a_warning(tmp_path: Path, address: str, *, is_warned: bool) -> None:
    found = config_warnings(load(tmp_path, f"{S3}    endpoint_url: '{address}'\n"))

    assert [warning.key for warning in found] == ["remote.s3.endpoint_url"] * is_warned


def kafka_warned(tmp_path: Path, **settings: object) -> list[ConfigWarning]:
    lines = "".join(f"    {name}: {value}\n" for name, value in settings.items())
    return config_warnings(load(tmp_path, f"{MINIMAL}leadership:\n  source: kafka\n  kafka:\n{lines}"))


LOGIN = {"sasl_username": "tierd", "sasl_password": "hush"}


@pytest.mark.parametrize(
    ("settings", "is_password_sent"),
    [
        ({"bootstrap_servers": ["127.0.0.1:9092", "kafka-2.example.com:9092"]}, False),
        ({"bootstrap_servers": ["10.0.0.2:9092"], "security_protocol": "sasl_plaintext", **LOGIN}, False),
        (
            {
                "bootstrap_servers": ["10.0.0.2:9092"],
                "security_protocol": "sasl_plaintext",
                "sasl_mechanism": "PLAIN",
                **LOGIN,
            },
            True,
        ),
    ],
)
def test_kafka_on_another_host_without_tls_is_a_warning(
    tmp_path: Path, settings: dict[str, object], *, is_password_sent: bool
) -> None:
    (warning,) = kafka_warned(tmp_path, **settings)

    assert warning.key == "leadership.kafka.security_protocol"
    assert "retention among them" in warning.problem
    assert ("the password can be read" in warning.problem) is is_password_sent
    assert not any(part in f"{warning} {warning.remedy}" for part in ("hush", "example.com", "10.0.0.2"))


@pytest.mark.parametrize(
    "settings",
    [
        {"bootstrap_servers": ["127.0.0.1:9092", "[::1]:9092", "localhost:9093"]},
        {"bootstrap_servers": ["kafka-2.example.com:9093"], "security_protocol": "ssl"},
        {"bootstrap_servers": ["kafka-2.example.com:9093"], "security_protocol": "sasl_ssl", **LOGIN},
    ],
)
def test_kafka_with_tls_or_on_this_host_is_no_warning(tmp_path: Path, settings: dict[str, object]) -> None:
    assert kafka_warned(tmp_path, **settings) == []
