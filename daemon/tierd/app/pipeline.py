"""The Spark pipeline of one engine: what may be compacted here, and the scheduler that has it done."""

import asyncio
import socket
from collections.abc import MutableSet, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from uuid import UUID

import structlog

from tierd.app.compose import Engine
from tierd.app.disk_caches import erasure_keeper
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
    PartitionLeases,
    PartitionRound,
    PipelineScheduler,
    RunHistory,
    RunLimits,
    RunStatistics,
    SparkProcess,
    SparkRun,
    find_spark,
    search_work,
    sweep_runs,
)
from tierd.tiering import FetchService, PartitionStatus, RemoteLogManager

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Pipeline:
    """The job of one engine, by its parts."""

    scheduler: PipelineScheduler
    run: SparkRun
    history: RunHistory
    candidates: "CandidateSource"
    erasures: ErasureKeeper
    erase_requests: EraseRequests


def build_pipeline(
    engine: Engine, manager: RemoteLogManager, config_file: Path, fetches: FetchService | None = None
) -> Pipeline:
    """Put the parts together; nothing runs yet. The caller holds the instance lock.

    Args:
        engine: what copies.
        manager: what finds partitions.
        config_file: which the job reads too.
        fetches: the reads of this process; None where it has none, and the caches on disk are nobody's.
    """
    config = engine.settings.config
    settings = config.pipeline
    requests = EraseRequests(engine.rows, engine.metadata.keys)
    source = CandidateSource(engine, manager, requests)
    keeper = erasure_keeper(engine, manager, requests, source.find_one, fetches)

    def new_leader(being_copied: MutableSet[UUID]) -> CompactionLeader:
        return CompactionLeader(
            engine.metadata,
            engine.storage,
            being_copied=being_copied,
            clock=manager.removal_clock,
            settings=LeaderSettings(grace_s=config.expire.grace_s),
            abandoned=manager.abandon,
            random=engine.random,
        )

    async def new_job(scratch: Path) -> SparkProcess:
        return SparkProcess(settings, await find_spark(settings.java_home), config_file=config_file, scratch=scratch)

    async def after_run(run_id: str, rounds: Sequence[PartitionRound], statistics: RunStatistics) -> None:
        manager.wake([round_.work.partition.topic_partition for round_ in rounds])
        await keeper.after_run(run_id, rounds, statistics)

    run = SparkRun(
        new_leader(manager.being_copied),
        planner=new_leader(set()),
        candidates=source.find,
        leases=PartitionLeases(engine.rows, engine.metadata.keys, holder=_holder(engine), clock=engine.clock),
        new_job=new_job,
        directory=config.pipeline_dir,
        max_bytes=settings.max_bytes_per_run,
        audit_bytes=settings.audit_bytes,
        stop_timeout_s=settings.stop_timeout_s,
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
    """Make sure that what is enabled can run, before anything depends on it; put away what a killed run left.

    Raises:
        SparkMissingError: pyspark or Java is missing or too old.
    """
    config = engine.settings.config
    await asyncio.to_thread(sweep_runs, config.pipeline_dir)
    await require_spark(config)


async def require_spark(config: TierdConfig) -> None:
    """Make sure that this host can start what the configuration enables; where it enables nothing, nothing is needed.

    Raises:
        SparkMissingError: pyspark or Java is missing or too old.
    """
    if config.pipeline.enabled:
        await find_spark(config.pipeline.java_home)


class CandidateSource:
    """The partitions that this broker leads, as a run may take them."""

    def __init__(self, engine: Engine, manager: RemoteLogManager, requests: EraseRequests) -> None:
        self._engine = engine
        self._manager = manager
        self._requests = requests

    async def find(self, names: Sequence[TopicPartition] | None) -> list[Candidate]:
        """Those that are loaded and not paused; a lineage that cannot be read leaves its partition out.

        Raises:
            UnknownPartitionError: one that is named is not led here.
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
        """The partition as it is now; None where it is not led here, is paused, or cannot be looked at.

        What is to be erased of it is for whoever asks to know: that takes a look at every request.
        """
        leader_epoch = self._manager.led().get(partition)
        statuses = (status for status in self._manager.status() if _partition_of(status) == partition)
        status = next(statuses, None)
        if leader_epoch is None or status is None:
            return None
        return await self._candidate(partition, leader_epoch, status)

    async def log_end_offset(self, partition: TopicIdPartition) -> int | None:
        """Where the broker's log ends, exclusive; None where what it has beyond the tier is never copied.

        Raises:
            TierError: the log cannot be read.
        """
        statuses = {_partition_of(status): status for status in self._manager.status()}
        if partition not in statuses or not self._engine.policies(partition.topic).copy_enabled:
            return None
        return await asyncio.to_thread(_log_end_offset, Path(statuses[partition].directory))

    def require_led(self, names: Sequence[TopicPartition] | None) -> None:
        """Raise unless each of these is led here.

        Raises:
            UnknownPartitionError: one is not.
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
            await engine.metadata.become_leader(partition, leader_epoch)  # where nobody claimed it before us
            view = engine.metadata.view(partition)
            lineage = await asyncio.to_thread(read_lineage, Path(status.directory))
        except TierError as error:
            log.warning("partition_not_looked_at", partition=str(partition), problem=str(error))
            return None
        policy = topics.cleaning(partition.topic, engine.settings.config.pipeline)
        return Candidate(view=view, lineage=lineage, policy=policy)


async def _erasing(candidate: Candidate, requests: Sequence[EraseRequest]) -> Candidate:
    """With the keys that are to be looked for."""
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
    """Who holds our leases; the next process on this state directory takes them over from one that was killed."""
    return f"broker {engine.identity.node_id} on {socket.gethostname()}, {engine.settings.config.state_dir}"
