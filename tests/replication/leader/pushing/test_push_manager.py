"""The push manager with its pushers: lifecycle, callbacks, tasks (push-replication 1.2 to 1.5, 7)."""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
import uvloop
from structlog.testing import capture_logs

from tests.fakes.eventually import eventually
from tests.replication.leader.peers import FakePeers
from tests.replication.leader.push_story import (
    LEADER,
    HeldRange,
    RecordingSession,
    base_offsets,
    batch,
    session,
    topic_partition,
)
from tierd.model import TopicIdPartition
from tierd.replication.leader.logs.record_memory import MemoryRecords
from tierd.replication.leader.pushing.push_manager import PushManager, PushManagerStoppedError
from tierd.replication.leader.pushing.push_settings import PushSettings
from tierd.replication.model.push_error_code import PushErrorCode
from tierd.replication.model.push_session import PushSessionEndReason

REASON = PushSessionEndReason


def manager(peers: FakePeers, *, doubts: list[TopicIdPartition] | None = None, **settings: float) -> PushManager:
    found = [] if doubts is None else doubts
    return PushManager(
        PushSettings(**settings),  # type: ignore[arg-type]
        LEADER,
        peers.open,
        on_leadership_doubted=lambda partition, _: found.append(partition),
        jitter=lambda: 0.0,
    )


def begin(pushing: PushManager, *sessions: RecordingSession, file: HeldRange | None = None) -> None:
    for each in sessions:
        pushing.start_push(each)
        identity = each.identity
        pushing.on_leader_append(identity.partition, [identity.replica_id], 0, file or HeldRange(0, 0))


def append(pushing: PushManager, base_offset: int, *, partition: int = 0, size: int = 100) -> None:
    records = MemoryRecords(batch(base_offset, size=size), base_offset + 1)
    pushing.on_leader_append(topic_partition(partition), [1], base_offset, records)


@pytest.mark.spec("push-replication 1")
async def test_new_manager_becomes_active() -> None:
    pushing = manager(FakePeers())
    states = [pushing.is_active, pushing.startup(), pushing.is_active]
    pushing.shutdown()
    await pushing.wait_closed()
    assert states == [False, True, True]


@pytest.mark.spec("push-replication 2")
async def test_second_startup_is_refused_and_leaves_the_sessions() -> None:
    peers, mine = FakePeers(), session()
    async with manager(peers) as pushing:
        begin(pushing, mine)
        assert not pushing.startup()
        await eventually(lambda: bool(mine.acks), what="the opening request's answer")
        assert pushing.statistics().active_sessions == 1
        assert len(peers.requests) == 1


@pytest.mark.spec("push-replication 3")
async def test_shutdown_of_a_new_manager_is_refused_and_leaves_it_new() -> None:
    pushing = manager(FakePeers())
    assert not pushing.shutdown()
    assert not pushing.is_active
    assert pushing.startup()
    assert pushing.shutdown()
    await pushing.wait_closed()


@pytest.mark.spec("push-replication 4")
@pytest.mark.spec("push-replication 10")
async def test_stopped_manager_refuses_another_shutdown_and_a_startup() -> None:
    pushing = manager(FakePeers())
    pushing.startup()
    assert [pushing.shutdown(), pushing.shutdown()] == [True, False]
    assert not pushing.startup()
    assert not pushing.is_active
    await pushing.wait_closed()


@pytest.mark.spec("push-replication 5")
async def test_of_ten_threads_that_shut_down_one_does_it() -> None:
    pushing, mine = manager(FakePeers()), session()
    pushing.startup()
    begin(pushing, mine)
    barrier = threading.Barrier(10)

    def shut_down() -> bool:
        barrier.wait(10)
        return pushing.shutdown()

    loop = asyncio.get_running_loop()
    with ThreadPoolExecutor(10) as threads:
        answers = await asyncio.gather(*(loop.run_in_executor(threads, shut_down) for _ in range(10)))
    assert sorted(answers) == [False] * 9 + [True]
    await pushing.wait_closed()
    assert mine.ends == [REASON.BROKER_SHUTDOWN]


