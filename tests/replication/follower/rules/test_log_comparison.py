"""Comparison of a follower's log with its leader's: how far down it goes, and what it asks the log to do."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.replication.follower.following import PARTITION, Following, batch
from tests.replication.follower.model_leader import ModelLeader, catch_up, compare_once
from tests.replication.follower.standby_setup import StandbyDisk
from tierd.errors import CorruptRecordError
from tierd.log import LogConfig
from tierd.replication.follower.pull_changes import PullChanges
from tierd.replication.follower.record_intake import RecordIntake
from tierd.replication.follower.rules.followed_partition import NOT_COMPARED, FetchStage, LeaderQuestion
from tierd.replication.follower.rules.log_comparison import LogComparison, first_gap
from tierd.replication.follower.rules.log_facts import LogChange, LogMatch
from tierd.replication.follower.rules.pull_answers import take_compared, take_failure, take_fetched
from tierd.replication.follower.rules.record_runs import BadRecordsError, LeaderBatches, read_batches
from tierd.replication.follower.service_log import ServiceFollowerLog
from tierd.replication.follower.standby_replicas import StandbyReplica
from tierd.replication.model.push_error_code import PushErrorCode
from tierd.replication.model.replication_state import ReplicationMode

VERSION = 5
COMPACTED = LogConfig(cleanup_policy=frozenset({"compact"}))


class Comparing(Following):
    """A follower with ten batches, whose leader has told it the version of its log."""

    def __init__(self, leader: ModelLeader) -> None:
        super().__init__()
        self.leader = leader
        leader.version = VERSION
        self.fill(*(batch(offset) for offset in range(10)))
        self.take(self.question())

    def question(self) -> LeaderQuestion:
        question = self.followed.question(self.log.facts, now_s=self.now_s)
        assert question is not None
        return question

    def take(self, question: LeaderQuestion) -> None:
        """Take the leader's answer to an ordinary fetch."""
        result = self.leader.fetch(question.log_end_offset, question.epoch, compared_version=question.compared_version)
        assert take_fetched(self.followed, result, self.log.facts, now_s=self.now_s) is None

    def compared(self, match: LogMatch | None, *, start: int, **changed: int) -> int | None:
        """Take a comparison; return the new end of the log, if it is truncated."""
        result = replace(self.leader.fetch_compared(start), **changed)  # type: ignore[arg-type]
        change = take_compared(self.followed, result, match, self.log.facts, start=start)
        return None if change is None else change.truncate_to


def leader_of(*batches: bytes) -> ModelLeader:
    leader = ModelLeader()
    leader.append(*batches)
    return leader


def same_leader(count: int = 12) -> ModelLeader:
    return leader_of(*(batch(offset) for offset in range(count)))


def test_log_that_agrees_is_kept_and_fetched_on_with_the_version() -> None:
    follower = Comparing(same_leader())
    assert follower.followed.stage is FetchStage.COMPARING
    assert follower.compared(LogMatch(10, agrees=True), start=8) is None
    assert (follower.followed.stage, follower.followed.compared_version) == (FetchStage.FETCHING, VERSION)
    assert follower.question().compared_version == VERSION
    assert follower.question().comparison is None


def test_log_is_truncated_at_the_first_batch_that_differs() -> None:
    follower = Comparing(same_leader())
    assert follower.compared(LogMatch(10, agrees=True, differs_at=7), start=5) == 7
    assert (follower.followed.stage, follower.followed.compared_version) == (FetchStage.FETCHING, NOT_COMPARED)


def test_range_without_anything_that_agrees_leads_to_a_larger_one_below_it() -> None:
    follower = Comparing(same_leader())
    first = follower.question().comparison
    assert first is not None
    assert follower.compared(LogMatch(10, agrees=False, differs_at=8), start=8) is None
    second = follower.question().comparison
    assert second is not None
    assert (second.below, second.differs_at) == (8, 8)
    assert second.size_bytes > first.size_bytes
    assert follower.compared(LogMatch(8, agrees=True), start=4) == 8


