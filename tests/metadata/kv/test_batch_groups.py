import asyncio
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.metadata.kv.batches import batches
from tierd.errors import BackendUnavailableError, PreconditionFailedError, TierError
from tierd.metadata import Batch, Delete, DeletePrefix, MemoryKeyValueStore, Put
from tierd.metadata.kv.batch_groups import BatchGroups, WaitingBatch, group_effect, next_group
from tierd.testing import cancel_at


class Backend:
    """Backend that writes groups one by one, each when the test allows it."""

    def __init__(self) -> None:
        self.groups: list[list[str]] = []
        self.answers: asyncio.Queue[TierError | Exception | None] = asyncio.Queue()

    async def write(self, batches: Sequence[Batch]) -> list[TierError | None]:
        self.groups.append([" ".join(map(_name, batch.writes)) for batch in batches])
        outcome = await self.answers.get()
        if outcome is not None and not isinstance(outcome, TierError):
            raise outcome
        return [outcome] * len(batches)


def _name(write: Put | Delete | DeletePrefix) -> str:
    return f"-{write.prefix}" if isinstance(write, DeletePrefix) else write.key


def put(*keys: str) -> Batch:
    return Batch([Put(key, b"") for key in keys])


def asked(groups: BatchGroups, *batches: Batch) -> list["asyncio.Task[None]"]:
    return [asyncio.create_task(groups.apply(batch)) for batch in batches]


async def settled() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_batches_that_wait_for_a_busy_backend_are_one_group() -> None:
    backend = Backend()
    groups = BatchGroups(backend.write, lanes=1, name="test")
    calls = asked(groups, put("a"), put("b"), put("c"))
    await settled()
    backend.answers.put_nowait(None)
    backend.answers.put_nowait(None)
    await asyncio.gather(*calls)
    assert backend.groups == [["a"], ["b", "c"]]


async def test_batches_that_share_a_key_are_written_one_by_one_on_several_lanes() -> None:
    backend = Backend()
    groups = BatchGroups(backend.write, lanes=2, name="test")
    calls = asked(groups, put("a"), put("a", "b"), put("b"), put("c"))
    await settled()
    assert backend.groups == [["a"], ["c"]]
    for _ in range(4):
        backend.answers.put_nowait(None)
    await asyncio.gather(*calls)
    assert backend.groups == [["a"], ["c"], ["a b"], ["b"]]


async def test_batch_of_a_caller_cancelled_while_waiting_is_not_written() -> None:
    backend = Backend()
    groups = BatchGroups(backend.write, lanes=1, name="test")
    first, second, third = asked(groups, put("a"), put("b"), put("c"))
    await settled()
    second.cancel()
    await settled()
    backend.answers.put_nowait(None)
    backend.answers.put_nowait(None)
    await asyncio.gather(first, third)
    assert backend.groups == [["a"], ["c"]]


async def test_batch_of_a_caller_cancelled_just_before_its_group_is_not_written() -> None:
    backend = Backend()
    groups = BatchGroups(backend.write, lanes=1, name="test")
    first, cancelled = asked(groups, put("a"), put("b"))
    await settled()
    backend.answers.put_nowait(None)
    while not first.done():
        cancelled.cancel() if backend.answers.empty() else None
        await asyncio.sleep(0)
    await settled()
    assert cancelled.cancelled()
    assert backend.groups == [["a"]]
    await groups.close()


async def test_batch_of_a_caller_cancelled_during_the_write_is_written() -> None:
    backend = Backend()
    groups = BatchGroups(backend.write, lanes=1, name="test")
    assert await cancel_at(1, lambda: groups.apply(put("a")))
    backend.answers.put_nowait(None)
    await groups.close()
    assert backend.groups == [["a"]]


async def test_failure_or_bug_of_a_group_is_raised_to_each_caller() -> None:
    backend = Backend()
    groups = BatchGroups(backend.write, lanes=1, name="test")
    for outcome in (BackendUnavailableError("down"), ZeroDivisionError("bug")):
        calls = asked(groups, put("a"), put("b"))
        await settled()
        backend.answers.put_nowait(outcome)
        backend.answers.put_nowait(outcome)
        assert await asyncio.gather(*calls, return_exceptions=True) == [outcome, outcome]