@pytest.mark.spec("push-replication 6")
@pytest.mark.parametrize(
    "use",
    [
        lambda pushing: pushing.start_push(session()),
        lambda pushing: pushing.stop_push(topic_partition(), [1], REASON.PUSH_DISABLED),
        lambda pushing: append(pushing, 0),
        lambda pushing: pushing.on_high_watermark_update(topic_partition(), [1], 1),
        lambda pushing: pushing.on_log_start_offset_update(topic_partition(), [1], 1),
    ],
)
async def test_use_of_a_stopped_manager_raises(use: Callable[[PushManager], None]) -> None:
    async with manager(FakePeers()) as pushing:
        pass
    with pytest.raises(PushManagerStoppedError, match="shut down"):
        use(pushing)


@pytest.mark.spec("push-replication 7")
async def test_support_is_answered_in_every_state() -> None:
    def supported(pushing: PushManager) -> list[bool]:
        return [
            pushing.is_push_replication_supported(is_internal_topic=internal, is_cluster_link_destination=linked)
            for internal, linked in ((False, False), (True, False), (False, True))
        ]

    pushing = manager(FakePeers())
    answers = [supported(pushing)]
    async with pushing:
        answers.append(supported(pushing))
    answers.append(supported(pushing))
    assert answers == [[True, False, False]] * 3
    assert supported(manager(FakePeers(), is_enabled=False)) == [False] * 3
    assert supported(manager(FakePeers(), sends_internal_topics=True)) == [True, True, False]


@pytest.mark.spec("push-replication 8")
async def test_records_that_came_before_the_startup_of_a_manager_are_sent_after_it() -> None:
    peers, mine = FakePeers(), session()
    pushing = manager(peers)
    begin(pushing, mine)
    append(pushing, 0)
    for _ in range(10):
        await asyncio.sleep(0)
    assert peers.opened == 0
    async with pushing:
        await eventually(lambda: mine.acks[-1:] == [(1, 0)], what="the acknowledgement")
    assert [base_offsets(part) for part in peers.parts] == [[], [0], []]


@pytest.mark.spec("push-replication 9")
@pytest.mark.spec("push-replication F30")
@pytest.mark.parametrize("is_silent", [False, True])
async def test_shutdown_leaves_no_session_no_bytes_no_task_and_no_connection(is_silent: bool) -> None:
    peers = FakePeers()
    mine = [session(partition, replica) for partition in range(25) for replica in range(1, 5)]
    before = asyncio.all_tasks()
    pushing = manager(peers, request_timeout_s=0.05) if is_silent else manager(peers)
    pushing.startup()
    begin(pushing, *mine)
    await eventually(lambda: all(each.acks for each in mine), what="the opening answers")
    peers.is_silent = is_silent
    for partition in range(25):
        records = MemoryRecords(batch(0, size=1000), 1)
        pushing.on_leader_append(topic_partition(partition), [1, 2, 3, 4], 0, records)
    assert pushing.shutdown()
    assert [each.ends for each in mine] == [[REASON.BROKER_SHUTDOWN]] * 100
    await pushing.wait_closed()
    after = pushing.statistics()
    assert (after.active_sessions, after.stopping_sessions, after.memory_used_bytes) == (0, 0, 0)
    assert after.faulty_releases == 0
    assert asyncio.all_tasks() == before
    assert peers.open_channels == 0


async def test_shutdown_tells_connected_peers_once() -> None:
    peers, mine = FakePeers(), session()
    async with manager(peers) as pushing:
        begin(pushing, mine)
        await eventually(lambda: bool(mine.acks), what="the opening answer")
    assert [part.end_reason for part in peers.parts if part.end_session] == [REASON.BROKER_SHUTDOWN]


@pytest.mark.parametrize("fault", ["is_hanging", "is_refusing"])
async def test_shutdown_does_not_wait_for_peers_that_cannot_be_reached(fault: str) -> None:
    peers, mine = FakePeers(), session()
    setattr(peers, fault, True)
    async with manager(peers) as pushing:
        begin(pushing, mine)
        await asyncio.sleep(0.01)
    assert mine.ends == [REASON.BROKER_SHUTDOWN]
    assert peers.open_channels == 0