def test_lowest_range_is_the_last_one() -> None:
    follower = Comparing(same_leader())
    assert follower.compared(LogMatch(10, agrees=False, differs_at=3), start=0) == 3


def test_rest_of_a_range_that_came_in_part_is_asked_for() -> None:
    follower = Comparing(same_leader())
    assert follower.compared(LogMatch(6, agrees=True), start=4) is None
    rest = follower.question().comparison
    assert rest is not None
    assert (rest.start, rest.below) == (6, 10)
    assert follower.followed.compared_version == NOT_COMPARED


def test_answer_without_records_is_asked_for_again() -> None:
    follower = Comparing(same_leader())
    before = follower.question()
    assert follower.compared(None, start=8) is None
    assert follower.question() == before


@pytest.mark.parametrize("changed", [{"log_version": VERSION + 1}, {"log_end_offset": 8}])
def test_comparison_begins_anew_where_the_leader_was_cut_back_meanwhile(changed: dict[str, int]) -> None:
    follower = Comparing(same_leader())
    assert follower.compared(LogMatch(10, agrees=True), start=8, **changed) is None
    assert (follower.followed.stage, follower.followed.compared_version) == (FetchStage.FETCHING, NOT_COMPARED)


def test_refused_comparison_asks_for_the_bounds_of_the_leader() -> None:
    follower = Comparing(same_leader())
    take_failure(follower.followed, PushErrorCode.OFFSET_OUT_OF_RANGE, now_s=follower.now_s)
    assert follower.followed.stage is FetchStage.OUT_OF_RANGE
    assert follower.question().comparison is None


def test_end_of_a_session_has_the_log_compared_again() -> None:
    follower = Comparing(same_leader())
    follower.compared(LogMatch(10, agrees=True), start=8)
    follower.in_state(ReplicationMode.PUSH, 0)
    follower.followed.enter_pull(FetchStage.FETCHING, now_s=follower.now_s)
    assert follower.question().compared_version == NOT_COMPARED


def test_log_without_records_agrees_with_every_leader() -> None:
    follower = Following()
    leader = same_leader()
    leader.version = VERSION
    assert catch_up(follower.followed, leader, follower.log)
    assert follower.log.log_end_offset == 12
    assert follower.followed.compared_version == VERSION


@pytest.mark.parametrize("kept", range(10))
def test_log_becomes_its_leaders_wherever_it_was_cut(kept: int) -> None:
    other = [batch(offset, value=b"another") for offset in range(kept, 14)]
    leader = leader_of(*(batch(offset) for offset in range(kept)), *other)
    follower = Comparing(leader)
    assert catch_up(follower.followed, leader, follower.log)
    assert follower.log.content == leader.log.content


def test_next_range_of_a_comparison_is_asked_for_by_its_size() -> None:
    follower = Comparing(same_leader())
    comparison = follower.question().comparison
    assert comparison == LogComparison(version=VERSION, log_end_offset=10, lowest_offset=0, below=10)
    assert compare_once(follower.log, follower.leader, comparison)[0] == 0


spans = st.lists(st.tuples(st.integers(1, 4), st.integers(1, 4)), max_size=6).map(
    lambda steps: [
        (before + gap - 1, before + gap - 1 + length)
        for (gap, length), before in zip(steps, [sum(map(sum, steps[:at])) for at in range(len(steps))], strict=True)
    ]
)


@given(spans, spans, st.integers(0, 6), st.integers(0, 30))
def test_first_gap_is_the_first_offset_that_one_side_lacks(
    theirs: list[tuple[int, int]], own: list[tuple[int, int]], start: int, length: int
) -> None:
    end = start + length
    covered = [
        {offset for first, after in side for offset in range(first, after) if start <= offset < end}
        for side in (theirs, own)
    ]
    expected = min(covered[0] ^ covered[1], default=None)
    assert first_gap(theirs, own, start=start, end=end) == expected


# A log on disk


