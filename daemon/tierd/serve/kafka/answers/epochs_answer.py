"""Answer to OffsetForLeaderEpoch: the ends of leader epochs, by which clients find out that a log was cut (KIP-320).

A client takes an end below its position, or no end, for a cut, and abandons its position. A daemon that does not know
the end of a log therefore answers the largest offset for the latest epoch, since no cut is known. For an epoch that it
has not seen it answers UNKNOWN_LEADER_EPOCH, and the client asks again.
"""

from collections.abc import Awaitable, Callable, Iterator, Mapping
from functools import partial
from typing import Final, NamedTuple

from kio.schema.errors import ErrorCode
from kio.schema.offset_for_leader_epoch.v4.request import OffsetForLeaderEpochRequest
from kio.schema.offset_for_leader_epoch.v4.response import EpochEndOffset as PartitionEpochEnd
from kio.schema.offset_for_leader_epoch.v4.response import OffsetForLeaderEpochResponse, OffsetForLeaderTopicResult
from kio.static.primitive import i32, i64
from kio.static.protocol import RequestPayload, ResponsePayload

from tierd.model import EpochEndOffset
from tierd.serve.kafka.answers.client_access import LogFinder
from tierd.serve.kafka.answers.partition_lookups import LookupFailures, LookupLimits, outcomes_of
from tierd.serve.kafka.client_errors import AskedFor, error_code_for
from tierd.serve.kafka.message_versions import NO_THROTTLE, answer_in_version, in_version
from tierd.serve.kafka.served.served_log import ServedLog

_LARGEST_OFFSET: Final = 2**63 - 1
_Outcome = EpochEndOffset | ErrorCode | Exception
_LookUp = Callable[[], Awaitable[EpochEndOffset | ErrorCode]]


class _Question(NamedTuple):
    topic: str
    partition: int
    leader_epoch: int
    current_leader_epoch: int


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
    turns, items = finder.context.turns, finder.context.items
    wanted = await turns.aside(items, in_version, request, OffsetForLeaderEpochRequest)
    is_follower = wanted.replica_id >= 0  # which needs the right to act for the cluster
    outcomes, lookups = dict[_Question, _Outcome](), dict[_Question, _LookUp]()
    async for question in turns.pieces(_questions(wanted)):
        log = finder.find(question.topic, question.partition, current_leader_epoch=question.current_leader_epoch)
        if isinstance(log, ErrorCode):
            outcomes[question] = log
        elif is_follower:
            outcomes[question] = ErrorCode.topic_authorization_failed
        else:
            lookups[question] = partial(_look_up, log, question.leader_epoch)
    found = await outcomes_of(tuple(lookups.values()), at_once=limits.at_once, timeout_s=limits.timeout_s, turns=turns)
    async for question, outcome in turns.pieces(zip(lookups, found, strict=True)):
        outcomes[question] = outcome
        if isinstance(outcome, Exception):
            failures.failed("kafka_epoch_end_failed", f"{question.topic}-{question.partition}", outcome)
    return await turns.aside(items, _answer, request, wanted, outcomes)


def _questions(wanted: OffsetForLeaderEpochRequest) -> "Iterator[_Question]":
    """Yield every question in the order of the request. One that is repeated is looked up once."""
    for topic in wanted.topics:
        for each in topic.partitions:
            yield _Question(topic.topic, each.partition, each.leader_epoch, each.current_leader_epoch)


async def _look_up(log: ServedLog, leader_epoch: int) -> EpochEndOffset | ErrorCode:
    bounds = await log.bounds()
    found = await log.epoch_end(leader_epoch)
    if bounds.is_end_known:
        return found
    if found.epoch < 0 or leader_epoch > bounds.leader_epoch:
        return ErrorCode.unknown_leader_epoch
    return EpochEndOffset(found.epoch, _LARGEST_OFFSET) if found.epoch == bounds.leader_epoch else found


def _answer(
    request: RequestPayload, wanted: OffsetForLeaderEpochRequest, outcomes: Mapping[_Question, _Outcome]
) -> ResponsePayload:
    version = int(request.__version__)
    questions = _questions(wanted)
    topics = tuple(
        OffsetForLeaderTopicResult(
            topic=topic.topic,
            partitions=tuple(
                _partition(each.partition, outcomes[next(questions)], version=version) for each in topic.partitions
            ),
        )
        for topic in wanted.topics
    )
    return answer_in_version(request, OffsetForLeaderEpochResponse(throttle_time=NO_THROTTLE, topics=topics))


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
