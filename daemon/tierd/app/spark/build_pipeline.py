"""The Spark pipeline of one engine: the runs and their schedule, and the erasures that runs carry out."""

import asyncio
import socket
from collections.abc import Awaitable, Callable, MutableSet, Sequence
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

from tierd.app.engine.compose import Engine
from tierd.app.engine.deployment import Deployment
from tierd.app.engine.host_caches import HostCaches
from tierd.app.spark.candidate_source import CandidateSource
from tierd.model import TopicIdPartition
from tierd.pipeline import (
    Candidate,
    CompactionLeader,
    EraseRequests,
    ErasureKeeper,
    ErasureReports,
    KeeperParts,
    LeaderSettings,
    OldVersions,
    OpenOutputs,
    PartitionLeases,
    PartitionRound,
    PipelineScheduler,
    RunHistory,
    RunLimits,
    RunStatistics,
    SparkProcess,
    SparkRun,
    SparkRunSettings,
    find_spark,
    one_off_secret,
    sweep_runs,
)
from tierd.tiering import FetchService, Removals, Tiering


@dataclass(frozen=True, slots=True)
class Pipeline:
    """Parts of the pipeline of one engine."""

    scheduler: PipelineScheduler
    run: SparkRun
    candidates: CandidateSource
    erasures: ErasureKeeper
    erase_requests: EraseRequests


def build_pipeline(engine: Engine, tiering: Tiering, fetches: FetchService | None = None) -> Pipeline:
    """Build the parts of the pipeline; nothing runs yet. The caller holds the instance lock.

    Args:
        engine: the parts of this process.
        tiering: the tiering of this broker.
        fetches: the reads of this process; None where this process has none and owns no cache on disk.
    """
    config, config_file = engine.deployment.config, engine.deployment.config_file
    settings = config.pipeline
    requests = EraseRequests(engine.rows, engine.metadata.keys)
    source = CandidateSource(engine, tiering.manager, requests, settings)
    keeper = _erasure_keeper(engine, tiering.removals, requests, source.find_one, fetches)

    def new_leader(
        being_copied: MutableSet[UUID], run_secret: Callable[[], Awaitable[bytes]] | None = None
    ) -> CompactionLeader:
        return CompactionLeader(
            engine.metadata,
            engine.storage,
            outputs=OpenOutputs(
                engine.metadata,
                being_copied=being_copied,
                clock=tiering.removal_clock,
                abandoned=tiering.writes.abandon,
            ),
            clock=tiering.removal_clock,
            settings=LeaderSettings(grace_s=config.expire.grace_s),
            run_secret=run_secret,
            random=engine.random,
        )

    async def new_job(scratch: Path) -> SparkProcess:
        return SparkProcess(settings, await find_spark(settings.java_home), config_file=config_file, scratch=scratch)

    async def after_run(run_id: str, rounds: Sequence[PartitionRound], statistics: RunStatistics) -> None:
        tiering.manager.wake([round_.work.partition.topic_partition for round_ in rounds])
        await keeper.after_run(run_id, rounds, statistics)

    run = SparkRun(
        new_leader(tiering.writes.ids),
        planner=new_leader(set(), one_off_secret),  # a plan writes nothing
        candidates=source.find,
        leases=PartitionLeases(engine.rows, engine.metadata.keys, holder=_holder(engine), clock=engine.clock),
        new_job=new_job,
        settings=SparkRunSettings(
            directory=config.pipeline_dir,
            max_bytes=settings.max_bytes_per_run,
            audit_bytes=settings.audit_bytes,
            stop_timeout_s=settings.stop_timeout_s,
        ),
        after_run=after_run,
    )
    scheduler = PipelineScheduler(
        run,
        timetable=settings.timetable(),
        limits=RunLimits(timeout_s=settings.timeout_s, retries=settings.retries),
        history=RunHistory(config.state_dir),
        clock=engine.clock,
        random=engine.random,
    )
    return Pipeline(scheduler, run, source, keeper, requests)


async def require_pipeline(engine: Engine) -> None:
    """Require that an enabled pipeline can run, and remove what a killed run left.

    Raises:
        SparkMissingError: pyspark or Java is missing or too old.
    """
    config = engine.deployment.config
    await asyncio.to_thread(sweep_runs, config.pipeline_dir)
    if config.pipeline.enabled:
        await require_spark(engine.deployment)


async def require_spark(deployment: Deployment) -> None:
    """Require that this host can run the job on Spark.

    Raises:
        SparkMissingError: pyspark or Java is missing or too old.
    """
    await find_spark(deployment.config.pipeline.java_home)


def _erasure_keeper(
    engine: Engine,
    removals: Removals,
    requests: EraseRequests,
    find: Callable[[TopicIdPartition], Awaitable[Candidate | None]],
    fetches: FetchService | None,
) -> ErasureKeeper:
    """Return the keeper that carries out erase requests, over the parts of one engine."""
    keys = engine.deployment.object_keys(engine.identity)
    return ErasureKeeper(
        KeeperParts(
            requests=requests,
            find=find,
            remove=removals.remove_at_once,
            versions=OldVersions(engine.store, keys),
            caches=HostCaches(engine.deployment.config.cache_dir, keys, fetches),
            reports=ErasureReports(engine.store, keys, requests, engine.ring),
            clock=engine.clock,
        )
    )


def _holder(engine: Engine) -> str:
    """Return the holder of the leases: the next process on this state directory takes over those of a killed one."""
    return f"broker {engine.identity.node_id} on {socket.gethostname()}, {engine.deployment.state_dir}"
