"""Targets: what a client of the read endpoint sends before it is known."""

from contextlib import suppress
from datetime import UTC, datetime

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ed25519
from cryptography.x509.oid import NameOID

from tests.fuzz.target import Target
from tests.serve.kafka.access.clients import PASSWORD, client_final, verifiers
from tierd.serve.kafka.access import certificate_principal
from tierd.serve.kafka.access.listener_logins import parse_plain
from tierd.serve.kafka.access.scram_exchange import ScramExchange
from tierd.serve.kafka.login import LoginRefusedError

_USERS = verifiers()
_BETWEEN = b"\n"  # of the two messages of a login; the first one cannot have it


def _exchange() -> ScramExchange:
    return ScramExchange("SCRAM-SHA-256", _USERS, nonce="server")


def _scram(data: bytes) -> None:
    first, _, final = data.partition(_BETWEEN)
    with suppress(LoginRefusedError):
        exchange = _exchange()
        exchange.first(first)
        name, _ = exchange.final(final)
        assert name == "user", "the proof of a seed is that of this user"


def _scram_seeds() -> list[bytes]:
    seeds = []
    for gs2 in ("n,,", "y,,", "n,a=user,"):
        first = f"{gs2}n=user,r=client"
        challenge = _exchange().first(first.encode()).decode()
        seeds.append(first.encode() + _BETWEEN + client_final("sha256", PASSWORD, first, challenge, gs2=gs2).encode())
    return [*seeds, b"n,,n=a=2Cb=3Dc,r=client,tokenauth=true\nc=biws,r=clientserver,x=1,p=AAAA"]


def _plain(data: bytes) -> None:
    found = parse_plain(data)
    assert found is None or all(found), "neither a name nor a password is empty"


def _certificate(data: bytes) -> None:
    with suppress(ValueError, Warning):  # warnings of the library are errors in tests
        principal = certificate_principal(data)
        assert principal.startswith("User:")
        principal.encode()


def _certificate_seeds() -> list[bytes]:
    key = ed25519.Ed25519PrivateKey.generate()
    names = [
        [[(NameOID.COMMON_NAME, "etl")]],
        [[(NameOID.COUNTRY_NAME, "DE")], [(NameOID.ORGANIZATION_NAME, 'a,b+c="'), (NameOID.COMMON_NAME, " x ")]],
        [[(NameOID.EMAIL_ADDRESS, "a@b.c")], [(NameOID.USER_ID, "straße")]],
    ]
    return [
        x509.CertificateBuilder()
        .subject_name(
            x509.Name([x509.RelativeDistinguishedName([x509.NameAttribute(*each) for each in part]) for part in parts])
        )
        .issuer_name(x509.Name([]))
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(datetime(2020, 1, 1, tzinfo=UTC))
        .not_valid_after(datetime(2040, 1, 1, tzinfo=UTC))
        .sign(key, None)
        .public_bytes(serialization.Encoding.DER)
        for parts in names
    ]


TARGETS = [
    Target("scram-login", _scram, _scram_seeds),
    Target("plain-login", _plain, lambda: [b"\0user\0pencil", b"user\0user\0pencil"]),
    Target("client-certificate", _certificate, _certificate_seeds),
]
