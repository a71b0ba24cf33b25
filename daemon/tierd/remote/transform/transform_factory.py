"""open_transform: the Transform and the key ring that the settings describe."""

import base64

from tierd.config import EncryptionSettings, RemoteSettings
from tierd.remote.transform.key_ring import KeyRing
from tierd.remote.transform.transform import Transform


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
