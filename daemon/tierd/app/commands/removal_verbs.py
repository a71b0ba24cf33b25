"""``tierd expire | undelete | delete-partition``: by the daemon, which owns the claims, else by this process.

The answers are the same from a daemon and without one.
"""

import asyncio
import contextlib
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from uuid import UUID

from tierd.app.engine.compose import Engine, standing_in
from tierd.app.engine.deployment import Deployment
from tierd.app.engine.row_reader import Located
from tierd.app.engine.tier_reader import TierReader, tier_reader
from tierd.app.engine.topic_policies import TopicPolicies
from tierd.app.spark.erasure_verbs import require_not_being_erased
from tierd.clock import SystemClock
from tierd.errors import NotConfirmedError, TierError, UnknownPartitionError
from tierd.model import RemoteLogSegmentMetadata, TopicIdPartition, TopicPartition, uuid_to_text
from tierd.serve import (
    DELETE_PARTITION,
    EXPIRE,
    UNDELETE,
    DeletedPartition,
    DeletePartitionRequest,
    ExpiredPartition,
    ExpiredPartitions,
    ExpiredSegment,
    ExpireRequest,
    SegmentAnswer,
    UndeletedSegment,
    UndeletedSegments,
    UndeleteRequest,
    VerbHandler,
    ask_or_run,
)
from tierd.tiering import ExpirationPlan, ExpireOutcome, LocalFacts, TakenBack, Tiering, facts_of, partition_expiration

PATIENCE_S = 25.0  # below the deadline of a control request
_REMOVAL_PASSES = 2


LoadDeployment = Callable[[], Deployment]
"""Reads the configuration, secrets included. Not called where a daemon answers, which has read its own."""


async def expire(state_dir: Path, load: LoadDeployment, request: ExpireRequest) -> ExpiredPartitions:
    """Expire what is due of these partitions, none means all that are led here; return what and why, for each.

    Raises:
        AlreadyRunningError: a daemon holds the state directory and does not answer.
        UnknownPartitionError: one of them is not led here.
        TierError: the pass could not begin.
    """

    async def expire_here() -> ExpiredPartitions:
        deployment = await asyncio.to_thread(load)
        if request.dry_run:
            return expire_answer(await _planned(deployment, request.partitions))
        async with standing_in(deployment) as (_, tiering):
            return expire_answer(await tiering.removals.expire_here(list(request.partitions) or None))

    return await ask_or_run(state_dir, EXPIRE, request, expire_here)


async def undelete(state_dir: Path, load: LoadDeployment, request: UndeleteRequest) -> UndeletedSegments:
    """Take segments of a partition back, none named means all in their grace; return which.

    Raises:
        RefusedError: a rule speaks against it; nothing was done.
        AlreadyRunningError: a daemon holds the state directory and does not answer.
        TierError: the call could not begin, or stopped half-way; repeat the call.
    """

    async def undelete_here() -> UndeletedSegments:
        deployment = await asyncio.to_thread(load)
        async with standing_in(deployment) as (engine, tiering):
            return await _undelete(engine, tiering, request)

    return await ask_or_run(state_dir, UNDELETE, request, undelete_here)


async def delete_partition(deployment: Deployment, request: DeletePartitionRequest) -> DeletedPartition:
    """Begin to delete the whole tier of a partition; a daemon, or the next one, goes on with it.

    Raises:
        RefusedError: the partition is led here and copied; nothing was done, and ``force`` was not given.
        UnknownPartitionError: the metadata has no such partition, or several of that name.
        TierError: the partition is not marked; ask again.
    """
    async with tier_reader(deployment) as reader:
        partition = await _incarnation(reader, request.partition, request.topic_id)

    async def delete_here() -> DeletedPartition:
        async with standing_in(deployment) as (_, tiering):
            await tiering.removals.delete_partition(partition, at_once=request.at_once, force=request.force)
            for _ in range(_REMOVAL_PASSES):
                if await tiering.remover.run_once() != 0:
                    break
        return partition_answer(partition, at_once=request.at_once)

    return await ask_or_run(deployment.state_dir, DELETE_PARTITION, request, delete_here)


def removal_handlers(engine: Engine, tiering: Tiering) -> tuple[VerbHandler, ...]:
    """Return the handlers of the verbs that remove and take back."""

    async def expire_now(request: ExpireRequest) -> ExpiredPartitions:
        partitions = list(request.partitions) or None
        planned = await tiering.removals.plan(partitions)
        if request.dry_run:
            return expire_answer(planned)
        with contextlib.suppress(TimeoutError):  # a long pass goes on after the answer
            async with asyncio.timeout(PATIENCE_S):
                planned = await tiering.removals.expire_supervised(partitions)
        return expire_answer(planned)

    async def take_back(request: UndeleteRequest) -> UndeletedSegments:
        return await _undelete(engine, tiering, request)

    async def delete(request: DeletePartitionRequest) -> DeletedPartition:
        async with tier_reader(engine.deployment) as reader:
            partition = await _incarnation(reader, request.partition, request.topic_id)
        await tiering.removals.delete_partition(partition, at_once=request.at_once, force=request.force)
        return partition_answer(partition, at_once=request.at_once)

    return EXPIRE.handled_by(expire_now), UNDELETE.handled_by(take_back), DELETE_PARTITION.handled_by(delete)


