"""DrillRun: one drill, from the choice of its partitions to the last line in the history."""

import contextlib
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, NamedTuple

from tierd.app.engine.deployment import Deployment
from tierd.app.engine.instance_lock import make_state_dir
from tierd.app.restore.log_dir_plan import LogDirPlanRequest
from tierd.app.restore.plan_making import PlanMaking
from tierd.app.restore.restore_source import RestoreSource, SourceRequest, restore_source
from tierd.app.restore.target_directories import TargetDirectories
from tierd.clock import Clock, SystemClock
from tierd.config import secrets_of
from tierd.errors import (
    LogDirLockedError,
    LogDirOfflineError,
    LogError,
    RefusedError,
    RemoteFormatError,
    RemoteIntegrityError,
    RemoteKeyMissingError,
    RemoteResourceNotFoundError,
    StateDirError,
    TierError,
)
from tierd.masking import Masking
from tierd.model import TopicIdPartition, TopicPartition, random_id, uuid_to_text
from tierd.restore import (
    DrillCommand,
    DrilledPartition,
    DrillHistory,
    DrillOutcome,
    DrillScratch,
    ExpiredSegments,
    PartitionDrill,
    PartitionPlan,
    Proof,
    RestoreMode,
    has_something,
    held_scratch,
    rotation,
)
from tierd.tasks import in_thread

