"""Identity of a metadata store, the tiers that it owns, so that two do not fill one prefix unseen, and its secret."""

import base64
from collections.abc import Callable
from uuid import UUID

from tierd.kernels import HASH_SECRET_BYTES, new_hash_secret
from tierd.metadata.kv import Batch, KeyValueStore, Put
from tierd.metadata.rows import MetadataKeyFactory, decoded_value, encode_value, serde, text_field


async def store_identity(store: KeyValueStore, keys: MetadataKeyFactory, *, new_id: Callable[[], UUID]) -> UUID:
    """Return the random id of this store, making it once; of several that do so at once, one id wins.

    Raises:
        MetadataDecodeError: the stored id cannot be understood.
        BackendUnavailableError: the store does not answer, or has no id and cannot be written.
        OutcomeUnknownError: the id may or may not have been written; ask again.
    """
    stored = await store.made_once(keys.store_key, lambda: serde.encode_identity(new_id()))
    return serde.decode_identity(keys.store_key, stored)


async def read_store_identity(store: KeyValueStore, keys: MetadataKeyFactory) -> UUID | None:
    """Return the id of this store, None while it has none; makes none.

    Raises:
        MetadataDecodeError: the stored id cannot be understood.
        BackendUnavailableError: the store does not answer.
    """
    stored = await store.get(keys.store_key)
    return None if stored is None else serde.decode_identity(keys.store_key, stored)


async def is_tier_known(store: KeyValueStore, keys: MetadataKeyFactory, *, key_prefix: str) -> bool:
    """Return True if ``remember_tier`` was ever called for the prefix: then its ``tierd.json`` must be there.

    Raises:
        BackendUnavailableError: the store does not answer.
    """
    return await store.get(keys.tier(key_prefix)) is not None


async def remember_tier(store: KeyValueStore, keys: MetadataKeyFactory, *, key_prefix: str) -> None:
    """Note that the tier under the prefix is this store's; noting it again changes nothing.

    Raises:
        BackendUnavailableError: nothing was written.
        OutcomeUnknownError: it may or may not have been written; call again.
    """
    await store.apply(Batch([Put(keys.tier(key_prefix), key_prefix.encode())]))


async def key_secret(
    store: KeyValueStore, keys: MetadataKeyFactory, *, new_secret: Callable[[], bytes] = new_hash_secret
) -> bytes:
    """Return the secret of this store, making it once; of several that do so at once, one secret wins.

    The pipeline hashes keys under the secret, the same for all daemons of a tier and all runs::

        v1/<cluster>/key-secret    {"secret": "…base64 of 16 bytes…"}

    It is only in the metadata store: not in the bucket, not in an export. A store that is filled anew gets a new
    secret, and hashes under the old one are not used any more.

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
