"""Fetches of a standby: links that fail, leaders that refuse, and what goes into a request."""

import asyncio
from pathlib import Path
from uuid import UUID

import pytest
from structlog.testing import capture_logs

from tests.fakes.eventually import eventually
from tests.fakes.memory_follower_log import MemoryFollowerLog
from tests.replication.follower.following import batch
from tests.replication.follower.leaders import FakeLeaders
from tests.replication.follower.standby_setup import StandbyDisk, StandbyRun, read_content
from tierd.model import TopicIdPartition, TopicPartition
from tierd.replication.follower.leader_connection import (
    FollowerRequest,
    LeaderAnswerError,
    LeaderChannel,
    LeaderConnection,
)
from tierd.replication.follower.pull_changes import PullChanges
from tierd.replication.follower.pull_fetcher import PullFetcher, PullSettings
from tierd.replication.follower.record_intake import RecordIntake
from tierd.replication.follower.rules.followed_partition import FetchStage, FollowedPartition, LeaderClaim
from tierd.replication.follower.rules.log_comparison import COMPARED_BYTES
from tierd.replication.follower.service_log import ServiceFollowerLog
from tierd.replication.follower.standby_identity import StandbyIdentity
from tierd.replication.follower.standby_replicas import StandbyReplica, StandbyReplicas
from tierd.replication.links.link_errors import PushLinkError
from tierd.replication.model.messages import (
    AssignmentsResponse,
    FetchRecordsRequest,
    FetchRecordsResponse,
    PartitionFetchResult,
)
from tierd.replication.model.push_error_code import PushErrorCode
from tierd.testing import cancel_at

TOPIC_ID = UUID(int=1)
IDENTITY = StandbyIdentity(cluster_id="cluster", node_id=9, process_epoch=100)


class FetcherSetup:
    """A fetcher of node 1 with logs in memory."""

    def __init__(self, *, partitions: int = 1, settings: PullSettings | None = None) -> None:
        self.leaders = FakeLeaders(1)
        self.leader = self.leaders.nodes[1]
        self.clock = StandbyDisk().clock
        self.replicas = StandbyReplicas()
        self.intake = RecordIntake(max_bytes=10_000)
        self.stale_views: list[int] = []
        for partition in range(partitions):
            self.leader.announce("orders", TOPIC_ID, epoch=7, partition=partition)
            followed = FollowedPartition(TopicIdPartition(TOPIC_ID, "orders", partition), now_s=0.0)
            followed.follow(LeaderClaim(1, 7), now_s=0.0)
            followed.stage = FetchStage.FETCHING
            self.replicas.add(StandbyReplica(followed, MemoryFollowerLog()))
        self.lost: list[StandbyReplica] = []
        self.changes = PullChanges(self.intake, clock=self.clock, keep_lost_copy=self.keep_lost_copy)
        self.fetcher = PullFetcher(
            1,
            LeaderConnection(1, self.leaders.open_channel),
            self.replicas,
            self.changes,
            identity=IDENTITY,
            clock=self.clock,
            settings=settings,
            on_stale_view=self.stale_views.append,
        )

    async def keep_lost_copy(self, replica: StandbyReplica) -> None:
        self.lost.append(replica)

    def replica(self, partition: int = 0) -> StandbyReplica:
        found = self.replicas.get(TOPIC_ID, partition)
        assert found is not None
        return found

    def end(self, partition: int = 0) -> int:
        log = self.replica(partition).log
        assert log is not None
        return log.facts.log_end_offset


async def test_request_says_where_the_log_ends_and_which_session_may_follow() -> None:
    setup = FetcherSetup()
    setup.leader.partitions[TOPIC_ID, 0].append(batch(0, 5))
    await setup.fetcher.run_round()
    setup.leader.partitions[TOPIC_ID, 0].append(batch(5))
    await setup.fetcher.run_round()
    (asked,) = setup.leader.fetches[-1].partitions
    assert (asked.fetch_offset, asked.last_fetched_epoch, asked.current_leader_epoch, asked.session_id) == (5, 7, 7, 0)
    assert (setup.leader.fetches[-1].replica_id, setup.leader.fetches[-1].replica_epoch) == (9, 100)
    assert setup.end() == 6


