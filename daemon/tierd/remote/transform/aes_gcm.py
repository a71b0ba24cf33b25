"""AES-256-GCM and HKDF-SHA256 of the package cryptography, which is loaded with the first key.

The package takes 6 MB of memory. A tier without encryption does not load it.
"""

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

KEY_BYTES: Final = 32


def aes_gcm(key: bytes) -> "AESGCM":
    """Return the cipher of a key of ``KEY_BYTES``."""
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415 - loaded with the first key

    return AESGCM(key)


def opened(cipher: "AESGCM", nonce: bytes, sealed: bytes | memoryview, bound: bytes) -> bytes | None:
    """Return what ``cipher`` encrypted with ``nonce`` and the additional data ``bound``; None for anything else."""
    from cryptography.exceptions import InvalidTag  # noqa: PLC0415 - as above

    try:
        return cipher.decrypt(nonce, sealed, bound)
    except (InvalidTag, ValueError):
        return None


def expanded_key(key: bytes, purpose: bytes) -> bytes:
    """Return a key of ``KEY_BYTES`` that follows from a uniformly random ``key``: HKDF-Expand with ``purpose``."""
    from cryptography.hazmat.primitives import hashes  # noqa: PLC0415 - as above
    from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand  # noqa: PLC0415

    return HKDFExpand(hashes.SHA256(), KEY_BYTES, purpose).derive(key)


def derived_key(seed: bytes, info: bytes) -> bytes:
    """Return a key of ``KEY_BYTES`` that follows from ``seed``: HKDF with ``info`` and without salt."""
    from cryptography.hazmat.primitives import hashes  # noqa: PLC0415 - as above
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF  # noqa: PLC0415

    return HKDF(hashes.SHA256(), KEY_BYTES, salt=None, info=info).derive(seed)
