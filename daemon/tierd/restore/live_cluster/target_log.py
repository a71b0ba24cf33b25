"""Reading of the target's log for batches that were sent and not acknowledged, by this run or an earlier one."""

from typing import Final
from uuid import UUID

from tierd.control import FetchedRecords, ListedPosition, LogBound, TopicLeaders, fetch, list_offsets, named_topics
from tierd.errors import KafkaError
from tierd.log import BatchHeader, headers_in
from tierd.model import TopicPartition
from tierd.restore.live_cluster.restore_progress import PartitionProgress
from tierd.restore.live_cluster.sent_batches import OwnBatch, SentBatches, ahead_of
from tierd.restore.live_cluster.target_cluster import TargetCluster
from tierd.restore.live_cluster.target_errors import is_another_topic, refused_batch, replaced_topic

_FETCH_BYTES: Final = 8 << 20
_FETCH_WAIT_S: Final = 0.5
_EMPTY_ANSWERS: Final = 5
"""In a row; then the rest of the log is empty. A leader that reads from its own tier may need a second try."""


async def listed_offset(
    target: TargetCluster, name: TopicPartition, bound: LogBound, *, counts_unreplicated: bool = False
) -> int:
    """Return the first offset of a partition of the target, or its high watermark.

    Args:
        target: the cluster.
        name: the partition.
        bound: which.
        counts_unreplicated: take the end of the leader's log in the place of the high watermark.

    Raises:
        KafkaError: the target does not tell it.
    """
    request = list_offsets([name], bound, counts_unreplicated=counts_unreplicated)

    async def ask() -> ListedPosition:
        answer = await target.ask_leader(name, request)
        return answer.get(name, ListedPosition("leader_not_available", -1))

    found = await target.patiently(ask, lambda each: each.error)
    if found.error:
        raise refused_batch(name, found.error, "")
    return found.offset


async def replicated_end(target: TargetCluster, name: TopicPartition) -> int:
    """Return the high watermark, once it covers all that the leader had in its log when it was asked.

    A batch whose answer was lost may lie above the high watermark, where it cannot be read yet.

    Raises:
        KafkaError: the target does not tell it, or its replicas stay behind for too long.
    """
    written: int | None = None

    async def ask() -> int:
        nonlocal written
        end = await listed_offset(target, name, LogBound.LATEST, counts_unreplicated=True)
        written = end if written is None else min(written, end)  # a new leader may have less
        return await listed_offset(target, name, LogBound.LATEST)

    def error_of(watermark: int) -> str:
        return "" if written is None or watermark >= written else "not_enough_replicas"

    return await target.patiently(ask, error_of)


async def require_same_topic(target: TargetCluster, name: TopicPartition, topic_id: UUID | None) -> None:
    """Raise unless the leader of a partition knows its topic by ``topic_id``; None is not compared.

    A broker learns the id of a topic before it takes records for it. So the records that a leader has acknowledged are
    in the topic that it names afterwards, or in one that is gone.

    Raises:
        RefusedError: the topic was deleted.
        KafkaError: the target does not answer.
    """
    if topic_id is None:
        return

    async def ask() -> TopicLeaders | None:
        known = (await target.leaders([name.topic])).get(name.topic)
        if known is None or is_another_topic(known, topic_id):
            return None
        return (await target.ask_leader(name, named_topics([name.topic]))).get(name.topic)

    known = await target.patiently(ask, lambda _: "")
    if known is None or is_another_topic(known, topic_id):
        raise replaced_topic(name.topic)


async def sent_batches(target: TargetCluster, name: TopicPartition, progress: PartitionProgress) -> SentBatches:
    """Return the batches of our producer that ``progress`` does not count yet.

    Raises:
        KafkaError: the target does not answer, or has lost what it had acknowledged.
    """
    first = await listed_offset(target, name, LogBound.EARLIEST)
    if first > progress.target_offset:
        raise lost_records(name, f"its log begins at {first}, and the restore goes on at {progress.target_offset}")
    found = await own_batches(target, name, progress.producer.id, from_offset=progress.target_offset)
    if progress.has_sent and not found:
        raise lost_records(name, f"it does not have the batch at {progress.target_offset} that it had acknowledged")
    counted = [each for each in found if ahead_of(each.base_sequence, progress.sequence) < 0]
    end_offset = counted[-1].end_offset if counted else progress.target_offset
    return SentBatches(progress.name, found[len(counted) :], end_offset=end_offset)


async def own_batches(
    target: TargetCluster, name: TopicPartition, producer_id: int, *, from_offset: int
) -> list[OwnBatch]:
    """Return the batches of a producer that begin at ``from_offset`` or behind it, in order.

    Raises:
        KafkaError: the target does not answer, or its replicas stay behind for too long.
    """
    end = await replicated_end(target, name)
    found: list[OwnBatch] = []
    at, empty_answers = from_offset, 0
    while at < end and empty_answers < _EMPTY_ANSWERS:
        headers = list(headers_in((await _fetched(target, name, at)).records, name=str(name)))
        if not headers:
            empty_answers += 1
            continue
        found += [
            _own(header)
            for header in headers
            if header.producer_id == producer_id and from_offset <= header.base_offset < end
        ]
        at, empty_answers = headers[-1].last_offset + 1, 0
    return found


async def _fetched(target: TargetCluster, name: TopicPartition, offset: int) -> FetchedRecords:
    request = fetch(name, from_offset=offset, max_bytes=_FETCH_BYTES, max_wait_s=_FETCH_WAIT_S)
    answer = await target.patiently(lambda: target.ask_leader(name, request), _error_of)
    if answer.error:
        raise refused_batch(name, answer.error, f"reading offset {offset}")
    return answer


def _error_of(answer: FetchedRecords) -> str:
    """Return the error of an answer; one that leaves the partition out is that of a quota (KIP-219)."""
    return answer.error or ("throttling_quota_exceeded" if answer.high_watermark < 0 else "")


def _own(header: BatchHeader) -> OwnBatch:
    return OwnBatch(
        header.base_offset,
        header.base_sequence,
        header.last_offset - header.base_offset + 1,
        header.record_count,
        header.max_timestamp_ms,
    )


def lost_records(name: TopicPartition, reason: str) -> KafkaError:
    """Return the error for a target that does not have what it had acknowledged."""
    return KafkaError(
        f"{name}: the target has lost restored records: {reason}",
        remedy="look for retention, truncation or an unclean election there; then restore into a new topic "
        "with --rename and another --journal",
    )
