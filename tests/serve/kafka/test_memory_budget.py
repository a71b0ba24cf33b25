"""MemoryBudget: never more than the total, first come first served, and nothing left behind by cancelled calls."""

import asyncio
from collections.abc import Coroutine

from hypothesis import given
from hypothesis import strategies as st

from tests.fakes.manual_clock import ManualClock
from tierd.serve.kafka.memory_budget import AnswerMemory, MemoryBudget


async def settled() -> None:
    for _ in range(3):
        await asyncio.sleep(0)


def running(call: Coroutine[object, object, object]) -> "asyncio.Task[object]":
    return asyncio.get_running_loop().create_task(call)


async def test_memory_within_the_total_is_granted_at_once() -> None:
    budget = MemoryBudget(100, share_bytes=60)
    first, second = budget.share("a"), budget.share("b")

    assert await first.reserve(50) == 50
    assert await second.reserve(50) == 50
    assert budget.used_bytes == 100


async def test_answer_gets_its_share_at_most() -> None:
    budget = MemoryBudget(100, share_bytes=60)
    memory = budget.share()

    assert await memory.reserve(80) == 60
    assert await memory.reserve(1) == 0


async def test_answers_wait_in_the_order_in_which_they_came() -> None:
    budget = MemoryBudget(100, share_bytes=100)
    holder, large, small = budget.share("a"), budget.share("b"), budget.share("c")
    await holder.reserve(60)
    large_waits, small_waits = running(large.reserve(50)), running(small.reserve(1))
    await settled()
    assert not small_waits.done()  # it would fit, but came later
    assert budget.waiting == 2

    holder.settle(0)
    await settled()

    assert (await large_waits, await small_waits) == (50, 1)


async def test_answer_with_memory_takes_what_is_free_and_never_waits() -> None:
    budget = MemoryBudget(100, share_bytes=100)
    first, second = budget.share("a"), budget.share("b")
    await first.reserve(70)

    assert await second.reserve(10) == 10
    assert await second.reserve(15) == 15
    assert await second.reserve(50) == 5
    assert await second.reserve(50) == 0


async def test_one_owner_gets_half_and_does_not_hold_up_others_meanwhile() -> None:
    budget = MemoryBudget(100, share_bytes=100)
    first, second, other = budget.share("a"), budget.share("a"), budget.share("b")
    await first.reserve(40)
    second_waits = running(second.reserve(20))
    await settled()
    assert not second_waits.done()

    assert await other.reserve(50) == 50  # later, and at once
    first.settle(30)

    assert await second_waits == 20
    assert await second.reserve(50) == 0


async def test_answer_beyond_the_half_of_its_owner_is_granted_when_the_owner_has_nothing_else() -> None:
    budget = MemoryBudget(100, share_bytes=100)

    assert await budget.share("a").reserve(90) == 90


async def test_answer_with_memory_gets_none_while_others_wait() -> None:
    budget = MemoryBudget(100, share_bytes=100)
    first, second = budget.share("a"), budget.share("b")
    await first.reserve(70)
    waiting = running(second.reserve(50))
    await settled()

    assert await first.reserve(10) == 0
    first.settle(0)
    assert await waiting == 50


async def test_settled_answer_gives_back_what_it_did_not_take() -> None:
    budget = MemoryBudget(100, share_bytes=100)
    memory, other = budget.share("a"), budget.share("b")
    await memory.reserve(100)
    waiting = running(other.reserve(30))
    await settled()

    memory.settle(70)

    assert await waiting == 30
    assert budget.used_bytes == 100


async def test_first_batch_beyond_its_grant_is_counted_and_holds_others_back() -> None:
    budget = MemoryBudget(100, share_bytes=50)
    memory, other = budget.share("a"), budget.share("b")
    await memory.reserve(50)
    memory.settle(500)
    waiting, admitted = running(other.reserve(10)), running(budget.wait_free())
    await settled()
    assert not waiting.done()
    assert not admitted.done()

    memory.settle(0)

    assert await waiting == 10
    await admitted
    assert budget.used_bytes == 10


async def test_cancelled_wait_leaves_its_turn_to_the_next() -> None:
    budget = MemoryBudget(100, share_bytes=100)
    holder, cancelled, next_one = budget.share("a"), budget.share("b"), budget.share("c")
    await holder.reserve(60)
    cancelled_waits, next_waits = running(cancelled.reserve(90)), running(next_one.reserve(40))
    await settled()

    cancelled_waits.cancel()

    assert await next_waits == 40
    assert budget.used_bytes == 100
    assert cancelled.size_bytes == 0


async def test_wait_that_is_cancelled_after_its_grant_gives_the_memory_back() -> None:
    budget = MemoryBudget(100, share_bytes=100)
    holder, cancelled = budget.share("a"), budget.share("b")
    await holder.reserve(60)
    waits = running(cancelled.reserve(90))
    await settled()

    holder.settle(0)
    waits.cancel()
    await settled()

    assert waits.cancelled()
    assert budget.used_bytes == 0


