import asyncio

import pytest

from tierd.restore.changelog.run_to_end import run_to_end


async def test_result_and_error_of_the_work_are_passed_on() -> None:
    async def fail() -> None:
        raise ValueError("no")

    assert await run_to_end(asyncio.sleep(0, "done"), name="work") == "done"
    with pytest.raises(ValueError, match="no"):
        await run_to_end(fail(), name="work")


@pytest.mark.parametrize("fails", [False, True])
async def test_cancellation_waits_for_the_end_of_the_work(*, fails: bool) -> None:
    go_on = asyncio.Event()
    ended = []

    async def work() -> None:
        await go_on.wait()
        ended.append("work")
        if fails:
            raise ValueError("no")

    caller = asyncio.create_task(run_to_end(work(), name="work"))
    for _ in range(3):
        await asyncio.sleep(0)
        caller.cancel()
    await asyncio.sleep(0)
    assert not caller.done()
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await caller
    assert ended == ["work"]