async def test_more_partitions_than_a_request_takes_are_fetched_in_turn() -> None:
    setup = FetcherSetup(partitions=5, settings=PullSettings(max_partitions=2))
    for partition in range(5):
        setup.leader.partitions[TOPIC_ID, partition].append(batch(0))
    for _ in range(4):
        await setup.fetcher.run_round()
    assert [setup.end(partition) for partition in range(5)] == [1] * 5
    assert max(len(request.partitions) for request in setup.leader.fetches) == 2


async def test_refused_partition_pauses_and_the_others_go_on() -> None:
    setup = FetcherSetup(partitions=2)
    setup.leader.refuses[TOPIC_ID, 0] = PushErrorCode.FENCED_LEADER_EPOCH
    setup.leader.partitions[TOPIC_ID, 1].append(batch(0))
    await setup.fetcher.run_round()
    assert setup.end(1) == 1
    assert setup.stale_views == [1]
    assert "error 74, FENCED_LEADER_EPOCH: it has a newer leader epoch; " in setup.replica().last_error
    await setup.fetcher.run_round()
    assert [each.partition for each in setup.leader.fetches[-1].partitions] == [1]
    setup.clock.advance(1)
    await setup.fetcher.run_round()
    assert sorted(each.partition for each in setup.leader.fetches[-1].partitions) == [0, 1]


async def test_damaged_records_are_fetched_again() -> None:
    setup = FetcherSetup()
    leader = setup.leader.partitions[TOPIC_ID, 0]
    leader.append(batch(0))
    good = leader.log.batches[0]
    leader.log.batches[0] = type(good)(0, 0, 7, good.data[:-1] + bytes([good.data[-1] ^ 1]))
    await setup.fetcher.run_round()
    assert (setup.end(), bool(setup.replica().last_error)) == (0, True)
    leader.log.batches[0] = good
    setup.clock.advance(1)
    await setup.fetcher.run_round()
    assert (setup.end(), setup.replica().last_error) == (1, "")


async def answer_half_readable(request: FollowerRequest) -> object:
    """Answer for a leader with another last record, at offset 9, that cannot read what lies below that."""
    assert isinstance(request, FetchRecordsRequest)
    (asked,) = request.partitions
    is_last = asked.is_comparison and asked.fetch_offset == 9
    result = PartitionFetchResult(
        topic_id=TOPIC_ID,
        partition=0,
        error_code=PushErrorCode.KAFKA_STORAGE_ERROR if asked.is_comparison and not is_last else 0,
        log_version=5,
        log_end_offset=10,
        log_start_offset=0,
        records=(batch(9, value=b"other"),) if is_last else (),
    )
    return FetchRecordsResponse(partitions=(result,))


async def test_difference_that_stays_is_logged_once_while_its_begin_cannot_be_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    setup = FetcherSetup()
    for offset in range(10):
        setup.leader.partitions[TOPIC_ID, 0].append(batch(offset, value=b"v" * COMPARED_BYTES))
    for _ in range(20):
        await setup.fetcher.run_round()
    assert setup.end() == 10
    monkeypatch.setattr(setup.leader, "answer", answer_half_readable)

    with capture_logs() as lines:
        for _ in range(20):
            await setup.fetcher.run_round()
            setup.clock.advance(1)

    assert [line["offset"] for line in lines if line["event"] == "log_differs_from_leader"] == [9]
    assert setup.end() == 10


async def test_nothing_is_fetched_while_the_memory_is_in_use() -> None:
    setup = FetcherSetup()
    setup.leader.partitions[TOPIC_ID, 0].append(batch(0))
    with setup.intake.holding(10_000):
        assert await setup.fetcher.run_round() > 0
    assert not setup.leader.fetches
    await setup.fetcher.run_round()
    assert (setup.end(), setup.intake.used_bytes) == (1, 0)


@pytest.mark.spec("push-replication 76")
async def test_answer_that_comes_after_a_session_has_begun_is_discarded() -> None:
    setup = FetcherSetup()
    asking = asyncio.create_task(setup.fetcher.run_round())
    await eventually(lambda: bool(setup.leader.fetches), what="a fetch")
    setup.replica().followed.enter_push()
    setup.leader.partitions[TOPIC_ID, 0].append(batch(0))
    setup.leader.tell()
    await asking
    assert setup.end() == 0
    assert setup.changes.statistics.discarded_answers == 1
    assert await setup.fetcher.run_round() > 0


