"""Handlers for the questions of standbys: identities, and answers about epochs, bounds and assignments."""

from uuid import UUID

import pytest

from tests.replication.leader.led import EPOCH, PEER, TOPIC_ID, LedSetup, fetch_of
from tierd.replication.model.messages import (
    AssignmentsRequest,
    AssignmentsResponse,
    EpochEndOffsetsRequest,
    EpochEndOffsetsResponse,
    EpochQuery,
    FetchRecordsRequest,
    FetchRecordsResponse,
    LogBoundsRequest,
    LogBoundsResponse,
)
from tierd.replication.model.push_error_code import PushErrorCode
from tierd.replication.model.push_session import PeerIdentity


@pytest.fixture
async def setup() -> LedSetup:
    return LedSetup()


def query(epoch: int = -1, *, partition: int = 0, leader_epoch: int = EPOCH) -> EpochQuery:
    return EpochQuery(topic_id=TOPIC_ID, partition=partition, current_leader_epoch=leader_epoch, epoch=epoch)


async def test_requests_in_the_name_of_another_node_are_refused(setup: LedSetup) -> None:
    server = setup.server
    fetched = await server.fetch_records(
        FetchRecordsRequest(
            replica_id=2, replica_epoch=100, max_wait_ms=0, min_bytes=1, max_bytes=1, partitions=(fetch_of(),)
        ),
        PEER,
    )
    ends = await server.epoch_end_offsets(EpochEndOffsetsRequest(replica_id=2, partitions=(query(),)), PEER)
    bounds = await server.log_bounds(LogBoundsRequest(replica_id=2, partitions=(query(),)), PEER)
    assigned = await server.assignments(AssignmentsRequest(replica_id=2, replica_epoch=100), PEER)

    codes = {fetched.error_code, ends.error_code, bounds.error_code, assigned.error_code}
    assert codes == {PushErrorCode.CLUSTER_AUTHORIZATION_FAILED}


async def test_fetch_of_another_process_than_the_connection_is_refused(setup: LedSetup) -> None:
    request = FetchRecordsRequest(
        replica_id=1, replica_epoch=99, max_wait_ms=0, min_bytes=1, max_bytes=1, partitions=(fetch_of(),)
    )

    response = await setup.server.fetch_records(request, PEER)

    assert response.error_code == PushErrorCode.STALE_BROKER_EPOCH


async def test_end_of_an_epoch_and_bounds_are_those_of_the_log(setup: LedSetup) -> None:
    log = setup.lead()
    for _ in range(3):
        log.append()
    log.leader_epoch = 4
    log.append()
    log.raise_high_watermark(4)
    log.raise_log_start(1)

    ends = await setup.server.epoch_end_offsets(
        EpochEndOffsetsRequest(replica_id=1, partitions=(query(1, leader_epoch=4), query(4, leader_epoch=4))), PEER
    )
    bounds = await setup.server.log_bounds(LogBoundsRequest(replica_id=1, partitions=(query(leader_epoch=4),)), PEER)

    assert [(result.epoch, result.end_offset) for result in ends.partitions] == [(1, 3), (4, 4)]
    (found,) = bounds.partitions
    assert (found.log_start_offset, found.log_end_offset, found.start_epoch, found.end_epoch) == (1, 4, 1, 4)


@pytest.mark.parametrize(
    ("peer", "leader_epoch", "code"),
    [
        (PEER, EPOCH - 1, PushErrorCode.FENCED_LEADER_EPOCH),
        (PEER, EPOCH + 1, PushErrorCode.UNKNOWN_LEADER_EPOCH),
        (PeerIdentity(7, 1), EPOCH, PushErrorCode.CLUSTER_AUTHORIZATION_FAILED),
    ],
)
async def test_questions_with_another_epoch_or_of_a_node_without_the_partition_are_refused(
    setup: LedSetup, peer: PeerIdentity, leader_epoch: int, code: PushErrorCode
) -> None:
    setup.lead().append()
    asked = (query(1, leader_epoch=leader_epoch),)

    ends = await setup.server.epoch_end_offsets(EpochEndOffsetsRequest(replica_id=peer.node_id, partitions=asked), peer)
    bounds = await setup.server.log_bounds(LogBoundsRequest(replica_id=peer.node_id, partitions=asked), peer)

    assert (ends.partitions[0].error_code, ends.partitions[0].end_offset) == (code, -1)
    assert (bounds.partitions[0].error_code, bounds.partitions[0].log_end_offset) == (code, -1)


async def test_questions_about_a_partition_that_is_not_led_here_are_refused(setup: LedSetup) -> None:
    ends = await setup.server.epoch_end_offsets(EpochEndOffsetsRequest(replica_id=1, partitions=(query(1),)), PEER)
    bounds = await setup.server.log_bounds(LogBoundsRequest(replica_id=1, partitions=(query(),)), PEER)

    assert ends.partitions[0].error_code == PushErrorCode.UNKNOWN_TOPIC_ID
    assert bounds.partitions[0].error_code == PushErrorCode.UNKNOWN_TOPIC_ID


async def test_handlers_answer_each_request_with_its_response(setup: LedSetup) -> None:
    setup.lead()
    requests = {
        FetchRecordsRequest(
            replica_id=1, replica_epoch=100, max_wait_ms=0, min_bytes=1, max_bytes=1, partitions=(fetch_of(),)
        ): FetchRecordsResponse,
        EpochEndOffsetsRequest(replica_id=1, partitions=(query(1),)): EpochEndOffsetsResponse,
        LogBoundsRequest(replica_id=1, partitions=(query(),)): LogBoundsResponse,
        AssignmentsRequest(replica_id=1, replica_epoch=100): AssignmentsResponse,
    }

    for request, kind in requests.items():
        assert isinstance(await setup.server.handlers[type(request)](request, PEER), kind)
    assert set(setup.server.handlers) == {type(request) for request in requests}


async def test_partition_that_is_led_is_announced_to_its_standby(setup: LedSetup) -> None:
    setup.lead()

    response = await setup.server.assignments(AssignmentsRequest(replica_id=1, replica_epoch=100), PEER)

    assert response.partitions is not None
    assert [(each.topic, each.topic_id, each.leader_epoch) for each in response.partitions] == [
        ("orders", UUID(int=1), EPOCH)
    ]
