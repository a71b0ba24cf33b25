"""The control socket: a 0600 unix socket in the state directory, one JSON request and one JSON answer a line.

::

    → {"command": "pause", "partitions": ["orders-0"]}
    ← {"ok": true, "answer": ["orders-0"]}
    ← {"ok": false, "error": "…", "remedy": "…"}
"""

import asyncio
import contextlib
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from pathlib import Path

import structlog
from pydantic import BaseModel, ConfigDict, JsonValue, ValidationError

from tierd.clock import Clock
from tierd.errors import (
    ControlError,
    DaemonUnreachableError,
    ListenError,
    NotConfirmedError,
    RefusedError,
    TierError,
)
from tierd.files import bind_privately
from tierd.masking import Masking
from tierd.peers import is_own_peer
from tierd.serve.accepting import BACKLOG, accept_connections
from tierd.serve.connection_gate import Connection, ConnectionGate

SOCKET_NAME = "control.sock"
MAX_REQUEST_BYTES = 1 << 20
MAX_ANSWER_BYTES = 64 << 20  # status of many thousands of partitions

log = structlog.get_logger()

ControlHandler = Callable[[Sequence[str]], Awaitable[JsonValue]]
"""Carries out one command for the named partitions (none: all of them) and returns the answer."""

OptionsHandler = Callable[[Sequence[str], Mapping[str, JsonValue]], Awaitable[JsonValue]]
"""The same, for a command that takes options."""


