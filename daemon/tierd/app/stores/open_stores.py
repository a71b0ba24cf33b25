"""The stack of object stores and the metadata store, as the configuration asks for them."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path

from tierd.clock import Clock
from tierd.config import TierdConfig
from tierd.log import BrokerIdentity, FoundIdentity, read_identities
from tierd.metadata import KeyValueStore, open_metadata
from tierd.remote import (
    ObjectStore,
    ObjectStoreCall,
    SegmentStorage,
    Transform,
    open_object_store,
    segment_storages,
)


@contextlib.asynccontextmanager
async def object_store(
    config: TierdConfig,
    *,
    clock: Clock,
    on_call: Callable[[ObjectStoreCall], None] | None = None,
    on_attempt: Callable[[ObjectStoreCall], None] | None = None,
) -> AsyncIterator[ObjectStore]:
    """Open the configured object store, with deadlines, retries and observation around it; close it afterwards."""
    store = open_object_store(
        config.remote,
        clock=clock,
        max_bytes_per_second=config.copying.max_bytes_per_second,
        on_call=on_call,
        on_attempt=on_attempt,
    )
    try:
        yield store
    finally:
        await store.close()


def segment_storage(
    config: TierdConfig, identity: BrokerIdentity, store: ObjectStore, transform: Transform
) -> partial[SegmentStorage]:
    """Return a maker of segment storages over ``store``; a cache to read ranges through may be given to the maker."""
    return segment_storages(config.remote, store, transform, cluster_id=identity.cluster_id, broker_id=identity.node_id)


@contextlib.asynccontextmanager
async def metadata_store(config: TierdConfig, *, read_only: bool) -> AsyncIterator[KeyValueStore]:
    """Open the configured metadata store; close it afterwards.

    Read only, a store that was never made counts as empty: nothing was ever copied then.

    Raises:
        MetadataError: the store is damaged, or refuses us, or the package that it needs is not installed.
        BackendUnavailableError: the store cannot be opened.
    """
    store = await open_metadata(config.metadata, sqlite_path=config.sqlite_path, read_only=read_only)
    try:
        yield store
    finally:
        await store.close()


async def log_dir_identities(config: TierdConfig) -> dict[Path, FoundIdentity]:
    """Read the ``meta.properties`` of every log dir; one that is offline says nothing while another one does.

    Raises:
        CheckpointError: a ``meta.properties`` cannot be understood.
        LogDirOfflineError: no log dir can be read.
    """
    return await asyncio.to_thread(read_identities, [log_dir.path for log_dir in config.log_dirs])
