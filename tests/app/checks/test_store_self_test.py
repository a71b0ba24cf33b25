import pytest

from tests.fakes.clock import FakeClock
from tests.fakes.memory_object_store import MemoryObjectStore
from tierd.app.checks.checklist import Checklist
from tierd.app.checks.store_self_test import StoreSelfTest
from tierd.errors import (
    RemoteAccessError,
    RemoteObjectRetainedError,
    RetriableRemoteStorageError,
)
from tierd.model import ByteRange
from tierd.remote import Body, ObjectInfo, ObjectStore
from tierd.testing import cancel_at

FOLDER = "tier/cluster/self-test/1/"
NAMES = [
    "reach",
    "put",
    "conditional put",
    "ranged get",
    "list",
    "replace",
    "clock",
    "large put",
    "abort",
    "delete",
]


def self_test(store: ObjectStore, clock: FakeClock) -> StoreSelfTest:
    return StoreSelfTest(store, FOLDER, large_bytes=(3 << 20) + 7, clock=clock)


async def outcomes(store: MemoryObjectStore, clock: FakeClock) -> dict[str, str]:
    """Run the self test beside an object of another owner, and check that only that object is left."""
    await MemoryObjectStore.put(store, "tier/cluster/other", b"somebody else's")
    checklist = Checklist()
    await self_test(store, clock).run(checklist)
    left = [info.key for info in await MemoryObjectStore.list_objects(store, "")]
    assert left == ["tier/cluster/other"]
    return {step.name: step.outcome for step in checklist.steps}


async def test_a_sound_store_passes_every_step() -> None:
    clock = FakeClock()
    assert await outcomes(MemoryObjectStore(clock=clock), clock) == dict.fromkeys(NAMES, "ok")


async def test_store_that_overwrites_fails_the_conditional_put() -> None:
    class Overwriting(MemoryObjectStore):
        async def put(self, key: str, body: Body) -> None:
            await self.delete(key)
            await super().put(key, body)

    clock = FakeClock()
    found = await outcomes(Overwriting(clock=clock), clock)
    assert found["conditional put"] == "failed"


async def test_store_that_replaces_blindly_fails_the_replace() -> None:
    class Blind(MemoryObjectStore):
        async def replace(self, key: str, content: bytes, *, previous: bytes) -> None:
            await super().replace(key, content, previous=await self.get(key))

    clock = FakeClock()
    assert (await outcomes(Blind(clock=clock), clock))["replace"] == "failed"


async def test_store_whose_ranges_are_wrong_fails_the_ranged_get() -> None:
    class Shifted(MemoryObjectStore):
        async def get(self, key: str, byte_range: ByteRange | None = None) -> bytes:
            content = await super().get(key)
            return content if byte_range is None else content[byte_range.start : byte_range.end]

    clock = FakeClock()
    assert (await outcomes(Shifted(clock=clock), clock))["ranged get"] == "failed"


async def test_store_that_lists_late_fails_the_list() -> None:
    class Late(MemoryObjectStore):
        async def list_objects(
            self, prefix: str, *, start_after: str = "", limit: int | None = None
        ) -> list[ObjectInfo]:
            return [] if limit else await super().list_objects(prefix, start_after=start_after)

    clock = FakeClock()
    assert (await outcomes(Late(clock=clock), clock))["list"] == "failed"


@pytest.mark.parametrize(("skew_s", "outcome"), [(-3600, "failed"), (-30, "ok"), (30, "ok"), (3600, "failed")])
async def test_clocks_that_are_apart_fail_the_clock_step(skew_s: int, outcome: str) -> None:
    clock, theirs = FakeClock(), FakeClock()
    clock.advance(10_000)
    theirs.advance(10_000 + skew_s)
    assert (await outcomes(MemoryObjectStore(clock=theirs), clock))["clock"] == outcome


async def test_self_test_ends_at_a_store_without_an_answer() -> None:
    class Away(MemoryObjectStore):
        async def check(self) -> None:
            raise RetriableRemoteStorageError("no answer", remedy="look at the network")

    checklist = Checklist()
    await self_test(Away(), FakeClock()).run(checklist)
    assert [(step.name, step.outcome, step.next_step) for step in checklist.steps] == [
        ("reach", "unreachable", "look at the network")
    ]


async def test_self_test_ends_at_a_store_that_refuses_writes() -> None:
    class ReadOnly(MemoryObjectStore):
        async def put(self, key: str, body: Body) -> None:
            raise RemoteAccessError("refused", remedy="allow it")

    checklist = Checklist()
    await self_test(ReadOnly(), FakeClock()).run(checklist)
    assert [(step.name, step.outcome) for step in checklist.steps] == [("reach", "ok"), ("put", "failed")]


async def test_retained_objects_of_the_self_test_are_named() -> None:
    class Locked(MemoryObjectStore):
        async def delete(self, key: str) -> None:
            raise RemoteObjectRetainedError(f"{key} is locked", remedy="wait")

    checklist, clock = Checklist(), FakeClock()
    await self_test(Locked(clock=clock), clock).run(checklist)
    failed = [(step.name, step.next_step) for step in checklist.steps if step.outcome != "ok"]
    assert failed == [("delete", "wait"), ("clean up", f"remove everything below {FOLDER}")]


async def test_self_test_cancelled_at_any_await_leaves_no_object() -> None:
    clock = FakeClock()
    store = MemoryObjectStore(clock=clock)
    number = 1
    while await cancel_at(number, lambda: self_test(store, clock).run(Checklist())):
        assert await store.list_objects("") == []
        number += 1
    assert number > 1
