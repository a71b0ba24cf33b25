"""Attempts of every store over a network at a server that always fails: each request has the configured number.

Subclass it; provide ``settings``, ``takes_parts`` and ``is_failed_part``.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from tests.fakes.clock import FakeClock
from tests.fakes.failing_http import FAILURES, FailingHttp, Failure, failing_http
from tierd.config import RemoteSettings
from tierd.errors import RemoteStorageError, RetriableRemoteStorageError
from tierd.model import ByteRange
from tierd.remote import Body, ObjectStore, ObjectStoreCall, open_object_store
from tierd.testing import chunked_body, chunks_of, content_of, file_body

ATTEMPTS = 3
TWO_PARTS_BYTES = (16 << 20) + 5

Call = Callable[[ObjectStore], Awaitable[object]]

CALLS: dict[str, tuple[str, Call]] = {
    "put": ("PUT POST", lambda store: store.put("folder/key", b"content")),
    "get": ("GET", lambda store: store.get("folder/key")),
    "range": ("GET", lambda store: store.get("folder/key", ByteRange(0, 9))),
    "head": ("HEAD GET", lambda store: store.head("folder/key")),
    "delete": ("DELETE", lambda store: store.delete("folder/key")),
    "list": ("GET", lambda store: store.list_objects("folder/")),
}
"""The methods of HTTP that each call makes its own request with, and the call."""


class StoreAttempts:
    """``settings`` of a store at an address, with a read timeout of a fraction of a second."""

    def settings(self, endpoint_url: str) -> dict[str, Any]:
        """Return the section ``remote`` of the configuration, without ``retry``."""
        raise NotImplementedError

    def takes_parts(self, server: FailingHttp, request: web.Request) -> web.Response | None:
        """Answer requests of an upload in parts except its first part; return None for all other requests."""
        raise NotImplementedError

    def is_failed_part(self, request: str) -> bool:
        """Return True for a counted request of the part that always fails."""
        raise NotImplementedError

    @pytest.mark.parametrize("failure", FAILURES)
    @pytest.mark.parametrize("operation", CALLS)
    async def test_request_that_always_fails_has_the_attempts_configured(
        self, operation: str, failure: Failure
    ) -> None:
        methods, call = CALLS[operation]
        async with failing_http(failure) as server, self._opened(server) as (store, attempts):
            with pytest.raises(RetriableRemoteStorageError):
                await call(store)
            assert {server.count(method) for method in methods.split()} <= {0, ATTEMPTS}
            assert sum(server.count(method) for method in methods.split()) >= ATTEMPTS
            assert max(server.requests.values()) == ATTEMPTS
            assert sum(attempts.values()) == ATTEMPTS

    @pytest.mark.parametrize("operation", CALLS)
    async def test_request_on_a_connection_kept_alive_is_not_repeated_by_the_client(self, operation: str) -> None:
        _, call = CALLS[operation]
        is_warm = asyncio.Event()

        def answer_while_warming(_: web.Request) -> web.Response | None:
            return None if is_warm.is_set() else web.Response(status=404)

        async with failing_http("reset", answer_while_warming) as server, self._opened(server) as (store, _):
            for _, warming in CALLS.values():
                with suppress(RemoteStorageError):
                    await warming(store)
            is_warm.set()
            server.requests.clear()
            with pytest.raises(RetriableRemoteStorageError):
                await call(store)
            assert max(server.requests.values()) == ATTEMPTS

    @pytest.mark.parametrize("failure", FAILURES)
    @pytest.mark.parametrize("kind", ["file", "chunks"])
    async def test_part_that_always_fails_has_the_attempts_configured_within_its_call(
        self, failure: Failure, kind: str, tmp_path: Path
    ) -> None:
        content = content_of(TWO_PARTS_BYTES)
        body: Body = (
            file_body(tmp_path / "segment", content) if kind == "file" else chunked_body(chunks_of(content, 1 << 20))
        )
        servers: list[FailingHttp] = []
        async with failing_http(failure, lambda request: self.takes_parts(servers[0], request)) as server:
            servers.append(server)
            async with self._opened(server) as (store, attempts):
                with pytest.raises(RetriableRemoteStorageError):
                    await store.put("folder/key", body)
                sent = {request: n for request, n in server.requests.items() if self.is_failed_part(request)}
                assert sum(sent.values()) == ATTEMPTS, server.requests
                assert max(server.requests.values()) <= ATTEMPTS
                assert attempts["upload_part", "retriable"] == ATTEMPTS
                assert attempts["put", "retriable"] == 1

    @asynccontextmanager
    async def _opened(self, server: FailingHttp) -> AsyncIterator[tuple[ObjectStore, Counter[tuple[str, str]]]]:
        attempts: Counter[tuple[str, str]] = Counter()

        def count(call: ObjectStoreCall) -> None:
            attempts[call.operation, call.outcome] += 1

        remote = self.settings(server.endpoint_url) | {"retry": {"attempts": ATTEMPTS}}
        store = open_object_store(RemoteSettings.model_validate(remote), clock=FakeClock(), on_attempt=count)
        try:
            yield store, attempts
        finally:
            await store.close()
