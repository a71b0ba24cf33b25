"""Settings to a Transform."""

import base64

from tierd.config import EncryptionSettings, RemoteSettings
from tierd.remote.transform.key_ring import KeyRing
from tierd.remote.transform.transform import Transform


def open_transform(settings: RemoteSettings) -> Transform:
    """Return what the settings ask for; the caller closes it. The settings were checked when they were loaded."""
    compression, encryption = settings.compression, settings.encryption
    return Transform(
        level=compression.level if compression.type == "zstd" else None,
        encrypts=encryption.enabled,
        ring=open_key_ring(encryption),
    )


def open_key_ring(settings: EncryptionSettings) -> KeyRing:
    """Return the ring, also where nothing is encrypted any more: what was, is still to be read."""
    keys = {key.id: base64.b64decode(key.key.get_secret_value()) for key in settings.keys if key.key is not None}
    return KeyRing(settings.active_key if settings.active_key in keys else None, keys)
