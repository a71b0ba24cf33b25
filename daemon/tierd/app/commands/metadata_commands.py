"""Commands around the metadata store: follow a partition, export, import, rebuild from the bucket."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from functools import partial
from pathlib import Path
from uuid import uuid4

from tierd.app.engine.instance_lock import instance_lock, make_state_dir
from tierd.app.stores.open_stores import log_dir_identities, metadata_store, object_store, segment_storage
from tierd.clock import SystemClock
from tierd.config import TierdConfig
from tierd.errors import MetadataExportError, RemoteIntegrityError, RemoteStorageError, RemoteUnauthenticatedError
from tierd.log import broker_identity
from tierd.metadata import (
    MetadataKeyFactory,
    RebuildProblem,
    RebuildSeverity,
    SegmentChange,
    TransferCounts,
    changes,
    export_lines,
    import_lines,
    metadata_keys,
)
from tierd.model import TopicIdPartition, uuid_to_text
from tierd.pipeline import EraseRequest, EraseRequests, restore_requests
from tierd.remote import ObjectKeyFactory, open_transform
from tierd.tiering import UNAUTHENTICATED, MetadataRebuild, RebuildReport, StoredTier

Tell = Callable[[str], None]


async def follow_segments(
    config: TierdConfig, config_file: Path, partition: TopicIdPartition, *, interval_s: float
) -> AsyncGenerator[SegmentChange, None]:
    """Yield the partition's segments, then every change of them, until the partition is deleted.

    Raises:
        BackendUnavailableError: the metadata store cannot be reached.
        MetadataError: the metadata store is damaged.
    """
    keys = await _metadata_keys(config, config_file)
    async with (
        metadata_store(config, read_only=True) as store,
        contextlib.aclosing(changes(store, keys, partition, clock=SystemClock(), interval_s=interval_s)) as feed,
    ):
        async for change in feed:
            yield change


async def export_metadata(config: TierdConfig, config_file: Path, write: Callable[[str], object], *, tell: Tell) -> int:
    """Give every line of the export to ``write``; return the number of lines. A daemon may run meanwhile.

    Raises:
        MetadataError: the store is damaged, or its import is not complete.
        BackendUnavailableError: it cannot be reached.
    """
    keys, count = await _metadata_keys(config, config_file), 0
    async with (
        metadata_store(config, read_only=True) as store,
        contextlib.aclosing(export_lines(store, keys, exported_ms=SystemClock().now_ms())) as lines,
    ):
        async for line in lines:
            await asyncio.to_thread(write, line)
            count += 1
            tell(f"{count} lines")
    return count


async def import_metadata(config: TierdConfig, config_file: Path, file: Path, *, tell: Tell) -> TransferCounts:
    """Fill the configured metadata store from an export. No daemon of this state directory may run.

    Raises:
        AlreadyRunningError: one runs.
        MetadataExportError: the file cannot be read or is damaged; nothing was written.
        MetadataFillingRefusedError: the store is not empty, or the export is of another cluster.
        BackendUnavailableError: the store did not answer; run it again.
    """
    keys = await _metadata_keys(config, config_file)
    await asyncio.to_thread(make_state_dir, config.state_dir)
    with instance_lock(config.state_dir):
        async with metadata_store(config, read_only=False) as store:
            return await import_lines(store, keys, partial(_lines_of, file), tell=tell)


async def rebuild_metadata(
    config: TierdConfig, config_file: Path, *, dry_run: bool, accepts_unauthenticated: bool, tell: Tell
) -> RebuildReport:
    """Rebuild the metadata of the configured tier into the configured store. No daemon of this state directory may run.

    Args:
        config: the settings.
        config_file: where they were read from.
        dry_run: read and compare, write nothing.
        accepts_unauthenticated: believe also objects that no holder of the key ring is proven to have written.
        tell: is called with reports of progress.

    Raises:
        AlreadyRunningError: one runs.
        MetadataFillingRefusedError: the store is being filled from elsewhere, or another program writes to it.
        RemoteStorageError: the object store failed; run it again.
        BackendUnavailableError: the metadata store did not answer; run it again.
    """
    clock = SystemClock()
    identity = broker_identity(
        config_file, cluster_id=config.cluster_id, node_id=config.node_id, found=await log_dir_identities(config)
    )
    await asyncio.to_thread(make_state_dir, config.state_dir)
    with contextlib.ExitStack() as resources, instance_lock(config.state_dir):
        async with (
            metadata_store(config, read_only=dry_run) as metadata,
            object_store(config, clock=clock) as store,
        ):
            transform = resources.enter_context(contextlib.closing(open_transform(config.remote)))
            object_keys = ObjectKeyFactory(config.remote.key_prefix, identity.cluster_id)
            row_keys = metadata_keys(config.metadata, identity.cluster_id)
            rebuild = MetadataRebuild(
                StoredTier(
                    objects=store,
                    segments=segment_storage(config, identity, store, transform)(),
                    object_keys=object_keys,
                    rows=metadata,
                    row_keys=row_keys,
                ),
                session_id=uuid4(),
                grace_ends_ms=clock.now_ms() + int(config.expire.grace_s * 1000),
                tell=tell,
                accepts_unauthenticated=accepts_unauthenticated,
                dry_run=dry_run,
                strict_kafka_compat=config.metadata.strict_kafka_compat,
            )
            report = await rebuild.run()
            if not report.differing:
                requests = EraseRequests(metadata, row_keys)
                restore = partial(
                    restore_requests,
                    *(store, object_keys, requests),
                    now_ms=clock.now_ms(),
                    dry_run=dry_run,
                    ring=transform.ring,
                    accepts_unauthenticated=accepts_unauthenticated,
                )
                await _restore_erasures(report, restore)
            return report


async def _restore_erasures(report: RebuildReport, restore: Callable[..., Awaitable[tuple[EraseRequest, ...]]]) -> None:
    """File again the requests to erase keys of which the bucket has reports, and add the outcome to ``report``."""

    def damaged(key: str, problem: RemoteStorageError) -> None:
        severity, kind = RebuildSeverity.DAMAGE, "damaged erasure report"
        if isinstance(problem, RemoteUnauthenticatedError):
            severity, kind = RebuildSeverity.CONFLICT, UNAUTHENTICATED
        elif not isinstance(problem, RemoteIntegrityError):
            kind = "unreadable erasure report"
        report.problems.append(RebuildProblem(severity, kind, key, str(problem)))

    restored = await restore(report_damage=damaged)
    report.erasures = len(restored)
    for each in restored:
        if each.problem:
            where = f"request {uuid_to_text(each.id)} of {each.partition.topic_partition}"
            report.problems.append(
                RebuildProblem(RebuildSeverity.CONFLICT, "erasure to file again", where, each.problem)
            )


async def _metadata_keys(config: TierdConfig, config_file: Path) -> MetadataKeyFactory:
    identity = broker_identity(
        config_file, cluster_id=config.cluster_id, node_id=config.node_id, found=await log_dir_identities(config)
    )
    return metadata_keys(config.metadata, identity.cluster_id)


def _lines_of(file: Path) -> Iterator[str]:
    try:
        with file.open(encoding="utf-8", newline="\n") as lines:
            yield from lines
    except (OSError, UnicodeDecodeError) as error:
        raise MetadataExportError(f"{file} cannot be read: {error}", remedy="name the file of an export") from error
