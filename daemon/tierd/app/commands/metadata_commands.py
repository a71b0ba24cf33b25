"""Commands around the metadata store: follow a partition, export, import, rebuild from the bucket."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from functools import partial
from pathlib import Path
from uuid import uuid4

from tierd.app.engine.deployment import Deployment
from tierd.app.engine.instance_lock import instance_lock, make_state_dir
from tierd.clock import SystemClock
from tierd.errors import MetadataExportError, RemoteIntegrityError, RemoteStorageError, RemoteUnauthenticatedError
from tierd.metadata import (
    RebuildProblem,
    RebuildSeverity,
    SegmentChange,
    TransferCounts,
    changes,
    export_lines,
    import_lines,
)
from tierd.model import TopicIdPartition, uuid_to_text
from tierd.pipeline import EraseRequest, EraseRequests, restore_requests
from tierd.tiering import UNAUTHENTICATED, MetadataRebuild, RebuildReport

Tell = Callable[[str], None]


async def follow_segments(
    deployment: Deployment, partition: TopicIdPartition, *, interval_s: float
) -> AsyncGenerator[SegmentChange, None]:
    """Yield the partition's segments, then every change of them, until the partition is deleted.

    Raises:
        BackendUnavailableError: the metadata store cannot be reached.
        MetadataError: the metadata store is damaged.
    """
    keys = deployment.metadata_keys(await deployment.identity())
    async with (
        deployment.metadata_store(read_only=True) as store,
        contextlib.aclosing(changes(store, keys, partition, clock=SystemClock(), interval_s=interval_s)) as feed,
    ):
        async for change in feed:
            yield change


async def export_metadata(deployment: Deployment, write: Callable[[str], object], *, tell: Tell) -> int:
    """Give every line of the export to ``write``; return the number of lines. A daemon may run meanwhile.

    Raises:
        MetadataError: the store is damaged, or its import is not complete.
        BackendUnavailableError: it cannot be reached.
    """
    keys, count = deployment.metadata_keys(await deployment.identity()), 0
    async with (
        deployment.metadata_store(read_only=True) as store,
        contextlib.aclosing(export_lines(store, keys, exported_ms=SystemClock().now_ms())) as lines,
    ):
        async for line in lines:
            await asyncio.to_thread(write, line)
            count += 1
            tell(f"{count} lines")
    return count


async def import_metadata(deployment: Deployment, file: Path, *, tell: Tell) -> TransferCounts:
    """Fill the configured metadata store from an export. No daemon of this state directory may run.

    Raises:
        AlreadyRunningError: one runs.
        MetadataExportError: the file cannot be read or is damaged; nothing was written.
        MetadataFillingRefusedError: the store is not empty, or the export is of another cluster.
        BackendUnavailableError: the store did not answer; run it again.
    """
    keys = deployment.metadata_keys(await deployment.identity())
    await asyncio.to_thread(make_state_dir, deployment.state_dir)
    with instance_lock(deployment.state_dir):
        async with deployment.metadata_store(read_only=False) as store:
            return await import_lines(store, keys, partial(_lines_of, file), tell=tell)


async def rebuild_metadata(
    deployment: Deployment, *, dry_run: bool, accepts_unauthenticated: bool, tell: Tell
) -> RebuildReport:
    """Rebuild the metadata of the configured tier into the configured store. No daemon of this state directory may run.

    Args:
        deployment: the configuration.
        dry_run: read and compare, write nothing.
        accepts_unauthenticated: believe also objects that no holder of the key ring is proven to have written.
        tell: is called with reports of progress.

    Raises:
        AlreadyRunningError: one runs.
        MetadataFillingRefusedError: the store is being filled from elsewhere, or another program writes to it.
        RemoteStorageError: the object store failed; run it again.
        BackendUnavailableError: the metadata store did not answer; run it again.
    """
    config, clock = deployment.config, SystemClock()
    identity = await deployment.identity()
    await asyncio.to_thread(make_state_dir, deployment.state_dir)
    with instance_lock(deployment.state_dir):
        async with deployment.tier(identity, clock=clock, read_only=dry_run) as tier:
            stored = tier.stored
            report = await MetadataRebuild(
                stored,
                session_id=uuid4(),
                grace_ends_ms=clock.now_ms() + int(config.expire.grace_s * 1000),
                tell=tell,
                accepts_unauthenticated=accepts_unauthenticated,
                dry_run=dry_run,
                strict_kafka_compat=config.metadata.strict_kafka_compat,
            ).run()
            if not report.differing:
                restore = partial(
                    restore_requests,
                    *(stored.objects, stored.object_keys, EraseRequests(stored.rows, stored.row_keys)),
                    now_ms=clock.now_ms(),
                    dry_run=dry_run,
                    ring=tier.ring,
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


def _lines_of(file: Path) -> Iterator[str]:
    try:
        with file.open(encoding="utf-8", newline="\n") as lines:
            yield from lines
    except (OSError, UnicodeDecodeError) as error:
        raise MetadataExportError(f"{file} cannot be read: {error}", remedy="name the file of an export") from error
