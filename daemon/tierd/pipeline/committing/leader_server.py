"""LeaderServer: answers the job of one run over a private unix socket, and ends when it does."""

import asyncio
import contextlib
import os
import socket
import stat
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import structlog

from tierd.errors import ListenError, RemoteStorageError, TierError
from tierd.files import bind_privately, is_own_peer
from tierd.pipeline.committing.leader import CompactionLeader
from tierd.pipeline.committing.messages import (
    MAX_REQUEST_BYTES,
    VERSION,
    AskOrder,
    AskWork,
    Begin,
    Done,
    Failed,
    Hello,
    JobRequest,
    LeaderAnswer,
    Noted,
    OrderHeader,
    Problem,
    Progress,
    RequestLine,
    Unchanged,
    Welcome,
    Work,
    Written,
    decode_request,
    encode_answer,
)
from tierd.pipeline.pipeline_errors import LeaderChannelError, WorkOrderError
from tierd.remote import SegmentManifest
from tierd.streams import write

log = structlog.get_logger()

_SAME_TIERD: Final = "leader and job must be of one tierd"


class LeaderServer:
    """Server of one client, a process of the same user: once it has connected, the socket is closed and removed.

    Args:
        leader: the leader, with a run that was prepared.
        path: of the socket; its directory is made private, and must be ours alone if it exists.
        connect_timeout_s: until the job has connected: Spark starts slowly.
        idle_timeout_s: between two requests of the job, which reports its progress much more often.
        send_timeout_s: for one answer to be taken.
    """

    def __init__(
        self,
        leader: CompactionLeader,
        path: Path,
        *,
        connect_timeout_s: float = 600.0,
        idle_timeout_s: float = 900.0,
        send_timeout_s: float = 120.0,
    ) -> None:
        self._leader = leader
        self._path = path
        self._connect_timeout_s = connect_timeout_s
        self._idle_timeout_s = idle_timeout_s
        self._send_timeout_s = send_timeout_s
        self._listening: socket.socket | None = None

    @contextlib.asynccontextmanager
    async def listening(self) -> AsyncIterator[None]:
        """Listen while the context lasts, or until the client has come.

        Raises:
            ListenError: the socket cannot be made, or others may enter its directory.
        """
        self._listening = _bound(self._path)
        try:
            yield
        finally:
            self._close_listening()

    async def serve(self) -> bool:
        """Wait for the client and answer it to the end; return True if it said that it is done.

        A client that goes away is no error: the job failed, and its parent process knows why. A cancelled call ends
        the client's stream. The caller ends the run.

        Raises:
            LeaderChannelError: no client came, or the client fell silent, or it does not speak the protocol.
        """
        reader, writer = await self._accept()
        try:
            return await self._converse(reader, writer)
        except (ConnectionError, EOFError):
            log.warning("compaction_job_gone", socket=str(self._path))
            return False
        finally:
            writer.close()

    async def _accept(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        assert self._listening is not None, "serve() belongs into the context of listening()"
        try:
            async with asyncio.timeout(self._connect_timeout_s):
                channel = await _next_own(self._listening)
        except TimeoutError as error:
            problem = f"no job came to {self._path} within {self._connect_timeout_s:g} s"
            raise LeaderChannelError(problem, remedy="see the log of the job") from error
        finally:
            self._close_listening()
        try:
            return await asyncio.open_unix_connection(sock=channel, limit=MAX_REQUEST_BYTES)
        except BaseException:
            channel.close()
            raise

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        number, is_welcome = 0, False
        while True:
            line = await self._next_line(reader)
            number += 1
            try:
                request = _decoded(line, number, is_welcome=is_welcome)
            except WorkOrderError as error:
                await self._send(writer, number, Problem(problem=str(error), remedy=_SAME_TIERD))
                raise LeaderChannelError(f"the job does not speak the protocol: {error}", remedy=_SAME_TIERD) from error
            is_welcome = True
            await self._send(writer, number, await self._answer(request))
            if isinstance(request, Done):
                return True

    async def _next_line(self, reader: asyncio.StreamReader) -> bytes:
        """Return the next whole line.

        Raises:
            EOFError: the job went away, within a line or between two.
            LeaderChannelError: the job is silent, or its line is too long.
        """
        try:
            async with asyncio.timeout(self._idle_timeout_s):
                return await reader.readuntil(b"\n")
        except TimeoutError as error:
            problem = f"the job said nothing for {self._idle_timeout_s:g} s"
            raise LeaderChannelError(problem, remedy="see the log of the job") from error
        except asyncio.LimitOverrunError as error:
            raise LeaderChannelError(f"a request above {MAX_REQUEST_BYTES} bytes", remedy=_SAME_TIERD) from error

    async def _answer(self, request: JobRequest) -> LeaderAnswer:
        try:
            return await self._carry_out(request)
        except TierError as error:
            return Problem(problem=str(error), remedy=error.remedy)

    async def _carry_out(self, request: JobRequest) -> LeaderAnswer:
        leader = self._leader
        match request:
            case Begin(index=index, groups=groups):
                return await leader.begin(index, groups)
            case Written(output=output, manifest=text, counts=counts, erased=erased):
                try:
                    manifest = SegmentManifest.decode(text.encode(), key=f"manifest of output {output}")
                except RemoteStorageError as error:
                    return await leader.refuse(output, str(error))
                return await leader.commit(output, manifest, counts, erased=dict(erased))
            case Unchanged(index=index, group=group, counts=counts):
                await leader.unchanged(index, group, counts)
            case Failed(index=index, group=group, problem=problem):
                await leader.failed(index, group, problem)
            case Progress(stage=stage, done=done, total=total):
                leader.record.stage(stage, done=done, total=total)
            case Done():
                leader.record.stage("done", done=0, total=0)
            case Hello() | AskOrder() | AskWork():
                return self._answer_to(request)
        return Noted()

    def _answer_to(self, request: Hello | AskOrder | AskWork) -> LeaderAnswer:
        order = self._leader.order
        if order is None:
            return Problem(problem="no run is on")
        match request:
            case Hello():
                return Welcome(run_id=order.run_id)
            case AskOrder():
                return OrderHeader(
                    run_id=order.run_id, now_ms=order.now_ms, secret=order.secret, partitions=len(order.partitions)
                )
            case AskWork(index=index) if index < len(order.partitions):
                return Work(work=order.partitions[index])
            case AskWork(index=index):
                return Problem(problem=f"the order has no partition {index}")

    async def _send(self, writer: asyncio.StreamWriter, number: int, answer: LeaderAnswer) -> None:
        line = await asyncio.to_thread(encode_answer, number, answer)  # the work of one partition may be long
        write(writer, line)
        try:
            async with asyncio.timeout(self._send_timeout_s):
                await writer.drain()
        except TimeoutError as error:
            writer.transport.abort()  # closed, it would stay open until the answer is taken
            problem = f"the job did not take an answer within {self._send_timeout_s:g} s"
            raise LeaderChannelError(problem, remedy="see the log of the job") from error

    def _close_listening(self) -> None:
        if self._listening is not None:
            self._listening.close()
            self._listening = None
            with contextlib.suppress(OSError):
                self._path.unlink(missing_ok=True)


async def _next_own(listening: socket.socket) -> socket.socket:
    """Return the next connection of this process's own user; a connection of another user is closed."""
    while True:
        channel, _ = await asyncio.get_running_loop().sock_accept(listening)
        if is_own_peer(channel):
            return channel
        channel.close()
        await asyncio.sleep(0)  # a connection that waits already is accepted without a round of the loop


def _decoded(line: bytes, number: int, *, is_welcome: bool) -> JobRequest:
    request: RequestLine = decode_request(line)
    if request.id != number:
        raise WorkOrderError(f"request {request.id} where {number} was due")
    if isinstance(request.body, Hello) is is_welcome:
        raise WorkOrderError("hello comes first, and once")
    if isinstance(request.body, Hello) and request.body.version != VERSION:
        raise WorkOrderError(f"version {request.body.version} of the protocol, this is {VERSION}")
    return request.body


def _bound(path: Path) -> socket.socket:
    channel = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        _make_private(path.parent)
        path.unlink(missing_ok=True)  # of a run that was killed
        directory = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)  # an address has 108 bytes
        try:
            bind_privately(channel, f"/proc/self/fd/{directory}/{path.name}")
        finally:
            os.close(directory)
        channel.listen(1)
        channel.setblocking(False)
    except OSError as error:
        channel.close()
        problem = f"the socket {path} cannot be made: {error.strerror or error}"
        raise ListenError(problem, remedy="check pipeline.local_dir and its disk") from error
    return channel


def _make_private(directory: Path) -> None:
    """Make the directory, for its owner alone; a process that connects may rewrite the tier.

    Raises:
        PermissionError: it belongs to another user, or others may enter it.
    """
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = directory.stat()
    if found.st_uid != os.geteuid() or stat.S_IMODE(found.st_mode) & 0o077:
        raise PermissionError(f"{directory} is not ours alone")
