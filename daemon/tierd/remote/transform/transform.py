"""Transform: compression and encryption as configured, and the keys to read what was stored earlier."""

import asyncio
import base64
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from tierd.config import EncryptionSettings, RemoteSettings
from tierd.remote.transform.key_ring import EMPTY_RING, KeyRing

T = TypeVar("T")

_MAX_THREADS = 4


class Threads:
    """Pool for blocking calls that release the GIL. A cancelled call goes on to its end; its result is dropped."""

    def __init__(self, count: int | None = None) -> None:
        """``count``: threads at most; by default one for each processor, up to 4."""
        self._count = count or min(_MAX_THREADS, os.cpu_count() or 1)
        self._pool: ThreadPoolExecutor | None = None

    def submit(self, call: Callable[[], T]) -> "asyncio.Future[T]":
        """Begin ``call`` in a thread, or queue it; the caller bounds the number of queued calls."""
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self._count, thread_name_prefix="transform")
        return asyncio.get_running_loop().run_in_executor(self._pool, call)

    def close(self) -> None:
        """End the threads after their running calls, without waiting for them; closing twice is harmless."""
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)
            self._pool = None


class Transform:
    """Compression and encryption of new segments, and the keys to read all segments.

    Args:
        level: of zstd for new segments; None stores them uncompressed.
        encrypts: whether new segments are encrypted, under data keys that the ring's active key wraps.
        ring: the keys; those of old segments as well, even where nothing new is encrypted.
        threads: where chunks are made and read; closed with this.

    Raises:
        ValueError: encryption without an active key.
    """

    def __init__(
        self,
        *,
        level: int | None = None,
        encrypts: bool = False,
        ring: KeyRing = EMPTY_RING,
        threads: Threads | None = None,
    ) -> None:
        if encrypts and ring.active_id is None:
            raise ValueError("encryption needs an active key in the ring")
        self.level = level
        self.encrypts = encrypts
        self.ring = ring
        self.threads = threads or Threads()

    def __repr__(self) -> str:
        return f"Transform(level={self.level}, encrypts={self.encrypts}, ring={self.ring})"

    def close(self) -> None:
        """Release the threads; calls under way end by themselves."""
        self.threads.close()


PLAIN = Transform()
"""Transform that stores bytes unchanged; it reads compressed segments, and no encrypted ones."""


def open_transform(settings: RemoteSettings) -> Transform:
    """Return the transform that the settings ask for; the caller closes it. Loading has checked the settings."""
    compression, encryption = settings.compression, settings.encryption
    return Transform(
        level=compression.level if compression.type == "zstd" else None,
        encrypts=encryption.enabled,
        ring=open_key_ring(encryption),
    )


def open_key_ring(settings: EncryptionSettings) -> KeyRing:
    """Return the ring, also without encryption of new segments: segments that were encrypted are still read."""
    keys = {key.id: base64.b64decode(key.key.get_secret_value()) for key in settings.keys if key.key is not None}
    return KeyRing(settings.active_key if settings.active_key in keys else None, keys)