async def test_more_than_the_total_is_granted_when_nothing_else_is_in_use() -> None:
    budget = MemoryBudget(100, share_bytes=100)

    await budget.take(1000)

    assert budget.used_bytes == 1000
    budget.give(1000)


@given(
    steps=st.lists(
        st.tuples(st.integers(0, 4), st.sampled_from(["reserve", "settle", "end", "cancel"]), st.integers(0, 150))
    )
)
def test_budget_is_never_exceeded_and_ends_empty(steps: list[tuple[int, str, int]]) -> None:
    async def play() -> None:
        budget = MemoryBudget(100, share_bytes=70)
        answers: list[AnswerMemory] = [budget.share(owner) for owner in "aabbc"]
        waits: dict[int, asyncio.Task[object]] = {}
        for index, action, size_bytes in steps:
            is_waiting = index in waits and not waits[index].done()
            if action == "cancel" and is_waiting:
                waits[index].cancel()
            elif not is_waiting and action == "reserve":
                waits[index] = running(answers[index].reserve(size_bytes))
            elif not is_waiting and action != "cancel":
                answers[index].settle(min(answers[index].size_bytes, size_bytes) if action == "settle" else 0)
            await settled()
            assert budget.used_bytes == sum(each.size_bytes for each in answers) <= 100
        while any(not each.done() for each in waits.values()):
            for index, each in enumerate(answers):
                if index not in waits or waits[index].done():
                    each.settle(0)
            await settled()
        for each in answers:
            each.settle(0)
        assert (budget.used_bytes, budget.waiting) == (0, 0)

    asyncio.run(play())


async def _seconds(clock: ManualClock, count: int) -> None:
    for _ in range(count):
        await settled()
        clock.advance(1.0)
    await settled()


async def test_client_that_does_nothing_is_cut_when_others_have_waited_for_its_memory() -> None:
    budget, clock, cut = MemoryBudget(100, share_bytes=100), ManualClock(), list[str]()
    watching = running(budget.watch(clock))
    idle, busy = budget.share("a"), budget.share("b")
    assert await idle.reserve(40) == 40
    assert await busy.reserve(40) == 40
    idle.await_client(clock.monotonic_s(), lambda: cut.append("idle"))
    await _seconds(clock, 20)
    assert cut == []  # nobody waits
    waiting = running(budget.share("c").reserve(50))
    for _ in range(4):
        busy.await_client(clock.monotonic_s(), lambda: cut.append("busy"))
        await _seconds(clock, 1)
    assert cut == []
    busy.await_client(clock.monotonic_s(), lambda: cut.append("busy"))
    await _seconds(clock, 2)
    assert set(cut) == {"idle"}
    idle.settle(0)
    assert await waiting == 50
    await _seconds(clock, 2)
    assert clock.sleeping == 0  # nobody waits, and nothing is watched
    watching.cancel()


async def test_client_that_has_done_its_part_is_not_cut() -> None:
    budget, clock, cut = MemoryBudget(100, share_bytes=100), ManualClock(), list[str]()
    watching = running(budget.watch(clock))
    done = budget.share("a")
    assert await done.reserve(90) == 90
    done.await_client(clock.monotonic_s(), lambda: cut.append("done"))
    done.client_came()
    waiting = running(budget.share("b").reserve(50))
    await _seconds(clock, 10)
    assert cut == []
    waiting.cancel()
    watching.cancel()


async def _stalled(budget: MemoryBudget, clock: ManualClock, cut: list[str], *clients: tuple[str, int]) -> None:
    """Let clients of these owners hold memory and do nothing, each for a second longer than the next one."""
    for owner, size_bytes in clients:
        memory = budget.share(owner)
        assert await memory.reserve(size_bytes) == size_bytes

        def end(owner: str = owner, memory: AnswerMemory = memory) -> None:
            cut.append(owner)
            memory.settle(0)

        memory.await_client(clock.monotonic_s(), end)
        clock.advance(1.0)


async def test_clients_that_do_nothing_are_cut_the_longest_idle_first_as_far_as_others_need() -> None:
    budget, clock, cut = MemoryBudget(100, share_bytes=100), ManualClock(), list[str]()
    watching = running(budget.watch(clock))
    await _stalled(budget, clock, cut, ("a", 30), ("b", 30), ("c", 30))
    clock.advance(60.0)
    waiting = running(budget.share("d").reserve(50))
    await _seconds(clock, 4)
    assert cut == []
    await _seconds(clock, 1)
    assert cut == ["a", "b"]
    assert await waiting == 50
    await _seconds(clock, 10)
    assert cut == ["a", "b"]
    watching.cancel()


async def test_client_that_does_nothing_is_not_cut_for_an_owner_that_has_its_half() -> None:
    budget, clock, cut = MemoryBudget(100, share_bytes=100), ManualClock(), list[str]()
    watching = running(budget.watch(clock))
    await _stalled(budget, clock, cut, ("a", 20), ("greedy", 40))
    busy = budget.share("greedy")
    assert await busy.reserve(10) == 10
    waiting = running(budget.share("greedy").reserve(20))
    await _seconds(clock, 10)
    assert cut == ["greedy"]
    assert await waiting == 20
    watching.cancel()
