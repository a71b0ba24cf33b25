"""Faults of the network under an object store. Subclass it; provide ``store``, ``impatient`` and ``path``."""

from collections.abc import Callable
from pathlib import Path
from typing import Literal

import pytest

from tests.fakes.clock import FakeClock
from tests.services.faulty_path import FaultyPath
from tests.services.sockets import wait_disconnected
from tierd.errors import RetriableRemoteStorageError, TierError
from tierd.model import ByteRange
from tierd.remote import Body, FileBody, ObjectStore
from tierd.remote.deadlines import Deadlines
from tierd.remote.retrying import Retry, RetryingObjectStore
from tierd.testing import LARGE_BYTES, chunked_body, chunks_of, content_of, file_body

SHORT = Deadlines(base_s=3, min_bytes_per_second=1e8)
"""For ``store``, whose read timeout must be longer."""


class ObjectStoreFaults:
    """``store`` goes over ``path`` and has the deadlines ``SHORT``; ``impatient`` has a read timeout of one second."""

    @pytest.fixture(params=["file", "chunks"])
    def large(self, request: pytest.FixtureRequest, tmp_path: Path) -> Body:
        content = content_of(LARGE_BYTES)
        if request.param == "file":
            return file_body(tmp_path / "segment", content)
        return chunked_body(chunks_of(content, 1 << 20))

    @pytest.mark.parametrize("stream", ["upstream", "downstream"])
    async def test_a_connection_that_is_reset_is_retriable(
        self, store: ObjectStore, path: FaultyPath, large: Body, stream: Literal["upstream", "downstream"]
    ) -> None:
        await store.check()
        path.add("reset_peer", stream)
        with pytest.raises(RetriableRemoteStorageError):
            await store.put("key", large)
        path.remove("reset_peer", stream)
        await store.put("key", large)
        assert await store.get("key") == content_of(LARGE_BYTES)

    async def test_upload_that_the_network_swallows_ends_at_its_deadline(
        self, store: ObjectStore, path: FaultyPath, tmp_path: Path
    ) -> None:
        body = file_body(tmp_path / "segment", content_of(LARGE_BYTES))
        swallowing = _OnFirstStep(lambda: path.add("timeout", "upstream", timeout=0))
        with pytest.raises(RetriableRemoteStorageError, match="did not finish within"):
            await store.put("key", FileBody(body.path, body.byte_range, body.checksums, swallowing.pace))
        path.remove("timeout", "upstream")
        assert await store.list_objects("") == []
        await store.put("key", body)

    async def test_put_over_a_slow_connection_succeeds_and_over_a_slower_one_times_out(
        self, store: ObjectStore, path: FaultyPath, tmp_path: Path
    ) -> None:
        body = file_body(tmp_path / "segment", content_of(2 << 20))
        path.add("bandwidth", "upstream", rate=20_000)
        await store.put("slow", body)
        path.remove("bandwidth", "upstream")
        path.add("bandwidth", "upstream", rate=100)
        with pytest.raises(RetriableRemoteStorageError, match="did not finish within"):
            await store.put("too slow", body)

    async def test_abandoned_put_keeps_no_connection(
        self, store: ObjectStore, path: FaultyPath, tmp_path: Path
    ) -> None:
        await store.check()
        path.add("bandwidth", "upstream", rate=1)
        with pytest.raises(RetriableRemoteStorageError, match="did not finish within"):
            await store.put("key", file_body(tmp_path / "segment", content_of(LARGE_BYTES)))
        await store.close()
        await wait_disconnected(path.address)

    async def test_calls_over_a_connection_with_latency_succeed(
        self, store: ObjectStore, path: FaultyPath, large: Body
    ) -> None:
        path.add("latency", "upstream", latency=100)
        await store.put("key", large)
        assert await store.get("key", ByteRange(5, 9)) == content_of(LARGE_BYTES)[5:10]

    @pytest.mark.parametrize("size", [1000, LARGE_BYTES])
    async def test_put_with_a_lost_reply_succeeds_at_the_next_attempt(
        self, store: ObjectStore, path: FaultyPath, tmp_path: Path, size: int
    ) -> None:
        await store.check()
        failures: list[str] = []

        def heal(operation: str, error: TierError) -> None:
            failures.append(f"{operation}: {error}")
            path.remove("limit_data", "downstream")

        retry = Retry(clock=FakeClock(), attempts=2, on_retry=heal)
        path.disable()  # a connection kept alive would not meet the toxic
        path.enable()
        path.add("limit_data", "downstream", bytes=5)
        await RetryingObjectStore(store, retry).put("key", file_body(tmp_path / "segment", content_of(size)))
        assert len(failures) == 1
        assert await store.get("key") == content_of(size)

    async def test_replacement_with_a_lost_reply_succeeds_at_the_next_attempt(
        self, store: ObjectStore, path: FaultyPath
    ) -> None:
        await store.put("key", b"first")
        await store.replace("key", b"second", previous=b"first")
        path.disable()
        path.enable()
        path.add("limit_data", "downstream", bytes=5)
        with pytest.raises(RetriableRemoteStorageError):
            await store.replace("key", b"third", previous=b"second")
        path.remove("limit_data", "downstream")
        await store.replace("key", b"third", previous=b"second")
        await store.replace("key", b"third", previous=b"second")
        assert await store.get("key") == b"third"

    async def test_truncated_answer_is_retriable(self, store: ObjectStore, path: FaultyPath) -> None:
        content = content_of(1 << 20)
        await store.put("key", content)
        path.disable()
        path.enable()
        path.add("limit_data", "downstream", bytes=500_000)
        for byte_range in (None, ByteRange(0, len(content) - 1)):
            with pytest.raises(RetriableRemoteStorageError):
                await store.get("key", byte_range)
        path.remove("limit_data", "downstream")
        assert await store.get("key") == content

    async def test_answer_that_falls_silent_ends_at_the_read_timeout(
        self, impatient: ObjectStore, path: FaultyPath
    ) -> None:
        await impatient.put("key", b"content")
        path.add("timeout", "downstream", timeout=0)
        with pytest.raises(RetriableRemoteStorageError):
            await impatient.get("key", ByteRange(0, 3))
        with pytest.raises(RetriableRemoteStorageError):
            await impatient.head("key")
        path.remove("timeout", "downstream")
        assert await impatient.get("key", ByteRange(0, 3)) == b"cont"

    async def test_a_connection_that_is_refused_is_retriable(
        self, store: ObjectStore, path: FaultyPath, large: Body
    ) -> None:
        await store.check()
        path.disable()
        calls = (
            store.check,
            lambda: store.get("key"),
            lambda: store.head("key"),
            lambda: store.put("key", large),
            lambda: store.put("key", b"content"),
            lambda: store.replace("key", b"a", previous=b"b"),
            lambda: store.delete("key"),
            lambda: store.list_objects(""),
        )
        for call in calls:
            with pytest.raises(RetriableRemoteStorageError, match="does not answer"):
                await call()
        path.enable()
        await store.put("key", large)


class _OnFirstStep:
    """Callback before the first bytes of a put are sent."""

    def __init__(self, action: Callable[[], None]) -> None:
        self._action: Callable[[], None] | None = action

    async def pace(self, size_bytes: int) -> None:
        assert size_bytes > 0
        if self._action is not None:
            action, self._action = self._action, None
            action()
