"""Transforms for tests by name, and content for them."""

import random
from collections.abc import Mapping

from tierd.remote import KeyRing, Transform

TRANSFORM_NAMES = ("plain", "zstd", "aes", "zstd+aes")
RING_KEYS: Mapping[str, bytes] = {"old": bytes(range(32)), "new": bytes(range(32, 64))}

KEY_SEED = bytes(range(64, 96))

_STEP_BYTES = 256 << 10


def ring(active_id: str | None = "old", *ids: str) -> KeyRing:
    """Return a ring of the keys ``ids``, by default of all."""
    return KeyRing(active_id, {key_id: RING_KEYS[key_id] for key_id in ids or RING_KEYS})


def transform_named(name: str, *, active_id: str = "old") -> Transform:
    """Return one of ``TRANSFORM_NAMES``."""
    steps = name.split("+")
    return Transform(level=3 if "zstd" in steps else None, encrypts="aes" in steps, ring=ring(active_id))


def mixed_content(size_bytes: int, *, seed: int = 0) -> bytes:
    """Return bytes that begin compressible, and alternate with incompressible ones every 1.5 MiB."""
    source = random.Random(seed)
    pieces = []
    for number in range(-(-size_bytes // _STEP_BYTES)):
        word = b"%d record " % source.randrange(1000)
        pieces.append(source.randbytes(_STEP_BYTES) if number // 6 % 2 else (word * _STEP_BYTES)[:_STEP_BYTES])
    return b"".join(pieces)[:size_bytes]
