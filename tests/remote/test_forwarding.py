import inspect
from collections.abc import Awaitable, Callable
from typing import TypeVar

import pytest

from tests.fakes.clock import FakeClock
from tests.fakes.memory_object_store import MemoryObjectStore
from tierd.remote import ForwardedCall, ForwardingObjectStore, ObjectStore, ObjectVersion, UnfinishedUpload
from tierd.remote.deadlines import Deadlines
from tierd.remote.limited import LimitedObjectStore
from tierd.remote.observed import ObservedObjectStore
from tierd.remote.retrying import Retry, RetryingObjectStore

T = TypeVar("T")

UPLOAD = UnfinishedUpload("a", "upload", 0)
VERSION = ObjectVersion(key="a", version_id="", size_bytes=3, is_current=True)


class RecordingStore(ForwardingObjectStore):
    """Notes what goes through ``_forward``."""

    def __init__(self, inner: ObjectStore) -> None:
        super().__init__(inner)
        self.calls: list[ForwardedCall] = []

    async def _forward(self, call: ForwardedCall, send: Callable[[], Awaitable[T]]) -> T:
        self.calls.append(call)
        return await send()


async def make_every_call(store: ObjectStore) -> list[object]:
    """Make each call of the promise but ``close``; return the answers."""
    await store.put("a", b"one")
    await store.replace("a", b"two", previous=b"one")
    answers = [
        await store.get("a"),
        await store.head("a"),
        await store.list_objects("", start_after="A", limit=7),
        await store.list_unfinished_uploads(""),
        await store.list_versions("a"),
    ]
    await store.abort_upload(UPLOAD)
    await store.check()
    await store.delete_version(VERSION)
    await store.delete("a")
    return answers


async def test_wrapper_gives_the_answers_of_the_inner_store_for_every_call() -> None:
    clock = FakeClock()
    assert await make_every_call(ForwardingObjectStore(MemoryObjectStore(clock=clock))) == await make_every_call(
        MemoryObjectStore(clock=clock)
    )


async def test_every_call_of_the_promise_but_close_goes_through_forward() -> None:
    store = RecordingStore(MemoryObjectStore())
    await make_every_call(store)
    promised = {name for name, _ in inspect.getmembers(ObjectStore, inspect.iscoroutinefunction)}
    assert len(store.calls) == len(promised - {"close"})
    assert {call.operation for call in store.calls if call.is_change} == {
        "put",
        "replace",
        "delete",
        "abort",
        "delete_version",
    }


@pytest.mark.parametrize("kind", ["limited", "retrying", "observed"])
async def test_wrapper_closes_the_inner_store(kind: str) -> None:
    class ClosableStore(MemoryObjectStore):
        closed = 0

        async def close(self) -> None:
            self.closed += 1

    inner, clock = ClosableStore(), FakeClock()
    wrappers: dict[str, Callable[[], ObjectStore]] = {
        "limited": lambda: LimitedObjectStore(inner, deadlines=Deadlines(), max_calls=1),
        "retrying": lambda: RetryingObjectStore(inner, Retry(clock=clock)),
        "observed": lambda: ObservedObjectStore(inner, on_call=lambda _: None, clock=clock),
    }
    store = wrappers[kind]()
    await store.close()
    assert inner.closed == 1
