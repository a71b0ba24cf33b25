"""The secret under which the pipeline hashes keys, the same for all daemons of a tier and all runs.

::

    v1/<cluster>/key-secret    {"secret": "…base64 of 16 bytes…"}

It is only in the metadata store: not in the bucket, not in an export. A store that is filled anew gets a new secret,
and hashes under the old one are not used any more.
"""

import base64
from collections.abc import Callable
from secrets import token_bytes
from typing import Final

from tierd.errors import PreconditionFailedError
from tierd.metadata.kv import KeyValueStore
from tierd.metadata.rows import MetadataKeyFactory, decoded_value, encode_value, text_field

KEY_SECRET_BYTES: Final = 16


async def key_secret(
    store: KeyValueStore,
    keys: MetadataKeyFactory,
    *,
    new_secret: Callable[[], bytes] = lambda: token_bytes(KEY_SECRET_BYTES),
) -> bytes:
    """Return the secret of this store, making it once; of several that do so at once, one secret wins.

    Raises:
        MetadataDecodeError: the stored secret cannot be understood; the message does not have it.
        BackendUnavailableError: the store does not answer, or has no secret and cannot be written.
        OutcomeUnknownError: the secret may or may not have been written; ask again.
    """
    stored = await store.get(keys.key_secret_key)
    if stored is None:
        fresh = new_secret()
        try:
            await store.create(keys.key_secret_key, encode_value({"secret": base64.b64encode(fresh).decode()}))
        except PreconditionFailedError as error:
            stored = error.actual
        else:
            return fresh
    return decoded_value(keys.key_secret_key, stored or b"", _secret_of)


def _secret_of(body: dict[str, object]) -> bytes:
    text = text_field(body, "secret")
    try:
        found = base64.b64decode(text, validate=True)
    except ValueError:
        found = b""
    if len(found) != KEY_SECRET_BYTES:
        raise ValueError(f"secret is not base64 of {KEY_SECRET_BYTES} bytes")
    return found
