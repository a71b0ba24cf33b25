"""Identity of a metadata store, and the tiers that it owns, so that two stores do not fill one prefix unseen."""

from collections.abc import Callable
from uuid import UUID

from tierd.metadata.kv import Batch, KeyValueStore, Put
from tierd.metadata.rows import MetadataKeyFactory, serde


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
