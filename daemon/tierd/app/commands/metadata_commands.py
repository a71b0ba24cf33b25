"""Commands on the metadata store: follow a partition, export, import."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable, Iterator
from functools import partial
from pathlib import Path

from tierd.app.engine.host_metadata import HostMetadata
from tierd.app.engine.instance_lock import owned_state_dir
from tierd.clock import SystemClock
from tierd.errors import MetadataExportError
from tierd.metadata import SegmentChange, TransferCounts, changes, export_lines, import_lines
from tierd.model import TopicIdPartition


async def follow_segments(
    host: HostMetadata, partition: TopicIdPartition, *, interval_s: float
) -> AsyncGenerator[SegmentChange, None]:
    """Yield the partition's segments, then every change of them, until the partition is deleted.

    Raises:
        BackendUnavailableError: the metadata store cannot be reached.
        MetadataError: the metadata store is damaged.
    """
    keys = host.metadata_keys(await host.identity())
    async with (
        host.metadata_store(read_only=True) as store,
        contextlib.aclosing(changes(store, keys, partition, clock=SystemClock(), interval_s=interval_s)) as feed,
    ):
        async for change in feed:
            yield change


async def export_metadata(
    host: HostMetadata, write: Callable[[str], object], *, on_progress: Callable[[str], None]
) -> int:
    """Give every line of the export to ``write``; return the number of lines. A daemon may run meanwhile.

    Raises:
        MetadataError: the store is damaged, or its import is not complete.
        BackendUnavailableError: it cannot be reached.
    """
    keys, count = host.metadata_keys(await host.identity()), 0
    async with (
        host.metadata_store(read_only=True) as store,
        contextlib.aclosing(export_lines(store, keys, exported_ms=SystemClock().now_ms())) as lines,
    ):
        async for line in lines:
            await asyncio.to_thread(write, line)
            count += 1
            on_progress(f"{count} lines")
    return count


async def import_metadata(host: HostMetadata, file: Path, *, on_progress: Callable[[str], None]) -> TransferCounts:
    """Fill the configured metadata store from an export. No daemon of this state directory may run.

    Raises:
        AlreadyRunningError: one runs.
        MetadataExportError: the file cannot be read or is damaged; nothing was written.
        MetadataFillingRefusedError: the store is not empty, or the export is of another cluster.
        BackendUnavailableError: the store did not answer; run it again.
    """
    keys = host.metadata_keys(await host.identity())
    async with owned_state_dir(host.state_dir), host.metadata_store(read_only=False) as store:
        return await import_lines(store, keys, partial(_lines_of, file), on_progress=on_progress)


def _lines_of(file: Path) -> Iterator[str]:
    try:
        with file.open(encoding="utf-8", newline="\n") as lines:
            yield from lines
    except (OSError, UnicodeDecodeError) as error:
        raise MetadataExportError(f"{file} cannot be read: {error}", remedy="name the file of an export") from error
