"""The Spark pipeline of one engine: the partitions that it may compact, and the scheduler of its runs."""

import asyncio
import socket
from collections.abc import MutableSet, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from uuid import UUID

import structlog

from tierd.app.engine.compose import Engine
from tierd.app.engine.host_caches import erasure_keeper
from tierd.config import TierdConfig
from tierd.errors import TierError, UnknownPartitionError
from tierd.log import find_log_end_offset, identify_directory, read_lineage, scan_partition
from tierd.model import TopicIdPartition, TopicPartition, uuid_from_text
from tierd.pipeline import (
    Candidate,
    CompactionLeader,
    EraseRequest,
    EraseRequests,
    ErasureKeeper,
    LeaderSettings,
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
    search_work,
    sweep_runs,
)
from tierd.tiering import FetchService, PartitionStatus, RemoteLogManager, Tiering

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Pipeline:
    """Parts of the pipeline of one engine."""

    scheduler: PipelineScheduler
    run: SparkRun
    history: RunHistory
    candidates: "CandidateSource"
    erasures: ErasureKeeper
    erase_requests: EraseRequests


def build_pipeline(
    engine: Engine, tiering: Tiering, config_file: Path, fetches: FetchService | None = None
) -> Pipeline:
    """Build the parts of the pipeline; nothing runs yet. The caller holds the instance lock.

    Args:
        engine: the parts of this process.
        tiering: the tiering of this broker.
        config_file: the configuration file, which the job reads too.
        fetches: the reads of this process; None where this process has none and owns no cache on disk.
    """
    config = engine.settings.config
    settings = config.pipeline
    requests = EraseRequests(engine.rows, engine.metadata.keys)
    source = CandidateSource(engine, tiering.manager, requests)
    keeper = erasure_keeper(engine, tiering.removals, requests, source.find_one, fetches)

    def new_leader(being_copied: MutableSet[UUID]) -> CompactionLeader:
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
            random=engine.random,
        )

    async def new_job(scratch: Path) -> SparkProcess:
        return SparkProcess(settings, await find_spark(settings.java_home), config_file=config_file, scratch=scratch)

    async def after_run(run_id: str, rounds: Sequence[PartitionRound], statistics: RunStatistics) -> None:
        tiering.manager.wake([round_.work.partition.topic_partition for round_ in rounds])
        await keeper.after_run(run_id, rounds, statistics)

    run = SparkRun(
        new_leader(tiering.writes.ids),
        planner=new_leader(set()),
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
    history = RunHistory(config.state_dir)
    scheduler = PipelineScheduler(
        run,
        timetable=settings.timetable(),
        limits=RunLimits(timeout_s=settings.timeout_s, retries=settings.retries),
        history=history,
        clock=engine.clock,
        random=engine.random,
    )
    return Pipeline(scheduler, run, history, source, keeper, requests)


async def require_pipeline(engine: Engine) -> None:
    """Require that an enabled pipeline can run, and remove what a killed run left.

    Raises:
        SparkMissingError: pyspark or Java is missing or too old.
    """
    config = engine.settings.config
    await asyncio.to_thread(sweep_runs, config.pipeline_dir)
    await require_spark(config)


async def require_spark(config: TierdConfig) -> None:
    """Require that this host can run the job on Spark, if the configuration enables the pipeline.

    Raises:
        SparkMissingError: pyspark or Java is missing or too old.
    """
    if config.pipeline.enabled:
        await find_spark(config.pipeline.java_home)


class CandidateSource:
    """Source of the partitions that this broker leads, as candidates of a run."""

    def __init__(self, engine: Engine, manager: RemoteLogManager, requests: EraseRequests) -> None:
        self._engine = engine
        self._manager = manager
        self._requests = requests

    async def find(self, names: Sequence[TopicPartition] | None) -> list[Candidate]:
        """Return the loaded partitions that are not paused; a partition whose lineage cannot be read is left out.

        Raises:
            UnknownPartitionError: this broker does not lead a named partition.
        """
        self.require_led(names)
        led = self._manager.led()
        statuses = {_partition_of(status): status for status in self._manager.status()}
        open_requests = await self._requests.list(only_open=True)
        found = []
        for partition in sorted(led, key=lambda each: each.topic_partition):
            status = statuses.get(partition)
            if status is None or (names is not None and partition.topic_partition not in names):
                continue
            candidate = await self._candidate(partition, led[partition], status)
            if candidate is not None:
                found.append(await _erasing(candidate, open_requests))
        return found

    async def find_one(self, partition: TopicIdPartition) -> Candidate | None:
        """Return the partition as it is now; None where it is not led here, is paused, or cannot be read.

        The candidate has no keys to erase: to find them takes a read of every request.
        """
        leader_epoch = self._manager.led().get(partition)
        statuses = (status for status in self._manager.status() if _partition_of(status) == partition)
        status = next(statuses, None)
        if leader_epoch is None or status is None:
            return None
        return await self._candidate(partition, leader_epoch, status)

    async def log_end_offset(self, partition: TopicIdPartition) -> int | None:
        """Return the log end offset, exclusive; None where records beyond the tier are not copied.

        Raises:
            TierError: the log cannot be read.
        """
        statuses = {_partition_of(status): status for status in self._manager.status()}
        if partition not in statuses or not self._engine.policies(partition.topic).copy_enabled:
            return None
        return await asyncio.to_thread(_log_end_offset, Path(statuses[partition].directory))

    def require_led(self, names: Sequence[TopicPartition] | None) -> None:
        """Require that this broker leads each of these partitions.

        Raises:
            UnknownPartitionError: this broker does not lead one of them.
        """
        led = {partition.topic_partition for partition in self._manager.led()}
        if unknown := sorted(set(names or ()) - led):
            raise UnknownPartitionError(
                f"{', '.join(map(str, unknown))}: not led here", remedy="tierd status lists what is led where"
            )

    async def _candidate(
        self, partition: TopicIdPartition, leader_epoch: int, status: PartitionStatus
    ) -> Candidate | None:
        engine, topics = self._engine, self._engine.policies
        if status.state == "paused":
            return None
        try:
            await engine.metadata.become_leader(partition, leader_epoch)  # where no task has claimed it before
            view = engine.metadata.view(partition)
            lineage = await asyncio.to_thread(read_lineage, Path(status.directory))
        except TierError as error:
            log.warning("partition_not_looked_at", partition=str(partition), problem=str(error))
            return None
        policy = topics.cleaning(partition.topic, engine.settings.config.pipeline)
        return Candidate(view=view, lineage=lineage, policy=policy)


async def _erasing(candidate: Candidate, requests: Sequence[EraseRequest]) -> Candidate:
    """Return the candidate with the keys that the run is to erase."""
    own = [each for each in requests if each.partition == candidate.partition]
    if not own:
        return candidate
    work = await asyncio.to_thread(search_work, own, candidate)
    return replace(candidate, erased_keys=work.keys, searched=work.searched, removes_unread=work.removes_unread)


def _log_end_offset(directory: Path) -> int:
    found = identify_directory(directory)
    return 0 if found is None else find_log_end_offset(scan_partition(found))


def _partition_of(status: PartitionStatus) -> TopicIdPartition:
    return TopicIdPartition(uuid_from_text(status.topic_id), status.partition.topic, status.partition.partition)


def _holder(engine: Engine) -> str:
    """Return the holder of the leases: the next process on this state directory takes over those of a killed one."""
    return f"broker {engine.identity.node_id} on {socket.gethostname()}, {engine.settings.config.state_dir}"
