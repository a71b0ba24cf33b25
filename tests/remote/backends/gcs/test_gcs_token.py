"""Token that all requests share: the end of the requests for it."""

import asyncio

from tests.fakes.left_tasks import nothing_left
from tierd.remote.backends.gcs.gcs_connection import _SharedToken
from tierd.testing import cancel_at


async def test_requests_for_a_token_end_however_the_close_is_cancelled() -> None:
    async def ask() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            for _ in range(3):
                await asyncio.sleep(0)

    async def settle() -> None:
        token = _SharedToken.__new__(_SharedToken)  # without a session and an account
        token.acquiring = asyncio.create_task(ask())
        token._waits = {asyncio.create_task(ask()) for _ in range(3)}
        await asyncio.sleep(0)
        await token.settle()

    suspension = 1
    with nothing_left():
        while await cancel_at(suspension + 1, settle):  # the first one is the test's own
            suspension += 1
    assert suspension > 1