def require_confirmed(name: TopicPartition, *, confirmed: bool) -> None:
    """Raise unless the user confirmed the deletion.

    Raises:
        NotConfirmedError: ``confirmed`` is False.
    """
    if not confirmed:
        raise NotConfirmedError(
            f"the tier of {name} would be deleted, every segment of it",
            remedy=f"tierd segments {name} lists them; tierd delete-partition {name} --yes deletes them",
        )


async def _undelete(engine: Engine, tiering: Tiering, request: UndeleteRequest) -> UndeletedSegments:
    name, wanted = request.partition, list(request.segments) or None
    await require_not_being_erased(engine, tiering.manager, name, wanted)
    taken = await tiering.removals.undelete(name, wanted, force=request.force, dry_run=request.dry_run)
    return undelete_answer(name, taken, dry_run=request.dry_run)


async def _planned(deployment: Deployment, names: Collection[TopicPartition]) -> tuple[ExpireOutcome, ...]:
    """Return what a pass would do, from the metadata and the log dirs; nothing is owned and nothing written."""
    async with tier_reader(deployment) as reader:
        topics = {partition.topic for partition in await reader.partitions()}
        policies = await deployment.topic_policies(reader.identity, topics, clock=SystemClock())
        chosen = names or sorted({p.topic_partition for p in await reader.partitions()})
        return tuple([await _planned_one(reader, await reader.locate(name), policies) for name in chosen])


async def _planned_one(reader: TierReader, located: Located, policies: TopicPolicies) -> ExpireOutcome:
    name = located.partition.topic_partition
    try:
        log = await reader.tiered_log(located)
        local = LocalFacts.without_log(log.view)
        if log.scan is not None:
            local = await facts_of(log.scan, log.high_watermark, sizes=True)
        plan = partition_expiration(
            log.view, local, policies(name.topic), being_copied=(), now_ms=reader.clock.now_ms()
        )
    except TierError as error:
        return ExpireOutcome(name, ExpirationPlan(), error)
    return ExpireOutcome(name, plan)


async def _incarnation(reader: TierReader, name: TopicPartition, topic_id: UUID | None) -> TopicIdPartition:
    """Return the one partition of that name, or of that name and topic id, that the metadata knows."""
    known = [partition for partition in await reader.partitions() if partition.topic_partition == name]
    if topic_id is not None:
        known = [partition for partition in known if partition.topic_id == topic_id]
    if len(known) == 1:
        return known[0]
    if not known:
        raise UnknownPartitionError(f"the metadata does not know {name}", remedy="compare the name with tierd status")
    raise UnknownPartitionError(
        f"{name}: the topic was created {len(known)} times under this name",
        remedy="say which one with --topic-id; tierd segments --json shows topic ids",
    )


def expire_answer(outcomes: Iterable[ExpireOutcome]) -> ExpiredPartitions:
    """Return the segments of each partition that expire, with the reasons."""
    return ExpiredPartitions(
        tuple(
            ExpiredPartition(
                partition=str(outcome.partition),
                new_log_start_offset=outcome.plan.new_log_start_offset,
                next_due_ms=outcome.plan.next_due_ms,
                deletions=tuple(
                    ExpiredSegment(
                        **_segment(planned.metadata).model_dump(), reason=planned.reason.value, detail=planned.detail
                    )
                    for planned in outcome.plan.deletions
                ),
                error=None if outcome.error is None else str(outcome.error),
                remedy=None if outcome.error is None else outcome.error.remedy,
            )
            for outcome in outcomes
        )
    )


def undelete_answer(name: TopicPartition, taken: Iterable[TakenBack], *, dry_run: bool) -> UndeletedSegments:
    """Return the segments that are back, or would be, the newest first."""
    return UndeletedSegments(
        partition=str(name),
        dry_run=dry_run,
        segments=tuple(
            UndeletedSegment(
                **_segment(each.metadata).model_dump(),
                reason=each.metadata.soft_delete.reason if each.metadata.soft_delete else "",
                log_start_offset=each.log_start_offset,
                problem=each.problem,
            )
            for each in taken
        ),
    )


def partition_answer(partition: TopicIdPartition, *, at_once: bool) -> DeletedPartition:
    """Return the partition whose deletion was accepted."""
    return DeletedPartition(partition=str(partition), topic_id=uuid_to_text(partition.topic_id), at_once=at_once)


def _segment(metadata: RemoteLogSegmentMetadata) -> SegmentAnswer:
    return SegmentAnswer(
        segment_id=uuid_to_text(metadata.segment.id),
        start_offset=metadata.start_offset,
        end_offset=metadata.end_offset,
        size_bytes=metadata.size_bytes,
        max_timestamp_ms=metadata.max_timestamp_ms,
        state=metadata.state.name,
        delete_after_ms=metadata.soft_delete.delete_after_ms if metadata.soft_delete else None,
    )
