"""Writes of a group are made in order, share batches, and are answered when they are durable."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from uuid import UUID

import pytest
from kio.schema.errors import ErrorCode

from tests.fakes.clock import FakeClock
from tests.fakes.eventually import eventually
from tests.fakes.key_value_store import Fault, FaultyKeyValueStore
from tierd.metadata import MemoryKeyValueStore, MetadataKeyFactory
from tierd.serve.kafka.groups.coordination.group_writer import GroupWriter
from tierd.serve.kafka.groups.protocol.durable_group import DurableGroup
from tierd.serve.kafka.groups.protocol.group_events import GroupEvent, GroupGone, RowNotStored, RowStored
from tierd.serve.kafka.groups.storage.claimed_group import ClaimedGroup
from tierd.serve.kafka.groups.storage.group_offset import GroupOffset, OffsetKey
from tierd.serve.kafka.groups.storage.group_store import GroupStore

KEYS = MetadataKeyFactory("cluster")
FIRST = DurableGroup(1, "consumer", None)
OK, AWAY, GONE = ErrorCode.none, ErrorCode.coordinator_not_available, ErrorCode.not_coordinator


def key(partition: int) -> OffsetKey:
    return OffsetKey(UUID(int=1), partition)


def offset(value: int) -> GroupOffset:
    return GroupOffset("orders", value, -1, "", 1000)


async def claim(store: FaultyKeyValueStore, session: int) -> ClaimedGroup:
    claimed = await ClaimedGroup.claim(
        GroupStore(store, KEYS, timeout_s=30.0, clock=FakeClock()),
        "readers",
        owner_id=1,
        session_id=UUID(int=session),
        now_ms=0,
        may_create=True,
    )
    assert claimed is not None
    store.batches.clear()
    return claimed


class Written:
    """A writer of a test, its store and its events."""

    def __init__(self, claimed: ClaimedGroup, store: FaultyKeyValueStore, tasks: asyncio.TaskGroup) -> None:
        self.claimed = claimed
        self.store = store
        self.events: list[GroupEvent] = []
        self.tasks: list[asyncio.Task[None]] = []
        self.is_ended = False
        self.writer = GroupWriter(claimed, spawn=self._spawn, on_event=self.events.append)
        self._group = tasks

    def _spawn(self, work: Callable[[], Coroutine[object, object, None]], name: str) -> bool:
        if not self.is_ended:
            self.tasks.append(self._group.create_task(work(), name=name))
        return not self.is_ended

    def commit(self, partition: int, value: int) -> "asyncio.Task[ErrorCode]":
        return self._group.create_task(self.writer.commit({key(partition): offset(value)}))


@asynccontextmanager
async def written() -> AsyncIterator[Written]:
    store = FaultyKeyValueStore(MemoryKeyValueStore())
    claimed = await claim(store, 1)
    async with asyncio.TaskGroup() as tasks:
        yield Written(claimed, store, tasks)


async def test_commits_that_wait_share_one_batch_behind_the_one_under_way() -> None:
    async with written() as each:
        each.store.apply_faults.append(Fault.HANG)
        commits = [each.commit(0, 0)]
        await each.store.hanging.wait()
        commits += [each.commit(partition, partition) for partition in range(1, 50)]
        await asyncio.sleep(0)
        each.store.release()
        assert [await commit for commit in commits] == [OK] * 50
        assert [len(batch.writes) for batch in each.store.batches] == [1, 49]
        assert each.claimed.offsets == {key(partition): offset(partition) for partition in range(50)}


async def test_commits_before_and_behind_a_row_are_not_mixed() -> None:
    async with written() as each:
        before = each.commit(0, 1)
        await asyncio.sleep(0)
        each.writer.store(FIRST)
        behind = [each.commit(0, 2), each.commit(1, 2)]
        assert (await before, [await commit for commit in behind]) == (OK, [OK, OK])
        assert [len(batch.writes) for batch in each.store.batches] == [1, 1, 2]
        assert each.events == [RowStored(FIRST)]
        assert each.claimed.durable == FIRST


async def test_last_of_the_changes_that_share_a_batch_counts() -> None:
    async with written() as each:
        each.store.apply_faults.append(Fault.HANG)
        first = each.commit(9, 0)
        await each.store.hanging.wait()
        answers = [each.commit(0, 1), each.commit(0, 2), each.commit(1, 1)]
        await asyncio.sleep(0)
        removal = asyncio.create_task(each.writer.remove([key(1), key(5)]))
        await asyncio.sleep(0)
        answers += [each.commit(2, 1)]
        expiry = asyncio.create_task(each.writer.expire({key(9): offset(0), key(2): offset(0), key(7): offset(0)}))
        await asyncio.sleep(0)
        each.store.release()
        assert [await answer for answer in (first, *answers, removal, expiry)] == [OK] * 7
        assert each.claimed.offsets == {key(0): offset(2), key(2): offset(1)}


@pytest.mark.parametrize("fault", [Fault.FAIL, Fault.LOSE_ANSWER, Fault.DROP_REQUEST])
async def test_failed_write_is_answered_so_and_the_next_one_succeeds(fault: Fault) -> None:
    async with written() as each:
        each.store.apply_faults.append(fault)
        assert await each.commit(0, 1) is AWAY
        each.store.apply_faults.append(fault)
        each.writer.store(FIRST)
        assert await each.commit(1, 5) is OK
        assert RowNotStored() in each.events
        assert each.claimed.offsets.get(key(0)) in (None, offset(1))
        assert each.claimed.offsets[key(1)] == offset(5)
        again = await claim(each.store, 2)
        assert again.offsets == each.claimed.offsets


async def test_row_of_unknown_outcome_is_told_before_the_next_write() -> None:
    async with written() as each:
        each.store.apply_faults.append(Fault.LOSE_ANSWER)
        each.writer.store(FIRST)
        await eventually(lambda: bool(each.events), what="the outcome of the row")
        assert each.events == [RowNotStored()]
        assert each.writer.is_busy
        assert await each.commit(0, 1) is OK
        assert each.events == [RowNotStored(), RowStored(FIRST)]
        assert not each.writer.is_busy


async def test_writer_that_has_lost_the_group_says_so_to_all_that_wait() -> None:
    async with written() as each:
        await claim(each.store, 2)
        each.store.apply_faults.append(Fault.HANG)
        commits = [each.commit(0, 1)]
        await each.store.hanging.wait()
        commits.append(each.commit(1, 1))
        await asyncio.sleep(0)
        each.writer.store(FIRST)
        removal = asyncio.create_task(each.writer.remove_group(lambda: True))
        await asyncio.sleep(0)
        each.store.release()
        assert [await commit for commit in (*commits, removal)] == [GONE] * 3
        assert each.events == [GroupGone("another endpoint has claimed the group", is_lost=True)]


async def test_removal_of_the_group_is_the_last_of_its_writes() -> None:
    async with written() as each:
        before = each.commit(0, 1)
        await asyncio.sleep(0)
        removal = asyncio.create_task(each.writer.remove_group(lambda: True))
        await asyncio.sleep(0)
        behind = each.commit(1, 1)
        assert (await before, await removal, await behind) == (OK, OK, GONE)
        assert each.events == [GroupGone("deleted")]
        assert (await claim(each.store, 2)).offsets == {}


async def test_removal_that_is_not_wanted_any_more_removes_nothing() -> None:
    async with written() as each:
        await each.commit(0, 1)
        assert await each.writer.remove_group(lambda: False) is ErrorCode.non_empty_group
        assert await each.commit(0, 2) is OK


async def test_commit_whose_client_has_gone_is_written() -> None:
    async with written() as each:
        each.store.apply_faults.append(Fault.HANG)
        commit = each.commit(0, 1)
        await each.store.hanging.wait()
        commit.cancel()
        each.store.release()
        assert await each.commit(1, 1) is OK
        assert each.claimed.offsets == {key(0): offset(1), key(1): offset(1)}


async def test_writer_without_a_task_answers_that_the_coordinator_is_away() -> None:
    async with written() as each:
        each.is_ended = True
        assert await each.commit(0, 1) is AWAY
        each.is_ended = False
        each.store.apply_faults.append(Fault.HANG)
        commits = [each.commit(0, 1)]
        await each.store.hanging.wait()
        commits.append(each.commit(1, 1))
        await asyncio.sleep(0)
        each.tasks[-1].cancel()
        assert [await commit for commit in commits] == [AWAY, AWAY]


async def test_clients_that_go_away_while_the_store_hangs_leave_no_queue() -> None:
    async with written() as each:
        each.store.apply_faults.append(Fault.HANG)
        begun = each.commit(0, 1)
        await each.store.hanging.wait()
        gone = [each.commit(0, value) for value in range(2, 100)]
        stays = each.commit(1, 5)
        await asyncio.sleep(0)
        for commit in gone:
            commit.cancel()
        await asyncio.wait(gone)
        each.store.release()
        assert (await begun, await stays) == (OK, OK)
        assert [len(batch.writes) for batch in each.store.batches] == [1, 1]
        assert each.claimed.offsets == {key(0): offset(1), key(1): offset(5)}
