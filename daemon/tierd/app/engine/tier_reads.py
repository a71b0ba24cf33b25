"""Reads of the tier for commands that know the log of a partition already: no metadata, no whole configuration."""

import contextlib
from collections.abc import AsyncIterator

from tierd.app.engine.host_caches import fetch_service
from tierd.app.engine.tiered_log_reader import HostLogs
from tierd.clock import SystemClock
from tierd.remote import open_object_store, open_transform, segment_storages
from tierd.tiering import FetchService, SilentRecorder


@contextlib.asynccontextmanager
async def tier_reads(host: HostLogs) -> AsyncIterator[FetchService]:
    """Open the object store for reading, with the keys of encrypted segments and the chunk cache; close it afterwards.

    Raises:
        ConfigError: cluster or node are not known.
        TierError: the store cannot be opened, or a key cannot be used.
    """
    config, identity, clock = host.config, await host.identity(), SystemClock()
    async with contextlib.AsyncExitStack() as opened:
        store = open_object_store(config.remote, clock=clock)
        opened.push_async_callback(store.close)
        transform = opened.enter_context(contextlib.closing(open_transform(config.remote)))
        new_storage = segment_storages(
            config.remote, store, transform, cluster_id=identity.cluster_id, broker_id=identity.node_id
        )
        reads = fetch_service(config, store, new_storage, recorder=SilentRecorder(), clock=clock, is_daemon=False)
        yield await opened.enter_async_context(reads)
