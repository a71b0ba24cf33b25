"""The client of the control socket: one request to the daemon that holds a state directory, and its answer.

A command that asks the daemon imports this module and the types of ``control_requests``, and nothing of the server.
"""

import asyncio
import contextlib
import os
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import TypeVar

from tierd.errors import DaemonUnreachableError, RefusedError, TierError, TierErrorCode
from tierd.serve.control_protocol import AnswerT, ControlAnswerLine, ControlVerb, RequestT
from tierd.streams import write

SOCKET_NAME = "control.sock"
MAX_ANSWER_BYTES = 64 << 20  # status of many thousands of partitions

HereT = TypeVar("HereT")


async def ask(
    state_dir: Path, verb: ControlVerb[RequestT, AnswerT], request: RequestT, *, timeout_s: float = 40.0
) -> AnswerT:
    """Ask the daemon that holds ``state_dir`` and return its answer.

    Raises:
        DaemonUnreachableError: no daemon listens there, or the daemon does not answer in time.
        RefusedError: the request would do harm; message and remedy are the daemon's own.
        TierError: the daemon could not carry the request out; message and remedy are the daemon's own.
    """
    sent = verb.request_line(request).model_dump_json(exclude_defaults=True)
    try:
        async with asyncio.timeout(timeout_s):
            line = await _exchange(state_dir, sent.encode() + b"\n")
        answer = ControlAnswerLine.model_validate_json(line)
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
        raise TierError(answer.error, remedy=answer.remedy, code=TierErrorCode.CONTROL)
    return verb.parse_answer(answer.answer)


async def ask_or_run(
    state_dir: Path,
    verb: ControlVerb[RequestT, AnswerT],
    request: RequestT,
    run_here: Callable[[], Awaitable[HereT]],
) -> AnswerT | HereT:
    """Ask the daemon that holds ``state_dir``, or call ``run_here`` if no daemon answers; return the answer.

    A daemon that holds the directory and does not answer keeps ``run_here`` from its lock.

    Raises:
        RefusedError: the request would do harm.
        TierError: the daemon could not carry the request out.
        TierError: as ``run_here``.
    """
    with contextlib.suppress(DaemonUnreachableError):
        return await ask(state_dir, verb, request)
    return await run_here()


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
    with control_address(state_dir) as address:
        reader, writer = await asyncio.open_unix_connection(address, limit=MAX_ANSWER_BYTES)
    try:
        write(writer, line)
        await writer.drain()
        return await reader.readuntil(b"\n")
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


@contextlib.contextmanager
def control_address(state_dir: Path) -> Iterator[str]:
    """Yield a short path to the socket: a unix address has 108 bytes, and a state directory may have more."""
    descriptor = os.open(state_dir, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{descriptor}/{SOCKET_NAME}"
    finally:
        os.close(descriptor)