@asynccontextmanager
async def on_disk(
    *batches: bytes, config: LogConfig | None = None, has_known_policy: bool = True
) -> AsyncIterator[ServiceFollowerLog]:
    """Keep a log with these batches."""
    disk, name = StandbyDisk(), PARTITION.topic_partition
    disk.config = config or disk.config
    async with disk.service() as service:
        writer = await service.get_or_create(name, topic_id=PARTITION.topic_id)
        for each in batches:
            await writer.append_as_follower(each)
        yield ServiceFollowerLog(service, name, clock=disk.clock, has_known_policy=lambda: has_known_policy)


def joined(*batches: bytes) -> LeaderBatches:
    return read_batches(b"".join(batches))


async def test_batches_of_the_leader_are_compared_up_to_the_end_of_either_log() -> None:
    async with on_disk(*(batch(offset) for offset in range(10))) as log:
        assert await log.compare(joined(batch(7), batch(8))) == LogMatch(9, agrees=True)
        assert await log.compare(joined(batch(9), batch(10, value=b"new"))) == LogMatch(10, agrees=True)


async def test_difference_is_at_the_base_of_the_own_batch_that_has_it() -> None:
    async with on_disk(batch(0, 3), batch(3, 3), batch(6, 3)) as log:
        found = await log.compare(joined(batch(0, 3), batch(3, 2), batch(5, 4, value=b"other")))
        assert found == LogMatch(9, agrees=True, differs_at=3)
        found = await log.compare(joined(batch(6, 3, value=b"other")))
        assert found == LogMatch(9, agrees=False, differs_at=6)


async def test_same_records_in_other_batches_agree() -> None:
    async with on_disk(batch(0, 3), batch(3, 3)) as log:
        assert await log.compare(joined(batch(0, 2), batch(2, 4))) == LogMatch(6, agrees=True)


async def test_record_that_the_log_lacks_is_a_difference_unless_a_cleaner_may_have_removed_it() -> None:
    theirs = joined(*(batch(offset) for offset in range(5)))
    kept = [batch(offset) for offset in (0, 1, 4)]
    async with on_disk(*kept) as log:
        assert await log.compare(theirs) == LogMatch(5, agrees=True, differs_at=2)
    async with on_disk(*kept, config=COMPACTED) as log:
        assert await log.compare(theirs) == LogMatch(5, agrees=True)


async def test_gap_of_a_topic_without_known_settings_may_be_a_cleaners() -> None:
    async with on_disk(*(batch(offset) for offset in range(5)), has_known_policy=False) as log:
        assert await log.compare(joined(batch(0), batch(3), batch(4))) == LogMatch(5, agrees=True)
        assert (await log.compare(joined(batch(0), batch(3, value=b"other"), batch(4)))).differs_at == 3


async def test_gap_that_a_truncation_left_before_the_log_end_is_a_difference() -> None:
    async with on_disk(batch(0), batch(1, 4)) as log:
        await log.apply(LogChange(expected_end=5, end_offset=3, truncate_to=3))
        assert log.facts.log_end_offset == 3
        assert await log.compare(joined(batch(0), batch(1), batch(2))) == LogMatch(3, agrees=True, differs_at=1)


async def test_gap_before_the_end_of_a_compacted_log_is_a_difference() -> None:
    async with on_disk(batch(0), batch(2), batch(3, 4), config=COMPACTED) as log:
        await log.apply(LogChange(expected_end=7, end_offset=5, truncate_to=5))
        theirs = [batch(0), batch(1), batch(2), batch(3), batch(4), batch(5)]
        assert await log.compare(joined(*theirs)) == LogMatch(5, agrees=True, differs_at=3)
        assert await log.compare(joined(*theirs[:4])) == LogMatch(4, agrees=True)


async def test_batch_of_the_leader_that_was_damaged_on_its_way_is_no_difference() -> None:
    damaged = bytearray(batch(1))
    damaged[-1] ^= 1
    async with on_disk(batch(0), batch(1)) as log:
        with pytest.raises(BadRecordsError, match="checksum"):
            await log.compare(joined(batch(0), bytes(damaged)))


