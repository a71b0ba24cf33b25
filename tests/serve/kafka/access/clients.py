"""Users of the tests, and clients of SCRAM that share no code with the server: those of aiokafka and of RFC 5802."""

import base64
import hashlib
import hmac
from collections.abc import Sequence
from typing import Protocol, cast

from aiokafka.conn import ScramAuthenticator  # type: ignore[import-untyped]

from tierd.config import EndpointSaslSettings
from tierd.serve.kafka.access.user_verifiers import UserVerifiers

PASSWORD = "pencil"
ITERATIONS = 4096


def sasl(
    *, mechanisms: Sequence[str] = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"), **passwords: str
) -> EndpointSaslSettings:
    """Return settings with a user for each of ``passwords``; without any, the user ``user`` with PASSWORD."""
    users = [{"name": name, "password": text} for name, text in (passwords or {"user": PASSWORD}).items()]
    return EndpointSaslSettings.model_validate({"mechanisms": mechanisms, "iterations": ITERATIONS, "users": users})


def verifiers(settings: EndpointSaslSettings | None = None) -> UserVerifiers:
    """Return the verifiers of settings, with random bytes that are the same in each test."""
    return UserVerifiers.derive(settings or sasl(), random_bytes=bytes)


class _Authenticator(Protocol):
    """Part of aiokafka's client that its connection uses."""

    def first_message(self) -> str: ...

    def process_server_first_message(self, server_first: str) -> None: ...

    def final_message(self) -> str: ...

    def process_server_final_message(self, server_final: str) -> None: ...


class AiokafkaScram:
    """Login by aiokafka's own code, without its connection."""

    def __init__(self, mechanism: str, name: str, password: str) -> None:
        made = ScramAuthenticator(
            loop=None, sasl_plain_password=password, sasl_plain_username=name, sasl_mechanism=mechanism
        )
        self._authenticator = cast("_Authenticator", made)

    def first(self) -> bytes:
        return self._authenticator.first_message().encode()

    def final(self, server_first: bytes) -> bytes:
        self._authenticator.process_server_first_message(server_first.decode())
        return self._authenticator.final_message().encode()

    def verify(self, server_final: bytes) -> None:
        """Check the proof of the server; raises ValueError if it is wrong."""
        self._authenticator.process_server_final_message(server_final.decode())


def client_final(
    hash_name: str, password: str, client_first: str, server_first: str, *, gs2: str = "n,,", before_nonce: str = ""
) -> str:
    """Return the client-final message, as RFC 5802 computes it, with ``before_nonce`` in front of the nonce."""
    fields = dict(part.split("=", 1) for part in server_first.split(","))
    salted = hashlib.pbkdf2_hmac(hash_name, password.encode(), base64.b64decode(fields["s"]), int(fields["i"]))
    client_key = hmac.digest(salted, b"Client Key", hash_name)
    bare = f"c={base64.b64encode(gs2.encode()).decode()},r={before_nonce}{fields['r']}"
    signed = f"{client_first.removeprefix(gs2)},{server_first},{bare}".encode()
    signature = hmac.digest(hashlib.new(hash_name, client_key).digest(), signed, hash_name)
    proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
    return f"{bare},p={base64.b64encode(proof).decode()}"
