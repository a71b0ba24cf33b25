"""Transform: compression and encryption as configured, and the keys to read what was stored earlier."""

from tierd.remote.transform.key_ring import EMPTY_RING, KeyRing
from tierd.remote.transform.threads import Threads


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
