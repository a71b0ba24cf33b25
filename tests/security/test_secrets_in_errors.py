"""Secrets of the configuration in errors: none is in an error made from an exception of a client library."""

import asyncio
import io
import json
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any, Final, TypeAlias
from urllib.parse import quote

import pytest
from pydantic import ValidationError

from tests.fakes.log_capture import captured_log
from tests.fakes.log_dirs import LogDirWriter
from tests.scenarios.installation import Daemon, Installation
from tests.security.canary import CORE, KEY, SECRET, rendered, reveals
from tests.security.hostile_server import QUICK, SLOW, Behaviour, hostile_server
from tests.services.certificates import Authority
from tierd.config import (
    KafkaConnectionSettings,
    MetadataSettings,
    MqttSettings,
    PushTlsSettings,
    RemoteSettings,
    TierdConfig,
)
from tierd.config.traversal import all_locations, field_at, is_secret
from tierd.control.cluster_metadata import BrokerAddress
from tierd.control.kafka_connection import KafkaConnection
from tierd.control.mqtt.mqtt_connection import open_connection
from tierd.control.mqtt.publish_queue import OutgoingMessage
from tierd.errors import ControlPlaneError
from tierd.metadata import open_metadata
from tierd.model import ByteRange
from tierd.remote import open_object_store, open_transform
from tierd.replication.links.node_certificates import node_contexts

Tree: TypeAlias = dict[str, Any]
Failures: TypeAlias = list[BaseException]

_DEADLINE_S: Final = "400ms"
# Only Spark has this secret, in another process: tests/pipeline/spark has test_protection.py and test_attacks.py.
_OF_SPARK: Final = ("pipeline", "authenticate_secret")
# No client has the secrets of the read endpoint: tests/serve/kafka/access plants the canary in each of them.
_OF_ENDPOINT: Final = "kafka"


def _secret_settings() -> list[tuple[str, ...]]:
    found = []
    for location in all_locations(TierdConfig):
        field = field_at(TierdConfig, location)
        if field is not None and is_secret(field) and location != _OF_SPARK and location[0] != _OF_ENDPOINT:
            found.append(tuple(map(str, location)))
    return found


SECRETS: Final = _secret_settings()
"""Every setting of the schema that is secret and goes to a client of this process."""


@pytest.fixture(autouse=True)
def library_log() -> Iterator[io.StringIO]:
    """Capture the log of the libraries and of tierd, at the most verbose level."""
    with captured_log() as stream:
        yield stream


# ------------------------------------------------------------------ the canary in the form of each setting


def shapes(location: tuple[str, ...], address: str) -> list[str]:
    """Return the canary as text, as a key, and as a part of the addresses of servers."""
    escaped = quote(SECRET, safe="")
    if location[0] == "metadata":
        scheme = {"postgres": "postgresql", "redis": "redis"}[location[1]]
        return [SECRET, f"{scheme}://user:{escaped}@{address}/0", f"{scheme}://user:{SECRET}@{address}/0"]
    return [SECRET, KEY, f"sv=2021-12-02&sp=cwd&sr=c&sig={escaped}", f"http://user:{escaped}@{address}"]


@pytest.fixture(scope="module")
def client_files(tmp_path_factory: pytest.TempPathFactory) -> Tree:
    """Return the files of a client certificate whose key has another password than the canary."""
    authority = Authority(tmp_path_factory.mktemp("certificates"), "authority")
    client = authority.issue("client", password="another")
    return {"ca_file": authority.ca_file, "certificate_file": client.cert_file, "key_file": client.key_file}


def section_with(location: tuple[str, ...], secret: str, address: str, client_files: Tree) -> Tree:
    """Return the section of ``location``, servers at ``address``, with ``secret`` there and the canary around it."""
    bases: dict[str, Tree] = {
        "remote.s3": {
            "bucket": "tierd",
            "endpoint_url": f"http://{address}",
            "region": "eu",
            "access_key_id": SECRET,
            "secret_access_key": SECRET,
            "connect_timeout": _DEADLINE_S,
            "read_timeout": _DEADLINE_S,
        },
        "remote.azure": {
            "container": "tierd",
            "account": "mytier",
            "endpoint_url": f"http://{address}/mytier",
            "connect_timeout": _DEADLINE_S,
            "read_timeout": _DEADLINE_S,
        },
        "metadata.postgres": {},
        "metadata.redis": {},
        "leadership.kafka": {
            "bootstrap_servers": [address],
            "security_protocol": "sasl_plaintext",
            "sasl_mechanism": "PLAIN",
            "sasl_username": "tierd",
            "sasl_password": SECRET,
            "connect_timeout": _DEADLINE_S,
            "request_timeout": _DEADLINE_S,
        },
        "remote.encryption": {"enabled": True, "active_key": "one"},
        "control.mqtt": {
            "address": address,
            "username": "tierd",
            "password": SECRET,
            "connect_timeout": "1s",
        },
        "push.tls": dict(client_files),
    }
    name = ".".join(location[:2])
    assert name in bases, f"a new section holds secrets: say here how the client of {name} is made to fail"
    section = bases[name]
    if location[2:-1] == ("sse",):
        section["sse"] = {"type": "c", location[-1]: secret}
        section["endpoint_url"] = f"https://{address}"  # S3 takes such a key over TLS alone
    elif location[2:-1] == ("tls",):
        section["tls"] = client_files | {location[-1]: secret}
    elif location[2:-1] == ("keys",):
        section["keys"] = [{"id": "one", location[-1]: secret}]
    else:
        assert len(location) == 3, f"say here where {location} is"
        section[location[-1]] = secret
    return section


