"""SASL logins: the client's side of PLAIN (RFC 4616) and SCRAM (RFC 5802, RFC 7677). No I/O.

::

    client-first  n,,n=user,r=nonce                 ->
                                                    <-  r=nonce+more,s=salt,i=iterations     server-first
    client-final  c=biws,r=nonce+more,p=proof       ->
                                                    <-  v=signature                          server-final

Names and passwords are sent as UTF-8 without SASLprep, as Kafka stores them (Kafka: ScramFormatter.normalize).
"""

import base64
import binascii
import hashlib
import hmac
from dataclasses import dataclass
from typing import Final

from tierd.errors import KafkaError, TierErrorCode
from tierd.masking import Masking

_HASHES: Final = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
_MIN_ITERATIONS: Final = 4096  # RFC 7677, section 4; Kafka refuses to store less
_MAX_ITERATIONS: Final = 1_000_000  # Kafka stores 16384 at most; a server that asks for more wastes our time


def is_scram(mechanism: str) -> bool:
    """Return True if ``mechanism`` is one of SCRAM's."""
    return mechanism in _HASHES


def plain_message(username: str, password: str) -> bytes:
    """Return the only message of PLAIN."""
    return b"\0" + username.encode() + b"\0" + password.encode()


@dataclass(frozen=True, slots=True)
class _Challenge:
    """The server-first message."""

    text: str
    nonce: str
    salt: bytes
    iterations: int


class ScramClient:
    """One login by SCRAM: ``first``, then ``final`` of the server's answer, then ``verify`` of its last one."""

    def __init__(self, mechanism: str, username: str, password: str, *, nonce: str) -> None:
        """Begin a login; ``nonce`` is fresh for every login, of printable ASCII without a comma."""
        self._hash = _HASHES[mechanism]
        self._password = password.encode()
        self._masking = Masking(password)
        self._nonce = nonce
        escaped = username.replace("=", "=3D").replace(",", "=2C")
        self._first_bare = f"n={escaped},r={nonce}"
        self._signature: bytes | None = None

    def first(self) -> bytes:
        """Return the client-first message."""
        return f"n,,{self._first_bare}".encode()

    def final(self, server_first: bytes) -> bytes:
        """Return the client-final message. Takes as long as its iterations do: some milliseconds, in a thread.

        Raises:
            KafkaError: the server's message breaks the protocol, or asks too little or too much.
        """
        challenge = self._challenge(server_first)
        salted = hashlib.pbkdf2_hmac(self._hash, self._password, challenge.salt, challenge.iterations)
        bare = f"c=biws,r={challenge.nonce}"
        signed = f"{self._first_bare},{challenge.text},{bare}".encode()
        client_key = self._hmac(salted, b"Client Key")
        proof = _xor(client_key, self._hmac(hashlib.new(self._hash, client_key).digest(), signed))
        self._signature = self._hmac(self._hmac(salted, b"Server Key"), signed)
        return f"{bare},p={base64.b64encode(proof).decode()}".encode()

    def verify(self, server_final: bytes) -> None:
        """Check the proof of the server that it knows the password, too.

        Raises:
            KafkaError: the proof is wrong, or the server refused ours.
        """
        assert self._signature is not None, "final comes before verify"
        fields = _fields(server_final)
        if "e" in fields:
            raise _refused(f"it says {self._masking.text(fields['e'])}")
        if not hmac.compare_digest(_decoded(fields.get("v", "")), self._signature):
            raise KafkaError(
                "the server cannot prove that it knows the password: it is not the broker that it claims to be",
                remedy="find out who answers at this address; change the password if it was sent by PLAIN before",
                code=TierErrorCode.KAFKA_AUTHENTICATION,
            )

    def _challenge(self, server_first: bytes) -> _Challenge:
        fields = _fields(server_first)
        if "e" in fields:
            raise _refused(f"it says {self._masking.text(fields['e'])}")
        nonce, iterations = fields.get("r", ""), fields.get("i", "")
        if "m" in fields or not nonce.startswith(self._nonce) or len(nonce) == len(self._nonce):
            raise _refused("its first message does not answer ours")
        if not (iterations.isascii() and iterations.isdigit() and len(iterations) < 10):
            raise _refused("its first message has no count of iterations")
        if not _MIN_ITERATIONS <= int(iterations) <= _MAX_ITERATIONS:
            raise _refused(f"it asks for {iterations} iterations, outside {_MIN_ITERATIONS} to {_MAX_ITERATIONS}")
        salt = _decoded(fields.get("s", ""))
        if not salt:
            raise _refused("its first message has no salt")
        return _Challenge(server_first.decode(), nonce, salt, int(iterations))

    def _hmac(self, key: bytes, content: bytes) -> bytes:
        return hmac.digest(key, content, self._hash)


def _fields(message: bytes) -> dict[str, str]:
    try:
        parts = [part.partition("=") for part in message.decode().split(",")]
    except UnicodeDecodeError as error:
        raise _refused("its message is not UTF-8") from error
    return {name: value for name, _, value in parts}


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise _refused("its message is not base64") from error


def _xor(left: bytes, right: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(left, right, strict=True))


def _refused(problem: str) -> KafkaError:
    return KafkaError(
        f"the SCRAM login failed: {problem}",
        remedy="compare sasl_mechanism, sasl_username and sasl_password with what the brokers have",
        code=TierErrorCode.KAFKA_AUTHENTICATION,
    )
