"""Reading of the target's log for batches that an earlier run has sent."""

from typing import Final, NamedTuple

from tierd.control import FetchedRecords, ListedPosition, LogBound, fetch, list_offsets
from tierd.errors import KafkaError
from tierd.log import BatchHeader, increment_sequence, parse_header
from tierd.model import TopicPartition
from tierd.restore.live_cluster.restore_progress import PartitionProgress
from tierd.restore.live_cluster.target_cluster import TargetCluster
from tierd.restore.live_cluster.target_errors import refused_batch

_FETCH_BYTES: Final = 8 << 20
_FETCH_WAIT_S: Final = 0.5


class OwnBatch(NamedTuple):
    """Batch of our producer in the target.

    Attributes:
        span: offsets of the batch, which are sequence numbers, too; compaction changes neither.
        record_count: those that compaction has left.
    """

    base_offset: int
    base_sequence: int
    span: int
    record_count: int
    max_timestamp_ms: int


async def listed_offset(target: TargetCluster, name: TopicPartition, bound: LogBound) -> int:
    """Return the first offset of a partition of the target, or its high watermark.

    Raises:
        KafkaError: the target does not tell it.
    """
    request = list_offsets([name], bound)

    async def ask() -> ListedPosition:
        answer = await target.ask_leader(name, request)
        return answer.get(name, ListedPosition("leader_not_available", -1))

    found = await target.patiently(ask, lambda each: each.error)
    if found.error:
        raise refused_batch(name, found.error, "")
    return found.offset


async def own_batches(target: TargetCluster, name: TopicPartition, progress: PartitionProgress) -> list[OwnBatch]:
    """Return the batches of our producer that ``progress`` does not count yet, in order.

    Batches above the high watermark are not among them. They are sent again, and the leader recognizes them.

    Raises:
        KafkaError: the target does not answer, or has lost what it had acknowledged.
    """
    first, end = (
        await listed_offset(target, name, LogBound.EARLIEST),
        await listed_offset(target, name, LogBound.LATEST),
    )
    if first > progress.target_offset:
        raise _lost(name, f"its log begins at {first}, and the restore goes on at {progress.target_offset}")
    found = await _scan(target, name, progress, end)
    if not progress.has_sent:
        return found
    if found and increment_sequence(found[0].base_sequence, found[0].span) == progress.sequence:
        return found[1:]  # the first is the last one that was acknowledged
    if not found:
        raise _lost(name, f"it does not have the batch at {progress.target_offset} that it had acknowledged")
    return found


async def _scan(target: TargetCluster, name: TopicPartition, progress: PartitionProgress, end: int) -> list[OwnBatch]:
    found: list[OwnBatch] = []
    at = progress.target_offset
    while at < end:
        answer = await _fetched(target, name, at)
        headers = _headers(answer.records, str(name))
        if not headers:
            break  # compaction has emptied the rest
        found += [
            _own(header)
            for header in headers
            if header.producer_id == progress.producer.id and header.base_offset >= progress.target_offset
        ]
        at = headers[-1].last_offset + 1
    return [each for each in found if each.base_offset < end]


async def _fetched(target: TargetCluster, name: TopicPartition, offset: int) -> FetchedRecords:
    request = fetch(name, from_offset=offset, max_bytes=_FETCH_BYTES, max_wait_s=_FETCH_WAIT_S)
    answer = await target.patiently(lambda: target.ask_leader(name, request), lambda each: each.error)
    if answer.error:
        raise refused_batch(name, answer.error, f"reading offset {offset}")
    return answer


def _headers(records: bytes, name: str) -> list[BatchHeader]:
    """Return the headers of the whole batches in a fetched piece."""
    headers, at = list[BatchHeader](), 0
    view = memoryview(records)
    while (header := parse_header(view, at, name=name, position=at)) is not None:
        if header.end_position > len(view):
            break
        headers.append(header)
        at = header.end_position
    return headers


def _own(header: BatchHeader) -> OwnBatch:
    return OwnBatch(
        header.base_offset,
        header.base_sequence,
        header.last_offset - header.base_offset + 1,
        header.record_count,
        header.max_timestamp_ms,
    )


def _lost(name: TopicPartition, reason: str) -> KafkaError:
    return KafkaError(
        f"{name}: the target has lost restored records: {reason}",
        remedy="look for retention, truncation or an unclean election there; then restore into a new topic "
        "with --rename and another --journal",
    )
