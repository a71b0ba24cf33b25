"""Slots: a semaphore whose size changes while it is in use."""

import asyncio
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tiering.setups import Tier
from tierd.config import CopySettings, ExpireSettings
from tierd.tiering.capacity import Slots


async def test_larger_size_admits_a_waiting_caller() -> None:
    slots = Slots(1)
    await slots.acquire()
    waiting = asyncio.create_task(slots.acquire())
    await asyncio.sleep(0)
    assert not waiting.done()
    slots.resize(2)
    await waiting
    assert (slots.size, slots.idle_ratio) == (2, 0.0)


async def test_smaller_size_takes_no_slot_from_its_holder() -> None:
    slots = Slots(3)
    for _ in range(3):
        await slots.acquire()
    slots.resize(1)
    slots.release()
    slots.release()
    assert slots.locked(), "the two slots were surplus"
    slots.release()
    assert (slots.locked(), slots.idle_ratio) == (False, 1.0)


async def test_idle_ratio_is_the_share_of_free_slots() -> None:
    slots = Slots(4)
    assert slots.idle_ratio == 1.0
    await slots.acquire()
    assert slots.idle_ratio == 0.75


def test_resize_to_zero_slots_is_refused() -> None:
    with pytest.raises(ValueError, match="admit no task"):
        Slots(1).resize(0)


@given(steps=st.lists(st.one_of(st.integers(1, 5), st.sampled_from(["take", "give"])), max_size=40))
def test_free_slots_equal_the_size_once_all_are_released(steps: list[int | str]) -> None:
    async def story() -> None:
        slots, taken = Slots(2), 0
        for step in steps:
            if isinstance(step, int):
                slots.resize(step)
            elif step == "take" and not slots.locked():
                await slots.acquire()
                taken += 1
            elif step == "give" and taken:
                slots.release()
                taken -= 1
        for _ in range(taken):
            slots.release()
        for _ in range(10):  # a free slot beyond a smaller size is dropped after its next use
            if not slots.locked():
                await slots.acquire()
                slots.release()
        free = 0
        while not slots.locked():
            await slots.acquire()
            free += 1
        assert free == slots.size

    asyncio.run(story())


@pytest.mark.spec("remote-tiering 195")
async def test_copies_and_deletions_use_the_new_number_of_slots(tmp_path: Path) -> None:
    session = Tier(tmp_path, []).session(settings=CopySettings(concurrency=2), expire=ExpireSettings(concurrency=2))
    capacity = session.tiering.capacity
    capacity.resize(copies=5, deletions=1)
    assert (capacity.copies.size, capacity.deletions.size) == (5, 1)
    factory = session.manager._follower._roles._factory
    assert factory._copy_tools.slots is capacity.copies
    assert factory._expiration_tools.slots is capacity.deletions
