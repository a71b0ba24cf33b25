"""Keys as numbers: their hashes, and the latest record of each, with the twin that pays."""

from secrets import token_bytes
from typing import TYPE_CHECKING, Final

from tierd.kernels.arrays import Numbers
from tierd.kernels.choice import CHOICE

if TYPE_CHECKING:
    import numpy as np

HASH_SECRET_BYTES: Final = 16
"""Size of the secret of ``hash_keys``."""
_DECODINGS_PER_HASH = 3  # time of the reference for a short key, in records that it decodes in that time
_LOOKUPS_PER_DECODING = 8


def new_hash_secret() -> bytes:
    """Return a fresh random secret for ``hash_keys``."""
    return token_bytes(HASH_SECRET_BYTES)


def hash_keys(
    payload: bytes | memoryview, key_start: Numbers, key_size: Numbers, secret: bytes
) -> tuple["np.ndarray", "np.ndarray"]:
    """Hash keys so that collisions cannot be made without the secret; see ``reference.keys.hash_keys``."""
    kernels = CHOICE.for_records(_DECODINGS_PER_HASH * len(key_start))
    return kernels.hash_keys(payload, key_start, key_size, secret)


def latest_per_key(hi: Numbers, lo: Numbers, position: Numbers) -> tuple["np.ndarray", "np.ndarray", "np.ndarray"]:
    """Keep one row a key, that of its largest position; see ``reference.keys.latest_per_key``."""
    return CHOICE.for_records(len(hi) // _LOOKUPS_PER_DECODING).latest_per_key(hi, lo, position)