_OF_THE_SCRATCH: Final = (LogDirLockedError, LogDirOfflineError, StateDirError)
_OF_THE_PARTITION: Final = (
    LogError,
    RefusedError,
    RemoteFormatError,
    RemoteIntegrityError,
    RemoteKeyMissingError,
    RemoteResourceNotFoundError,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class DrillRequest:
    """Request for one drill.

    Attributes:
        names: partitions to drill, whatever their size; none means the next ones of the rotation.
        is_everything: drill all partitions, whatever their size.
        is_broker: restore all partitions into one log dir, as after the loss of a broker, whatever their size.
        is_kept: keep the restored log dirs.
        trigger: ``schedule`` or ``command``.
        wants: tells the partitions that the rotation goes through.
    """

    names: tuple[TopicPartition, ...] = ()
    is_everything: bool = False
    is_broker: bool = False
    is_kept: bool = False
    trigger: str = "command"
    wants: Callable[[TopicIdPartition], bool] = lambda _: True


class DrillResult(NamedTuple):
    """Result of the drill of one partition, and the directory that was kept; None where none was."""

    drilled: DrilledPartition
    kept: Path | None


@dataclass(frozen=True, slots=True)
class DrillProgress:
    """Callbacks of a drill, on the event loop.

    Attributes:
        begun: called with each partition.
        arrived: called with the log bytes that arrived.
        drilled: called with each result.
    """

    begun: Callable[[TopicIdPartition], None] = lambda _: None
    arrived: Callable[[int], None] = lambda _: None
    drilled: Callable[[DrillResult], None] = lambda _: None


class DrillRun:
    """Runner of drills over one tier.

    Args:
        deployment: the configuration.
        source: the tier, whose reads are paced.
        history: gets a line for each drilled partition.
        clock: time.
        random: returns a number in [0, 1).
    """

    def __init__(
        self,
        deployment: Deployment,
        source: RestoreSource,
        history: DrillHistory,
        *,
        clock: Clock,
        random: Callable[[], float],
    ) -> None:
        self._deployment = deployment
        self._settings = deployment.drill
        self._source = source
        self._history = history
        self._clock = clock
        self._random = random

    async def run(self, request: DrillRequest, progress: DrillProgress) -> None:
        """Drill the partitions of the request, one at a time. Each result is in the history before the next begins.

        A cancellation removes what was restored; a killed drill leaves it to the next one.

        Raises:
            AlreadyRunningError: another drill runs.
            UnknownPartitionError: the tier has no partition of a name.
            StateDirError: the scratch directory or the history cannot be used.
            RemoteStorageError: the store does not answer.
            MetadataError: the metadata store does not.
        """
        with contextlib.ExitStack() as stack:
            scratch = await in_thread(stack.enter_context, held_scratch(self._deployment.drill_dir))
            chosen = await self._choose(request)
            run = _DrillUnderWay(uuid_to_text(random_id()), request, scratch, progress, self._plans(chosen))
            if request.is_broker:
                await self._broker(run, chosen)
                return
            limit = None if request.names or request.is_everything else self._settings.max_bytes
            left = limit
            for partition in chosen:
                progress.begun(partition)
                result = await self._one(run, partition, limit=limit, left=left)
                if result is None:
                    continue
                await self._record(run, result)
                left = None if left is None else left - result.drilled.size_bytes

    async def _choose(self, request: DrillRequest) -> list[TopicIdPartition]:
        partitions = await self._source.partitions(request.names)
        if request.names:
            return partitions
        await in_thread(self._history.thin, frozenset(partitions))
        proofs = await in_thread(self._history.proofs)
        is_sample = not (request.is_everything or request.is_broker)
        sample = self._settings.partitions if is_sample else len(partitions)
        chosen: list[TopicIdPartition] = []
        for partition in rotation(filter(request.wants, partitions), proofs):
            if len(chosen) == sample:
                break
            if has_something(await self._source.view(partition)):
                chosen.append(partition)
        return chosen

    async def _one(
        self, run: "_DrillUnderWay", partition: TopicIdPartition, *, limit: int | None, left: int | None
    ) -> DrillResult | None:
        """Drill a partition; return None if it does not fit into what is left of the limit."""
        blank = self._blank(run, partition)
        try:
            plan = await run.plans.plan_one(partition)
            if plan.is_left_out:
                return self._ended(blank, DrillOutcome.EMPTY)
            if limit is not None and plan.fetch_bytes > limit:
                problem = RefusedError(
                    f"it has {plan.fetch_bytes} bytes, and drill.max_bytes is {limit}",
                    remedy=f"raise drill.max_bytes, or run tierd drill {partition}",
                )
                return self._ended(blank, DrillOutcome.SKIPPED, problem)
            if left is not None and plan.fetch_bytes > left:
                return None
            return await self._prove(run, blank, plan)
        except _OF_THE_PARTITION as error:
            return self._ended(blank, DrillOutcome.FAILED, error)

    async def _broker(self, run: "_DrillUnderWay", chosen: Sequence[TopicIdPartition]) -> None:
        """Drill all partitions in one log dir."""
        blanks: dict[TopicIdPartition, DrilledPartition] = {}
        plans: list[PartitionPlan] = []
        for partition in chosen:
            run.progress.begun(partition)
            blank = self._blank(run, partition)
            try:
                plan = await run.plans.plan_one(partition)
            except _OF_THE_PARTITION as error:
                await self._record(run, self._ended(blank, DrillOutcome.FAILED, error))
                continue
            if plan.is_left_out:
                await self._record(run, self._ended(blank, DrillOutcome.EMPTY))
                continue
            blanks[partition] = blank
            plans.append(plan)
        for result in await self._proven_together(run, blanks, plans) if plans else ():
            await self._record(run, result)

    async def _proven_together(
        self, run: "_DrillUnderWay", blanks: Mapping[TopicIdPartition, DrilledPartition], plans: Sequence[PartitionPlan]
    ) -> list[DrillResult]:
        def skipped(error: TierError | OSError) -> list[DrillResult]:
            return [self._ended(blank, DrillOutcome.SKIPPED, _as_tier_error(error)) for blank in blanks.values()]

        try:
            place = await in_thread(run.scratch.new_place, sum(plan.fetch_bytes for plan in plans))
        except (RefusedError, OSError) as error:
            return skipped(error)
        kept: Path | None = None
        try:
            outcomes = await self._drill(run).run_all(plans, place, of_one=_OF_THE_PARTITION)
            if run.request.is_kept:
                kept = await in_thread(run.scratch.keep, place, "broker", now_ms=self._clock.now_ms())
        except (*_OF_THE_SCRATCH, OSError) as error:
            return skipped(error)
        finally:
            if kept is None:
                await in_thread(run.scratch.remove, place)
        return [
            self._proven(blanks[name], outcome, kept)
            if isinstance(outcome, Proof)
            else self._ended(blanks[name], DrillOutcome.FAILED, outcome, kept=kept)
            for name, outcome in outcomes.items()
        ]

    async def _record(self, run: "_DrillUnderWay", result: DrillResult) -> None:
        await in_thread(self._history.append, result.drilled)
        run.progress.drilled(result)

    def _blank(self, run: "_DrillUnderWay", partition: TopicIdPartition) -> DrilledPartition:
        return DrilledPartition(
            run_id=run.run_id,
            trigger=run.request.trigger,
            partition=str(partition),
            topic_id=uuid_to_text(partition.topic_id),
            began_ms=self._clock.now_ms(),
            ended_ms=0,
            outcome=DrillOutcome.FAILED,
            is_from_bucket=self._source.is_from_bucket,
        )

    def _plans(self, chosen: Sequence[TopicIdPartition]) -> PlanMaking:
        """Return the maker of plans for the loss of all replicas, as of ``tierd restore partition --mode last-copy``.

        Nothing is read before the first plan.
        """
        request = LogDirPlanRequest(
            names=tuple(partition.topic_partition for partition in chosen),
            mode=RestoreMode.LAST_COPY,
            expired=ExpiredSegments.HOLD,
            are_others_down=True,
            is_for_broker=False,
        )
        target = TargetDirectories(self._deployment.drill_dir, identity="", has_metadata=True, by_name={}, elsewhere={})
        return PlanMaking(self._deployment, self._source, request, target, clock=self._clock)

    async def _prove(self, run: "_DrillUnderWay", blank: DrilledPartition, plan: PartitionPlan) -> DrillResult:
        try:
            place = await in_thread(run.scratch.new_place, plan.fetch_bytes)
        except (RefusedError, OSError) as error:
            return self._ended(blank, DrillOutcome.SKIPPED, _as_tier_error(error))
        kept: Path | None = None
        try:
            proof = await self._drill(run).run(plan, place)
            if run.request.is_kept:
                kept = await in_thread(run.scratch.keep, place, blank.partition, now_ms=self._clock.now_ms())
        except (*_OF_THE_SCRATCH, OSError) as error:
            return self._ended(blank, DrillOutcome.SKIPPED, _as_tier_error(error))
        finally:
            if kept is None:
                await in_thread(run.scratch.remove, place)
        return self._proven(blank, proof, kept)

    def _drill(self, run: "_DrillUnderWay") -> PartitionDrill:
        settings, command = self._settings, None
        if settings.command:
            masking = Masking(*secrets_of(self._deployment.config))
            command = DrillCommand(settings.command, timeout_s=settings.command_timeout_s, masking=masking)
        return PartitionDrill(
            self._source.stored.segments,
            cluster_id=self._source.identity.cluster_id,
            command=command,
            replan=run.plans.plan_one,
            random=self._random,
            arrived=run.progress.arrived,
        )

    def _proven(self, blank: DrilledPartition, proof: Proof, kept: Path | None) -> DrillResult:
        restored, failure = proof.restored, proof.failure
        facts = replace(
            blank,
            log_start_offset=restored.log_start_offset,
            end_offset=restored.end_offset,
            through_ms=proof.plan.newest_timestamp_ms,
            segments=restored.segment_count,
            batches=restored.batch_count,
            size_bytes=restored.size_bytes,
            rebuilt_indexes=restored.rebuilt_indexes,
            checks=proof.checks,
            samples=proof.samples,
        )
        if failure is None:
            return self._ended(facts, DrillOutcome.PROVEN, kept=kept)
        problem = TierError(failure.problem, remedy="the end of its output is in tierd drill --history --json")
        return self._ended(replace(facts, output=failure.output), DrillOutcome.FAILED, problem, kept=kept)

    def _ended(
        self,
        drilled: DrilledPartition,
        outcome: DrillOutcome,
        problem: TierError | None = None,
        *,
        kept: Path | None = None,
    ) -> DrillResult:
        ended = replace(
            drilled,
            ended_ms=self._clock.now_ms(),
            outcome=outcome,
            problem="" if problem is None else str(problem),
            remedy="" if problem is None else problem.remedy,
        )
        return DrillResult(ended, kept)


class _DrillUnderWay(NamedTuple):
    """Run that is under way."""

    run_id: str
    request: DrillRequest
    scratch: DrillScratch
    progress: DrillProgress
    plans: PlanMaking


def _as_tier_error(error: TierError | OSError) -> TierError:
    if isinstance(error, TierError):
        return error
    return StateDirError(
        f"the scratch directory cannot be used: {error.strerror or error}",
        remedy="make room or mend the disk, or set drill.scratch_dir",
    )


async def drill(
    deployment: Deployment,
    request: DrillRequest,
    source: SourceRequest,
    progress: DrillProgress,
    *,
    on_progress: Callable[[str], None],
) -> None:
    """Do one drill at the configured rate; ``on_progress`` is called with reports of the opening.

    Raises:
        ConfigError: the cluster is not known.
        TierError: a store cannot be opened, or ``DrillRun.run`` raised it.
    """
    clock = SystemClock()
    await in_thread(make_state_dir, deployment.state_dir)
    paced = replace(source, max_bytes_per_second=deployment.drill.max_bytes_per_second)
    async with restore_source(deployment, paced, clock=clock, on_progress=on_progress) as opened:
        history = DrillHistory(deployment.state_dir)
        await DrillRun(deployment, opened, history, clock=clock, random=random.random).run(request, progress)
