"""A client of TLS 1.2 that asks for one handshake after the other, as OpenSSL's own client never does (RFC 5246)."""

import hmac
import os
import ssl
from pathlib import Path

from cryptography.hazmat.primitives.ciphers.aead import AESGCM

_RANDOM_AT = 5 + 4 + 2  # heads of the record and of the message, version
_HEAD = b"\x16\x03\x03"  # a record of a handshake


class InsistentClient:
    """Client in memory: ``outgoing`` is for the server, ``incoming`` is from it."""

    def __init__(self, authority_file: Path, keys_file: Path) -> None:
        context = ssl.create_default_context(cafile=str(authority_file))
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        context.set_ciphers("ECDHE-ECDSA-AES128-GCM-SHA256")
        context.keylog_filename = str(keys_file)
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self.incoming, self.outgoing, server_hostname="localhost")
        self._keys_file = keys_file
        self._server_random = b""
        self._number = 0

    def shake_hands(self, received: bytes) -> bool:
        """Take bytes of the server; return True when the first handshake is over."""
        self._server_random = self._server_random or received[_RANDOM_AT : _RANDOM_AT + 32]
        self.incoming.write(received)
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            return False
        return True

    def handshakes(self, count: int) -> bytes:
        """Return requests for so many handshakes more."""
        key, fixed = self._secrets()
        hello = b"\x03\x03" + os.urandom(32) + b"\0" + b"\0\2\xc0\x2b" + b"\1\0"
        hello = b"\1" + len(hello).to_bytes(3, "big") + hello
        sealed, records = AESGCM(key), bytearray()
        for _ in range(count):
            self._number += 1  # 0 was the end of the first handshake
            number = self._number.to_bytes(8, "big")
            associated = number + _HEAD + len(hello).to_bytes(2, "big")
            body = number + sealed.encrypt(fixed + number, hello, associated)
            records += _HEAD + len(body).to_bytes(2, "big") + body
        return bytes(records)

    def _secrets(self) -> tuple[bytes, bytes]:
        """Return the key of this side, and the fixed part of its nonces."""
        _, client_random, master = self._keys_file.read_text().splitlines()[-1].split()
        seed = b"key expansion" + self._server_random + bytes.fromhex(client_random)
        secret, block, chained = bytes.fromhex(master), b"", seed
        while len(block) < 40:
            chained = hmac.digest(secret, chained, "sha256")
            block += hmac.digest(secret, chained + seed, "sha256")
        return block[:16], block[32:36]
