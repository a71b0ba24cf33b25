"""Composition of ``tierd repair-tier``: plans beside a daemon, acts only in its place."""

import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from tierd.app.engine.compose import Engine, compose
from tierd.app.engine.deployment import Deployment
from tierd.app.engine.instance_lock import owned_state_dir
from tierd.app.engine.tier_reader import TierReader, tier_reader
from tierd.errors import AlreadyRunningError, NotConfirmedError
from tierd.metadata import read_store_identity, remember_tier
from tierd.model import TopicIdPartition, TopicPartition
from tierd.remote import claim_tier
from tierd.tiering import (
    LEAST_AGE_S,
    PassiveSupervisor,
    RemoteLogCopy,
    RepairKind,
    RepairOutcome,
    RepairPlanner,
    RepairResult,
    RepairTools,
    SegmentCopy,
    SegmentDeletion,
    SegmentWrites,
    TierRepair,
    Writer,
    partitions_left,
)

_SCRATCH = "repair"


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairRequest:
    """Request for a repair.

    Attributes:
        names: partitions; none means everything below the prefix.
        dry_run: only plan; may run beside a daemon. A partition counts as led then if this host has a replica of it, or
            if this broker led it last.
        deep: also download every segment and check every batch.
        is_confirmed: also carry out actions that take away something that was readable once.
        accepts_unauthenticated: also adopt segments that no holder of the key ring is proven to have written.
        min_age_s: age below which objects without a row are left alone; None is an hour, or ``copy.dangling_grace`` if
            that is more.
        on_progress: is called with lines about the progress.
    """

    names: Sequence[TopicPartition] = ()
    dry_run: bool = False
    deep: bool = False
    is_confirmed: bool = False
    accepts_unauthenticated: bool = False
    min_age_s: float | None = None
    on_progress: Callable[[str], None] = lambda _: None


async def repair_tier(deployment: Deployment, request: RepairRequest) -> AsyncGenerator[RepairOutcome, None]:
    """Yield the outcome of every action; in a dry run, the plan.

    Raises:
        AlreadyRunningError: a daemon holds the state directory.
        NotConfirmedError: the plan, which was yielded, needs a confirmation; nothing was done.
        ForeignTierError: the tier belongs to another metadata store.
        TierError: a store does not answer.
    """
    if request.dry_run:
        async with tier_reader(deployment) as reader:
            local = await reader.local_partitions()
            led: Collection[TopicIdPartition] = [*local, *await reader.partitions_left(local)]
            async with contextlib.aclosing(_planned(reader, request, led)) as outcomes:
                async for outcome in outcomes:
                    yield outcome
        return
    async with (
        _in_the_daemons_place(deployment) as (engine, led_here),
        tier_reader(deployment) as reader,
    ):
        if not request.is_confirmed and await _is_dangerous(reader, request, led_here):
            async with contextlib.aclosing(_planned(reader, request, led_here)) as outcomes:
                async for outcome in outcomes:
                    yield outcome
            raise NotConfirmedError(
                "the plan takes away what was readable once; nothing was done",
                remedy="look at it; tierd repair-tier --yes carries it out",
            )
        repair = TierRepair(_planner(reader, request, led_here), _tools(engine, reader, led_here))
        running = repair.run(
            await _incarnations(reader, request.names), deep=request.deep, is_confirmed=request.is_confirmed
        )
        async with contextlib.aclosing(running) as outcomes:
            async for outcome in outcomes:
                yield outcome


def _planner(reader: TierReader, request: RepairRequest, led: Collection[TopicIdPartition]) -> RepairPlanner:
    min_age_s = max(LEAST_AGE_S, reader.grace_s) if request.min_age_s is None else request.min_age_s
    return reader.repair_planner(
        led,
        min_age_s=min_age_s,
        accepts_unauthenticated=request.accepts_unauthenticated,
        on_progress=request.on_progress,
    )


