"""A daemon may end at each of its calls of the store: what clients were told holds, and they go on elsewhere."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from typing import TypeVar

import pytest
from kio.schema.delete_groups.v2.request import DeleteGroupsRequest
from kio.schema.delete_groups.v2.response import DeleteGroupsResponse
from kio.schema.errors import ErrorCode
from kio.schema.types import GroupId

from tests.serve.kafka.groups.asked_groups import GROUP, AskedGroups, FakeConsumer, become_stable, settle
from tierd.metadata import Batch, KeyValueStore, MemoryKeyValueStore

OK = ErrorCode.none
CALLS = 60  # more than the story has
_T = TypeVar("_T")


class EndingStore(KeyValueStore):
    """A store whose daemon ends during one call, which takes effect or does not.

    Attributes:
        ended: is set then; the call never returns.
    """

    def __init__(self, inner: KeyValueStore, *, last_call: int, takes_effect: bool) -> None:
        self.ended = asyncio.Event()
        self._inner = inner
        self._left = last_call
        self._takes_effect = takes_effect

    async def get(self, key: str) -> bytes | None:
        return await self._called(lambda: self._inner.get(key))

    async def get_many(self, keys: Iterable[str]) -> dict[str, bytes]:
        return await self._called(lambda: self._inner.get_many(keys))

    async def scan(self, prefix: str) -> list[tuple[str, bytes]]:
        return await self._called(lambda: self._inner.scan(prefix))

    async def apply(self, batch: Batch) -> None:
        await self._called(lambda: self._inner.apply(batch))

    async def close(self) -> None:
        await self._inner.close()

    async def _called(self, call: Callable[[], Awaitable[_T]]) -> _T:
        self._left -= 1
        if self._left >= 0:
            return await call()
        if self._takes_effect:
            await call()
        self.ended.set()
        await asyncio.Event().wait()
        raise AssertionError("it has ended")


class Told:
    """Everything that clients were told before the end.

    Attributes:
        offset: of partition 0, as it was acknowledged last, and ``asked``, of the commit that was under way.
        generation: highest that a member heard of.
        member_id: of the static member ``one``.
        is_deleted: the deletion of the group was acknowledged; ``may_be_deleted``: it was asked for.
    """

    def __init__(self) -> None:
        self.offset = self.asked = -1
        self.generation = 0
        self.member_id = ""
        self.is_deleted = self.may_be_deleted = False


async def story(endpoint: AskedGroups, told: Told) -> None:
    """Members come, commit, are replaced and leave; a simple consumer commits; the group is deleted."""
    alice, bob = FakeConsumer(endpoint, "alice", instance_id="one"), FakeConsumer(endpoint, "bob")
    await become_stable(alice, bob, endpoint=endpoint)
    told.generation, told.member_id = 1, alice.member_id
    for offset in (10, 11):
        await commit(alice, offset, told)
    alice, told.member_id = FakeConsumer(endpoint, "alice", instance_id="one"), ""
    assert await alice.join() is OK
    told.member_id = alice.member_id
    assert await bob.leave() is OK
    assert await alice.join() is OK
    told.generation = alice.generation
    await alice.sync({alice.member_id: b"all"})
    await commit(alice, 12, told)
    assert await alice.leave() is OK
    told.member_id = ""
    await commit(FakeConsumer(endpoint), 13, told)
    told.may_be_deleted = True
    request = DeleteGroupsRequest(groups_names=(GroupId(GROUP),))
    deleted = await endpoint.answer(request, DeleteGroupsResponse)
    assert deleted.results[0].error_code is OK
    told.is_deleted = True


async def commit(consumer: FakeConsumer, offset: int, told: Told) -> None:
    told.asked = offset
    assert await consumer.commit(offset) is OK
    told.offset = offset


async def check(endpoint: AskedGroups, told: Told) -> None:
    """Compare what another daemon finds with what clients were told."""
    possible = {-1} if told.is_deleted else {told.offset, told.asked}
    assert (await endpoint.committed())[0] in (possible | {-1} if told.may_be_deleted else possible)
    if told.member_id:
        static = FakeConsumer(endpoint, instance_id="one")
        static.member_id, static.generation = told.member_id, told.generation
        assert await static.beat() in (ErrorCode.rebalance_in_progress, ErrorCode.illegal_generation)
    simple = FakeConsumer(endpoint)
    joining = asyncio.create_task(simple.join())
    for _ in range(14):
        if not joining.done():
            await endpoint.pass_time(5.0, step_s=5.0)
    assert await joining is OK
    assert simple.generation > told.generation or told.may_be_deleted
    assert await simple.sync({simple.member_id: b"all"}) == b"all"
    assert await simple.commit(99) is OK
    assert (await endpoint.committed())[0] == 99


@pytest.mark.parametrize("takes_effect", [False, True])
async def test_daemon_that_ends_at_any_call_of_the_store_leaves_what_clients_were_told(takes_effect: bool) -> None:
    for last_call in range(CALLS):
        inner, told = MemoryKeyValueStore(), Told()
        store = EndingStore(inner, last_call=last_call, takes_effect=takes_effect)
        async with AskedGroups(store).running() as endpoint:
            telling = asyncio.create_task(story(endpoint, told))
            ending = asyncio.create_task(store.ended.wait())
            await asyncio.wait({telling, ending}, return_when=asyncio.FIRST_COMPLETED)
            await settle()
            ending.cancel()
            if telling.done():
                await telling
                break
            await endpoint.kill()
            telling.cancel()
            with suppress(asyncio.CancelledError, AssertionError):
                await telling
        async with AskedGroups(inner).running() as another:
            await check(another, told)
    else:
        pytest.fail("the story has more calls")
