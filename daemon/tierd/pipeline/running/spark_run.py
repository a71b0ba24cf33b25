"""SparkRun: does one run from its candidates to the last commit. It starts the job and answers it as the leader.

::

    <pipeline dir>/runs/<run id>/leader    the socket between job and leader, and Spark's scratch files; gone afterwards
    <pipeline dir>/logs/<run id>.log       the output of the job; the newest are kept
"""

import asyncio
import shutil
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from uuid import UUID

import structlog

from tierd.errors import PipelineError, TierError
from tierd.files import PRIVATE_DIRECTORY, make_own_directory, make_private_directory, require_unchangeable
from tierd.model import TopicPartition, uuid_from_text
from tierd.pipeline.committing import CompactionLeader, LeaderServer, PartitionRound, PreparedRun, RunStatistics
from tierd.pipeline.planning import Candidate
from tierd.pipeline.running.leasing import PartitionLeases
from tierd.pipeline.running.run_progress import RunProgress
from tierd.pipeline.running.spark_process import JobProcess, last_lines

log = structlog.get_logger()

_LOGS_KEPT: Final = 30
_LAST_WORDS_S: Final = 1.0  # the last messages of a job that has ended are on their way
AfterRun = Callable[[str, Sequence[PartitionRound], RunStatistics], Awaitable[None]]
"""Function that takes note of what a run did to each of its partitions, also of a run that failed; not of audits."""
Candidates = Callable[[Sequence[TopicPartition] | None], Awaitable[Sequence[Candidate]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkRunSettings:
    """Settings of the runs.

    Attributes:
        directory: the directory of runs and their logs.
        max_bytes: bytes that a run may rewrite; None for no limit.
        audit_bytes: bytes of segments that a run audits besides; 0 for none.
        stop_timeout_s: time in which a job stops when it is asked to.
    """

    directory: Path
    max_bytes: int | None
    audit_bytes: int
    stop_timeout_s: float


class SparkRun:
    """``Work`` of a scheduler: one run of the Spark job.

    Args:
        leader: prepares and commits; no other run uses it.
        planner: prepares plans; it begins nothing, and guards nothing of the run under way.
        candidates: returns the partitions that this broker leads, or the named ones of them.
        leases: keep other daemons from the same partitions.
        new_job: makes the process of a job, with a directory for its scratch files.
        settings: directory and limits of the runs.
        after_run: called with the result of the run.
    """

    def __init__(
        self,
        leader: CompactionLeader,
        *,
        planner: CompactionLeader,
        candidates: Candidates,
        leases: PartitionLeases,
        new_job: Callable[[Path], Awaitable[JobProcess]],
        settings: SparkRunSettings,
        after_run: AfterRun,
    ) -> None:
        self._leader = leader
        self._after_run = after_run
        self._planner = planner
        self._planning = asyncio.Lock()
        self._candidates = candidates
        self._leases = leases
        self._new_job = new_job
        self._settings = settings

    async def plan(self, names: Sequence[TopicPartition] | None) -> PreparedRun:
        """Return the order that a run would get now, and the partitions it skips, with reasons; nothing is begun.

        Raises:
            TierError: a named partition is not led here, or a store does not answer.
        """
        candidates = await self._candidates(names)
        async with self._planning:
            try:
                return await self._prepared(self._planner, candidates, run_id=None)
            finally:
                await self._planner.end()

    async def __call__(self, progress: RunProgress, names: Sequence[TopicPartition] | None) -> None:
        """Do one run. A cancelled run ends the job and abandons the open outputs.

        Raises:
            PipelineError: the job could not be started, or failed as a whole; what was committed stays.
            TierError: planning failed.
        """
        candidates = await self._candidates(names)
        async with self._leases.held([candidate.partition for candidate in candidates]) as (ours, held_elsewhere):
            for partition, why in held_elsewhere.items():
                log.info("partition_left_to_another_daemon", partition=str(partition), reason=why)
            chosen = [candidate for candidate in candidates if candidate.partition in ours]
            prepared = await self._prepared(self._leader, chosen, run_id=uuid_from_text(progress.run_id))
            progress.follow(self._leader.statistics)
            try:
                for skipped in prepared.skipped:
                    log.debug("partition_skipped", partition=str(skipped.partition), reason=skipped.reason)
                if prepared.order.partitions:
                    await self._work(progress)
            finally:
                await asyncio.shield(self._end(progress))

    async def _prepared(
        self, leader: CompactionLeader, candidates: Sequence[Candidate], *, run_id: UUID | None
    ) -> PreparedRun:
        return await leader.prepare(
            candidates, run_id=run_id, max_bytes=self._settings.max_bytes, audit_bytes=self._settings.audit_bytes
        )

    async def _work(self, progress: RunProgress) -> None:
        scratch = self._settings.directory / "runs" / progress.run_id
        log_file = self._settings.directory / "logs" / f"{progress.run_id}.log"
        progress.log_file = str(log_file)
        try:
            await self._make(scratch, log_file.parent)
            job = await self._new_job(scratch)
            server, socket = LeaderServer(self._leader, scratch / "leader"), scratch / "leader"
            async with server.listening():
                running = job.run(socket, log_file, stop_timeout_s=self._settings.stop_timeout_s)
                await self._converse(asyncio.ensure_future(running), server, log_file)
        finally:
            await asyncio.shield(asyncio.to_thread(shutil.rmtree, scratch, ignore_errors=True))

    async def _make(self, scratch: Path, logs: Path) -> None:
        try:
            await asyncio.to_thread(_prepare, scratch, logs)
        except OSError as error:
            raise PipelineError(
                f"{self._settings.directory} cannot be used: {error}",
                remedy="check pipeline.local_dir: its owner, its mode and its disk",
            ) from error

    async def _converse(self, running: "asyncio.Future[int]", server: LeaderServer, log_file: Path) -> None:
        """Answer the job until it is done; a failure of the job or of the leader's side ends the other one."""
        serving = asyncio.create_task(server.serve(), name="leader of the run")
        both: tuple[asyncio.Future[int] | asyncio.Future[bool], ...] = (running, serving)
        try:
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            patience_s = _LAST_WORDS_S if running.done() else self._settings.stop_timeout_s
            await asyncio.wait(both, timeout=patience_s)  # without a failure both end together
            if serving.done() and serving.exception() is None and serving.result():
                if running.done():
                    running.result()
                else:  # the job's Spark does not stop, but everything is committed
                    log.warning("job_does_not_end", log_file=str(log_file), after_s=self._settings.stop_timeout_s)
                return
            raise await asyncio.to_thread(_failure, running, serving, log_file)
        finally:
            for task in both:
                task.cancel()
            await asyncio.wait(both)

    async def _end(self, progress: RunProgress) -> None:
        rounds = [round_ for round_ in self._leader.rounds if not round_.is_audit]
        try:
            statistics = await self._leader.end()
        except TierError as error:  # the sweep takes what is left
            log.warning("run_not_put_away", problem=str(error))
            statistics = self._leader.statistics()
        try:
            await self._after_run(progress.run_id, rounds, statistics)
        except TierError as error:  # the next run looks again
            log.warning("run_not_noted", problem=str(error))
        progress.refresh()
        for problem in statistics.problems:
            progress.add_problem(f"{problem.partition}, group {problem.group}: {problem.problem}")


def sweep_runs(directory: Path) -> None:
    """Remove the run directories that a killed process left. Blocking; the caller holds the instance lock."""
    shutil.rmtree(directory / "runs", ignore_errors=True)


def _prepare(scratch: Path, logs: Path) -> None:
    make_private_directory(scratch.parent.parent)
    require_unchangeable(scratch.parent.parent)  # a process that swaps the scratch would get the secrets
    for directory in (scratch.parent, logs):
        make_own_directory(directory)
    scratch.mkdir(mode=PRIVATE_DIRECTORY)
    kept = sorted(logs.glob("*.log"), key=lambda path: path.stat().st_mtime_ns)
    for old in kept[: -_LOGS_KEPT + 1]:
        old.unlink(missing_ok=True)


def _failure(running: "asyncio.Future[int]", serving: "asyncio.Future[bool]", log_file: Path) -> PipelineError:
    """Return why a run failed: an error of the process or of the leader, or else the exit code and the log's end.

    Any other exception than ``TierError`` is a bug and raised. Blocking.
    """
    for task in (running, serving):
        if task.done() and (error := task.exception()) is not None:
            if not isinstance(error, TierError):
                raise error  # a bug
            return PipelineError(str(error), remedy=error.remedy)
    how = f"ended with exit code {running.result()}" if running.done() else "hung up, and did not end by itself"
    ending = last_lines(log_file)
    return PipelineError(f"the job {how}" + (f": {ending}" if ending else ""), remedy=f"see {log_file}")
