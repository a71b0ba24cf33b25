"""The work of the threads of tail mode: directories are found, logs begun and polled. Blocking; reads only."""

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from tierd.errors import LogError, TierError, UnknownPartitionError
from tierd.log import PARTITION_METADATA, PartitionDirectory, broker_file, identify_directory
from tierd.model import TopicIdPartition
from tierd.replication.tail.checkpointed_offsets import CheckpointedOffsets, OffsetCheckpoints
from tierd.replication.tail.tail_poll import TailPollRequest, poll_tail
from tierd.replication.tail.tail_start import begin_tail
from tierd.replication.tail.tail_values import TailLimit, TailPoll, TailPosition


class FoundDirectory(NamedTuple):
    """Directory of a log, with the time at which the broker made it."""

    directory: PartitionDirectory
    created_ns: int


@dataclass(frozen=True, slots=True)
class SeekRequest:
    """Search for the directory of a partition in all log dirs."""

    partition: TopicIdPartition
    log_dirs: tuple[Path, ...]


@dataclass(frozen=True, slots=True)
class BeginRequest:
    """First poll of a log."""

    found: FoundDirectory
    checkpoints: OffsetCheckpoints
    limit: TailLimit


@dataclass(frozen=True, slots=True)
class BegunTail:
    """Place at which a log begins to be followed, and the offsets that the broker had written before."""

    position: TailPosition
    offsets: CheckpointedOffsets


TailRequest = SeekRequest | BeginRequest | TailPollRequest
TailResult = FoundDirectory | BegunTail | TailPoll | TierError | None


class JobResults(NamedTuple):
    """Results of a job, one for each request, and the CPU time that it took."""

    results: list[TailResult]
    cpu_s: float


def run_job(requests: Sequence[TailRequest], *, max_bytes: int) -> JobResults:
    """Answer the requests in turn; None for those that have to wait, once ``max_bytes`` were taken.

    An error of one partition is the result of its request.
    """
    begun_s = time.thread_time()
    results: list[TailResult] = []
    left = max_bytes
    for request in requests:
        result = _answer(request, left) if left > 0 else None
        if isinstance(result, TailPoll):
            left -= sum(len(append.records) for append in result.appends)
        results.append(result)
    return JobResults(results, time.thread_time() - begun_s)


def _answer(request: TailRequest, left: int) -> TailResult:
    if isinstance(request, TailPollRequest):
        return poll_tail(replace(request, max_bytes=min(request.max_bytes, left)))
    try:
        return _find(request) if isinstance(request, SeekRequest) else _begin(request)
    except TierError as error:
        return error


def _find(request: SeekRequest) -> FoundDirectory:
    partition = request.partition
    for log_dir in request.log_dirs:
        path = log_dir / f"{partition.topic}-{partition.partition}"
        try:
            directory = identify_directory(path)
            if directory is not None and directory.topic_id == partition.topic_id:
                metadata = path / PARTITION_METADATA
                with broker_file(metadata):
                    return FoundDirectory(directory, metadata.stat().st_mtime_ns)
        except LogError:  # not there, or it cannot be read: another log dir may have it
            continue
    raise UnknownPartitionError(
        f"{partition}: in none of the log dirs, with topic id {partition.topic_id}",
        remedy="nothing to do if the topic was deleted; otherwise look at the log dirs of the broker",
    )


def _begin(request: BeginRequest) -> BegunTail:
    directory, created_ns = request.found
    offsets = request.checkpoints.offsets(directory.topic_partition)  # first: the log end is not below it later
    if offsets.written_ns <= created_ns:
        offsets = CheckpointedOffsets(-1, -1, offsets.written_ns)
    limit = max(offsets.high_watermark, 0) if request.limit is TailLimit.HWM else None
    return BegunTail(begin_tail(directory, limit_offset=limit), offsets)


def changed_directories(
    known: Iterable[tuple[TopicIdPartition, PartitionDirectory]],
) -> list[TopicIdPartition]:
    """Return the partitions whose directory is not there any more, or is another one."""
    return [partition for partition, directory in known if not _is_there(directory)]


def _is_there(directory: PartitionDirectory) -> bool:
    try:
        return directory.path.stat().st_ino == directory.inode
    except OSError:
        return False