async def test_manager_whose_owner_is_cancelled_closes_its_connections() -> None:
    peers, mine = FakePeers(), session()
    peers.is_silent = True

    async def own() -> None:
        async with manager(peers) as pushing:
            begin(pushing, mine)
            await asyncio.Event().wait()

    owner = asyncio.create_task(own())
    await asyncio.wait_for(peers.arrived.wait(), 10)
    owner.cancel()
    with pytest.raises(asyncio.CancelledError):
        await owner
    assert peers.open_channels == 0
    assert mine.ends == [REASON.BROKER_SHUTDOWN]


@pytest.mark.spec("push-replication 49")
@pytest.mark.spec("push-replication F26")
async def test_callback_that_raises_ends_its_session_and_no_other() -> None:
    peers, bad, good = FakePeers(), session(0), session(1)
    bad.raises = True
    async with manager(peers) as pushing:
        begin(pushing, bad, good)
        await eventually(lambda: bool(bad.ends and good.acks), what="both answers")
        append(pushing, 0, partition=1)
        await eventually(lambda: len(good.acks) == 2, what="the other session's answer")
        assert bad.ends == [REASON.INTERNAL_ERROR]
        assert pushing.statistics().failed_callbacks == 2
    assert good.ends == [REASON.BROKER_SHUTDOWN]


class RisingSession(RecordingSession):
    """Session whose acknowledgements raise the leader's high watermark, as a replicator does."""

    def __init__(self, pushing: PushManager) -> None:
        super().__init__(session().identity, rises=True)
        self._pushing = pushing

    def on_append_records_response(self, log_end_offset: int, log_start_offset: int, *, sent_at_s: float) -> bool:
        super().on_append_records_response(log_end_offset, log_start_offset, sent_at_s=sent_at_s)
        self._pushing.on_high_watermark_update(self.identity.partition, [1], log_end_offset)
        return True


async def test_callback_may_call_the_manager() -> None:
    peers = FakePeers()
    async with manager(peers) as pushing:
        begin(pushing, RisingSession(pushing))
        append(pushing, 0)
        await eventually(lambda: any(part.high_watermark == 1 for part in peers.parts), what="the watermark")


class WakingSession(RecordingSession):
    """Session whose acknowledgement of the record 0 sets ``woken``, as it wakes a producer."""

    def __init__(self) -> None:
        super().__init__(session().identity)
        self.woken = asyncio.Event()

    def on_append_records_response(self, log_end_offset: int, log_start_offset: int, *, sent_at_s: float) -> bool:
        if log_end_offset == 1:
            self.woken.set()
        return super().on_append_records_response(log_end_offset, log_start_offset, sent_at_s=sent_at_s)


async def test_next_request_goes_out_before_a_task_that_the_acknowledgement_wakes() -> None:
    peers, mine = FakePeers(), WakingSession()
    async with manager(peers, partition_max_bytes=150, file_chunk_bytes=150) as pushing:
        begin(pushing, mine)
        append(pushing, 0)
        append(pushing, 1)  # does not fit the request of the record 0
        async with asyncio.timeout(10):
            await mine.woken.wait()
        assert [base_offsets(part) for part in peers.parts] == [[], [0], [1]]


async def test_request_that_is_not_answered_in_time_is_sent_again_on_a_new_connection() -> None:
    peers, mine = FakePeers(), session()
    async with manager(peers, request_timeout_s=0.05) as pushing:
        begin(pushing, mine)
        await eventually(lambda: bool(mine.acks), what="the opening answer")
        peers.is_silent = True
        append(pushing, 0)
        await eventually(lambda: peers.opened > 1, what="another connection")
        peers.is_silent = False
        await eventually(lambda: mine.acks[-1] == (1, 0), what="the acknowledgement")
        assert pushing.statistics().memory_used_bytes == 0
    assert mine.ends == [REASON.BROKER_SHUTDOWN]


async def test_opening_range_is_read_in_chunks_and_closed() -> None:
    peers, mine = FakePeers(), session()
    file = HeldRange(0, 40, b"".join(batch(offset, size=100) for offset in range(40)))
    async with manager(peers, file_chunk_bytes=1000) as pushing:
        begin(pushing, mine, file=file)
        await eventually(lambda: mine.acks[-1:] == [(40, 0)], what="all chunks")
        assert file.closed == 1
        assert len(file.reads) == 4
        assert pushing.statistics().memory_peak_bytes == 1000


