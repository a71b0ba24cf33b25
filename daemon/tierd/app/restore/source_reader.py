"""Reader of the tier for programs on any host: with the log dirs where they are, and without a metadata store."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import structlog

from tierd.app.engine.deployment import Deployment, OpenStores
from tierd.app.engine.tier_reader import TierReader, reader_of_stores
from tierd.app.restore.restore_source import SourceRequest, restore_source
from tierd.clock import SystemClock

log = structlog.get_logger()


@contextlib.asynccontextmanager
async def source_reader(
    deployment: Deployment, request: SourceRequest, *, tell: Callable[[str], None]
) -> AsyncIterator[TierReader]:
    """Open the tier, and the log dirs of the configuration that are on this host, for reading.

    On a host of the broker the metadata is that of the metadata store. On another host, and with ``from_bucket``, it is
    read from the bucket if the metadata store does not have the tier. The log dirs are left out if ``request`` names a
    cluster, because they may belong to another one.

    Args:
        deployment: the configuration.
        request: the tier, and where its metadata is.
        tell: is called with reports of progress while the bucket is read.

    Raises:
        ConfigError: the cluster is not known.
        UnknownPartitionError: neither the metadata store nor the bucket has anything of the cluster.
        TierError: a store cannot be opened or read.
    """
    clock = SystemClock()
    log_dirs = () if request.cluster_id is not None else await asyncio.to_thread(_present, deployment.log_dirs)
    async with contextlib.AsyncExitStack() as stack:
        if log_dirs and not request.from_bucket:
            identity = await deployment.identity()
            stores = await stack.enter_async_context(deployment.tier(identity, clock=clock, read_only=True))
        else:
            source = await stack.enter_async_context(restore_source(deployment, request, clock=clock, tell=tell))
            identity = source.identity
            stores = OpenStores(stored=source.stored, new_storage=source.new_storage, ring=source.ring)
        yield await stack.enter_async_context(
            reader_of_stores(deployment, identity, stores, log_dirs=log_dirs, clock=clock)
        )


def _present(log_dirs: tuple[Path, ...]) -> tuple[Path, ...]:
    """Return the log dirs of this host. If it has some of them, the others may be on a disk that has failed."""
    present = tuple(path for path in log_dirs if path.is_dir())
    for path in log_dirs:
        if present and path not in present:
            log.warning("log_dir_offline", log_dir=str(path), problem="no such directory")
    return present
