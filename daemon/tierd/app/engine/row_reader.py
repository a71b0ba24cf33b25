"""RowReader: partitions by name and the rows of their remote segments, for commands that need no object of the tier."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import structlog

from tierd.app.engine.host_metadata import HostMetadata
from tierd.errors import LogDirOfflineError, UnknownPartitionError
from tierd.log import DirectoryKind, PartitionDirectory, list_log_dir
from tierd.metadata import (
    KeyValueStore,
    MetadataKeyFactory,
    PartitionView,
    copied_last_ms,
    list_partitions,
    read_partition,
)
from tierd.model import TopicIdPartition, TopicPartition, uuid_to_text

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Located:
    """Incarnation of a partition, with its local directory; None where this host has no replica."""

    partition: TopicIdPartition
    directory: PartitionDirectory | None


class RowReader:
    """Reader of the metadata store and of the names in the log dirs, which writes nothing."""

    def __init__(self, rows: KeyValueStore, keys: MetadataKeyFactory, log_dirs: tuple[Path, ...]) -> None:
        self._rows = rows
        self._keys = keys
        self._log_dirs = log_dirs

    async def locate(self, name: TopicPartition) -> Located:
        """Find the incarnation that ``name`` means: the local one, else the one that was copied last.

        Raises:
            UnknownPartitionError: neither a log dir nor the metadata knows the name.
        """
        for directory in await self.local_directories():
            if directory.topic_partition == name and directory.topic_id is not None:
                return Located(directory.partition, directory)
        remote = [p for p in await self.partitions() if p.topic_partition == name]
        if not remote:
            raise UnknownPartitionError(
                f"no log dir and no metadata knows {name}",
                remedy="name it as Kafka names its directories, such as orders-0; tierd status lists them",
            )
        views = [await self.view(partition) for partition in remote]
        latest = max(views, key=copied_last_ms)
        if len(remote) > 1:
            log.warning("several_incarnations", partition=str(name), shown=uuid_to_text(latest.partition.topic_id))
        return Located(latest.partition, None)

    async def partitions(self) -> list[TopicIdPartition]:
        """Return every partition that the metadata knows."""
        return await list_partitions(self._rows, self._keys)

    async def view(self, partition: TopicIdPartition) -> PartitionView:
        """Return the stored metadata of the partition's remote segments."""
        return await read_partition(self._rows, self._keys, partition)

    async def local_directories(self) -> list[PartitionDirectory]:
        """Return the directories of partitions in the log dirs; a log dir that is offline is left out."""
        found: list[PartitionDirectory] = []
        for log_dir in self._log_dirs:
            try:
                listing = await asyncio.to_thread(list_log_dir, log_dir)
            except LogDirOfflineError as error:  # the tier may still have everything
                log.warning("log_dir_offline", log_dir=str(log_dir), problem=str(error))
                continue
            found += [d for d in listing.partitions if d.kind is DirectoryKind.CURRENT]
        return found


@contextlib.asynccontextmanager
async def row_reader(host: HostMetadata) -> AsyncIterator[RowReader]:
    """Open the metadata store for reading. The object store is not opened, and need not answer.

    Raises:
        ConfigError: cluster or node are not known.
        TierError: the store cannot be opened.
    """
    keys = host.metadata_keys(await host.identity())
    async with host.metadata_store(read_only=True) as rows:
        yield RowReader(rows, keys, host.log_dirs)