@pytest.mark.spec("push-replication 48")
async def test_follower_that_is_not_caught_up_is_counted() -> None:
    pushing = manager(FakePeers())
    pushing.record_follower_not_caught_up(topic_partition(), 1)
    statistics = pushing.statistics()
    assert (statistics.awaiting_transition, statistics.session_starts) == (1, 0)


async def test_statistics_show_sessions_by_peer_and_what_they_wait_for() -> None:
    peers = FakePeers()
    async with manager(peers) as pushing:
        mine = [session(0, 1), session(1, 1), session(0, 2)]
        begin(pushing, *mine)
        await eventually(lambda: all(each.acks for each in mine), what="the opening answers")
        peers.is_silent = True
        append(pushing, 0)
        pushing.stop_push(topic_partition(1), [1], REASON.REPLICA_REMOVED)
        found = pushing.statistics()
        assert [(peer.node_id, peer.is_connected, peer.active_sessions) for peer in found.peers] == [
            (1, True, 1),
            (2, True, 1),
        ]
        assert found.peers[0].stopping_sessions == 1
        assert found.peers[0].unacked_bytes == 100
        assert found.peers[0].oldest_unacked_s >= 0
        assert (found.memory_used_bytes, found.session_ends) == (100, {REASON.REPLICA_REMOVED: 1})
        assert sum(found.request_latency_s.counts) == found.requests == 2
        assert pushing.has_room_for_sessions


async def test_bug_in_a_pusher_is_raised_by_wait_closed() -> None:
    class BrokenRange(HeldRange):
        async def read(self, position: int, max_bytes: int) -> bytes:
            raise ZeroDivisionError

    pushing = manager(FakePeers())
    pushing.startup()
    begin(pushing, session(), file=BrokenRange(0, 1, batch(0)))
    with pytest.raises(ExceptionGroup) as raised:
        await pushing.wait_closed()
    assert raised.group_contains(ZeroDivisionError)


async def test_ends_of_many_sessions_at_once_write_a_bounded_number_of_lines() -> None:
    peers, mine = FakePeers(), [session(partition) for partition in range(100)]
    with capture_logs() as lines:
        async with manager(peers) as pushing:
            begin(pushing, *mine)
    assert len([line for line in lines if line["event"] == "push_session_ended"]) == 20
    assert all(each.ends == [REASON.BROKER_SHUTDOWN] for each in mine)


async def test_check_of_the_leadership_that_raises_stops_nothing() -> None:
    def doubt(partition: TopicIdPartition, leader_epoch: int) -> None:
        raise KeyError(partition, leader_epoch)

    peers, fenced, other = FakePeers(), session(0), session(1)
    pushing = PushManager(PushSettings(), LEADER, peers.open, on_leadership_doubted=doubt)
    async with pushing:
        begin(pushing, fenced, other)
        await eventually(lambda: bool(fenced.acks and other.acks), what="the opening answers")
        peers.error_codes[0] = PushErrorCode.FENCED_LEADER_EPOCH
        append(pushing, 0, partition=0)
        append(pushing, 0, partition=1)
        await eventually(lambda: other.acks[-1] == (1, 0), what="the other session's answer")
        assert fenced.ends == [REASON.NEW_LEADER_EPOCH]
        assert pushing.statistics().failed_callbacks == 1


async def test_leadership_is_doubted_after_a_fenced_epoch() -> None:
    peers, mine = FakePeers(), session()
    doubts: list[TopicIdPartition] = []
    async with manager(peers, doubts=doubts) as pushing:
        peers.error_codes[0] = PushErrorCode.FENCED_LEADER_EPOCH
        begin(pushing, mine)
        await eventually(lambda: doubts == [topic_partition()], what="the doubt")


@pytest.mark.parametrize("loop_factory", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def test_timers_of_less_than_a_millisecond_send_what_waits(
    loop_factory: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    """Such a timer of uvloop is a handle that does not know its time."""

    async def story() -> None:
        peers, replica = FakePeers(), session()
        async with manager(peers, linger_s=0.0003, batch_min_bytes=1000) as pushing:
            begin(pushing, replica)
            await eventually(lambda: bool(replica.acks), what="the session")
            for offset in range(5):
                append(pushing, offset)
            await eventually(lambda: replica.acks[-1][0] == 5, what="the last append")
            assert pushing.statistics().processing_time_s.total > 0

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(story())
