"""Answers to ListOffsets."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from functools import partial

import pytest
from kio.schema.errors import ErrorCode
from kio.schema.list_offsets.v11.request import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from kio.schema.list_offsets.v11.response import ListOffsetsPartitionResponse, ListOffsetsResponse
from kio.schema.types import BrokerId, TopicName
from kio.static.primitive import i8, i32, i32Timedelta, i64
from structlog.testing import capture_logs

from tests.fakes.eventually import eventually
from tests.fakes.served_log import NOW_MS, FakeServedLog
from tests.serve.kafka.answers.asking import AskedEndpoint, versions
from tierd.errors import (
    BackendUnavailableError,
    CorruptRecordError,
    OffsetOutOfRangeError,
    RemoteAccessError,
    RemoteResourceNotFoundError,
    UnknownPartitionError,
)
from tierd.serve.kafka.answers.partition_lookups import LookupLimits

_LATEST, _EARLIEST, _MAX_TIMESTAMP, _EARLIEST_LOCAL, _LATEST_TIERED, _PENDING = -1, -2, -3, -4, -5, -6
_NOT_FOUND = (ErrorCode.none, -1, -1)


def _request(
    *partitions: tuple[str, int, int],
    isolation: int = 0,
    replica_id: int = -1,
    epoch: int = -1,
    timeout_ms: int = 0,
) -> ListOffsetsRequest:
    """Return a request for (topic, partition, timestamp)."""
    return ListOffsetsRequest(
        replica_id=BrokerId(replica_id),
        isolation_level=i8(isolation),
        topics=tuple(
            ListOffsetsTopic(
                name=TopicName(topic),
                partitions=(
                    ListOffsetsPartition(
                        partition_index=i32(partition), current_leader_epoch=i32(epoch), timestamp=i64(timestamp)
                    ),
                ),
            )
            for topic, partition, timestamp in partitions
        ),
        timeout=i32Timedelta.parse(timedelta(milliseconds=timeout_ms)),
    )


@pytest.fixture
def endpoint() -> AskedEndpoint:
    endpoint = AskedEndpoint()
    endpoint.served.add_topic("orders", partitions=2, leader_epoch=4)
    log = endpoint.served.fake_log("orders")
    log.append([b"a", b"b"], timestamp_ms=1000, epoch=2)  # 0 and 1
    log.append([b"c"], timestamp_ms=3000, epoch=2)  # 2
    log.append([b"d"], timestamp_ms=2000, epoch=4, transaction_of=7)  # 3
    log.log_start_offset = 1
    log.highest_remote_offset = 1
    log.local_start_offset = 2
    return endpoint


@pytest.fixture
def log(endpoint: AskedEndpoint) -> FakeServedLog:
    return endpoint.served.fake_log("orders")


async def _partitions(
    endpoint: AskedEndpoint, request: ListOffsetsRequest, *, version: int | None = None
) -> list[ListOffsetsPartitionResponse]:
    answer = await endpoint.answer(request, ListOffsetsResponse, version=version)
    return [each for topic in answer.topics for each in topic.partitions]


async def _asked(
    endpoint: AskedEndpoint, timestamp: int, *, version: int | None = None, isolation: int = 0, epoch: int = -1
) -> tuple[ErrorCode, int, int, int]:
    """Return error, timestamp, offset and leader epoch."""
    request = _request(("orders", 0, timestamp), isolation=isolation, epoch=epoch)
    (found,) = await _partitions(endpoint, request, version=version)
    return found.error_code, found.timestamp, found.offset, found.leader_epoch


@pytest.mark.parametrize("version", versions(2))
class TestEveryVersion:
    async def test_latest_is_the_high_watermark_or_the_last_stable_offset(
        self, endpoint: AskedEndpoint, version: int
    ) -> None:
        epoch = 4 if version >= 4 else -1
        assert await _asked(endpoint, _LATEST, version=version) == (ErrorCode.none, -1, 4, epoch)
        end = 3 if version >= 2 else 4  # the isolation level came with version 2
        assert await _asked(endpoint, _LATEST, version=version, isolation=1) == (ErrorCode.none, -1, end, epoch)

    async def test_earliest_is_the_log_start(self, endpoint: AskedEndpoint, version: int) -> None:
        assert await _asked(endpoint, _EARLIEST, version=version) == (ErrorCode.none, -1, 1, 2 if version >= 4 else -1)

    async def test_time_is_answered_with_the_first_record_that_is_no_older(
        self, endpoint: AskedEndpoint, version: int
    ) -> None:
        found = await _asked(endpoint, 1001, version=version)
        assert found == (ErrorCode.none, 3000, 2, 2 if version >= 4 else -1)
        assert (await _asked(endpoint, 3001, version=version))[:3] == _NOT_FOUND

    @pytest.mark.parametrize(
        ("place", "first_version", "found"),
        [
            (_MAX_TIMESTAMP, 7, (3000, 2)),
            (_EARLIEST_LOCAL, 8, (-1, 2)),
            (_LATEST_TIERED, 9, (-1, 1)),
            (_PENDING, 11, (-1, 2)),
            (-7, 99, (-1, -1)),
            (-(2**63), 99, (-1, -1)),
        ],
    )
    async def test_place_is_known_from_the_version_that_brought_it(
        self, endpoint: AskedEndpoint, version: int, place: int, first_version: int, found: tuple[int, int]
    ) -> None:
        code, *where, _ = await _asked(endpoint, place, version=version)
        if version < first_version:
            assert (code, *where) == (ErrorCode.unsupported_version, -1, -1)
        else:
            assert (code, *where) == (ErrorCode.none, *found)

    async def test_daemon_that_does_not_know_the_end_answers_nothing_that_depends_on_it(
        self, endpoint: AskedEndpoint, log: FakeServedLog, version: int
    ) -> None:
        log.is_end_known = False
        refused = (ErrorCode.leader_not_available, -1, -1)
        assert (await _asked(endpoint, _LATEST, version=version))[:3] == refused
        assert (await _asked(endpoint, _LATEST, version=version, isolation=1))[:3] == refused
        assert (await _asked(endpoint, 3001, version=version))[:3] == refused
        if version >= 8:
            assert (await _asked(endpoint, _MAX_TIMESTAMP, version=version))[:3] == refused
            assert (await _asked(endpoint, _EARLIEST_LOCAL, version=version))[:3] == refused
        assert (await _asked(endpoint, 1001, version=version))[:3] == (ErrorCode.none, 3000, 2)
        assert (await _asked(endpoint, _EARLIEST, version=version))[:3] == (ErrorCode.none, -1, 1)

    async def test_partition_that_cannot_be_asked_is_answered_with_its_error(
        self, endpoint: AskedEndpoint, version: int
    ) -> None:
        endpoint.served.add_topic("hidden")
        endpoint.authorizer.hidden.add("hidden")
        asked = [("hidden", 0, -1), ("absent", 0, -1), ("orders", 2, -1), ("orders", -1, -1)]
        found = await _partitions(endpoint, _request(*asked), version=version)
        assert [each.error_code for each in found] == [
            ErrorCode.topic_authorization_failed,
            *[ErrorCode.unknown_topic_or_partition] * 3,
        ]
        assert {(each.timestamp, each.offset, each.leader_epoch) for each in found} == {(-1, -1, -1)}

    @pytest.mark.parametrize(
        ("error", "code"),
        [
            (BackendUnavailableError("down"), ErrorCode.leader_not_available),
            (RemoteAccessError("refused"), ErrorCode.leader_not_available),
            (RemoteResourceNotFoundError("gone"), ErrorCode.leader_not_available),
            (OffsetOutOfRangeError("gone"), ErrorCode.leader_not_available),
            (CorruptRecordError("file", 0, "torn"), ErrorCode.corrupt_message),
            (TimeoutError(), ErrorCode.request_timed_out),
            (UnknownPartitionError("gone"), ErrorCode.unknown_topic_or_partition),
            (RuntimeError("a bug"), ErrorCode.unknown_server_error),
        ],
    )
    async def test_failed_lookup_is_answered_with_an_error_that_keeps_the_position(
        self, endpoint: AskedEndpoint, log: FakeServedLog, version: int, error: Exception, code: ErrorCode
    ) -> None:
        log.fail("bounds", error)
        log.fail("list_offset", error)
        with capture_logs():
            assert (await _asked(endpoint, _LATEST, version=version))[:3] == (code, -1, -1)
            assert (await _asked(endpoint, _EARLIEST, version=version))[:3] == (code, -1, -1)


@pytest.mark.parametrize(
    ("epoch", "code"),
    [
        (-1, ErrorCode.none),
        (3, ErrorCode.fenced_leader_epoch),
        (4, ErrorCode.none),
        (5, ErrorCode.unknown_leader_epoch),
    ],
)
async def test_client_with_another_leader_epoch_is_fenced(endpoint: AskedEndpoint, epoch: int, code: ErrorCode) -> None:
    assert (await _asked(endpoint, _LATEST, epoch=epoch))[0] is code


async def test_client_is_not_fenced_where_the_leader_epoch_is_not_known(endpoint: AskedEndpoint) -> None:
    endpoint.served.lead("orders", leader_epoch=-1)
    assert (await _asked(endpoint, _LATEST, epoch=9))[0] is ErrorCode.none


async def test_time_behind_the_stable_offset_is_not_found_by_committed_reads(endpoint: AskedEndpoint) -> None:
    assert (await _asked(endpoint, 1500, isolation=1))[:3] == (ErrorCode.none, 3000, 2)
    log = endpoint.served.fake_log("orders")
    log.end_transaction(7, commit=True, epoch=4)
    log.append([b"e"], timestamp_ms=NOW_MS, epoch=4, transaction_of=8)
    assert (await _asked(endpoint, 3001, isolation=1))[:3] == _NOT_FOUND
    assert (await _asked(endpoint, 3001))[1] == NOW_MS


async def test_place_that_does_not_exist_is_answered_with_no_offset(
    endpoint: AskedEndpoint, log: FakeServedLog
) -> None:
    log.highest_remote_offset = -1
    assert await _asked(endpoint, _LATEST_TIERED) == (*_NOT_FOUND, -1)


async def test_log_without_epochs_is_answered_without_an_epoch(endpoint: AskedEndpoint) -> None:
    (found,) = await _partitions(endpoint, _request(("orders", 1, _LATEST)))
    assert (found.error_code, found.offset, found.leader_epoch) == (ErrorCode.none, 0, -1)


@pytest.mark.parametrize(
    ("leader_id", "code"), [(1, ErrorCode.leader_not_available), (2, ErrorCode.not_leader_or_follower)]
)
async def test_partition_without_a_log_sends_clients_to_the_endpoint_that_may_have_it(
    endpoint: AskedEndpoint, leader_id: int, code: ErrorCode
) -> None:
    endpoint.served.forget_log("orders")
    endpoint.served.lead("orders", leader_epoch=4, leader_id=leader_id)
    assert (await _asked(endpoint, _LATEST))[0] is code


async def test_partition_that_is_there_twice_is_an_invalid_request(endpoint: AskedEndpoint) -> None:
    request = _request(("orders", 0, _LATEST), ("orders", 1, _LATEST))
    (topic, other) = request.topics
    doubled = replace(request, topics=(replace(topic, partitions=topic.partitions * 2), other))
    found = await _partitions(endpoint, doubled)
    assert [(each.partition_index, each.error_code) for each in found] == [
        (0, ErrorCode.invalid_request),
        (1, ErrorCode.none),
    ]


async def test_unknown_isolation_level_is_an_invalid_request(endpoint: AskedEndpoint) -> None:
    assert (await _asked(endpoint, _LATEST, isolation=2))[0] is ErrorCode.invalid_request


@pytest.mark.parametrize(("replica_id", "code"), [(-2, ErrorCode.none), (0, ErrorCode.topic_authorization_failed)])
async def test_follower_is_refused(endpoint: AskedEndpoint, replica_id: int, code: ErrorCode) -> None:
    (found,) = await _partitions(endpoint, _request(("orders", 0, _LATEST), replica_id=replica_id))
    assert found.error_code is code


def _wide(count: int, *, limits: LookupLimits) -> tuple[AskedEndpoint, Sequence[FakeServedLog], ListOffsetsRequest]:
    endpoint = AskedEndpoint(limits=limits)
    logs = endpoint.served.add_topic("wide", partitions=count)
    for log in logs:
        log.append()
    return endpoint, logs, _request(*(("wide", at, _LATEST) for at in range(count)))


def _begun(logs: Sequence[FakeServedLog], count: int) -> bool:
    return sum(log.calls["bounds"] for log in logs) == count


async def test_partitions_are_looked_up_some_at_a_time_and_answered_in_order() -> None:
    endpoint, logs, request = _wide(9, limits=LookupLimits(at_once=3, timeout_s=5.0))
    release = [log.hold("bounds") for log in logs]
    asked = asyncio.ensure_future(_partitions(endpoint, request))
    for expected in (3, 6, 9):
        await eventually(partial(_begun, logs, expected), what=f"{expected} lookups")
        await asyncio.sleep(0.01)
        assert _begun(logs, expected)
        for each in release[expected - 3 : expected]:
            each.set()
    assert [each.partition_index for each in await asked] == list(range(9))


async def test_slow_partition_times_out_alone() -> None:
    endpoint, logs, request = _wide(3, limits=LookupLimits(at_once=3, timeout_s=0.05))
    logs[1].hold("bounds")
    codes = [each.error_code for each in await _partitions(endpoint, request)]
    assert codes == [ErrorCode.none, ErrorCode.request_timed_out, ErrorCode.none]


async def test_client_may_ask_for_a_shorter_deadline() -> None:
    endpoint, logs, request = _wide(1, limits=LookupLimits(timeout_s=60.0))
    logs[0].hold("bounds")
    (found,) = await _partitions(endpoint, replace(request, timeout=i32Timedelta.parse(timedelta(milliseconds=10))))
    assert found.error_code is ErrorCode.request_timed_out


async def test_cancelled_request_leaves_no_lookup() -> None:
    endpoint, logs, request = _wide(3, limits=LookupLimits(at_once=2))
    for log in logs:
        log.hold("bounds")
    asked = asyncio.ensure_future(_partitions(endpoint, request))
    await eventually(lambda: _begun(logs, 2), what="two lookups")
    asked.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asked
    assert len(asyncio.all_tasks()) == 1
    assert logs[2].calls["bounds"] == 0


async def test_failed_lookups_are_logged_once_in_a_while(endpoint: AskedEndpoint, log: FakeServedLog) -> None:
    error = BackendUnavailableError("the store is down", remedy="start it")
    log.fail("bounds", error, error, error)
    with capture_logs() as lines:
        await _asked(endpoint, _LATEST)
        await _asked(endpoint, _LATEST)
        endpoint.clock.advance(61)
        await _asked(endpoint, _LATEST)
    warnings = [each for each in lines if each["event"] == "kafka_list_offsets_failed"]
    assert [(each["partition"], each["error"], each["remedy"]) for each in warnings] == [
        ("orders-0", "the store is down", "start it")
    ] * 2