async def test_start_of_a_range_is_below_its_end_and_about_its_size_away() -> None:
    async with on_disk(*(batch(offset, value=bytes(80)) for offset in range(60))) as log:
        size_bytes = len(batch(0, value=bytes(80)))
        for end in range(1, 61):
            assert 0 <= log.start_before(end, 1) < end
            assert log.start_before(end, 1 << 20) == 0
        assert 60 - log.start_before(60, 10 * size_bytes) == pytest.approx(10, abs=2)
    async with on_disk() as log:
        assert log.start_before(0, 100) == 0


async def test_damaged_batch_of_the_copy_does_not_keep_it_from_following_its_leader() -> None:
    async with on_disk(batch(0), batch(1)) as log:
        replica = StandbyReplica(Following().followed, log)
        changes = PullChanges(RecordIntake(max_bytes=1 << 20), clock=StandbyDisk().clock, keep_lost_copy=_keep)
        fetched = same_leader().fetch(0, -1)
        assert await changes.match(replica, fetched) == LogMatch(2, agrees=True)

        async def compare(records: LeaderBatches) -> LogMatch:
            del records
            raise CorruptRecordError("orders-0", 0, "wrong checksum")

        log.compare = compare  # type: ignore[method-assign]
        assert await changes.match(replica, fetched) == LogMatch(2, agrees=False)
        assert replica.last_error == ""


async def test_comparison_that_fails_for_now_pauses_the_copy_and_is_tried_again() -> None:
    async with on_disk(batch(0), batch(1)) as log:
        replica = StandbyReplica(Following().followed, log)
        changes = PullChanges(RecordIntake(max_bytes=1 << 20), clock=StandbyDisk().clock, keep_lost_copy=_keep)
        damaged = bytearray(batch(1))
        damaged[-1] ^= 1
        fetched = replace(same_leader().fetch(0, -1), records=(batch(0), bytes(damaged)))
        assert await changes.match(replica, fetched) is None
        assert "checksum" in replica.last_error
        assert replica.followed.paused_until_s() == pytest.approx(StandbyDisk().clock.monotonic_s() + 1)


async def test_batch_that_stays_damaged_in_the_leaders_log_is_passed_over() -> None:
    async with on_disk(batch(0), batch(1)) as log:
        replica = StandbyReplica(Following().followed, log)
        changes = PullChanges(RecordIntake(max_bytes=1 << 20), clock=StandbyDisk().clock, keep_lost_copy=_keep)
        damaged = bytearray(batch(1))
        damaged[-1] ^= 1
        fetched = replace(same_leader().fetch(0, -1), records=(batch(0), bytes(damaged)))
        assert [await changes.match(replica, fetched) for _ in range(2)] == [None, None]
        assert await changes.match(replica, fetched) == LogMatch(2, agrees=False)


def test_leader_that_cannot_read_what_is_compared_is_followed_without() -> None:
    follower = Comparing(same_leader())
    for _ in range(3):
        assert follower.followed.compared_version == NOT_COMPARED
        if follower.followed.comparison is None:
            follower.take(follower.question())
        take_failure(follower.followed, PushErrorCode.KAFKA_STORAGE_ERROR, now_s=follower.now_s)
        follower.now_s += 2
    assert (follower.followed.stage, follower.followed.compared_version) == (FetchStage.FETCHING, VERSION)


def test_known_difference_is_not_passed_over_where_the_leader_cannot_read() -> None:
    follower = Comparing(same_leader())
    follower.compared(LogMatch(10, agrees=False, differs_at=8), start=8)
    follower.followed.failed_comparisons = 2
    take_failure(follower.followed, PushErrorCode.KAFKA_STORAGE_ERROR, now_s=follower.now_s)
    assert follower.followed.compared_version == NOT_COMPARED


async def _keep(_replica: StandbyReplica) -> None:
    raise AssertionError("no copy is lost")
