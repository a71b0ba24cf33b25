"""ScramExchange: the server's side of one login by SCRAM (RFC 5802, RFC 7677; Kafka: ScramSaslServer). No I/O.

::

    client-first  n,,n=user,r=nonce                   ->   first
                                                      <-   r=nonce+more,s=salt,i=iterations     server-first
    client-final  c=biws,r=nonce+more,p=proof         ->   final
                                                      <-   v=signature                          server-final

An unknown user gets a salt as well, and fails only at the proof, like a known one with a wrong password.
Names and passwords are compared as UTF-8 without SASLprep, as in Kafka (ScramFormatter.normalize).
"""

import base64
import binascii
import hashlib
import hmac
import re
from dataclasses import dataclass, field
from typing import Final, NoReturn

from tierd.config import SCRAM_HASHES
from tierd.serve.kafka.access.user_verifiers import FoundUser, UserVerifiers
from tierd.serve.kafka.login import LoginRefusedError

LONGEST_TOKEN_BYTES: Final = 4096
"""Longest message of a client, for every mechanism."""
_FIRST: Final = re.compile(
    r"(?P<gs2>[ny],(?:a=(?P<authzid>[^,]+))?,)(?P<bare>n=(?P<name>[^,]+),r=(?P<nonce>[^,]+)(?:,.*)?)"
)
_FINAL: Final = re.compile(r"(?P<bare>c=(?P<binding>[^,]+),r=(?P<nonce>[^,]+)(?:,(?!p=)[^,]*)*),p=(?P<proof>[^,]+)")
_NONCE: Final = re.compile(r"[\x21-\x2b\x2d-\x7e]{1,256}")
_BAD_ESCAPE: Final = re.compile(r"=(?!2C|3D)")


@dataclass(frozen=True, slots=True)
class _Challenged:
    """State between client-first and client-final."""

    gs2_header: str
    client_first_bare: str
    server_first: str
    nonce: str
    user: FoundUser = field(repr=False)


class ScramExchange:
    """One login: ``first``, then ``final``. Every failure ends it."""

    def __init__(self, mechanism: str, users: UserVerifiers, *, nonce: str) -> None:
        """Begin a login; ``nonce`` is fresh for every login, of printable ASCII without a comma."""
        self._mechanism = mechanism
        self._hash = SCRAM_HASHES[mechanism]
        self._users = users
        self._nonce = nonce
        self._challenged: _Challenged | None = None

    def first(self, client_first: bytes) -> bytes:
        """Return the server-first message.

        Raises:
            LoginRefusedError: the client's message breaks the protocol.
        """
        found = _FIRST.fullmatch(_decoded(client_first))
        if found is None or not _NONCE.fullmatch(found["nonce"]):
            _refuse()
        name = _unescaped(found["name"])
        if found["authzid"] is not None and _unescaped(found["authzid"]) != name:
            _refuse()
        user = self._users.find(name, self._mechanism)
        nonce = found["nonce"] + self._nonce
        salt = base64.b64encode(user.verifier.salt).decode()
        server_first = f"r={nonce},s={salt},i={user.verifier.iterations}"
        self._challenged = _Challenged(found["gs2"], found["bare"], server_first, nonce, user)
        return server_first.encode()

    def final(self, client_final: bytes) -> tuple[str, bytes]:
        """Return the name of the user, and the server-final message.

        Raises:
            LoginRefusedError: the proof is wrong, the user is unknown, or the message breaks the protocol.
        """
        state, self._challenged = self._challenged, None
        assert state is not None, "first comes before final"
        found = _FINAL.fullmatch(_decoded(client_final))
        if found is None or _base64(found["binding"]) != state.gs2_header.encode():
            _refuse()
        # librdkafka 2.0 puts its own nonce in front once more, which brokers of Kafka 3.9 accept. The proof covers it.
        if not found["nonce"].endswith(state.nonce):
            _refuse()
        signed = f"{state.client_first_bare},{state.server_first},{found['bare']}".encode()
        is_proven = self._is_proof(_base64(found["proof"]), state.user, signed)
        if not (is_proven and state.user.is_known):
            _refuse()
        signature = hmac.digest(state.user.verifier.server_key, signed, self._hash)
        return state.user.name, b"v=" + base64.b64encode(signature)

    def _is_proof(self, proof: bytes, user: FoundUser, signed: bytes) -> bool:
        stored_key = user.verifier.stored_key
        signature = hmac.digest(stored_key, signed, self._hash)
        if len(proof) != len(signature):
            return False
        client_key = bytes(a ^ b for a, b in zip(proof, signature, strict=True))
        return hmac.compare_digest(hashlib.new(self._hash, client_key).digest(), stored_key)


def _decoded(message: bytes) -> str:
    if len(message) > LONGEST_TOKEN_BYTES:
        _refuse()
    try:
        return message.decode()
    except UnicodeDecodeError:
        _refuse()


def _unescaped(name: str) -> str:
    if _BAD_ESCAPE.search(name):
        _refuse()
    return name.replace("=2C", ",").replace("=3D", "=")


def _base64(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        _refuse()


def _refuse() -> NoReturn:
    raise LoginRefusedError(
        "Authentication failed: invalid credentials, or a message that breaks the mechanism"
    ) from None
