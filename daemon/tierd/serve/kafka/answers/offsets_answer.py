"""Answer to ListOffsets: offsets by time, and named offsets, fenced by leader epoch (remote-tiering 15, KIP-320).

A daemon that does not know the end of a log answers LEADER_NOT_AVAILABLE to everything that depends on it: a lower end
would make consumers begin where they have already been, or take records for missing that another daemon has.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Final

from kio.schema.errors import ErrorCode
from kio.schema.list_offsets.v11.request import ListOffsetsRequest
from kio.schema.list_offsets.v11.response import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from kio.schema.types import TopicName
from kio.static.primitive import i32, i64
from kio.static.protocol import RequestPayload, ResponsePayload

from tierd.model import IsolationLevel, TimestampOffset
from tierd.serve.kafka.answers.lookup_failures import LookupFailures
from tierd.serve.kafka.answers.partition_lookups import LookupLimits, outcomes_of
from tierd.serve.kafka.answers.wanted_log import LogFinder
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
    wanted, version = in_version(request, ListOffsetsRequest), int(request.__version__)
    targets = _targets(wanted, finder, version=version)
    isolation = _ISOLATIONS.get(wanted.isolation_level, IsolationLevel.READ_UNCOMMITTED)
    lookups = {
        key: partial(_look_up, target.log, target.timestamp_ms, isolation)
        for key, target in targets.items()
        if isinstance(target, _OffsetLookup)
    }
    timeout_s = limits.timeout_s
    if wanted.timeout > _NO_TIME:
        timeout_s = min(timeout_s, wanted.timeout.total_seconds())
    found = await outcomes_of(tuple(lookups.values()), at_once=limits.at_once, timeout_s=timeout_s)
    outcomes: dict[_Key, _Outcome] = {k: each for k, each in targets.items() if isinstance(each, ErrorCode)}
    for key, outcome in zip(lookups, found, strict=True):
        outcomes[key] = outcome
        if isinstance(outcome, Exception):
            failures.failed("kafka_list_offsets_failed", f"{key[0]}-{key[1]}", outcome)
    return answer_in_version(request, _answer(wanted, outcomes, version=version))


@dataclass(frozen=True, slots=True)
class _OffsetLookup:
    log: ServedLog
    timestamp_ms: int


def _targets(wanted: ListOffsetsRequest, finder: LogFinder, *, version: int) -> dict[_Key, _OffsetLookup | ErrorCode]:
    """Return each partition once, in the order of the request: what is to be looked up, or its error."""
    asked = [((topic.name, each.partition_index), each) for topic in wanted.topics for each in topic.partitions]
    counts = Counter(key for key, _ in asked)
    targets = dict[_Key, _OffsetLookup | ErrorCode]()
    for key, partition in asked:
        log = finder.find(key[0], key[1], current_leader_epoch=partition.current_leader_epoch)
        if log is ErrorCode.topic_authorization_failed:
            targets[key] = log
        elif counts[key] > 1 or wanted.isolation_level not in _ISOLATIONS:
            targets[key] = ErrorCode.invalid_request
        elif wanted.replica_id >= 0:  # a follower needs the right to act for the cluster
            targets[key] = ErrorCode.topic_authorization_failed
        elif not is_supported(partition.timestamp, version=version):
            targets[key] = ErrorCode.unsupported_version
        else:
            targets[key] = log if isinstance(log, ErrorCode) else _OffsetLookup(log, partition.timestamp)
    return targets


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


def _answer(wanted: ListOffsetsRequest, outcomes: Mapping[_Key, _Outcome], *, version: int) -> ListOffsetsResponse:
    topics = list[ListOffsetsTopicResponse]()
    for topic in wanted.topics:
        keys = dict.fromkeys((topic.name, each.partition_index) for each in topic.partitions)
        partitions = tuple(_partition(key[1], outcomes[key], version=version) for key in keys)
        topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=partitions))
    return ListOffsetsResponse(throttle_time=NO_THROTTLE, topics=tuple(topics))


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