# ------------------------------------------------------------------ clients that fail


async def failures_of(calls: list[Coroutine[Any, Any, object]]) -> Failures:
    outcomes = await asyncio.gather(*calls, return_exceptions=True)
    return [outcome for outcome in outcomes if isinstance(outcome, BaseException)]


async def failures_of_store(settings: RemoteSettings, *, writes: bool) -> Failures:
    store = open_object_store(settings.model_copy(update={"retry": settings.retry.model_copy(update={"attempts": 1})}))
    calls: list[Coroutine[Any, Any, object]] = [
        store.replace("tier/key", b"new", previous=b"old"),
        store.get("tier/key"),
        store.get("tier/key", ByteRange(1, 2)),
        store.head("tier/key"),
        store.delete("tier/key"),
        store.list_objects("tier/"),
        store.list_unfinished_uploads("tier/"),
        store.check(),
    ]
    try:
        return await failures_of([*calls, store.put("tier/key", b"content")] if writes else calls)
    finally:
        await store.close()


async def failures_of_metadata(settings: MetadataSettings) -> Failures:
    opening = open_metadata(settings, sqlite_path=Path("/nowhere"), read_only=False)
    return await failures_of([opening])


async def failures_of_kafka(settings: KafkaConnectionSettings) -> Failures:
    host, _, port = settings.bootstrap_servers[0].rpartition(":")
    return await failures_of([KafkaConnection.open(BrokerAddress(host, int(port)), settings)])


async def failures_of_mqtt(settings: MqttSettings) -> Failures:
    will = OutgoingMessage(topic="node/1/state", payload=b"offline")
    with pytest.raises(ControlPlaneError) as caught:
        async with open_connection(settings, "tierd-cluster-1", will):
            raise AssertionError("it connected")
    return [caught.value]


async def failures_at(location: tuple[str, ...], section: Tree, *, writes: bool) -> Failures:
    """Use the client of ``section``; return all errors that it raises.

    Raises:
        ValidationError: the section is not valid.
    """
    match location[:2]:
        case "remote", "encryption":
            tree = {"backend": "filesystem", "filesystem": {"path": "/nowhere"}, "encryption": section}
            settings = RemoteSettings.model_validate(tree)
            transform = open_transform(settings)
            transform.close()
            return [RuntimeError(f"{settings} {transform} {vars(transform)}")]
        case "remote", backend:
            return await failures_of_store(
                RemoteSettings.model_validate({"backend": backend, backend: section}), writes=writes
            )
        case "metadata", backend:
            tree = {"backend": backend, "timeout": _DEADLINE_S, backend: section}
            return await failures_of_metadata(MetadataSettings.model_validate(tree))
        case "control", "mqtt":
            return await failures_of_mqtt(MqttSettings.model_validate(section))
        case "push", "tls":
            return await failures_of([asyncio.to_thread(node_contexts, PushTlsSettings.model_validate(section))])
        case _:
            return await failures_of_kafka(KafkaConnectionSettings.model_validate(section))


def assert_safe(failures: Failures) -> None:
    """Fail unless every error hides the canary and is an error of tierd."""
    for failure in failures:
        text = rendered(failure)
        assert not reveals(text), f"{type(failure).__name__} reveals the secret:\n{text}"


# ------------------------------------------------------------------ tests


@pytest.mark.parametrize("behaviour", [*QUICK, *SLOW])
@pytest.mark.parametrize("location", SECRETS, ids=".".join)
async def test_errors_of_every_client_hide_every_secret_setting(
    location: tuple[str, ...], behaviour: Behaviour, library_log: io.StringIO, client_files: Tree
) -> None:
    taken = 0
    async with hostile_server(behaviour) as address:
        for secret in shapes(location, address):
            try:
                # To a server that never answers a put of S3 takes until the deadline of a minute.
                writes = behaviour != "never answers"
                section = section_with(location, secret, address, client_files)
                failures = await failures_at(location, section, writes=writes)
            except ValidationError:
                continue
            taken += 1
            assert failures, "the server lets nothing succeed"
            assert_safe(failures)
            if behaviour in SLOW:
                break
    assert taken, "no shape of the canary is a value of this setting"
    assert not reveals(library_log.getvalue()), library_log.getvalue()


