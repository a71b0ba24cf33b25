"""The secret under which the pipeline hashes keys, the same for all daemons of a tier and all runs.

::

    v1/<cluster>/key-secret    {"secret": "…base64 of 16 bytes…"}

It is only in the metadata store: not in the bucket, not in an export. A store that is filled anew gets a new secret,
and hashes under the old one are not used any more.
"""

import base64
from collections.abc import Callable

from tierd.kernels import HASH_SECRET_BYTES, new_hash_secret
from tierd.metadata.kv import KeyValueStore
from tierd.metadata.rows import MetadataKeyFactory, decoded_value, encode_value, text_field


async def key_secret(
    store: KeyValueStore, keys: MetadataKeyFactory, *, new_secret: Callable[[], bytes] = new_hash_secret
) -> bytes:
    """Return the secret of this store, making it once; of several that do so at once, one secret wins.

    Raises:
        MetadataDecodeError: the stored secret cannot be understood; the message does not have it.
        BackendUnavailableError: the store does not answer, or has no secret and cannot be written.
        OutcomeUnknownError: the secret may or may not have been written; ask again.
    """
    stored = await store.made_once(keys.key_secret_key, lambda: _encoded(new_secret()))
    return decoded_value(keys.key_secret_key, stored, _secret_of)


def _encoded(secret: bytes) -> bytes:
    return encode_value({"secret": base64.b64encode(secret).decode()})


def _secret_of(body: dict[str, object]) -> bytes:
    text = text_field(body, "secret")
    try:
        found = base64.b64decode(text, validate=True)
    except ValueError:
        found = b""
    if len(found) != HASH_SECRET_BYTES:
        raise ValueError(f"secret is not base64 of {HASH_SECRET_BYTES} bytes")
    return found