async def test_close_waits_for_requested_batches_and_refuses_later_ones() -> None:
    backend = Backend()
    groups = BatchGroups(backend.write, lanes=1, name="test")
    calls = asked(groups, put("a"), put("b"))
    await settled()
    closing = asyncio.create_task(groups.close())
    await settled()
    assert not closing.done()
    with pytest.raises(BackendUnavailableError, match="test: the metadata store is closed"):
        await groups.apply(put("c"))
    backend.answers.put_nowait(None)
    backend.answers.put_nowait(None)
    await closing
    assert all(call.done() for call in calls)


KEYS = st.lists(st.sampled_from("abcdefgh"), min_size=1, max_size=3)


@given(st.lists(KEYS, max_size=100), st.sets(st.sampled_from("ab")))
def test_batches_of_a_group_share_no_key_and_overtake_no_batch_with_a_common_key(
    keys: list[list[str]], busy: set[str]
) -> None:
    loop = asyncio.new_event_loop()
    waiting = [WaitingBatch(put(*each), frozenset(each), loop.create_future()) for each in keys]
    loop.close()
    group = next_group(waiting, busy)
    taken = [key for entry in group for key in entry.keys]
    assert len(taken) == len(set(taken))
    assert busy.isdisjoint(taken)
    left_behind = set[str]()
    for entry in waiting:
        if entry in group:
            assert left_behind.isdisjoint(entry.keys)
        else:
            left_behind |= entry.keys
    assert group or not waiting or not busy.isdisjoint(waiting[0].keys)


def test_group_is_bounded_and_a_large_batch_is_written_alone() -> None:
    loop = asyncio.new_event_loop()

    def entry(*keys: str) -> WaitingBatch:
        return WaitingBatch(put(*keys), frozenset(keys), loop.create_future())

    assert len(next_group([entry(f"k{number}") for number in range(100)], set())) == 64
    large = entry(*(f"large{number}" for number in range(5000)))
    assert next_group([large, entry("a")], set()) == [large]
    small = entry("a")
    assert next_group([small, large, entry("b")], set()) == [small]
    loop.close()


async def test_batch_that_deletes_a_prefix_is_written_alone_and_in_order() -> None:
    backend = Backend()
    groups = BatchGroups(backend.write, lanes=2, name="test")
    calls = asked(groups, put("a"), put("b"), Batch([DeletePrefix("t/")]), put("c"), Batch([DeletePrefix("u/")]))
    await settled()
    assert backend.groups == [["a"], ["b"]]
    for expected in (["-t/"], ["c"], ["-u/"]):
        backend.answers.put_nowait(None)
        await settled()
        if expected == ["-t/"]:
            assert len(backend.groups) == 2
            backend.answers.put_nowait(None)
            await settled()
        assert backend.groups[-1] == expected
    backend.answers.put_nowait(None)
    await asyncio.gather(*calls)
    assert backend.groups == [["a"], ["b"], ["-t/"], ["c"], ["-u/"]]


contents = st.dictionaries(st.sampled_from("abc"), st.binary(max_size=1))


async def _one_by_one(content: dict[str, bytes], group: Sequence[Batch]) -> tuple[list[object], dict[str, bytes]]:
    store = MemoryKeyValueStore()
    await store.apply(Batch([Put(key, value) for key, value in content.items()]))
    outcomes: list[object] = []
    for batch in group:
        try:
            await store.apply(batch)
            outcomes.append(None)
        except PreconditionFailedError as error:
            outcomes.append((error.key, error.actual))
    return outcomes, dict(await store.scan(""))


@given(content=contents, group=st.lists(batches(removes_prefixes=False), max_size=6))
def test_group_has_the_effect_and_the_answers_of_its_batches_one_by_one(
    content: dict[str, bytes], group: list[Batch]
) -> None:
    effect = group_effect(group, content)
    rows = content | {key: value for key, value in effect.rows.items() if value is not None}
    for key in [key for key, value in effect.rows.items() if value is None]:
        rows.pop(key, None)
    outcomes = [None if refusal is None else (refusal.key, refusal.actual) for refusal in effect.outcomes]
    assert (outcomes, rows) == asyncio.run(_one_by_one(content, group))
