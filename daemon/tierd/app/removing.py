"""``tierd expire | undelete | delete-partition``: by the daemon, which owns the claims, else by this process."""

import asyncio
import contextlib
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from pydantic import JsonValue

from tierd.app.compose import Engine
from tierd.app.control_plane import control_plane
from tierd.app.erasing import require_not_being_erased
from tierd.app.reading import Located, TierReader, tier_reader
from tierd.app.removal_answers import expire_answers, partition_answer, undelete_answer
from tierd.app.standing_in import standing_in
from tierd.app.topic_policies import TopicPolicies
from tierd.clock import SystemClock
from tierd.config import TierdConfig
from tierd.errors import DaemonUnreachableError, NotConfirmedError, RefusedError, TierError, UnknownPartitionError
from tierd.model import TopicIdPartition, TopicPartition, uuid_from_text
from tierd.serve import OptionsHandler, request
from tierd.tiering import (
    ExpirationPlan,
    ExpireOutcome,
    LocalFacts,
    Tiering,
    facts_of,
    partition_plan,
)

PATIENCE_S = 25.0  # below the deadline of a control request
_REMOVAL_PASSES = 2


async def expire(
    config: TierdConfig, config_file: Path, names: Sequence[TopicPartition], *, dry_run: bool
) -> JsonValue:
    """Expire what is due of these partitions, none means all that are led here; return what and why, for each.

    Raises:
        AlreadyRunningError: a daemon holds the state directory and does not answer.
        UnknownPartitionError: one of them is not led here.
        TierError: it could not begin.
    """
    options: dict[str, JsonValue] = {"dry_run": dry_run}
    with contextlib.suppress(DaemonUnreachableError):
        return await request(config.state_dir, "expire", [str(name) for name in names], options=options)
    if dry_run:
        return expire_answers(await _planned(config, config_file, names))
    async with standing_in(config, config_file) as (_, tiering):
        return expire_answers(await tiering.removals.expire_here(list(names) or None))


async def undelete(
    config: TierdConfig,
    config_file: Path,
    name: TopicPartition,
    segment_ids: Sequence[str],
    *,
    force: bool,
    dry_run: bool,
) -> JsonValue:
    """Take segments of a partition back, none named means all in their grace; return which.

    Raises:
        RefusedError: something speaks against it; nothing was done.
        AlreadyRunningError: a daemon holds the state directory and does not answer.
        TierError: it could not begin, or stopped half-way; repeat it.
    """
    wanted = [uuid_from_text(text) for text in segment_ids] or None
    options: dict[str, JsonValue] = {"segments": list(segment_ids), "force": force, "dry_run": dry_run}
    with contextlib.suppress(DaemonUnreachableError):
        return await request(config.state_dir, "undelete", [str(name)], options=options)
    async with standing_in(config, config_file) as (engine, tiering):
        await require_not_being_erased(engine, tiering.manager, name, wanted)
        taken = await tiering.removals.undelete(name, wanted, force=force, dry_run=dry_run)
        return undelete_answer(name, taken, dry_run=dry_run)


async def delete_partition(
    config: TierdConfig,
    config_file: Path,
    name: TopicPartition,
    *,
    topic_id: str | None,
    at_once: bool,
    force: bool,
) -> JsonValue:
    """Begin to delete the whole tier of a partition; a daemon, or the next one, goes on with it.

    Raises:
        RefusedError: it is led here and copied; nothing was done, and ``force`` was not given.
        UnknownPartitionError: the metadata has no such partition, or several of that name.
        TierError: it is not marked; ask again.
    """
    async with tier_reader(config, config_file) as reader:
        partition = await _incarnation(reader, name, topic_id)
    options: dict[str, JsonValue] = {"topic_id": topic_id or "", "at_once": at_once, "force": force}
    with contextlib.suppress(DaemonUnreachableError):
        return await request(config.state_dir, "delete-partition", [str(name)], options=options)
    async with standing_in(config, config_file) as (_, tiering):
        await tiering.removals.delete_partition(partition, at_once=at_once, force=force)
        for _ in range(_REMOVAL_PASSES):
            if await tiering.remover.run_once() != 0:
                break
    return partition_answer(partition, at_once=at_once)


