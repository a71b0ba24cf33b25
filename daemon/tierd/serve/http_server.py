"""HttpServer: ``/metrics``, ``/livez``, ``/readyz``, ``/status`` and the pages for people."""

import asyncio
import contextlib
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import cast

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from tierd.clock import Clock
from tierd.control_characters import visible
from tierd.errors import ListenError
from tierd.ports import Connection, ConnectionGate, accept_connections, listening_sockets, peer_of
from tierd.serve.page.page_routes import PageRoutes
from tierd.serve.page.page_sources import PageSources
from tierd.tasks import run_to_end

_MAX_HEADERS = 64
_STOP_TIMEOUT_S = 1.0
_KEEPALIVE_TIMEOUT_S = 60.0  # above every deadline of the gate, so that the gate decides
_MAX_LARGE_ANSWERS = 8  # at a time: the status of many thousands of partitions has several MiB
_SMALL_ANSWERS = frozenset({"/livez", "/readyz"})
_REST_FACTOR = 3.0
_LONGEST_REST_S = 1.0

_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class HttpServer:
    """HTTP server that answers from snapshots. ``sources`` answer within seconds, the other functions at once.

    Requests are GET without a body. The ``ConnectionGate`` decides which connections there are.
    """

    def __init__(
        self,
        *,
        host: str,
        port: int,
        metrics: Callable[[], tuple[bytes, str]],
        stalled: Callable[[], str | None],
        not_ready: Callable[[], Sequence[str]],
        sources: PageSources,
        gate: ConnectionGate,
        clock: Clock,
    ) -> None:
        """Answer from ``metrics`` (body and type), ``stalled`` (the task that hangs) and ``not_ready`` (the causes)."""
        self._host = host
        self._port = port
        self._metrics = metrics
        self._stalled = stalled
        self._not_ready = not_ready
        self._sources = sources
        self._gate = gate
        self._clock = clock
        self._large_answers = 0
        self._metrics_pace = _PacedAnswers(clock)
        self._status_pace = _PacedAnswers(clock)  # of their own: a status may wait for a disk that hangs
        self._page_pace = _PacedAnswers(clock)  # of their own: a page may wait for a store that is down

    @contextlib.asynccontextmanager
    async def listening(self, group: asyncio.TaskGroup) -> AsyncIterator[str]:
        """Serve while the context lasts; yield the address as a URL, with the port that was bound.

        Raises:
            ListenError: the address cannot be bound.
        """
        application = web.Application(middlewares=[self._answer])
        application.add_routes(
            [
                *PageRoutes(self._sources, self._clock).routes(),
                web.get("/metrics", self._get_metrics),
                web.get("/livez", self._livez),
                web.get("/readyz", self._readyz),
                web.get("/status", self._get_status),
            ]
        )
        runner = web.AppRunner(application, handle_signals=False, shutdown_timeout=_STOP_TIMEOUT_S)
        await runner.setup()
        tasks: list[asyncio.Task[None]] = []
        with contextlib.ExitStack() as opened:
            try:
                sockets = [opened.enter_context(each) for each in await self._bind()]
                tasks = [group.create_task(self._accept(each, runner), name="http accept") for each in sockets]
                tasks.append(group.create_task(self._gate.watch(), name="http deadlines"))
                yield f"http://{self._shown_host()}:{sockets[0].getsockname()[1]}"
            finally:
                for task in tasks:
                    task.cancel()
                # A slow scraper does not delay the stop: its connection is cut after one second.
                await run_to_end(_stop(tasks, runner), name="http stop")

    async def _bind(self) -> list[socket.socket]:
        try:
            return await listening_sockets(self._host, self._port)
        except OSError as error:
            problem = os.strerror(error.errno) if error.errno and error.errno > 0 else str(error)
            raise ListenError(
                f"http.listen {self._shown_host()}:{self._port} cannot be bound: {problem}",
                remedy="choose another address in http.listen, or end what listens there",
            ) from error

    async def _accept(self, listening: socket.socket, runner: web.AppRunner) -> None:
        assert runner.server is not None, "the runner is set up"
        server = runner.server

        async def serve(channel: socket.socket, connection: Connection) -> None:
            protocol = _Protocol(server, self._gate, connection)
            try:
                await asyncio.get_running_loop().connect_accepted_socket(lambda: protocol, channel)
            except OSError:  # the client went away meanwhile
                self._gate.leave(connection)

        await accept_connections(listening, self._gate, serve, clock=self._clock, peer=_peer)

    @web.middleware
    async def _answer(self, request: web.Request, handler: _Handler) -> web.StreamResponse:
        """Answer one request, and return when the peer has taken the answer."""
        protocol = request.protocol
        assert isinstance(protocol, _Protocol)
        self._gate.begin_answer(protocol.connection)
        await asyncio.sleep(0)  # otherwise requests that came together are all answered in one iteration of the loop
        is_large = request.path not in _SMALL_ANSWERS
        self._large_answers += is_large
        try:
            answer = await self._answer_to(request, handler)
            with contextlib.suppress(ConnectionError):  # the peer went away, or was cut: no failure of ours
                await answer.prepare(request)
                await answer.write_eof()
        finally:
            self._large_answers -= is_large
            self._gate.begin_request(protocol.connection)
        return answer

    async def _answer_to(self, request: web.Request, handler: _Handler) -> web.StreamResponse:
        if request.body_exists:
            refused = web.Response(status=413, text="a request has no body here\n")
            refused.force_close()
            return refused
        if request.path in _SMALL_ANSWERS:
            return await handler(request)
        if self._large_answers > _MAX_LARGE_ANSWERS:
            return web.Response(status=503, text="too many answers at a time\n", headers={"Retry-After": "1"})
        async with self._pace_of(request.path).one():
            return await handler(request) if request.transport is not None else _nothing()

    def _pace_of(self, path: str) -> "_PacedAnswers":
        return {"/metrics": self._metrics_pace, "/status": self._status_pace}.get(path, self._page_pace)

    def _shown_host(self) -> str:
        return f"[{self._host}]" if ":" in self._host else self._host

    async def _get_metrics(self, _request: web.Request) -> web.Response:
        body, content_type = self._metrics()
        return web.Response(body=body, headers={"Content-Type": content_type})

    async def _livez(self, _request: web.Request) -> web.Response:
        culprit = self._stalled()
        return _verdict([] if culprit is None else [f"{culprit} makes no progress"])

    async def _readyz(self, _request: web.Request) -> web.Response:
        return _verdict(self._not_ready())

    async def _get_status(self, _request: web.Request) -> web.Response:
        return web.json_response((await self._sources.status()).to_json())


