"""FailingHttp: an HTTP server that fails the requests of the test's choice in one way, and counts all requests."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Literal, TypeAlias

from aiohttp import web

Failure: TypeAlias = Literal["busy", "reset", "silent"]
"""Answer 503; cut the connection after the request was read; never answer."""

FAILURES: tuple[Failure, ...] = ("busy", "reset", "silent")

Healthy: TypeAlias = Callable[[web.Request], web.Response | None]
"""The answer to a request; None lets the request fail."""


class FailingHttp:
    """Server that returns the answers of ``healthy``, fails other requests, and counts them by method and address.

    Attributes:
        requests: number of times that each request came.
    """

    def __init__(self, failure: Failure, healthy: Healthy) -> None:
        self.endpoint_url = ""
        self.requests: Counter[str] = Counter()
        self._failure = failure
        self._healthy = healthy
        self._is_closed = asyncio.Event()

    def count(self, method: str, word: str = "") -> int:
        """Return how many requests of ``method`` came whose address contains ``word``."""
        return sum(n for request, n in self.requests.items() if request.startswith(f"{method} ") and word in request)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Answer one request, or fail it."""
        await request.read()
        self.requests[f"{request.method} {request.rel_url}"] += 1
        answer = self._healthy(request)
        if answer is not None:
            return answer
        if self._failure == "busy":
            return web.Response(status=503, text="busy")
        if self._failure == "silent":
            await self._is_closed.wait()
        if request.transport is not None:  # the client may have closed the connection
            request.transport.abort()
        raise asyncio.CancelledError

    def end(self) -> None:
        """Release the requests that were never answered."""
        self._is_closed.set()


@asynccontextmanager
async def failing_http(failure: Failure, healthy: Healthy = lambda _: None) -> AsyncIterator[FailingHttp]:
    """Run a server on a free port of this host."""
    server = FailingHttp(failure, healthy)
    application = web.Application(client_max_size=1 << 30)
    application.router.add_route("*", "/{path:.*}", server.handle)
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    host, port = runner.addresses[0][:2]
    server.endpoint_url = f"http://{host}:{port}"
    try:
        yield server
    finally:
        server.end()
        await runner.cleanup()
