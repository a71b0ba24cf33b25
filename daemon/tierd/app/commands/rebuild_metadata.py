"""``tierd rebuild-metadata``: the metadata from the bucket, and the requests to erase keys."""

from collections.abc import Awaitable, Callable
from functools import partial
from uuid import uuid4

from tierd.app.engine.deployment import Deployment
from tierd.app.engine.instance_lock import owned_state_dir
from tierd.clock import SystemClock
from tierd.errors import RemoteIntegrityError, RemoteStorageError, RemoteUnauthenticatedError
from tierd.metadata import RebuildProblem, RebuildSeverity
from tierd.model import uuid_to_text
from tierd.pipeline import EraseRequest, EraseRequests, restore_requests
from tierd.tiering import UNAUTHENTICATED, MetadataRebuild, RebuildReport


async def rebuild_metadata(
    deployment: Deployment, *, dry_run: bool, accepts_unauthenticated: bool, on_progress: Callable[[str], None]
) -> RebuildReport:
    """Rebuild the metadata of the configured tier into the configured store. No daemon of this state directory may run.

    Args:
        deployment: the configuration.
        dry_run: read and compare, write nothing.
        accepts_unauthenticated: believe also objects that no holder of the key ring is proven to have written.
        on_progress: is called with lines about the progress.

    Raises:
        AlreadyRunningError: one runs.
        MetadataFillingRefusedError: the store is being filled from elsewhere, or another program writes to it.
        RemoteStorageError: the object store failed; run it again.
        BackendUnavailableError: the metadata store did not answer; run it again.
    """
    config, clock = deployment.config, SystemClock()
    identity = await deployment.identity()
    async with (
        owned_state_dir(deployment.state_dir),
        deployment.tier(identity, clock=clock, read_only=dry_run) as tier,
    ):
        stored = tier.stored
        report = await MetadataRebuild(
            stored,
            session_id=uuid4(),
            grace_ends_ms=clock.now_ms() + int(config.expire.grace_s * 1000),
            on_progress=on_progress,
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