@pytest.mark.parametrize("behaviour", QUICK)
@pytest.mark.parametrize("kind", ["authorized_user", "service_account"])
async def test_errors_of_gcs_hide_the_content_of_its_credentials_file(
    kind: str, behaviour: Behaviour, tmp_path: Path, library_log: io.StringIO
) -> None:
    credentials = tmp_path / "key.json"
    async with hostile_server(behaviour) as address:
        content = {
            "type": kind,
            "client_id": "tierd",
            "client_email": "tierd@example.com",
            "client_secret": SECRET,
            "refresh_token": SECRET,
            "private_key": f"-----BEGIN PRIVATE KEY-----\n{SECRET}\n-----END PRIVATE KEY-----\n",
            "token_uri": f"http://{address}/token",
        }
        credentials.write_text(json.dumps(content))
        gcs = {"bucket": "tierd", "credentials_file": str(credentials), "connect_timeout": _DEADLINE_S}
        remote = RemoteSettings.model_validate({"backend": "gcs", "gcs": gcs})
        failures = await failures_of_store(remote, writes=True)
    assert failures
    assert_safe(failures)
    assert not reveals(library_log.getvalue()), library_log.getvalue()


@pytest.mark.parametrize("behaviour", QUICK)
@pytest.mark.parametrize("backend", ["s3", "azure"])
async def test_errors_hide_secrets_that_a_client_took_from_the_environment(
    backend: str, behaviour: Behaviour, monkeypatch: pytest.MonkeyPatch, library_log: io.StringIO
) -> None:
    async with hostile_server(behaviour) as address:
        escaped = quote(SECRET, safe="")
        environment = {
            "AWS_ACCESS_KEY_ID": "tierd",
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_SESSION_TOKEN": CORE,
            "AZURE_STORAGE_SAS_TOKEN": f"sv=2021-12-02&sig={escaped}",
            "AZURE_STORAGE_SAS_KEY": f"sv=2021-12-02&sig={escaped}",
            "HTTP_PROXY": f"http://user:{escaped}@{address}",
            "http_proxy": f"http://user:{escaped}@{address}",
        }
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        section = {"connect_timeout": _DEADLINE_S, "read_timeout": _DEADLINE_S}
        if backend == "s3":
            section |= {"bucket": "tierd", "endpoint_url": f"http://{address}", "region": "eu"}
        else:
            section |= {"container": "tierd", "account": "mytier", "endpoint_url": f"http://{address}/mytier"}
        failures = await failures_of_store(
            RemoteSettings.model_validate({"backend": backend, backend: section}), writes=True
        )
    assert failures
    assert_safe(failures)
    assert not reveals(library_log.getvalue()), library_log.getvalue()


async def test_daemon_and_commands_hide_a_signature_that_the_store_repeats(tmp_path: Path) -> None:
    writer = LogDirWriter(tmp_path / "kafka")
    writer.add_partition("orders").append([b"value"])
    writer.write_checkpoints()
    async with hostile_server("forbids") as address:
        azure = {
            "container": "tierd",
            "account": "mytier",
            "endpoint_url": f"http://{address}/mytier",
            "sas_token": f"sv=2021-12-02&sig={quote(SECRET, safe='')}",
        }
        installation = Installation(
            tmp_path / "tierd", [writer.path], remote={"backend": "azure", "azure": azure, "retry": {"attempts": 1}}
        )
        shown = await asyncio.to_thread(_everything_shown, installation)
    assert "azure://tierd" in shown
    assert not reveals(shown), shown


def _everything_shown(installation: Installation) -> str:
    """Return all output of log, port and commands of a daemon whose store refuses all calls."""
    daemon = installation.daemon()
    daemon.start()
    try:
        daemon.wait_until(lambda: "azure://" in _page(daemon, "/readyz"), what="the cause in /readyz")
        shown = [_page(daemon, path) for path in ("/readyz", "/status", "/", "/metrics")]
        shown += [installation.ask("status", *form).output for form in ((), ("--json",))]
    finally:
        daemon.stop()
    shown += [installation.ask(*words).output for words in (("check-config", "--online"), ("copy", "--once"))]
    shown.append(daemon.log_file.read_text())
    return "\n".join(shown)


def _page(daemon: Daemon, path: str) -> str:
    try:
        return daemon.get(path)
    except OSError:  # the daemon does not listen yet
        return ""
