"""Lookups in several partitions."""

import asyncio
from functools import partial

import pytest

from tierd.serve.kafka.answers.partition_lookups import outcomes_of
from tierd.serve.kafka.loop_turns import LoopTurns

TURNS = LoopTurns().of("client")


async def _same(number: int) -> int:
    await asyncio.sleep(0)
    if number == 3:
        raise ValueError("three")
    return number


@pytest.mark.parametrize("count", [0, 1, 2, 7])
@pytest.mark.parametrize("at_once", [1, 3, 100])
async def test_outcomes_come_in_the_order_of_the_lookups(count: int, at_once: int) -> None:
    outcomes = await outcomes_of([partial(_same, n) for n in range(count)], at_once=at_once, timeout_s=5.0, turns=TURNS)
    assert [each if isinstance(each, int) else str(each) for each in outcomes] == [
        "three" if n == 3 else n for n in range(count)
    ]


async def test_lookups_behind_a_slow_one_time_out_with_it() -> None:
    begun = list[int]()

    async def forever(number: int) -> int:
        begun.append(number)
        await asyncio.Event().wait()
        return number

    outcomes = await outcomes_of([partial(forever, n) for n in range(4)], at_once=2, timeout_s=0.02, turns=TURNS)
    assert [type(each) for each in outcomes] == [TimeoutError] * 4
    assert begun == [0, 1, 2, 3]
