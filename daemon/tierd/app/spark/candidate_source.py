"""CandidateSource: the partitions that this broker leads, as candidates of a run."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import structlog

from tierd.app.engine.compose import Engine
from tierd.config import PipelineSettings
from tierd.errors import TierError, UnknownPartitionError
from tierd.log import find_log_end_offset, identify_directory, read_lineage, scan_partition
from tierd.model import TopicIdPartition, TopicPartition, uuid_from_text
from tierd.pipeline import Candidate, EraseRequest, EraseRequests, search_work
from tierd.tiering import PartitionStatus, RemoteLogManager

log = structlog.get_logger()


class CandidateSource:
    """Source of the partitions that this broker leads, as candidates of a run."""

    def __init__(
        self, engine: Engine, manager: RemoteLogManager, requests: EraseRequests, settings: PipelineSettings
    ) -> None:
        self._engine = engine
        self._manager = manager
        self._requests = requests
        self._settings = settings

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
        policy = topics.cleaning(partition.topic, self._settings)
        is_copied = topics(partition.topic).copy_enabled
        return Candidate(
            view=view,
            lineage=lineage,
            policy=policy,
            is_copied=is_copied,
            local_log_start_offset=status.local_log_start_offset or 0,
        )


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
