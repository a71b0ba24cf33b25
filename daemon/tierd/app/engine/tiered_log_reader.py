"""TieredLogReader: local log and tier of a partition as one log, for commands that need no object of the tier."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

from tierd.app.engine.host_metadata import HostMetadata
from tierd.app.engine.row_reader import Located, RowReader
from tierd.config import TieredLogSettings
from tierd.log import (
    REPLICATION_OFFSET_CHECKPOINT,
    find_cut_end,
    read_log_start,
    read_offset_checkpoint,
    scan_partition,
)
from tierd.model import RemoteLogSegmentMetadata, TopicPartition
from tierd.remote import ObjectKeyFactory
from tierd.tiering import TieredLog, linked_offsets


@dataclass(frozen=True, slots=True)
class HostLogs(HostMetadata):
    """Part of the configuration that is enough for commands which say where the records of a partition are.

    Attributes:
        config: the settings.
    """

    config: TieredLogSettings


class TieredLogReader:
    """Reader of the metadata store and the local logs, which writes nothing."""

    def __init__(self, rows: RowReader, object_keys: ObjectKeyFactory, *, hold_dir: Path) -> None:
        self._rows = rows
        self._object_keys = object_keys
        self._hold_dir = hold_dir

    async def locate(self, name: TopicPartition) -> Located:
        """Find the incarnation that ``name`` means: the local one, else the one that was copied last.

        Raises:
            UnknownPartitionError: neither a log dir nor the metadata knows the name.
        """
        return await self._rows.locate(name)

    async def tiered_log(self, located: Located) -> TieredLog:
        """Read the tier and the local log anew; the local directory is found again, because it may have moved or gone.

        The metadata is read last: a segment that the broker deletes after the listing is in the tier already. The other
        order could miss the segment in both places. The checkpoints are read first, because their offsets only grow.

        Raises:
            TierError: a log or the metadata store cannot be read.
        """
        directories = await self._rows.local_directories()
        directory = next((d for d in directories if d.topic_id and d.partition == located.partition), None)
        held = await asyncio.to_thread(linked_offsets, self._hold_dir, located.partition)
        if directory is None:
            return TieredLog(located.partition, await self._rows.view(located.partition), None, None, held=held)
        name, log_dir = directory.topic_partition, directory.path.parent
        start = await asyncio.to_thread(read_log_start, directory.path)
        watermarks = await asyncio.to_thread(read_offset_checkpoint, log_dir / REPLICATION_OFFSET_CHECKPOINT)
        scan = await asyncio.to_thread(scan_partition, directory)
        high_watermark = watermarks.get(name)
        cut_at = await asyncio.to_thread(find_cut_end, scan, high_watermark=high_watermark or 0)
        view = await self._rows.view(located.partition)
        return TieredLog(located.partition, view, scan, high_watermark, start, held, cut_at=cut_at)

    def remote_key(self, metadata: RemoteLogSegmentMetadata | None) -> str | None:
        """Return the key of the segment's log object; None without a segment."""
        if metadata is None:
            return None
        topic = metadata.segment.topic_id_partition.topic
        return self._object_keys.for_custom_metadata(metadata.custom_metadata, topic).segment(metadata, ".log")


@contextlib.asynccontextmanager
async def tiered_log_reader(host: HostLogs) -> AsyncIterator[TieredLogReader]:
    """Open the metadata store for reading. The object store is not opened, and need not answer.

    Raises:
        ConfigError: cluster or node are not known.
        TierError: the store cannot be opened.
    """
    config, identity = host.config, await host.identity()
    object_keys = ObjectKeyFactory(config.remote.key_prefix, identity.cluster_id)
    async with host.metadata_store(read_only=True) as store:
        rows = RowReader(store, host.metadata_keys(identity), host.log_dirs)
        yield TieredLogReader(rows, object_keys, hold_dir=config.hold_dir)