def removal_handlers(engine: Engine, tiering: Tiering) -> Mapping[str, OptionsHandler]:
    """Return the handlers of removal commands for the control socket."""

    async def expire_now(names: Sequence[str], options: Mapping[str, JsonValue]) -> JsonValue:
        partitions = [TopicPartition.parse(name) for name in names] or None
        if options.get("dry_run"):
            return expire_answers(await tiering.removals.plan(partitions))
        planned = await tiering.removals.plan(partitions)
        with contextlib.suppress(TimeoutError):  # a longer pass continues after the answer
            async with asyncio.timeout(PATIENCE_S):
                planned = await tiering.removals.expire_supervised(partitions)
        return expire_answers(planned)

    async def take_back(names: Sequence[str], options: Mapping[str, JsonValue]) -> JsonValue:
        name = _only(names)
        segments = options.get("segments") or []
        if not isinstance(segments, list):
            raise RefusedError("segments is not a list of ids", remedy="use the tierd command of the same version")
        wanted = [uuid_from_text(str(text)) for text in segments] or None
        dry_run, force = bool(options.get("dry_run")), bool(options.get("force"))
        await require_not_being_erased(engine, tiering.manager, name, wanted)
        taken = await tiering.removals.undelete(name, wanted, force=force, dry_run=dry_run)
        return undelete_answer(name, taken, dry_run=dry_run)

    async def delete(names: Sequence[str], options: Mapping[str, JsonValue]) -> JsonValue:
        at_once, force = bool(options.get("at_once")), bool(options.get("force"))
        async with tier_reader(engine.settings.config, Path("the daemon's configuration")) as reader:
            partition = await _incarnation(reader, _only(names), str(options.get("topic_id") or "") or None)
        await tiering.removals.delete_partition(partition, at_once=at_once, force=force)
        return partition_answer(partition, at_once=at_once)

    return {"expire": expire_now, "undelete": take_back, "delete-partition": delete}


def require_confirmed(name: TopicPartition, *, confirmed: bool) -> None:
    """Require the confirmation of the operator.

    Raises:
        NotConfirmedError: the operator did not confirm the deletion.
    """
    if not confirmed:
        raise NotConfirmedError(
            f"the tier of {name} would be deleted, every segment of it",
            remedy=f"tierd segments {name} lists them; tierd delete-partition {name} --yes deletes them",
        )


async def _planned(
    config: TierdConfig, config_file: Path, names: Collection[TopicPartition]
) -> tuple[ExpireOutcome, ...]:
    """Return what a pass would do, from the stores and the log dirs; claim and write nothing."""
    async with tier_reader(config, config_file) as reader:
        clock = SystemClock()
        control = control_plane(config.leadership, reader.identity, clock=clock, random=lambda: 0.5)
        if control.topic_configs is not None:
            for topic in {partition.topic for partition in await reader.partitions()}:
                control.topic_configs.get(topic)  # makes the refresh ask for this topic
            await control.topic_configs.refresh()
        policies = TopicPolicies(lambda: config.topics, control.topic_settings())
        chosen = names or sorted({p.topic_partition for p in await reader.partitions()})
        return tuple([await _planned_one(reader, await reader.locate(name), policies) for name in chosen])


async def _planned_one(reader: TierReader, located: Located, policies: TopicPolicies) -> ExpireOutcome:
    name = located.partition.topic_partition
    try:
        log = await reader.tiered_log(located)
        local = LocalFacts.without_log(log.view)
        if log.scan is not None:
            local = await facts_of(log.scan, log.high_watermark, sizes=True)
        plan = partition_plan(log.view, local, policies(name.topic), being_copied=(), now_ms=reader.clock.now_ms())
    except TierError as error:
        return ExpireOutcome(name, ExpirationPlan(), error)
    return ExpireOutcome(name, plan)


async def _incarnation(reader: TierReader, name: TopicPartition, topic_id: str | None) -> TopicIdPartition:
    """The one partition of that name, or that name and topic id, that the metadata knows."""
    known = [partition for partition in await reader.partitions() if partition.topic_partition == name]
    if topic_id is not None:
        known = [partition for partition in known if partition.topic_id == uuid_from_text(topic_id)]
    if len(known) == 1:
        return known[0]
    if not known:
        raise UnknownPartitionError(f"the metadata does not know {name}", remedy="compare the name with tierd status")
    raise UnknownPartitionError(
        f"{name}: the topic was created {len(known)} times under this name",
        remedy="say which one with --topic-id; tierd segments --json shows topic ids",
    )


def _only(names: Sequence[str]) -> TopicPartition:
    if len(names) != 1:
        raise RefusedError(f"{len(names)} partitions were named, not one", remedy="name one partition")
    return TopicPartition.parse(names[0])