class ControlRequest(BaseModel):
    """One line from a client."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    command: str
    partitions: tuple[str, ...] = ()
    options: dict[str, JsonValue] = {}


class ControlAnswer(BaseModel):
    """One line to a client."""

    model_config = ConfigDict(frozen=True)  # unknown fields of a newer daemon are ignored

    ok: bool
    answer: JsonValue = None
    error: str = ""
    remedy: str = ""
    refused: bool = False


class ControlServer:
    """Answers control requests of several clients at a time, each within a deadline."""

    def __init__(
        self,
        state_dir: Path,
        handlers: Mapping[str, ControlHandler],
        *,
        with_options: Mapping[str, OptionsHandler] | None = None,
        gate: ConnectionGate,
        clock: Clock,
        idle_timeout_s: float = 30.0,
        answer_timeout_s: float = 30.0,
    ) -> None:
        """``handlers`` maps a command's name to what carries it out, ``with_options`` those that take options.

        The deadlines are those given here; ``gate`` grants the places.
        """
        self._state_dir = state_dir
        self._handlers: Mapping[str, OptionsHandler] = {
            **{name: _without_options(handler) for name, handler in handlers.items()},
            **(with_options or {}),
        }
        self._idle_timeout_s = idle_timeout_s
        self._answer_timeout_s = answer_timeout_s
        self._gate = gate
        self._clock = clock

    @contextlib.asynccontextmanager
    async def listening(self, group: asyncio.TaskGroup) -> AsyncIterator[None]:
        """Accept clients while the context lasts; each is a task of ``group``. The caller holds the instance lock.

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
            place.cut()  # an answer that is not taken would keep a closing connection for ever

        with _bound(self._state_dir) as channel:
            accepting = group.create_task(
                accept_connections(channel, self._gate, serve, clock=self._clock, peer=_peer, refusal=_TOO_MANY),
                name="control accept",
            )
            try:
                yield
            finally:
                accepting.cancel()
                await asyncio.wait({accepting})  # before the socket is closed
                for task in clients:
                    task.cancel()

    async def _serve_client(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, place: Connection
    ) -> None:
        writer.transport.set_write_buffer_limits(high=0)  # what was sent is out of our hands once it is drained
        try:
            while line := await self._read_line(reader, writer):
                self._gate.begin_answer(place)
                await self._send(writer, await self._answer(line))
                self._gate.begin_request(place)
        except (TimeoutError, ConnectionError, asyncio.IncompleteReadError):
            pass  # a client that went away or fell asleep is its own business
        finally:
            writer.close()

    async def _read_line(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
        try:
            async with asyncio.timeout(self._idle_timeout_s):
                return await reader.readline()
        except ValueError:  # longer than the limit
            await self._send(writer, ControlAnswer(ok=False, error=f"request above {MAX_REQUEST_BYTES} bytes"))
            return b""

    async def _answer(self, line: bytes) -> ControlAnswer:
        try:
            request = ControlRequest.model_validate_json(line)
        except ValidationError as error:
            problem = error.errors(include_url=False)[0]["msg"]
            return ControlAnswer(ok=False, error=f"not a control request: {problem}")
        handler = self._handlers.get(request.command)
        if handler is None:
            return ControlAnswer(ok=False, error=f"no command {request.command!r}", remedy=_known(self._handlers))
        try:
            async with asyncio.timeout(self._answer_timeout_s):
                return ControlAnswer(ok=True, answer=await handler(request.partitions, request.options))
        except TierError as error:
            refused = isinstance(error, RefusedError | NotConfirmedError)
            return ControlAnswer(ok=False, error=str(error), remedy=error.remedy, refused=refused)
        except TimeoutError:
            return ControlAnswer(ok=False, error=f"{request.command} took above {self._answer_timeout_s:g} s")
        except Exception as error:
            log.exception("control_command_failed", command=request.command)
            problem = f"internal error: {Masking().error(error).named}"
            return ControlAnswer(ok=False, error=problem, remedy="see the daemon's log")

    async def _send(self, writer: asyncio.StreamWriter, answer: ControlAnswer) -> None:
        writer.write(answer.model_dump_json().encode() + b"\n")
        async with asyncio.timeout(self._idle_timeout_s):
            await writer.drain()


_TOO_MANY = (
    ControlAnswer(ok=False, error="too many control clients", remedy="try again").model_dump_json().encode() + b"\n"
)


def _peer(channel: socket.socket) -> str | None:
    """Name one peer for all: whoever may connect is one user. The mode of the socket says the same."""
    return "own user" if is_own_peer(channel) else None


def _without_options(handler: ControlHandler) -> OptionsHandler:
    async def handle(names: Sequence[str], options: Mapping[str, JsonValue]) -> JsonValue:
        if options:
            raise ControlError(f"no such option: {', '.join(sorted(options))}")
        return await handler(names)

    return handle


def _known(handlers: Mapping[str, OptionsHandler]) -> str:
    return "known commands: " + ", ".join(sorted(handlers))


async def request(
    state_dir: Path,
    command: str,
    partitions: Sequence[str] = (),
    *,
    options: Mapping[str, JsonValue] | None = None,
    timeout_s: float = 40.0,
) -> JsonValue:
    """Ask the daemon that holds ``state_dir`` and return its answer.

    Raises:
        DaemonUnreachableError: no daemon listens there, or it does not answer in time.
        RefusedError: it would do harm; the message and remedy are the daemon's own.
        ControlError: it could not; the same.
    """
    wanted = ControlRequest(command=command, partitions=tuple(partitions), options=dict(options or {}))
    try:
        async with asyncio.timeout(timeout_s):
            line = await _exchange(state_dir, wanted.model_dump_json(exclude_defaults=True).encode() + b"\n")
        answer = ControlAnswer.model_validate_json(line)
    except (OSError, EOFError, ValueError) as error:  # TimeoutError and ConnectionError are OSErrors
        remedy = "start it with systemctl start tierd, or check --config: its state_dir names the socket"
        if isinstance(error, PermissionError):
            remedy = "run the command as the user of the daemon, for example with sudo -u kafka"
        raise DaemonUnreachableError(
            f"no answer from tierd on {state_dir / SOCKET_NAME}: {_why(error)}", remedy=remedy
        ) from error
    if not answer.ok and answer.refused:
        raise RefusedError(answer.error, remedy=answer.remedy)
    if not answer.ok:
        raise ControlError(answer.error, remedy=answer.remedy)
    return answer.answer


def _why(error: Exception) -> str:
    match error:
        case TimeoutError():
            return "it took too long"
        case OSError():
            return error.strerror or str(error)
        case EOFError():
            return "it closed the connection"
        case _:
            return "the answer is not its protocol"


async def _exchange(state_dir: Path, line: bytes) -> bytes:
    with _address(state_dir) as address:
        reader, writer = await asyncio.open_unix_connection(address, limit=MAX_ANSWER_BYTES)
    try:
        writer.write(line)
        await writer.drain()
        return await reader.readuntil(b"\n")
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


@contextlib.contextmanager
def _address(state_dir: Path) -> Iterator[str]:
    """The socket's path by way of a descriptor: a unix address has 108 bytes, a state directory may have more."""
    descriptor = os.open(state_dir, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{descriptor}/{SOCKET_NAME}"
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _bound(state_dir: Path) -> Iterator[socket.socket]:
    path = state_dir / SOCKET_NAME
    channel = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        path.unlink(missing_ok=True)  # left by a daemon that was killed: the instance lock says that none lives
        with _address(state_dir) as address:
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