@pytest.mark.spec("push-replication F14")
async def test_leader_that_cannot_be_reached_is_asked_again_at_growing_intervals(tmp_path: Path) -> None:
    disk, leaders = StandbyDisk(), FakeLeaders(1)
    leader = leaders.nodes[1].announce("orders", TOPIC_ID, epoch=7)
    leader.append(batch(0))
    async with StandbyRun(disk, leaders, tmp_path) as run:
        await run.reaches(1)
        leaders.nodes[1].is_away = True
        leaders.nodes[1].tell()

        def is_noted() -> bool:
            disk.clock.advance(0.1)
            replica = run.replica()
            return replica is not None and "cannot be asked" in replica.last_error

        await eventually(is_noted, what="the error of the link")
        assert "cannot be asked" in run.standby.status().leaders[1]
        leaders.nodes[1].is_away = False
        leader.append(batch(1))
        await run.reaches(2)

        def is_over() -> bool:  # asked anew: the error ends after the records are there
            replica = run.replica()
            return replica is not None and not replica.last_error

        await eventually(is_over, what="the end of the error")


async def test_status_has_the_remedy_of_a_link_that_is_refused(tmp_path: Path) -> None:
    disk, leaders = StandbyDisk(), FakeLeaders(1)

    async def open_channel(_node_id: int) -> LeaderChannel:
        raise PushLinkError("its certificate is refused: expired", remedy="renew it there")

    leaders.open_channel = open_channel  # type: ignore[method-assign, assignment]
    async with StandbyRun(disk, leaders, tmp_path) as run:
        await eventually(lambda: bool(run.standby.status().leaders.get(1)), what="the error of the link")
        assert run.standby.status().leaders[1] == "its certificate is refused: expired; renew it there"


class OddChannel:
    def __init__(self, response: object) -> None:
        self.response = response
        self.is_closed = False

    async def ask(self, request: object, timeout_s: float) -> object:
        if isinstance(self.response, Exception):
            raise self.response
        return self.response

    async def close(self) -> None:
        self.is_closed = True


FETCH = FetchRecordsRequest(replica_id=9, replica_epoch=100, max_wait_ms=0, min_bytes=1, max_bytes=1, partitions=())


@pytest.mark.parametrize(
    ("response", "is_closed"),
    [
        (AssignmentsResponse(), True),
        (TimeoutError(), True),
        (ConnectionResetError("reset"), True),
        (FetchRecordsResponse(error_code=77), False),
    ],
)
async def test_answer_of_no_use_is_an_error_and_a_confused_connection_is_closed(
    response: object, *, is_closed: bool
) -> None:
    channel = OddChannel(response)

    async def connect(_: int) -> OddChannel:
        return channel

    connection = LeaderConnection(1, connect)
    with pytest.raises(LeaderAnswerError):
        await connection.ask(FETCH, FetchRecordsResponse, 1.0)
    assert channel.is_closed is is_closed
    assert connection.is_open is not is_closed


async def test_cancelled_request_closes_the_connection() -> None:
    leaders = FakeLeaders(1)
    connection = LeaderConnection(1, leaders.open_channel)
    asking = asyncio.create_task(connection.ask(FETCH, FetchRecordsResponse, 1.0))
    await eventually(lambda: bool(leaders.nodes[1].fetches), what="the request")
    asking.cancel()
    await asyncio.wait({asking})
    assert leaders.open_channels == 0


@pytest.mark.parametrize("suspension", range(1, 16))
async def test_round_that_is_cancelled_at_any_point_leaves_a_log_that_becomes_its_leaders(suspension: int) -> None:
    disk, setup = StandbyDisk(), FetcherSetup()
    name = TopicPartition("orders", 0)
    leader = setup.leader.partitions[TOPIC_ID, 0]
    leader.append(batch(0, 2, epoch=5), batch(2, 2, epoch=7), batch(4, 2, epoch=7))
    async with disk.service() as service:
        await service.get_or_create(name)
        setup.replica().log = log = ServiceFollowerLog(service, name, clock=disk.clock)
        for diverged in (batch(0, 2, epoch=5), batch(2, 2, epoch=6), batch(4, 4, epoch=6)):
            await service.writer(name).append_as_follower(diverged)
        setup.replica().followed.stage = FetchStage.TRUNCATING

        async def rounds() -> None:
            for _ in range(3):
                await setup.fetcher.run_round()

        await cancel_at(suspension, rounds)
        for _ in range(5):
            setup.clock.advance(2)
            await setup.fetcher.run_round()
        assert log.facts.log_end_offset == 6
        assert b"".join(await read_content(service, name)) == leader.log.content
    assert setup.intake.used_bytes == 0
