"""Answer to ListOffsets: offsets by time, and named offsets, fenced by leader epoch (remote-tiering 15, KIP-320).

A daemon that does not know the end of a log answers LEADER_NOT_AVAILABLE to everything that depends on it: a lower end
would make consumers begin where they have already been, or take records for missing that another daemon has.
"""

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import Final

from kio.schema.errors import ErrorCode
from kio.schema.list_offsets.v11.request import ListOffsetsPartition, ListOffsetsRequest
from kio.schema.list_offsets.v11.response import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from kio.schema.types import TopicName
from kio.static.primitive import i32, i64
from kio.static.protocol import RequestPayload, ResponsePayload

from tierd.model import IsolationLevel, TimestampOffset
from tierd.serve.kafka.answers.client_access import LogFinder
from tierd.serve.kafka.answers.partition_lookups import LookupFailures, LookupLimits, outcomes_of
from tierd.serve.kafka.client_errors import AskedFor, error_code_for
from tierd.serve.kafka.message_versions import NO_THROTTLE, answer_in_version, in_version
from tierd.serve.kafka.served.served_log import ServedLog
from tierd.tiering import OffsetSpec

_FIRST_VERSIONS: Final[Mapping[int, int]] = {
    OffsetSpec.LATEST: 1,
    OffsetSpec.EARLIEST: 1,
    OffsetSpec.MAX_TIMESTAMP: 7,  # KIP-734
    OffsetSpec.EARLIEST_LOCAL: 8,  # KIP-405
    OffsetSpec.LATEST_TIERED: 9,  # KIP-1005
    OffsetSpec.EARLIEST_PENDING_UPLOAD: 11,  # KIP-1023
}
_DEPEND_ON_END: Final = frozenset({OffsetSpec.LATEST, OffsetSpec.MAX_TIMESTAMP, OffsetSpec.EARLIEST_LOCAL})
_ISOLATIONS: Final = {0: IsolationLevel.READ_UNCOMMITTED, 1: IsolationLevel.READ_COMMITTED}
_NO_TIME: Final = timedelta(0)

_Key = tuple[TopicName, i32]  # topic and partition
_Outcome = TimestampOffset | ErrorCode | Exception | None
_LookUp = Callable[[], Awaitable[TimestampOffset | ErrorCode | None]]


async def offsets_answer(
    request: RequestPayload, finder: LogFinder, limits: LookupLimits, failures: LookupFailures
) -> ResponsePayload:
    """Return the offset of every partition that was asked for, or its error.

    Args:
        request: any version.
        finder: of the client's logs.
        limits: of the lookups.
        failures: is told of the lookups that failed.
    """
    turns, items = finder.context.turns, finder.context.items
    wanted = await turns.aside(items, in_version, request, ListOffsetsRequest)
    asked, repeated = await turns.aside(items, _asked, wanted)
    outcomes, lookups = dict[_Key, _Outcome](), dict[_Key, _LookUp]()
    async for key, partition in turns.pieces(asked):
        target = _target(wanted, key, partition, finder, is_repeated=key in repeated)
        if isinstance(target, ErrorCode):
            outcomes[key] = target
        else:
            lookups[key] = target
    timeout_s = limits.timeout_s
    if wanted.timeout > _NO_TIME:
        timeout_s = min(timeout_s, wanted.timeout.total_seconds())
    found = await outcomes_of(tuple(lookups.values()), at_once=limits.at_once, timeout_s=timeout_s, turns=turns)
    async for key, outcome in turns.pieces(zip(lookups, found, strict=True)):
        outcomes[key] = outcome
        if isinstance(outcome, Exception):
            failures.failed("kafka_list_offsets_failed", f"{key[0]}-{key[1]}", outcome)
    return await turns.aside(items, _answer, request, wanted, outcomes)


def _asked(wanted: ListOffsetsRequest) -> tuple[Sequence[tuple[_Key, ListOffsetsPartition]], frozenset[_Key]]:
    """Return the partitions in the order of the request, and those of them that are there more than once."""
    asked = [((topic.name, each.partition_index), each) for topic in wanted.topics for each in topic.partitions]
    counts = Counter(key for key, _ in asked)
    return asked, frozenset(key for key, count in counts.items() if count > 1)


def _target(
    wanted: ListOffsetsRequest, key: _Key, partition: ListOffsetsPartition, finder: LogFinder, *, is_repeated: bool
) -> _LookUp | ErrorCode:
    """Return the function that looks one partition up, or its error."""
    log = finder.find(key[0], key[1], current_leader_epoch=partition.current_leader_epoch)
    if log is ErrorCode.topic_authorization_failed:
        return log
    if is_repeated or wanted.isolation_level not in _ISOLATIONS:
        return ErrorCode.invalid_request
    if wanted.replica_id >= 0:  # a follower needs the right to act for the cluster
        return ErrorCode.topic_authorization_failed
    if not is_supported(partition.timestamp, version=finder.context.version):
        return ErrorCode.unsupported_version
    if isinstance(log, ErrorCode):
        return log
    return partial(_look_up, log, partition.timestamp, _ISOLATIONS[wanted.isolation_level])


def is_supported(timestamp_ms: int, *, version: int) -> bool:
    """Return True if a request of this version may ask for a time, or for the place with this number."""
    return timestamp_ms >= 0 or version >= _FIRST_VERSIONS.get(timestamp_ms, version + 1)


async def _look_up(log: ServedLog, timestamp_ms: int, isolation: IsolationLevel) -> TimestampOffset | ErrorCode | None:
    is_end_known = True
    if timestamp_ms >= 0 or timestamp_ms in _DEPEND_ON_END:
        bounds = await log.bounds()
        is_end_known = bounds.is_end_known
        if not is_end_known and timestamp_ms in _DEPEND_ON_END:
            return ErrorCode.leader_not_available
        if timestamp_ms == OffsetSpec.LATEST:
            return TimestampOffset(-1, bounds.end_offset(isolation), bounds.leader_epoch)
    found = await log.list_offset(timestamp_ms, isolation=isolation)
    return found if found is not None or is_end_known else ErrorCode.leader_not_available


def _answer(request: RequestPayload, wanted: ListOffsetsRequest, outcomes: Mapping[_Key, _Outcome]) -> ResponsePayload:
    topics, version = list[ListOffsetsTopicResponse](), int(request.__version__)
    for topic in wanted.topics:
        keys = dict.fromkeys((topic.name, each.partition_index) for each in topic.partitions)
        partitions = tuple(_partition(key[1], outcomes[key], version=version) for key in keys)
        topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=partitions))
    return answer_in_version(request, ListOffsetsResponse(throttle_time=NO_THROTTLE, topics=tuple(topics)))


def _partition(index: i32, outcome: _Outcome, *, version: int) -> ListOffsetsPartitionResponse:
    match outcome:
        case ErrorCode():
            return ListOffsetsPartitionResponse(partition_index=index, error_code=outcome)
        case Exception():
            code = error_code_for(outcome, AskedFor.LIST_OFFSETS, version=version)
            return ListOffsetsPartitionResponse(partition_index=index, error_code=code)
        case None:  # no such record or place
            return ListOffsetsPartitionResponse(partition_index=index, error_code=ErrorCode.none)
        case TimestampOffset():
            epoch = -1 if outcome.leader_epoch is None else outcome.leader_epoch
            return ListOffsetsPartitionResponse(
                partition_index=index,
                error_code=ErrorCode.none,
                timestamp=i64(outcome.timestamp_ms),
                offset=i64(outcome.offset),
                leader_epoch=i32(epoch),
            )
