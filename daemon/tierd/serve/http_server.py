"""HttpServer: ``/metrics``, ``/livez``, ``/readyz``, ``/status`` and a page."""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Callable, Sequence

import structlog
from aiohttp import web

from tierd.errors import ListenError
from tierd.serve.page import render_page
from tierd.serve.status import StatusSnapshot

log = structlog.get_logger()


class HttpServer:
    """Answers from snapshots; every function it is given returns at once."""

    def __init__(
        self,
        *,
        host: str,
        port: int,
        metrics: Callable[[], tuple[bytes, str]],
        stalled: Callable[[], str | None],
        not_ready: Callable[[], Sequence[str]],
        status: Callable[[], StatusSnapshot],
    ) -> None:
        """``metrics`` gives body and content type; ``stalled`` names what hangs; ``not_ready`` lists the causes."""
        self._host = host
        self._port = port
        self._metrics = metrics
        self._stalled = stalled
        self._not_ready = not_ready
        self._status = status

    @contextlib.asynccontextmanager
    async def listening(self) -> AsyncIterator[str]:
        """Serve while the context lasts; gives the address as a URL, with the port that was really bound.

        Raises:
            ListenError: the address cannot be bound.
        """
        application = web.Application()
        application.add_routes(
            [
                web.get("/", self._page),
                web.get("/metrics", self._get_metrics),
                web.get("/livez", self._livez),
                web.get("/readyz", self._readyz),
                web.get("/status", self._get_status),
            ]
        )
        runner = web.AppRunner(application, access_log=None, handle_signals=False, shutdown_timeout=1.0)
        await runner.setup()
        try:
            await self._bind(runner)
            yield f"http://{self._shown_host()}:{runner.addresses[0][1]}"
        finally:
            # A stop is no reason to keep a slow scraper's connection: one second, then it is cut.
            await asyncio.shield(runner.cleanup())

    async def _bind(self, runner: web.AppRunner) -> None:
        try:
            await web.TCPSite(runner, self._host, self._port).start()
        except OSError as error:
            problem = os.strerror(error.errno) if error.errno else str(error)
            raise ListenError(
                f"http.listen {self._shown_host()}:{self._port} cannot be bound: {problem}",
                remedy="choose another address in http.listen, or end what listens there",
            ) from error

    def _shown_host(self) -> str:
        return f"[{self._host}]" if ":" in self._host else self._host

    async def _page(self, _request: web.Request) -> web.Response:
        return web.Response(text=render_page(self._status()), content_type="text/html")

    async def _get_metrics(self, _request: web.Request) -> web.Response:
        body, content_type = self._metrics()
        return web.Response(body=body, headers={"Content-Type": content_type})

    async def _livez(self, _request: web.Request) -> web.Response:
        culprit = self._stalled()
        return _verdict([] if culprit is None else [f"{culprit} makes no progress"])

    async def _readyz(self, _request: web.Request) -> web.Response:
        return _verdict(self._not_ready())

    async def _get_status(self, _request: web.Request) -> web.Response:
        return web.json_response(self._status().to_json())


def _verdict(causes: Sequence[str]) -> web.Response:
    if causes:
        return web.Response(status=503, text="\n".join(causes) + "\n")
    return web.Response(text="ok\n")
