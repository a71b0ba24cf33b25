import pytest

from tests.fakes.clock import FakeClock
from tierd.app.checklist import Checklist
from tierd.app.store_self_test import StoreSelfTest
from tierd.errors import (
    RemoteAccessError,
    RemoteObjectRetainedError,
    RetriableRemoteStorageError,
)
from tierd.model import ByteRange
from tierd.remote import Body, ObjectInfo, ObjectStore
from tierd.remote.backends.memory_object_store import MemoryObjectStore
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
    """Run the test beside somebody else's object, and see that only that is left."""
    await MemoryObjectStore.put(store, "tier/cluster/other", b"somebody else's")
    checklist = Checklist()
    await self_test(store, clock).run(checklist)
    left = [info.key for info in await MemoryObjectStore.list_objects(store, "")]
    assert left == ["tier/cluster/other"]
    return {step.name: step.outcome for step in checklist.steps}


async def test_a_sound_store_passes_every_step() -> None:
    clock = FakeClock()
    assert await outcomes(MemoryObjectStore(clock=clock), clock) == dict.fromkeys(NAMES, "ok")


async def test_a_store_that_overwrites_is_found_out() -> None:
    class Overwriting(MemoryObjectStore):
        async def put(self, key: str, body: Body) -> None:
            await self.delete(key)
            await super().put(key, body)

    clock = FakeClock()
    found = await outcomes(Overwriting(clock=clock), clock)
    assert found["conditional put"] == "failed"


async def test_a_store_that_replaces_blindly_is_found_out() -> None:
    class Blind(MemoryObjectStore):
        async def replace(self, key: str, content: bytes, *, previous: bytes) -> None:
            await super().replace(key, content, previous=await self.get(key))

    clock = FakeClock()
    assert (await outcomes(Blind(clock=clock), clock))["replace"] == "failed"


async def test_a_store_whose_ranges_are_wrong_is_found_out() -> None:
    class Shifted(MemoryObjectStore):
        async def get(self, key: str, byte_range: ByteRange | None = None) -> bytes:
            content = await super().get(key)
            return content if byte_range is None else content[byte_range.start : byte_range.end]

    clock = FakeClock()
    assert (await outcomes(Shifted(clock=clock), clock))["ranged get"] == "failed"


async def test_a_store_that_lists_late_is_found_out() -> None:
    class Late(MemoryObjectStore):
        async def list_objects(
            self, prefix: str, *, start_after: str = "", limit: int | None = None
        ) -> list[ObjectInfo]:
            return [] if limit else await super().list_objects(prefix, start_after=start_after)

    clock = FakeClock()
    assert (await outcomes(Late(clock=clock), clock))["list"] == "failed"


@pytest.mark.parametrize(("skew_s", "outcome"), [(-3600, "failed"), (-30, "ok"), (30, "ok"), (3600, "failed")])
async def test_clocks_that_are_apart_are_found_out(skew_s: int, outcome: str) -> None:
    clock, theirs = FakeClock(), FakeClock()
    clock.advance(10_000)
    theirs.advance(10_000 + skew_s)
    assert (await outcomes(MemoryObjectStore(clock=theirs), clock))["clock"] == outcome


async def test_a_store_that_does_not_answer_is_asked_nothing_more() -> None:
    class Away(MemoryObjectStore):
        async def check(self) -> None:
            raise RetriableRemoteStorageError("no answer", remedy="look at the network")

    checklist = Checklist()
    await self_test(Away(), FakeClock()).run(checklist)
    assert [(step.name, step.outcome, step.next_step) for step in checklist.steps] == [
        ("reach", "unreachable", "look at the network")
    ]


async def test_a_store_that_may_not_be_written_is_tried_no_further() -> None:
    class ReadOnly(MemoryObjectStore):
        async def put(self, key: str, body: Body) -> None:
            raise RemoteAccessError("refused", remedy="allow it")

    checklist = Checklist()
    await self_test(ReadOnly(), FakeClock()).run(checklist)
    assert [(step.name, step.outcome) for step in checklist.steps] == [("reach", "ok"), ("put", "failed")]


async def test_objects_that_are_retained_are_named() -> None:
    class Locked(MemoryObjectStore):
        async def delete(self, key: str) -> None:
            raise RemoteObjectRetainedError(f"{key} is locked", remedy="wait")

    checklist, clock = Checklist(), FakeClock()
    await self_test(Locked(clock=clock), clock).run(checklist)
    failed = [(step.name, step.next_step) for step in checklist.steps if step.outcome != "ok"]
    assert failed == [("delete", "wait"), ("clean up", f"remove everything below {FOLDER}")]


async def test_cancelled_at_any_await_it_leaves_nothing() -> None:
    clock = FakeClock()
    store = MemoryObjectStore(clock=clock)
    number = 1
    while await cancel_at(number, lambda: self_test(store, clock).run(Checklist())):
        assert await store.list_objects("") == []
        number += 1
    assert number > 1