def _nothing() -> web.Response:
    """Return the answer to a peer that went away while it waited."""
    return web.Response(status=503)


def _verdict(causes: Sequence[str]) -> web.Response:
    if causes:
        return web.Response(status=503, text="\n".join(map(visible, causes)) + "\n")
    return web.Response(text="ok\n")


class _PacedAnswers:
    """Large answers at a limited pace: one at a time, and then three times as long for the other work of the loop.

    Clients that ask without a pause would otherwise delay copies and holds.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = asyncio.Lock()
        self._next_s = clock.monotonic_s()

    @contextlib.asynccontextmanager
    async def one(self) -> AsyncIterator[None]:
        """Wait until the next answer may be made; the context is the time in which it is made."""
        async with self._lock:
            rest_s = self._next_s - self._clock.monotonic_s()
            if rest_s > 0:
                await self._clock.sleep(rest_s)
            began_s = self._clock.monotonic_s()
            try:
                yield
            finally:
                ended_s = self._clock.monotonic_s()
                self._next_s = ended_s + min(_REST_FACTOR * (ended_s - began_s), _LONGEST_REST_S)


class _Protocol(web.RequestHandler):
    """HTTP protocol of one connection; the connection gives its place back at its end."""

    __slots__ = ("_gate", "connection")

    def __init__(self, server: web.Server, gate: ConnectionGate, connection: Connection) -> None:
        super().__init__(
            server,
            loop=asyncio.get_running_loop(),
            access_log=None,  # type: ignore[arg-type] # None is allowed, as aiohttp's runners pass it
            keepalive_timeout=_KEEPALIVE_TIMEOUT_S,
            lingering_time=0,
            max_headers=_MAX_HEADERS,
        )
        self._gate = gate
        self.connection = connection

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.connection.attach(cast("asyncio.Transport", transport))

    def log_exception(self, *args: object, **details: object) -> None:
        """Log failures of tierd, but not malformed requests: a flood of them would fill the log."""
        if not isinstance(details.get("exc_info"), HttpProcessingError):
            super().log_exception(*args, **details)

    def connection_lost(self, exc: BaseException | None) -> None:
        self._gate.leave(self.connection)
        super().connection_lost(exc)


def _peer(channel: socket.socket) -> str | None:
    try:
        return peer_of(channel.getpeername()[0])
    except OSError:  # the client has gone away
        return None


async def _stop(tasks: Sequence[asyncio.Task[None]], runner: web.AppRunner) -> None:
    if tasks:
        await asyncio.wait(tasks)  # before their sockets are closed
    await runner.cleanup()
