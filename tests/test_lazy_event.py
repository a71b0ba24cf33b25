"""LazyEvent does what an event of asyncio does, step by step."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tierd.lazy_event import LazyEvent

STEPS = st.lists(st.sampled_from(["set", "clear", "wait", "cancel", "turn"]), max_size=30)


async def _outcomes(event: asyncio.Event, steps: list[str]) -> list[object]:
    waits: list[asyncio.Task[bool]] = []
    seen: list[object] = []
    for step in steps:
        match step:
            case "set":
                event.set()
            case "clear":
                event.clear()
            case "wait":
                waits.append(asyncio.create_task(event.wait()))
            case "cancel" if waits:
                waits[len(seen) % len(waits)].cancel()
            case "turn":
                await asyncio.sleep(0)
        ended = [(each.done(), each.done() and each.cancelled()) for each in waits]
        seen.append((event.is_set(), ended))
    for each in waits:
        each.cancel()
    results = await asyncio.gather(*waits, return_exceptions=True)
    return [*seen, [True if each is True else type(each) for each in results]]


@given(STEPS)
def test_every_sequence_of_steps_has_the_outcome_of_an_event_of_asyncio(steps: list[str]) -> None:
    async def both() -> tuple[list[object], list[object]]:
        return await _outcomes(LazyEvent(), steps), await _outcomes(asyncio.Event(), steps)

    ours, theirs = asyncio.run(both())
    assert ours == theirs


async def test_event_that_is_cleared_at_once_still_releases_all_that_waited() -> None:
    event = LazyEvent()
    waits = [asyncio.create_task(event.wait()) for _ in range(3)]
    await asyncio.sleep(0)
    event.set()
    event.clear()
    assert await asyncio.gather(*waits) == [True] * 3
    assert repr(event) == "<LazyEvent unset, waiting: 0>"


async def test_cancelled_wait_leaves_nothing_behind() -> None:
    event = LazyEvent()
    wait = asyncio.create_task(event.wait())
    await asyncio.sleep(0)
    assert repr(event) == "<LazyEvent unset, waiting: 1>"
    wait.cancel()
    with pytest.raises(asyncio.CancelledError):
        await wait
    assert repr(event) == "<LazyEvent unset, waiting: 0>"
