"""EndpointAccess: the parts together, and a reload of the settings."""

from pathlib import Path

import pytest

from tests.fakes.clock import FakeClock
from tests.security.canary import SECRET, rendered, reveals
from tests.serve.kafka.access.clients import sasl
from tests.services.certificates import Authority
from tierd.config import KafkaEndpointSettings, ScramVerifier
from tierd.errors import ListenError
from tierd.serve.kafka.access.endpoint_access import EndpointAccess
from tierd.serve.kafka.login import LoginRefusedError


def settings(**more: object) -> KafkaEndpointSettings:
    listener = {"protocol": "sasl_plaintext", "listen": "127.0.0.1:0"}
    return KafkaEndpointSettings.model_validate({"listeners": [listener], "sasl": sasl(alice="one"), **more})


async def opened(state_dir: Path, endpoint: KafkaEndpointSettings) -> EndpointAccess:
    return await EndpointAccess.open(endpoint, state_dir=state_dir, clock=FakeClock())


async def logged_in(access: EndpointAccess, name: str, password: str) -> str | None:
    login = access.logins.begin("PLAIN", peer="192.0.2.1")
    assert login is not None
    try:
        return (await login.step(f"\0{name}\0{password}".encode())).principal
    except LoginRefusedError:
        return None


async def test_reload_changes_users_rules_quotas_and_quarantine(tmp_path: Path) -> None:
    access = await opened(tmp_path, settings())
    assert await logged_in(access, "alice", "one") == "User:alice"

    await access.follow(
        settings(
            sasl=sasl(bob="two"),
            access=[{"topics": ["orders"]}],
            quotas=[{"connections": 1}],
            quarantine={"principals": ["User:bob"]},
        )
    )

    assert await logged_in(access, "alice", "one") is None
    assert await logged_in(access, "bob", "two") == "User:bob"
    assert not access.authorizer.may_read_topic("User:bob", "other")
    assert [access.quotas.connect("User:bob", 0.0) for _ in range(2)] == [True, False]
    assert access.quarantine.is_held(listener="SASL_PLAINTEXT", principal="User:bob")
    assert access.statistics().failed_logins == 1
    assert access.statistics().logins == 2


async def test_reload_with_the_same_users_keeps_their_salts(tmp_path: Path) -> None:
    access = await opened(tmp_path, settings())
    before = access._users

    await access.follow(settings(quotas=[{"connections": 1}]))

    assert access._users is before


async def test_lifetime_of_a_login_is_that_of_the_settings(tmp_path: Path) -> None:
    limited = sasl(alice="one").model_copy(update={"max_reauth_s": 90.0})
    access = await opened(tmp_path, settings(sasl=limited))
    login = access.logins.begin("PLAIN", peer="192.0.2.1")
    assert login is not None

    assert (await login.step(b"\0alice\0one")).lifetime_ms == 90_000


async def test_release_of_the_quarantine_is_known_at_the_next_start(tmp_path: Path) -> None:
    held = settings(quarantine={"listeners": ["SASL_PLAINTEXT"]})
    access = await opened(tmp_path, held)
    assert access.statistics().held.listeners == ("SASL_PLAINTEXT",)
    await access.quarantine.release()

    assert not (await opened(tmp_path, held)).statistics().held


async def test_certificates_are_read_at_the_start_where_a_listener_needs_them(tmp_path: Path) -> None:
    server = Authority(tmp_path / "pki", "authority").issue("server", hosts=("127.0.0.1",))
    tls = {"certificate_file": server.cert_file, "key_file": server.key_file}
    listener = {"protocol": "ssl", "listen": "127.0.0.1:0"}

    access = await opened(tmp_path, settings(listeners=[listener], tls=tls))
    assert access.certificates is not None
    assert await access.certificates.latest()
    assert (await opened(tmp_path, settings())).certificates is None

    server.key_file.write_text("no key")
    with pytest.raises(ListenError):
        await opened(tmp_path, settings(listeners=[listener], tls=tls))


async def test_no_secret_of_the_settings_is_in_an_error_or_a_repr(tmp_path: Path) -> None:
    of_hash = ScramVerifier(SECRET.encode(), SECRET.encode().ljust(64, b"k"), SECRET.encode().ljust(64, b"k"), 4096)
    users = [{"name": "alice", "password": SECRET}, {"name": "bob", "scram_sha_512": of_hash.to_text()}]
    closed = Authority(tmp_path / "pki", "authority").issue("server", password="another")
    tls = {"certificate_file": closed.cert_file, "key_file": closed.key_file, "key_password": SECRET}
    endpoint = settings(sasl={"mechanisms": ["PLAIN"], "users": users}, tls=tls)
    access = await opened(tmp_path, endpoint)
    texts = [repr(endpoint), str(endpoint), endpoint.model_dump_json(), repr(access), repr(vars(access))]
    texts += [repr(vars(access.logins)), repr(access._users), str(access.statistics())]

    for name in ("alice", "bob", SECRET):
        login = access.logins.begin("PLAIN", peer="192.0.2.1")
        assert login is not None
        with pytest.raises(LoginRefusedError) as caught:
            await login.step(f"\0{name}\0{SECRET}?".encode())
        texts.append(rendered(caught.value))
    listener = {"protocol": "ssl", "listen": "127.0.0.1:0"}
    with pytest.raises(ListenError) as unusable:
        await opened(
            tmp_path, endpoint.model_copy(update={"listeners": settings(listeners=[listener], tls=tls).listeners})
        )
    texts.append(rendered(unusable.value))

    for text in texts:
        assert not reveals(text), text
