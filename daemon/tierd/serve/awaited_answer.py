"""One request to the daemon over its control socket, from an event loop."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

from tierd.errors import DaemonUnreachableError
from tierd.serve.control_client import ASK_TIMEOUT_S, MAX_ANSWER_BYTES, answer_of, control_address, reachable, sent_line
from tierd.serve.control_protocol import AnswerT, ControlVerb, RequestT
from tierd.streams import write

HereT = TypeVar("HereT")


async def ask(
    state_dir: Path, verb: ControlVerb[RequestT, AnswerT], request: RequestT, *, timeout_s: float = ASK_TIMEOUT_S
) -> AnswerT:
    """Ask the daemon that holds ``state_dir`` and return its answer, as ``ask_blocking``."""
    with reachable(state_dir):
        async with asyncio.timeout(timeout_s):
            line = await _exchange(state_dir, sent_line(verb, request))
    return answer_of(state_dir, verb, line)


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


async def _exchange(state_dir: Path, line: bytes) -> bytes:
    with control_address(state_dir) as address:
        reader, writer = await asyncio.open_unix_connection(address, limit=MAX_ANSWER_BYTES)
    try:
        write(writer, line)
        await writer.drain()
        return await reader.readuntil(b"\n")
    except asyncio.LimitOverrunError as error:
        raise ValueError(f"an answer of more than {MAX_ANSWER_BYTES} bytes") from error
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
