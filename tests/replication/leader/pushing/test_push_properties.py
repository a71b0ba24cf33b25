"""Properties of a router in any story: bytes in order or the end, memory within its cap, callbacks once (40, F29)."""

import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from hypothesis.strategies import booleans, integers, lists, sampled_from, sets

from tests.replication.leader.push_story import HeldRange, PushStory, RecordingSession, batch, data_of, session
from tierd.replication.leader.logs.record_memory import batch_bounds
from tierd.replication.leader.pushing.push_actions import SendAppend
from tierd.replication.model.messages import AppendRecordsResponse, PartitionAppend, PartitionAppendResult
from tierd.replication.model.push_error_code import PushErrorCode
from tierd.replication.model.push_session import PushSessionEndReason

PARTITIONS = range(3)
REPLICAS = (1, 2, 5)  # 1 and 5 have one pusher
CODES = [code for code in PushErrorCode if code is not PushErrorCode.NONE]
Key = tuple[int, int]


class PushedLogs(RuleBasedStateMachine):
    """Leader's logs of three partitions, and followers that append what is expected, as the rules of 2.9 have it."""

    def __init__(self) -> None:
        super().__init__()
        self._begin(window=1)

    @initialize(window=integers(1, 3))
    def begin(self, window: int) -> None:
        self._begin(window)

    def _begin(self, window: int) -> None:
        self.story = PushStory(
            in_flight_per_peer=window,
            request_max_bytes=700,
            partition_max_bytes=500,
            file_chunk_bytes=300,
            buffer_max_bytes=3000,
            session_buffer_max_bytes=1500,
        )
        self.story.closes_at_once = False
        self.story.reads_at_once = False
        self.logs: dict[int, list[bytes]] = {partition: [] for partition in PARTITIONS}
        self.copies: dict[Key, bytes] = {(partition, replica): b"" for partition in PARTITIONS for replica in REPLICAS}
        self.sessions: list[RecordingSession] = []
        self.session_ids: dict[Key, int] = {}

    @rule(partition=sampled_from(PARTITIONS), sizes=lists(integers(61, 400), min_size=1, max_size=3))
    def append(self, partition: int, sizes: list[int]) -> None:
        log = self.logs[partition]
        offset = len(log)
        batches = [batch(offset + place, size=size) for place, size in enumerate(sizes)]
        log += batches
        self.story.append_bytes(offset, b"".join(batches), len(log), partition=partition, replicas=REPLICAS)

    @rule(partition=sampled_from(PARTITIONS), replica=sampled_from(REPLICAS))
    def start(self, partition: int, replica: int) -> None:
        key = (partition, replica)
        if any(self._is_of(each, key) and not each.ends for each in self.sessions):
            return
        self.session_ids[key] = self.session_ids.get(key, 0) + 1
        started = session(partition, replica, session_id=self.session_ids[key])
        self.sessions.append(started)
        log = self.logs[partition]
        end = self._end_of(key)
        self.story.open(started, HeldRange(end, len(log), b"".join(log[end:])), last_epoch=1 if end else -1)

    @rule(
        partition=sampled_from(PARTITIONS),
        replicas=sets(sampled_from(REPLICAS)),
        reason=sampled_from(PushSessionEndReason),
    )
    def stop(self, partition: int, replicas: set[int], reason: PushSessionEndReason) -> None:
        self.story.stop(reason, partition=partition, replicas=sorted(replicas))

    @rule(partition=sampled_from(PARTITIONS), offset=integers(0, 20))
    def raise_watermark(self, partition: int, offset: int) -> None:
        self.story.high_watermark(min(offset, len(self.logs[partition])), partition=partition, replicas=REPLICAS)

    @precondition(lambda self: self.story.outstanding)
    @rule(place=integers(0, 3), is_lost=booleans())
    def handle_request(self, place: int, is_lost: bool) -> None:
        """Let a follower take a request; its answer may be lost with the connection."""
        action = self.story.outstanding.pop(place % len(self.story.outstanding))
        results = tuple(self._take(action, part) for part in action.request.partitions)
        if is_lost:
            link = (action.pusher, action.link_id)
            self.story.outstanding = [each for each in self.story.outstanding if (each.pusher, each.link_id) != link]
            self.story.router.on_link_closed(action.pusher, action.link_id, self.story.now_s)
            self.story.step()
        else:
            self.story.respond(action, AppendRecordsResponse(partitions=results))

    @precondition(lambda self: self.story.outstanding)
    @rule(place=integers(0, 3), code=sampled_from(CODES), is_whole=booleans(), leo=integers(-1, 20))
    def refuse_request(self, place: int, code: PushErrorCode, is_whole: bool, leo: int) -> None:
        action = self.story.outstanding.pop(place % len(self.story.outstanding))
        results = tuple(
            PartitionAppendResult(topic_id=part.topic_id, partition=part.partition, error_code=code, log_end_offset=leo)
            for part in action.request.partitions
        )
        response = AppendRecordsResponse(error_code=code if is_whole else 0, partitions=results)
        self.story.respond(action, response)

    @rule()
    def read(self) -> None:
        self.story.read()

    @rule(is_reachable=booleans())
    def change_network(self, is_reachable: bool) -> None:
        self.story.is_reachable = is_reachable

    @rule(delay_s=sampled_from((0.001, 0.1, 3.0, 10.0, 16.0)))
    def wait(self, delay_s: float) -> None:
        self.story.wait(delay_s)

    @rule()
    def confirm_closed(self) -> None:
        self._confirm_closed()

    @invariant()
    def memory_is_within_its_caps(self) -> None:
        budget = self.story.router.budget
        assert 0 <= budget.used_bytes <= budget.peak_bytes <= budget.cap_bytes
        assert budget.faulty_releases == 0
        for pusher in range(self.story.settings.max_pushers):
            assert 0 <= budget.pusher_bytes(pusher) <= budget.pusher_cap_bytes

    @invariant()
    def copies_are_prefixes_of_the_log(self) -> None:
        for (partition, _), copy in self.copies.items():
            assert b"".join(self.logs[partition]).startswith(copy)

    @invariant()
    def sessions_end_once_and_call_nothing_afterwards(self) -> None:
        for each in self.sessions:
            assert each.calls.count("end") == len(each.ends) <= 1
            assert "end" not in each.calls[:-1]

    @invariant()
    def acknowledgements_ascend(self) -> None:
        for each in self.sessions:
            offsets = [ack[0] for ack in each.acks]
            assert offsets == sorted(offsets)

    @invariant()
    def slots_are_in_at_most_one_request(self) -> None:
        for pusher in self.story.router.pushers:
            for lane in pusher.slots.lanes.values():
                parts = [
                    part.slot for sent in lane.in_flight.values() for part in sent.parts.values() if part.slot.is_live
                ]
                assert len(parts) == len(set(parts))
                assert len(lane.in_flight) <= self.story.settings.in_flight_per_peer

    def teardown(self) -> None:
        """Let the network heal: live sessions get every byte; then end all, and nothing is left."""
        story = self.story
        story.is_reachable = True
        for _ in range(300):
            self._confirm_closed()
            story.read()
            while story.outstanding:
                self.handle_request(0, is_lost=False)
            if all(self._is_complete(each) for each in self.sessions):
                break
            story.wait(0.1)
        assert all(self._is_complete(each) for each in self.sessions)
        for partition in PARTITIONS:
            story.stop(PushSessionEndReason.PARTITION_DELETED, partition=partition, replicas=REPLICAS)
        for _ in range(70):
            story.read()
            while story.outstanding:
                self.handle_request(0, is_lost=False)
            story.wait(1)
        self._confirm_closed()
        assert story.used_bytes == 0
        assert list(story.router.sessions()) == []
        assert all(len(each.ends) == 1 for each in self.sessions)
        assert all(pusher.is_idle and not pusher.slots.lanes for pusher in story.router.pushers)

    def _take(self, action: SendAppend, part: PartitionAppend) -> PartitionAppendResult:
        lane = next(
            lane
            for lane in self.story.router.pushers[action.pusher].slots.lanes.values()
            if lane.link_id == action.link_id
        )
        key = (part.partition, lane.node.node_id)
        code, end = 0, self._end_of(key)
        data = data_of(part)
        if part.end_session or part.append_offset < 0:
            pass
        elif part.append_offset == end:
            self.copies[key] += data
        elif not data or list(batch_bounds(data))[-1].next_offset > end:
            code = PushErrorCode.APPEND_OFFSET_MISMATCH
        return PartitionAppendResult(
            topic_id=part.topic_id,
            partition=part.partition,
            error_code=code,
            log_end_offset=self._end_of(key),
            log_start_offset=0,
        )

    def _confirm_closed(self) -> None:
        closed, self.story.closed_links[:] = list(self.story.closed_links), []
        for link_id in closed:
            for pusher in self.story.router.pushers:
                if pusher.node_of(link_id) is None:
                    pusher.on_link_closed(link_id, self.story.now_s)

    def _is_complete(self, each: RecordingSession) -> bool:
        partition = each.identity.partition.partition
        return bool(each.ends) or self._end_of((partition, each.identity.replica_id)) == len(self.logs[partition])

    def _end_of(self, key: Key) -> int:
        return sum(1 for _ in batch_bounds(self.copies[key]))

    @staticmethod
    def _is_of(each: RecordingSession, key: Key) -> bool:
        return (each.identity.partition.partition, each.identity.replica_id) == key


TestPushedLogs = pytest.mark.spec("push-replication 40")(PushedLogs.TestCase)
TestPushedLogs.settings = settings(max_examples=80, stateful_step_count=40)