async def _planned(
    reader: TierReader, request: RepairRequest, led: Collection[TopicIdPartition]
) -> AsyncGenerator[RepairOutcome, None]:
    running = _planner(reader, request, led).run(await _incarnations(reader, request.names), deep=request.deep)
    async with contextlib.aclosing(running) as actions:
        async for action in actions:
            result = RepairResult.CANNOT if action.kind is RepairKind.NOTHING else RepairResult.PLANNED
            yield RepairOutcome(action, result, action.why if result.is_problem else "", action.remedy)


async def _is_dangerous(reader: TierReader, request: RepairRequest, led: Collection[TopicIdPartition]) -> bool:
    async with contextlib.aclosing(_planned(reader, request, led)) as outcomes:
        async for outcome in outcomes:
            if outcome.action.is_dangerous:
                return True
    return False


async def _incarnations(reader: TierReader, names: Sequence[TopicPartition]) -> list[TopicIdPartition] | None:
    return [(await reader.locate(name)).partition for name in names] or None


@contextlib.asynccontextmanager
async def _in_the_daemons_place(
    deployment: Deployment,
) -> AsyncIterator[tuple[Engine, Mapping[TopicIdPartition, int]]]:
    """Own the state directory and find what this broker leads; the tier is proven to be ours before it is changed."""
    async with contextlib.AsyncExitStack() as lock:
        try:
            await lock.enter_async_context(owned_state_dir(deployment.state_dir))
        except AlreadyRunningError as error:
            raise AlreadyRunningError(
                str(error), remedy="tierd repair-tier --dry-run works beside it; to repair, stop the daemon meanwhile"
            ) from error
        async with compose(deployment) as engine:
            manager = engine.new_tiering(PassiveSupervisor()).manager
            async with engine.control.heard():
                await manager.discover_once()
                engine.control.require_heard()
            left = await partitions_left(
                engine.rows, engine.metadata.keys, broker_id=engine.identity.node_id, is_here=manager.is_here
            )
            yield engine, left | manager.led()


def _tools(engine: Engine, reader: TierReader, led: Mapping[TopicIdPartition, int]) -> RepairTools:
    config = engine.deployment.config
    deletion = SegmentDeletion(
        metadata=engine.metadata,
        remote=engine.storage,
        recorder=engine.metrics,
        clock=engine.clock,
        broker_id=engine.identity.node_id,
        ledger=engine.ledger,
    )
    copies = SegmentCopy(
        metadata=engine.metadata,
        remote=engine.storage,
        deletion=deletion,
        recorder=engine.metrics,
        clock=engine.clock,
        writer=Writer(broker_id=engine.identity.node_id, session_id=engine.session_id),
        writes=SegmentWrites(),
        attempt_timeout_s=config.copying.attempt_timeout_s,
    )

    async def write_identity() -> None:
        """Claim the prefix as if it were new: the planner has found our segments below it."""
        keys, prefix = engine.metadata.keys, config.remote.key_prefix
        store_id = await read_store_identity(engine.rows, keys)
        assert store_id is not None, "composing has made one"
        await claim_tier(
            reader.tier.objects, key_prefix=prefix, cluster_id=engine.identity.cluster_id, store_id=store_id
        )
        await remember_tier(engine.rows, keys, key_prefix=prefix)

    return RepairTools(
        metadata=engine.metadata,
        copies=copies,
        deletion=deletion,
        remote_log=RemoteLogCopy(reader.tier.objects, reader.tier.segments, reader.tier.object_keys),
        store=engine.store,
        storage=engine.storage,
        rows=engine.rows,
        metadata_keys=engine.metadata.keys,
        tiered_log=reader.tiered_log_of,
        led=led,
        ledger=engine.ledger,
        clock=engine.clock,
        broker_id=engine.identity.node_id,
        session_id=engine.session_id,
        scratch=config.state_dir / _SCRATCH,
        grace_s=config.expire.grace_s,
        own=engine.store.own,
        write_identity=write_identity,
    )
