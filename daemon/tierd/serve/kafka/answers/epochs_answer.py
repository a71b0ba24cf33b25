"""Answer to OffsetForLeaderEpoch: the ends of leader epochs, by which clients find out that a log was cut (KIP-320).

A client takes an end below its position, or no end, for a cut, and gives up its position. A daemon that does not know
the end of a log therefore answers the largest offset for the latest epoch, since no cut is known. For an epoch that it
has not seen it answers UNKNOWN_LEADER_EPOCH, and the client asks again.
"""

from collections.abc import Mapping
from functools import partial
from typing import Final

from kio.schema.errors import ErrorCode
from kio.schema.offset_for_leader_epoch.v4.request import OffsetForLeaderEpochRequest
from kio.schema.offset_for_leader_epoch.v4.response import (
    EpochEndOffset as PartitionEpochEnd,
)
from kio.schema.offset_for_leader_epoch.v4.response import (
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)
from kio.static.primitive import i32, i64
from kio.static.protocol import RequestPayload, ResponsePayload

from tierd.model import EpochEndOffset
from tierd.serve.kafka.answers.lookup_failures import LookupFailures
from tierd.serve.kafka.answers.partition_lookups import LookupLimits, outcomes_of
from tierd.serve.kafka.answers.wanted_log import LogFinder
from tierd.serve.kafka.client_errors import AskedFor, error_code_for
from tierd.serve.kafka.message_versions import NO_THROTTLE, answer_in_version, in_version
from tierd.serve.kafka.served.served_log import ServedLog

_LARGEST_OFFSET: Final = 2**63 - 1
_Place = tuple[int, int]  # index of the topic and of the partition in the request
_Outcome = EpochEndOffset | ErrorCode | Exception


async def epochs_answer(
    request: RequestPayload, finder: LogFinder, limits: LookupLimits, failures: LookupFailures
) -> ResponsePayload:
    """Return the end of an epoch of every partition that was asked for, or its error.

    Args:
        request: any version.
        finder: of the client's logs.
        limits: of the lookups.
        failures: is told of the lookups that failed.
    """
    wanted, version = in_version(request, OffsetForLeaderEpochRequest), int(request.__version__)
    is_follower = wanted.replica_id >= 0  # which needs the right to act for the cluster
    outcomes = dict[_Place, _Outcome]()
    lookups = {}
    for at, topic in enumerate(wanted.topics):
        for number, each in enumerate(topic.partitions):
            log = finder.find(topic.topic, each.partition, current_leader_epoch=each.current_leader_epoch)
            if isinstance(log, ErrorCode) or is_follower:
                outcomes[at, number] = log if isinstance(log, ErrorCode) else ErrorCode.topic_authorization_failed
            else:
                lookups[at, number] = partial(_look_up, log, each.leader_epoch)
    found = await outcomes_of(tuple(lookups.values()), at_once=limits.at_once, timeout_s=limits.timeout_s)
    for place, outcome in zip(lookups, found, strict=True):
        outcomes[place] = outcome
        if isinstance(outcome, Exception):
            topic = wanted.topics[place[0]]
            failures.failed("kafka_epoch_end_failed", f"{topic.topic}-{topic.partitions[place[1]].partition}", outcome)
    return answer_in_version(request, _answer(wanted, outcomes, version=version))


async def _look_up(log: ServedLog, leader_epoch: int) -> EpochEndOffset | ErrorCode:
    bounds = await log.bounds()
    found = await log.epoch_end(leader_epoch)
    if bounds.is_end_known:
        return found
    if found.epoch < 0 or leader_epoch > bounds.leader_epoch:
        return ErrorCode.unknown_leader_epoch
    return EpochEndOffset(found.epoch, _LARGEST_OFFSET) if found.epoch == bounds.leader_epoch else found


def _answer(
    wanted: OffsetForLeaderEpochRequest, outcomes: Mapping[_Place, _Outcome], *, version: int
) -> OffsetForLeaderEpochResponse:
    topics = tuple(
        OffsetForLeaderTopicResult(
            topic=topic.topic,
            partitions=tuple(
                _partition(each.partition, outcomes[at, number], version=version)
                for number, each in enumerate(topic.partitions)
            ),
        )
        for at, topic in enumerate(wanted.topics)
    )
    return OffsetForLeaderEpochResponse(throttle_time=NO_THROTTLE, topics=topics)


def _partition(index: i32, outcome: _Outcome, *, version: int) -> PartitionEpochEnd:
    if isinstance(outcome, Exception):
        outcome = error_code_for(outcome, AskedFor.EPOCH_END, version=version)
    if isinstance(outcome, ErrorCode):
        return PartitionEpochEnd(error_code=outcome, partition=index)
    return PartitionEpochEnd(
        error_code=ErrorCode.none,
        partition=index,
        leader_epoch=i32(outcome.epoch),
        end_offset=i64(outcome.end_offset),
    )
