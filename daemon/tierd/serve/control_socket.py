"""The control socket: a unix socket of mode 0600 in the state directory, with one request and one answer a line.

``control_protocol`` draws the lines; ``control_requests`` lists the verbs.
"""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Iterable, Iterator
from pathlib import Path

import structlog
from pydantic import ValidationError

from tierd.clock import Clock
from tierd.errors import ListenError, NotConfirmedError, RefusedError, TierError
from tierd.files import bind_privately, is_own_peer
from tierd.masking import Masking
from tierd.ports import BACKLOG, Connection, ConnectionGate, accept_connections
from tierd.serve.control_client import SOCKET_NAME, control_address
from tierd.serve.control_protocol import ControlAnswerLine, ControlRequestLine, VerbHandler
from tierd.streams import write
from tierd.tasks import end_tasks

MAX_REQUEST_BYTES = 1 << 20

log = structlog.get_logger()


class ControlServer:
    """Server of control requests: several clients at a time, each request within a deadline."""

    def __init__(
        self,
        state_dir: Path,
        handlers: Iterable[VerbHandler],
        *,
        gate: ConnectionGate,
        clock: Clock,
        idle_timeout_s: float = 30.0,
        answer_timeout_s: float = 30.0,
    ) -> None:
        """Answer the verbs of ``handlers`` within the deadlines given here; ``gate`` grants the places."""
        self._state_dir = state_dir
        self._handlers = {handler.verb: handler for handler in handlers}
        self._idle_timeout_s = idle_timeout_s
        self._answer_timeout_s = answer_timeout_s
        self._gate = gate
        self._clock = clock

    @contextlib.asynccontextmanager
    async def listening(self, group: asyncio.TaskGroup) -> AsyncIterator[None]:
        """Accept clients while the context lasts, each in a task of ``group``; the caller holds the instance lock.

        Raises:
            ListenError: the socket cannot be made.
        """
        clients: dict[asyncio.Task[None], Connection] = {}

        async def serve(channel: socket.socket, place: Connection) -> None:
            reader, writer = await asyncio.open_unix_connection(sock=channel, limit=MAX_REQUEST_BYTES)
            place.attach(writer.transport)
            task = group.create_task(self._serve_client(reader, writer, place), name="control client")
            clients[task] = place
            task.add_done_callback(end)

        def end(task: asyncio.Task[None]) -> None:
            place = clients.pop(task)
            self._gate.leave(place)
            place.cut()  # a client that does not read its answer would keep the closing connection for ever

        with _bound(self._state_dir) as channel:
            accepting = group.create_task(
                accept_connections(channel, self._gate, serve, clock=self._clock, peer=_peer, refusal=_TOO_MANY),
                name="control accept",
            )
            try:
                yield
            finally:
                try:
                    await end_tasks([accepting])  # before the socket is closed
                finally:
                    for task in clients:
                        task.cancel()

    async def _serve_client(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, place: Connection
    ) -> None:
        writer.transport.set_write_buffer_limits(high=0)  # drain then waits until the client has taken everything
        try:
            while line := await self._read_line(reader, writer):
                self._gate.begin_answer(place)
                await self._send(writer, await self._answer(line))
                self._gate.begin_request(place)
        except (TimeoutError, ConnectionError, asyncio.IncompleteReadError):
            pass  # the client went away or fell asleep, and needs no answer
        finally:
            writer.close()

    async def _read_line(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
        try:
            async with asyncio.timeout(self._idle_timeout_s):
                return await reader.readline()
        except ValueError:  # longer than the limit
            await self._send(writer, ControlAnswerLine(ok=False, error=f"request above {MAX_REQUEST_BYTES} bytes"))
            return b""

    async def _answer(self, line: bytes) -> ControlAnswerLine:
        try:
            request = ControlRequestLine.model_validate_json(line)
        except ValidationError as error:
            fault = error.errors(include_url=False)[0]
            place = ".".join(map(str, fault["loc"]))
            problem = f"{place}: {fault['msg']}" if place else fault["msg"]
            return ControlAnswerLine(ok=False, error=f"not a control request: {problem}")
        handler = self._handlers.get(request.command)
        if handler is None:
            known = f"known commands: {', '.join(sorted(self._handlers))}"
            return ControlAnswerLine(ok=False, error=f"no command {request.command!r}", remedy=known)
        try:
            async with asyncio.timeout(self._answer_timeout_s):
                return ControlAnswerLine(ok=True, answer=await handler.answer(request))
        except TierError as error:
            refused = isinstance(error, RefusedError | NotConfirmedError)
            return ControlAnswerLine(ok=False, error=str(error), remedy=error.remedy, refused=refused)
        except TimeoutError:
            return ControlAnswerLine(ok=False, error=f"{request.command} took above {self._answer_timeout_s:g} s")
        except Exception as error:
            log.exception("control_command_failed", command=request.command)
            problem = f"internal error: {Masking().error(error).named}"
            return ControlAnswerLine(ok=False, error=problem, remedy="see the daemon's log")

    async def _send(self, writer: asyncio.StreamWriter, answer: ControlAnswerLine) -> None:
        write(writer, answer.model_dump_json().encode() + b"\n")
        async with asyncio.timeout(self._idle_timeout_s):
            await writer.drain()


_TOO_MANY = (
    ControlAnswerLine(ok=False, error="too many control clients", remedy="try again").model_dump_json().encode() + b"\n"
)


def _peer(channel: socket.socket) -> str | None:
    """Return one name for the daemon's own user and root, the peers that may connect; None for another user."""
    return "own user" if is_own_peer(channel) else None


@contextlib.contextmanager
def _bound(state_dir: Path) -> Iterator[socket.socket]:
    path = state_dir / SOCKET_NAME
    channel = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        path.unlink(missing_ok=True)  # left by a daemon that was killed: the instance lock proves that no daemon runs
        with control_address(state_dir) as address:
            bind_privately(channel, address)
        channel.listen(BACKLOG)
        channel.setblocking(False)
    except OSError as error:
        channel.close()
        raise ListenError(
            f"control socket {path} cannot be made: {error.strerror or error}", remedy="check state_dir and its disk"
        ) from error
    try:
        yield channel
    finally:
        channel.close()
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)
