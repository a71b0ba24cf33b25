"""Answers to OffsetForLeaderEpoch."""

import pytest
from kio.schema.errors import ErrorCode
from kio.schema.offset_for_leader_epoch.v4.request import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from kio.schema.offset_for_leader_epoch.v4.response import EpochEndOffset, OffsetForLeaderEpochResponse
from kio.schema.types import BrokerId, TopicName
from kio.static.primitive import i32
from structlog.testing import capture_logs

from tests.fakes.served_log import FakeServedLog
from tests.serve.kafka.answers.asking import AskedEndpoint, versions
from tierd.errors import BackendUnavailableError, RemoteIntegrityError

_LARGEST_OFFSET = 2**63 - 1


def _request(*partitions: tuple[str, int, int], current: int = -1, replica_id: int = -1) -> OffsetForLeaderEpochRequest:
    """Return a request for (topic, partition, epoch)."""
    return OffsetForLeaderEpochRequest(
        replica_id=BrokerId(replica_id),
        topics=tuple(
            OffsetForLeaderTopic(
                topic=TopicName(topic),
                partitions=(
                    OffsetForLeaderPartition(
                        partition=i32(partition), current_leader_epoch=i32(current), leader_epoch=i32(epoch)
                    ),
                ),
            )
            for topic, partition, epoch in partitions
        ),
    )


@pytest.fixture
def endpoint() -> AskedEndpoint:
    endpoint = AskedEndpoint()
    (log,) = endpoint.served.add_topic("orders", leader_epoch=6)
    log.append([b"a", b"b"], epoch=2)  # 0 and 1
    log.append([b"c"] * 3, epoch=4)  # 2 to 4
    log.append([b"d"], epoch=6)  # 5
    return endpoint


@pytest.fixture
def log(endpoint: AskedEndpoint) -> FakeServedLog:
    return endpoint.served.fake_log("orders")


async def _partitions(
    endpoint: AskedEndpoint, request: OffsetForLeaderEpochRequest, *, version: int | None = None
) -> list[EpochEndOffset]:
    answer = await endpoint.answer(request, OffsetForLeaderEpochResponse, version=version)
    return [each for topic in answer.topics for each in topic.partitions]


async def _asked(
    endpoint: AskedEndpoint, epoch: int, *, version: int | None = None, current: int = -1, replica_id: int = -1
) -> tuple[ErrorCode, int, int]:
    """Return error, epoch and end."""
    request = _request(("orders", 0, epoch), current=current, replica_id=replica_id)
    (found,) = await _partitions(endpoint, request, version=version)
    return found.error_code, found.leader_epoch, found.end_offset


@pytest.mark.parametrize("version", versions(23))
class TestEveryVersion:
    @pytest.mark.parametrize(
        ("epoch", "found"), [(2, (2, 2)), (3, (2, 2)), (4, (4, 5)), (5, (4, 5)), (6, (6, 6)), (7, (-1, -1))]
    )
    async def test_epoch_ends_where_the_next_one_begins(
        self, endpoint: AskedEndpoint, version: int, epoch: int, found: tuple[int, int]
    ) -> None:
        assert await _asked(endpoint, epoch, version=version) == (ErrorCode.none, *found)

    @pytest.mark.parametrize(
        ("epoch", "found"),
        [
            (2, (ErrorCode.none, 2, 2)),
            (5, (ErrorCode.none, 4, 5)),
            (6, (ErrorCode.none, 6, _LARGEST_OFFSET)),
            (7, (ErrorCode.unknown_leader_epoch, -1, -1)),
        ],
    )
    async def test_daemon_that_does_not_know_the_end_never_answers_a_cut(
        self, endpoint: AskedEndpoint, log: FakeServedLog, version: int, epoch: int, found: tuple[ErrorCode, int, int]
    ) -> None:
        log.is_end_known = False
        assert await _asked(endpoint, epoch, version=version) == found

    @pytest.mark.parametrize(
        ("current", "code"),
        [(5, ErrorCode.fenced_leader_epoch), (6, ErrorCode.none), (7, ErrorCode.unknown_leader_epoch)],
    )
    async def test_client_with_another_leader_epoch_is_fenced(
        self, endpoint: AskedEndpoint, version: int, current: int, code: ErrorCode
    ) -> None:
        assert (await _asked(endpoint, 6, version=version, current=current))[0] is code

    async def test_partition_that_cannot_be_asked_is_answered_with_its_error(
        self, endpoint: AskedEndpoint, version: int
    ) -> None:
        endpoint.served.add_topic("hidden")
        endpoint.authorizer.hidden.add("hidden")
        asked = [("hidden", 0, 0), ("absent", 0, 0), ("orders", 1, 0), ("orders", 0, 2), ("orders", 0, 4)]
        found = await _partitions(endpoint, _request(*asked), version=version)
        assert [(each.error_code, each.end_offset) for each in found] == [
            (ErrorCode.topic_authorization_failed, -1),
            (ErrorCode.unknown_topic_or_partition, -1),
            (ErrorCode.unknown_topic_or_partition, -1),
            (ErrorCode.none, 2),
            (ErrorCode.none, 5),
        ]


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (BackendUnavailableError("down"), ErrorCode.kafka_storage_error),
        (TimeoutError(), ErrorCode.kafka_storage_error),
        (RemoteIntegrityError("damaged"), ErrorCode.corrupt_message),
        (RuntimeError("a bug"), ErrorCode.unknown_server_error),
    ],
)
async def test_failed_lookup_is_answered_with_an_error_after_which_clients_ask_again(
    endpoint: AskedEndpoint, log: FakeServedLog, error: Exception, code: ErrorCode
) -> None:
    log.fail("epoch_end", error)
    with capture_logs():
        assert await _asked(endpoint, 2) == (code, -1, -1)


async def test_log_without_epochs_of_a_daemon_that_does_not_know_the_end_is_asked_again(
    endpoint: AskedEndpoint,
) -> None:
    (log,) = endpoint.served.add_topic("empty")
    assert (await _partitions(endpoint, _request(("empty", 0, 3))))[0].error_code is ErrorCode.none
    log.is_end_known = False
    assert (await _partitions(endpoint, _request(("empty", 0, 3))))[0].error_code is ErrorCode.unknown_leader_epoch


@pytest.mark.parametrize(("replica_id", "code"), [(-2, ErrorCode.none), (3, ErrorCode.topic_authorization_failed)])
async def test_follower_is_refused(endpoint: AskedEndpoint, replica_id: int, code: ErrorCode) -> None:
    assert (await _asked(endpoint, 2, replica_id=replica_id))[0] is code
