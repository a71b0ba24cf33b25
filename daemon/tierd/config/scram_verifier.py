"""ScramVerifier: what a server keeps of a password, from which no login can be made (RFC 5802, section 3).

::

    salted password = PBKDF2(password, salt, iterations)
    stored key      = H(HMAC(salted password, "Client Key"))
    server key      = HMAC(salted password, "Server Key")

Its text is that of Kafka (Kafka: ScramCredentialUtils): ``salt=...,stored_key=...,server_key=...,iterations=...``.
"""

import base64
import binascii
import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, Self

SCRAM_HASHES: Final[Mapping[str, str]] = MappingProxyType({"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"})
"""Hash functions by mechanism."""
MIN_ITERATIONS: Final = 4096  # RFC 7677, section 4; Kafka refuses to store less
MAX_ITERATIONS: Final = 1_000_000
_MAX_SALT_BYTES: Final = 1024
_EXAMPLE: Final = "salt=...,stored_key=...,server_key=...,iterations=8192"


@dataclass(frozen=True, slots=True)
class ScramVerifier:
    """Verifier of one password for one hash function."""

    salt: bytes = field(repr=False)
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)
    iterations: int

    @classmethod
    def of_password(cls, password: str, hash_name: str, *, salt: bytes, iterations: int) -> Self:
        """Return the verifier of ``password``. Takes some milliseconds."""
        salted = hashlib.pbkdf2_hmac(hash_name, password.encode(), salt, iterations)
        client_key = hmac.digest(salted, b"Client Key", hash_name)
        stored_key = hashlib.new(hash_name, client_key).digest()
        return cls(salt, stored_key, hmac.digest(salted, b"Server Key", hash_name), iterations)

    @classmethod
    def parse(cls, text: str, hash_name: str) -> Self:
        """Return the verifier of a text of Kafka.

        Raises:
            ValueError: this is no such text; its message repeats nothing of it.
        """
        fields = dict(part.strip().partition("=")[::2] for part in text.split(","))
        if fields.keys() != {"salt", "stored_key", "server_key", "iterations"} or text.count(",") != len(fields) - 1:
            raise ValueError(f"is no SCRAM hash: write {_EXAMPLE}")
        salt, stored_key, server_key = (_decoded(name, fields[name]) for name in ("salt", "stored_key", "server_key"))
        size = hashlib.new(hash_name).digest_size
        for name, key in (("stored_key", stored_key), ("server_key", server_key)):
            if len(key) != size:
                raise ValueError(f"{name} has {len(key)} bytes, not the {size} of {hash_name}")
        if not 0 < len(salt) <= _MAX_SALT_BYTES:
            raise ValueError(f"salt has {len(salt)} bytes: 1 to {_MAX_SALT_BYTES} are allowed")
        return cls(salt, stored_key, server_key, _iterations(fields["iterations"]))

    def to_text(self) -> str:
        """Return the text of Kafka."""
        salt, stored_key, server_key = (
            base64.b64encode(part).decode() for part in (self.salt, self.stored_key, self.server_key)
        )
        return f"salt={salt},stored_key={stored_key},server_key={server_key},iterations={self.iterations}"


def _decoded(name: str, text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise ValueError(f"{name} is no base64") from None


def _iterations(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise ValueError("iterations is no whole number")
    if not MIN_ITERATIONS <= int(text) <= MAX_ITERATIONS:
        raise ValueError(f"iterations must be from {MIN_ITERATIONS} to {MAX_ITERATIONS}")
    return int(text)
