"""Owner of a prefix: ``tierd.json`` carries the id of the metadata store that owns it (DESIGN 4)."""

import json
from uuid import UUID

from tierd.errors import (
    ForeignTierError,
    RemoteConflictError,
    RemoteIntegrityError,
    RemoteResourceNotFoundError,
    RetriableRemoteStorageError,
)
from tierd.json_parsing import parse_json
from tierd.remote.object_keys import ObjectKeyFactory
from tierd.remote.object_limits import TIER_IDENTITY, read_whole
from tierd.remote.object_store import ObjectStore

FORMAT_VERSION = 1


async def claim_tier(
    store: ObjectStore, *, key_prefix: str, cluster_id: str, store_id: UUID, known: bool = False
) -> None:
    """Make the prefix this metadata store's own at the first call; later calls check the owner.

    Of two daemons that claim at the same moment one wins: the object is created if it is absent.

    Args:
        store: the object store.
        key_prefix: begins every key of the tier.
        cluster_id: cluster of the tier.
        store_id: of the metadata store.
        known: this metadata store has claimed the tier before. Then a missing object means that the store is not the
            tier: a mount point without its mount, or an empty bucket. No object is created.

    Raises:
        ForeignTierError: another metadata store owns the prefix.
        RetriableRemoteStorageError: the object of a known tier is missing.
        RemoteStorageError: the object store failed.
    """
    key = ObjectKeyFactory(key_prefix, cluster_id).tier_identity
    try:
        owner = _decode(await read_whole(store, key, TIER_IDENTITY), key)
    except RemoteResourceNotFoundError as error:
        if known:
            raise RetriableRemoteStorageError(
                f"{key} is gone, although this metadata store has filled that tier before",
                remedy="mount the tier's directory, or correct remote; an empty tier needs a metadata store of its own",
            ) from error
        try:
            await store.put(key, _encode(cluster_id, store_id))
        except RemoteConflictError:
            owner = _decode(await read_whole(store, key, TIER_IDENTITY), key)
        else:
            return
    if owner != store_id:
        raise ForeignTierError(
            f"{key} says that metadata store {owner} owns this prefix; ours is {store_id}",
            remedy="restore that metadata store, run tierd rebuild-metadata, or set another remote.key_prefix",
        )


async def read_tier_identity(store: ObjectStore, *, key_prefix: str, cluster_id: str) -> UUID | None:
    """Return the id of the metadata store that owns the prefix; None when it has no owner.

    Raises:
        RemoteIntegrityError: the object cannot be understood.
        RemoteStorageError: the object store failed.
    """
    key = ObjectKeyFactory(key_prefix, cluster_id).tier_identity
    try:
        return _decode(await read_whole(store, key, TIER_IDENTITY), key)
    except RemoteResourceNotFoundError:
        return None


def _encode(cluster_id: str, store_id: UUID) -> bytes:
    fields = {"format_version": FORMAT_VERSION, "cluster_id": cluster_id, "store_id": str(store_id)}
    return (json.dumps(fields) + "\n").encode()


def _decode(content: bytes, key: str) -> UUID:
    try:
        fields = parse_json(content)
        if not isinstance(fields, dict):
            raise TypeError("no JSON object")  # noqa: TRY301
        return UUID(fields["store_id"])
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise RemoteIntegrityError(
            f"{key} cannot be understood: {content[:80]!r}",
            remedy="find out which program wrote it; delete it if no program needs it",
        ) from error
