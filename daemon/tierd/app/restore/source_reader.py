"""Reader of the tier for programs on any host: with the log dirs where they are, and without a metadata store."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path

import structlog

from tierd.app.engine.deployment import Deployment, OpenStores
from tierd.app.engine.tier_reader import TierReader, reader_of_stores
from tierd.app.restore.restore_source import SourceRequest, restore_source
from tierd.clock import Clock, SystemClock
from tierd.log import BrokerIdentity

log = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceStores:
    """Stores of a tier, open for reading on any host.

    Attributes:
        identity: of the cluster; the node is -1 where it is not known.
        stores: the tier.
        log_dirs: those of the configuration that are on this host.
        is_from_bucket: the metadata was read from the bucket into memory.
    """

    identity: BrokerIdentity
    stores: OpenStores
    log_dirs: tuple[Path, ...]
    is_from_bucket: bool


@contextlib.asynccontextmanager
async def source_stores(
    deployment: Deployment, request: SourceRequest, *, clock: Clock, on_progress: Callable[[str], None]
) -> AsyncIterator[SourceStores]:
    """Open the stores of the tier for reading.

    On a host of the broker the metadata is that of the metadata store. On another host, and with ``from_bucket``, it is
    read from the bucket if the metadata store does not have the tier. The log dirs are left out if ``request`` names a
    cluster, because they may belong to another one.

    Raises:
        ConfigError: the cluster is not known.
        UnknownPartitionError: neither the metadata store nor the bucket has anything of the cluster.
        TierError: a store cannot be opened or read.
    """
    log_dirs = () if request.cluster_id is not None else await asyncio.to_thread(_present, deployment.log_dirs)
    if log_dirs and not request.from_bucket:
        identity = await deployment.identity()
        async with deployment.tier(identity, clock=clock, read_only=True) as stores:
            yield SourceStores(identity=identity, stores=stores, log_dirs=log_dirs, is_from_bucket=False)
        return
    async with restore_source(deployment, request, clock=clock, on_progress=on_progress) as source:
        yield SourceStores(
            identity=source.identity,
            stores=OpenStores(stored=source.stored, new_storage=source.new_storage, ring=source.ring),
            log_dirs=log_dirs,
            is_from_bucket=source.is_from_bucket,
        )


@contextlib.asynccontextmanager
async def source_reader(
    deployment: Deployment, request: SourceRequest, *, on_progress: Callable[[str], None]
) -> AsyncIterator[TierReader]:
    """Open the tier, and the log dirs of the configuration that are on this host, for reading.

    Args:
        deployment: the configuration.
        request: the tier, and where its metadata is.
        on_progress: is called with lines about the progress while the bucket is read.

    Raises:
        As ``source_stores``.
    """
    clock = SystemClock()
    async with (
        source_stores(deployment, request, clock=clock, on_progress=on_progress) as source,
        reader_of_stores(deployment, source.identity, source.stores, log_dirs=source.log_dirs, clock=clock) as reader,
    ):
        yield reader


def _present(log_dirs: tuple[Path, ...]) -> tuple[Path, ...]:
    """Return the log dirs of this host. If it has some of them, the others may be on a disk that has failed."""
    present = tuple(path for path in log_dirs if path.is_dir())
    for path in log_dirs:
        if present and path not in present:
            log.warning("log_dir_offline", log_dir=str(path), problem="no such directory")
    return present
